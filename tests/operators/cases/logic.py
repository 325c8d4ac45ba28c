from collections.abc import Iterator

import numpy as np

from tests.operators.harness import OperatorCase, Spread

BOOLS = Spread((2, 3), np.bool_)
UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)


def bitwise() -> Iterator[OperatorCase]:
    for dtype in (*UNSIGNED, np.int8, np.int32, np.int64):
        values = Spread((2, 3), dtype, low=0, high=100)
        for op_type in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            inputs = [values, Spread((3,), dtype, low=0, high=100)]
            yield OperatorCase(op_type=op_type, inputs=inputs, name=dtype.__name__, gradient=False)
        yield OperatorCase(op_type="BitwiseNot", inputs=[values], name=dtype.__name__, gradient=False)


def shifts() -> Iterator[OperatorCase]:
    for dtype in UNSIGNED:
        for direction in ("LEFT", "RIGHT"):
            yield OperatorCase(
                op_type="BitShift",
                inputs=[np.array([16, 4, 255, np.iinfo(dtype).max], dtype), np.array([1, 2, 3, 1], dtype)],
                attributes={"direction": direction},
                name=f"{dtype.__name__}-{direction}",
                gradient=False,
                oracle="reference" if dtype is np.uint16 else "onnxruntime",
            )


CASES = [
    *(
        OperatorCase(op_type=op_type, inputs=[BOOLS, Spread((3,), np.bool_)], opset=opset, gradient=False)
        for op_type in ("And", "Or", "Xor")
        for opset in (7, 21)
    ),
    OperatorCase(op_type="Not", inputs=[BOOLS], gradient=False),
    *(OperatorCase(op_type="Where", inputs=[BOOLS, Spread((2, 3)), Spread((2, 3))], opset=o) for o in (9, 16)),
    OperatorCase(op_type="Where", inputs=[Spread((4, 1), np.bool_), Spread((3,)), Spread(())], name="broadcast"),
    OperatorCase(
        op_type="Where",
        inputs=[BOOLS, np.array(-np.inf, np.float32), Spread((2, 3))],
        constants=frozenset({1}),
        name="mask",
        gradient=False,
    ),
    *(
        OperatorCase(
            op_type="Where",
            inputs=[BOOLS, Spread((2, 3), dtype, low=0, high=9), Spread((3,), dtype, low=0, high=9)],
            name=dtype.__name__,
            gradient=False,
        )
        for dtype in (np.int32, np.int64, np.uint8, np.float64)
    ),
    OperatorCase(op_type="Where", inputs=[BOOLS, BOOLS, BOOLS], name="bool", gradient=False, oracle="reference"),
    *bitwise(),
    *shifts(),
]
