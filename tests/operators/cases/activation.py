from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

INF = np.inf
WIDE = Spread((2, 3, 4), low=-6, high=6)
ENDS = np.array([-INF, INF, -100, -20, -1e-3, 0, 1e-3, 20, 100], np.float32)

ATTRIBUTES: dict[str, list[tuple[tuple[int, ...], dict[str, Any]]]] = {
    "Relu": [((7, 13, 14), {})],
    "LeakyRelu": [((7, 16), {}), ((16,), {"alpha": 0.3}), ((16,), {"alpha": -1.5})],
    "Elu": [((7, 22), {}), ((22,), {"alpha": 2.5})],
    "Celu": [((12,), {}), ((12,), {"alpha": 2.5}), ((12,), {"alpha": -0.5})],
    "Selu": [((7, 22), {}), ((22,), {"alpha": 2.0, "gamma": 0.5})],
    "Sigmoid": [((7, 13), {})],
    "HardSigmoid": [((7, 22), {}), ((22,), {"alpha": 0.5, "beta": 0.6})],
    "HardSwish": [((14, 22), {})],
    "Softplus": [((7, 22), {})],
    "Softsign": [((7, 22), {})],
    "ThresholdedRelu": [((10, 22), {}), ((22,), {"alpha": 2.0})],
    "Gelu": [((20,), {}), ((20,), {"approximate": "tanh"})],
    "Mish": [((18, 22), {})],
    "Swish": [((24,), {}), ((24,), {"alpha": 1.7})],
    "Shrink": [((9,), {}), ((9,), {"bias": 1.5, "lambd": 1.5})],
}
NOT_AT_MINUS_INFINITY = ("Gelu", "Mish", "HardSwish", "Swish", "Softsign")


def plain() -> Iterator[OperatorCase]:
    for op_type, variants in ATTRIBUTES.items():
        for opsets, attributes in variants:
            name = ",".join(f"{key} {value}" for key, value in attributes.items())
            for opset in opsets:
                yield OperatorCase(op_type=op_type, inputs=[WIDE], attributes=attributes, opset=opset, name=name)
        ends = ENDS[2:] if op_type in NOT_AT_MINUS_INFINITY else ENDS
        newest = variants[-1][0][-1]
        yield OperatorCase(op_type=op_type, inputs=[ends], opset=newest, name="ends", gradient=False)


def clips() -> Iterator[OperatorCase]:
    low, high = np.array(-1, np.float32), np.array(0.5, np.float32)
    for attributes in ({}, {"min": -1.0}, {"max": 0.5}, {"min": -1.0, "max": 0.5}):
        for opset in (7, 10):
            yield OperatorCase(
                op_type="Clip", inputs=[WIDE], attributes=attributes, opset=opset, name=f"{list(attributes)}"
            )
    for opset in (11, 12, 13):
        for name, bounds in (("none", []), ("low", [low]), ("high", [None, high]), ("both", [low, high])):
            for constants in (frozenset({1, 2}), frozenset[int]()):
                # The bounds are drawn once, so that they bound every sample of a batch.
                yield OperatorCase(
                    op_type="Clip",
                    inputs=[WIDE, *bounds],
                    opset=opset,
                    name=f"{name}, {'constant' if constants else 'computed'}",
                    constants=constants,
                )
    for dtype in (np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64, np.float64, np.float16):
        yield OperatorCase(
            op_type="Clip",
            inputs=[Spread((7,), dtype, low=0, high=20), np.array(3, dtype), np.array(9, dtype)],
            name=dtype.__name__,
            gradient=False,
        )
    yield OperatorCase(op_type="Clip", inputs=[ENDS, high, low], name="crossed bounds", gradient=False)
    yield OperatorCase(op_type="Clip", inputs=[ENDS], attributes={"min": 0.0}, opset=7, name="ends", gradient=False)


CASES = [
    *plain(),
    *clips(),
    *(
        OperatorCase(op_type="PRelu", inputs=[WIDE, Spread(shape)], opset=opset, name=f"{shape}")
        for shape in ((4,), (3, 1), (1,), (2, 3, 4))
        for opset in (7, 9, 16)
    ),
    *(
        OperatorCase(op_type=op_type, inputs=[Spread((5,), np.float16)], name="half", gradient=False)
        for op_type in ("Relu", "LeakyRelu", "Sigmoid", "Elu", "Softplus", "Gelu", "HardSigmoid")
    ),
    *(
        OperatorCase(op_type="Relu", inputs=[Spread((5,), dtype, low=-5, high=5)], name=dtype.__name__, gradient=False)
        for dtype in (np.int8, np.int32, np.float64)
    ),
    OperatorCase(
        op_type="Shrink",
        inputs=[np.array([-3, -1, 0, 2], np.int32)],
        attributes={"bias": 1.0},
        name="int32",
        gradient=False,
    ),
]


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


BORDERS = [
    *(
        BorderCase(
            op_type=op_type,
            # PyTorch's HardSwish multiplies by up to 6 before it divides.
            inputs=[f32(-INF, INF, -3e38, 3e38 if op_type != "HardSwish" else 5e37, 0)],
            opset=ATTRIBUTES[op_type][-1][0][-1],
            bad=[1, op_type == "Softsign", 0, 0, 0],
        )
        for op_type in NOT_AT_MINUS_INFINITY
        if op_type != "Gelu"
    ),
    # PyTorch's kernel for AVX-512 overflows above half of the largest number, and gives NaN for infinity.
    BorderCase(op_type="Gelu", inputs=[f32(-INF, -3e38, 1.6e38, 0)], opset=20, bad=[1, 0, 0, 0]),
    BorderCase(
        op_type="Gelu", inputs=[f32(-INF, INF, 0)], attributes={"approximate": "tanh"}, bad=[1, 0, 0], name="tanh"
    ),
    *(
        BorderCase(op_type=op_type, inputs=[f32(*values)], opset=ATTRIBUTES[op_type][0][0][-1], bad=False, name=name)
        for op_type in ("Relu", "Elu", "Celu", "Sigmoid", "HardSigmoid", "Softplus", "ThresholdedRelu")
        for name, values in (("infinite", (INF, -INF)), ("finite", (3.4e38, -3.4e38)))
    ),
    BorderCase(op_type="Selu", inputs=[f32(3.3e38, 3e38, -3.3e38)], opset=22, bad=[1, 0, 0]),
    BorderCase(op_type="LeakyRelu", inputs=[f32(3e38, -3e38)], attributes={"alpha": 2.0}, bad=[0, 1]),
    BorderCase(op_type="LeakyRelu", inputs=[f32(-INF, 1)], attributes={"alpha": 0.0}, bad=[1, 0], name="zero slope"),
    BorderCase(op_type="PRelu", inputs=[f32(3e38, -3e38, -3e38), f32(2, 2, 1)], bad=[0, 1, 0]),
    BorderCase(op_type="Clip", inputs=[f32(INF, -INF), np.array(-1, np.float32)], bad=False),
]
