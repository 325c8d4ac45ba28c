"""What decoders of texts do with tokens and scores."""

from typing import Any

import numpy as np

from tests.operators.harness import OperatorCase, Spread

TOKENS = np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4]])


def case(op_type: str, name: str, inputs: list[Any], **attributes: Any) -> OperatorCase:
    gradient = op_type == "UnfoldTensor"
    return OperatorCase(
        op_type=op_type,
        name=name,
        inputs=inputs,
        attributes=attributes,
        domain="com.microsoft",
        opset=17,
        gradient=gradient,
    )


CASES = [
    case("UnfoldTensor", "", [Spread((2, 7))], size=3),
    case("UnfoldTensor", "steps", [Spread((2, 7, 3))], size=3, step=2, dim=1),
    case("UnfoldTensor", "first", [Spread((5, 2), np.float64)], size=5, dim=-2),
    *(case("NGramRepeatBlock", str(size), [TOKENS, Spread((2, 6))], ngram_size=size) for size in (1, 2, 3, 5, 9)),
    case("NGramRepeatBlock", "drawn", [Spread((2, 6), np.int64, 0, 3), Spread((2, 4))], ngram_size=2),
]
