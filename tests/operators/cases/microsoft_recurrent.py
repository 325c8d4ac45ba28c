"""The LSTM of ONNX Runtime that quantises its input as it runs."""

from typing import Any

import numpy as np

from tests.operators.harness import OperatorCase, Spread

DOMAIN = "com.microsoft"


def case(
    name: str, dtype: Any, *rest: Any, directions: int = 1, columns: bool = False, **attributes: Any
) -> OperatorCase:
    low, high = (-60, 60) if dtype is np.int8 else (0, 120)
    per = (directions, 12) if columns else (directions,)
    scales, zeros = np.full(per, 0.02, np.float32), np.full(per, 0 if dtype is np.int8 else 60, dtype)
    optional = [*rest, *[None] * (5 - len(rest))]
    return OperatorCase(
        op_type="DynamicQuantizeLSTM",
        name=name,
        inputs=[
            Spread((3, 2, 4)),
            Spread((directions, 4, 12), dtype, low=low, high=high),
            Spread((directions, 3, 12), dtype, low=low, high=high),
            *optional,
            *(scales, zeros, scales, zeros),
        ],
        attributes={"hidden_size": 3} | attributes,
        constants=frozenset({1, 2, 8, 9, 10, 11}),
        outputs=3,
        opset=17,
        domain=DOMAIN,
        tolerance=(0.05, 0.03),
        gradient=False,
    )


CASES = [
    case("signed", np.int8),
    case("unsigned", np.uint8, Spread((1, 24))),
    case("columns", np.int8, Spread((1, 24)), columns=True),
    case("two directions", np.int8, directions=2, direction="bidirectional"),
    case("states", np.int8, None, None, Spread((1, 2, 3)), Spread((1, 2, 3))),
    case("lengths", np.uint8, None, np.array([3, 2], np.int32)),
    case("clipped", np.int8, clip=0.5),
]

BORDERS: list[Any] = []
