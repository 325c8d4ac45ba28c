"""Quantisation."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

X = Spread((2, 3, 4), low=-40, high=40)
SCALE = Spread((3,), low=0.1, high=0.5)


def case(op_type: str, name: str, inputs: list[Any], *, opset: int = 21, **rest: Any) -> OperatorCase:
    gradient = rest.pop("gradient", False)
    return OperatorCase(op_type=op_type, name=name, inputs=inputs, attributes=rest, opset=opset, gradient=gradient)


def points(dtype: Any) -> Spread:
    return Spread((3,), dtype, 0, 100)


CASES = [
    case("QuantizeLinear", "default", [X, np.array(0.3, np.float32)], opset=10),
    case("QuantizeLinear", "uint8", [X, np.array(0.3, np.float32), np.array(100, np.uint8)], opset=13),
    case("QuantizeLinear", "ties", [np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32), np.array(1, np.float32)]),
    case("QuantizeLinear", "axis", [X, SCALE, points(np.int8)], axis=1),
    case("QuantizeLinear", "last", [Spread((2, 3)), SCALE, points(np.uint16)], axis=-1),
    case("QuantizeLinear", "int16", [X, np.array(0.01, np.float32), np.array(-5, np.int16)]),
    case("QuantizeLinear", "blocks", [Spread((4, 6)), Spread((4, 2), low=0.1, high=0.5)], axis=1, block_size=3),
    case("QuantizeLinear", "saturates", [np.array([-1e9, 1e9], np.float32), np.array(1, np.float32)]),
    case(
        "DequantizeLinear",
        "uint8",
        [Spread((2, 3), np.uint8, 0, 255), np.array(0.3, np.float32), np.array(9, np.uint8)],
    ),
    case("DequantizeLinear", "axis", [Spread((2, 3), np.int8, -128, 127), SCALE, points(np.int8)], axis=1, opset=13),
    case("DequantizeLinear", "int32", [Spread((2, 3), np.int32, -1000, 1000), np.array(0.3, np.float32)], opset=10),
    case("DequantizeLinear", "uint16", [Spread((2, 3), np.uint16, 0, 60000), np.array(0.3, np.float32)]),
    case(
        "DequantizeLinear",
        "blocks",
        [Spread((2, 6), np.int8, -128, 127), Spread((2, 2)), Spread((2, 2), np.int8, -9, 9)],
        axis=1,
        block_size=3,
    ),
    case("DequantizeLinear", "gradient", [np.array([3, -4], np.int8), Spread((2,))], axis=0, gradient=True),
]

BORDERS = [
    BorderCase(
        op_type="DequantizeLinear",
        name="overflow",
        inputs=[np.array([2, 1], np.int8), np.array(3e38, np.float32)],
        bad=[True, False],
    )
]
