"""Layers of quantised networks, as ONNX has them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

STEP = (0.0, 1.0)
"""Kernels may round to the neighbour."""


def scale(*values: float) -> np.ndarray:
    return np.array(values if len(values) > 1 else values[0], np.float32)


def unsigned(*shape: int) -> Spread:
    return Spread(shape, np.uint8, 0, 255)


def signed(*shape: int) -> Spread:
    return Spread(shape, np.int8, -128, 127)


U8, S8 = np.array(128, np.uint8), np.array(0, np.int8)
WEIGHTS = np.random.default_rng(0).integers(-60, 61, (4, 3, 3, 3)).astype(np.int8)
MATRIX = np.random.default_rng(1).integers(-60, 61, (5, 4)).astype(np.int8)
PARAMETER = Spread((), low=0.01, high=0.5)
BIAS = np.array([900, -1500, 40, 0], np.int32)


def case(
    op_type: str,
    name: str,
    inputs: Sequence[Any],
    constants: Sequence[int] | None = None,
    *,
    domain: str = "",
    **rest: Any,
) -> OperatorCase:
    """Return a case in which arrays are constants, if no positions are given; the rest are attributes."""
    fixed = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray)] if constants is None else constants
    return OperatorCase(
        op_type=op_type,
        domain=domain,
        name=name,
        inputs=inputs,
        attributes=rest,
        constants=frozenset(fixed),
        gradient=False,
        tolerance=STEP,
    )


CONV = (1, 2, 3, 4, 5, 6, 7, 8)
CASES = [
    case("ConvInteger", "zero points", [unsigned(1, 3, 5, 5), WEIGHTS, np.array(7, np.uint8), S8], [1, 2, 3]),
    case("ConvInteger", "padded", [unsigned(1, 3, 5, 5), WEIGHTS, U8], [1, 2], pads=[1, 1, 1, 1], strides=[2, 2]),
    case("ConvInteger", "groups", [unsigned(1, 4, 6), Spread((4, 2, 3), np.uint8, 0, 255)], [], group=2),
    case(
        "QLinearConv",
        "bias",
        [unsigned(1, 3, 5, 5), scale(0.05), U8, WEIGHTS, scale(0.01), S8, scale(0.06), U8, BIAS],
        CONV,
        pads=[1, 0, 1, 0],
    ),
    case(
        "QLinearConv",
        "per channel",
        [
            *(signed(1, 3, 5, 5), scale(0.05), np.array(3, np.int8), WEIGHTS, scale(0.01, 0.02, 0.004, 0.1)),
            *(np.zeros(4, np.int8), scale(0.06), np.array(-20, np.int8)),
        ],
        CONV[:-1],
        strides=[2, 1],
    ),
    case(
        "QLinearMatMul",
        "constant",
        [unsigned(2, 5), scale(0.05), U8, MATRIX, scale(0.01), S8, scale(0.02), U8],
        CONV[:-1],
    ),
    case(
        "QLinearMatMul",
        "computed",
        [unsigned(3, 2, 5), scale(0.05), U8, unsigned(3, 5, 4), scale(0.01), U8, scale(0.03), np.array(9, np.uint8)],
        [1, 2, 4, 5, 6, 7],
    ),
    case(
        "QLinearMatMul",
        "per column",
        [
            *(signed(2, 5), scale(0.05), np.array(-4, np.int8), MATRIX, scale(0.01, 0.02, 0.004, 0.1)),
            *(np.array([0, 1, -2, 3], np.int8), scale(0.02), np.array(11, np.int8)),
        ],
        CONV[:-1],
    ),
    case(
        "QLinearMatMul",
        "scales",
        [unsigned(2, 5), PARAMETER, U8, unsigned(5, 4), PARAMETER, U8, Spread((), low=0.1, high=0.5), U8],
        [],
    ),
]
CONTENTS: dict[str, Spread | np.ndarray] = {
    "around 0": Spread((3, 4), low=-3, high=9),
    "one sign": Spread((7,), low=2, high=3),
    "zeros": np.zeros((2, 3), np.float32),
}
CASES += [
    OperatorCase(
        op_type="DynamicQuantizeLinear", name=name, inputs=[x], outputs=3, gradient=False, tolerance=(1e-5, 1.0)
    )
    for name, x in CONTENTS.items()
]

BORDERS = [
    BorderCase(
        op_type="DynamicQuantizeLinear",
        name="overflow",
        inputs=[np.array([end, -end], np.float32)],
        bad=end > 2e38,
        outputs=3,
    )
    for end in (1e38, 3e38)
]
