"""Losses."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

TARGETS = np.array([[2, 0], [1, 3], [3, 3]], np.int64)
SCORES, WEIGHTS = Spread((3, 4, 2)), Spread((4,), low=0.5)
NAMES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")


def case(op_type: str, name: str, inputs: list[Any], *, opset: int = 13, outputs: int = 1, **rest: Any) -> OperatorCase:
    return OperatorCase(op_type=op_type, name=name, inputs=inputs, attributes=rest, opset=opset, outputs=outputs)


CASES = [
    *(case(op, "mean", [SCORES, TARGETS]) for op in NAMES),
    *(case(op, "weighted", [SCORES, TARGETS, WEIGHTS]) for op in NAMES),
    *(case(op, "sum", [SCORES, TARGETS, WEIGHTS], reduction="sum", opset=12) for op in NAMES),
    *(case(op, "none", [SCORES, TARGETS.astype(np.int32), WEIGHTS], reduction="none") for op in NAMES),
    *(case(op, "ignored", [SCORES, TARGETS, WEIGHTS], ignore_index=3) for op in NAMES),
    *(case(op, "ignored-unweighted", [SCORES, TARGETS], ignore_index=3) for op in NAMES),
    *(case(op, "flat", [Spread((3, 4)), TARGETS[:, 0]], ignore_index=-1) for op in NAMES),
    case("SoftmaxCrossEntropyLoss", "log-prob", [SCORES, TARGETS], outputs=2),
    case("SoftmaxCrossEntropyLoss", "large", [Spread((3, 4, 2), low=-300, high=300), TARGETS], outputs=2),
]


def border(
    op_type: str, name: str, bad: bool, weights: Any = None, scores: Any = (1.0, 2.0, 3.0), **rest: Any
) -> BorderCase:
    inputs = [np.array([scores, scores], np.float32), np.array([0, 1])]
    if weights is not None:
        inputs.append(np.array(weights, np.float32))
    return BorderCase(op_type=op_type, name=name, inputs=inputs, bad=bad, attributes=rest, opset=13)


BORDERS = [
    *(border(op, "no-weight", True, [0, 0, 1]) for op in NAMES),
    *(border(op, "least-weight", False, [0, 1e-38, 1]) for op in NAMES),
    *(border(op, "cancelling", True, [1, -1, 1]) for op in NAMES),
    *(border(op, "sum-without-weight", False, [0, 0, 1], reduction="sum") for op in NAMES),
    *(border(op, "one-ignored", False, ignore_index=0) for op in NAMES),
    *(border(op, "infinite-unlikely", True, [0, 1, 1], (-np.inf, 0, 0)) for op in NAMES),
    border("SoftmaxCrossEntropyLoss", "all-infinite", True, None, (-np.inf, -np.inf, -np.inf)),
    border("SoftmaxCrossEntropyLoss", "far-apart", False, None, (-3e38, 0.0, 1.0)),
    border("SoftmaxCrossEntropyLoss", "overflow", True, None, (-3e38, 0.0, 3e38)),
]
