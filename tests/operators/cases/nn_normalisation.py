"""Normalisations."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

IMAGE = Spread((2, 4, 3, 2))
PAIR = [Spread((4,)), Spread((4,))]
STATISTICS = [*PAIR, Spread((4,)), Spread((4,), low=0.1)]

HALVES = [Spread((4,), np.float16, low=0.1) for _ in STATISTICS]


def case(op_type: str, name: str, inputs: list[Any], *, opset: int = 21, outputs: Any = 1, **rest: Any) -> OperatorCase:
    given = {key: rest.pop(key) for key in ("gradient", "oracle", "tolerance") if key in rest}
    return OperatorCase(
        op_type=op_type, name=name, inputs=inputs, attributes=rest, opset=opset, outputs=outputs, **given
    )


CASES = [
    case("BatchNormalization", "7", [IMAGE, *STATISTICS], opset=7),
    case("BatchNormalization", "epsilon", [IMAGE, *STATISTICS], opset=9, epsilon=0.1),
    case("BatchNormalization", "14", [IMAGE, *STATISTICS], opset=14),
    case("BatchNormalization", "2d", [Spread((3, 4)), *STATISTICS], opset=15),
    case("BatchNormalization", "half", [Spread((3, 4)), *HALVES], opset=15, tolerance=(5e-3, 5e-3)),
    case("BatchNormalization", "training", [IMAGE, *STATISTICS], opset=15, training_mode=1, outputs=3, momentum=0.7),
    case("InstanceNormalization", "plain", [IMAGE, *PAIR]),
    case("InstanceNormalization", "1d", [Spread((2, 4, 5)), *PAIR], epsilon=0.01, opset=7),
    case("InstanceNormalization", "one-position", [Spread((2, 4, 1)), *PAIR], epsilon=0.01),
    case("LayerNormalization", "plain", [Spread((2, 3, 4)), Spread((4,)), Spread((4,))]),
    case("LayerNormalization", "axis", [Spread((2, 3, 4)), Spread((3, 4)), Spread((3, 4))], axis=1),
    case("LayerNormalization", "whole", [Spread((2, 3)), Spread((2, 3))], axis=0, outputs=3, epsilon=0.1),
    case("LayerNormalization", "statistics", [Spread((2, 3, 4)), Spread((3, 4))], axis=-2, outputs=3, opset=17),
    case("LayerNormalization", "offset", [Spread((2, 8), low=499.0, high=501.0), Spread((8,))], tolerance=(1e-3, 1e-3)),
    case(
        "LayerNormalization",
        "broadcast",
        [Spread((2, 3, 4), np.float64, 499.0, 501.0), Spread((4,), np.float64)],
        axis=1,
        outputs=3,
        tolerance=(1e-3, 1e-3),
    ),
    case("LayerNormalization", "half", [Spread((2, 4), np.float16), Spread((4,), np.float16)]),
    case("GroupNormalization", "21", [IMAGE, *PAIR], num_groups=2),
    case("GroupNormalization", "18", [IMAGE, Spread((2,)), Spread((2,))], num_groups=2, opset=18, epsilon=0.1),
    case("GroupNormalization", "1d", [Spread((2, 4)), *PAIR], num_groups=2),
    case("RMSNormalization", "plain", [Spread((2, 3, 4)), Spread((4,))], opset=23),
    case("RMSNormalization", "axis", [Spread((2, 3, 4)), Spread((3, 4))], opset=23, axis=-2, epsilon=0.1),
    case("LRN", "three", [IMAGE], size=3, alpha=0.5, beta=0.6, bias=2.0),
    case("LRN", "five", [IMAGE], size=5, opset=7),
    # The reference counts channels by the batch size, so the two are equal here.
    case("LRN", "even", [Spread((4, 4, 3, 2))], size=4, alpha=0.5, oracle="reference"),
    case("LpNormalization", "p2", [Spread((2, 3, 4))]),
    case("LpNormalization", "p1", [Spread((2, 3, 4))], p=1, axis=1),
    case("LpNormalization", "zeros", [np.zeros((2, 3), np.float32)], gradient=False),
    case("MeanVarianceNormalization", "plain", [IMAGE]),
    case("MeanVarianceNormalization", "axes", [IMAGE], axes=[1, 2], opset=9, oracle="reference"),
]


def border(op_type: str, name: str, inputs: list[Any], bad: Any, opset: int = 21, **attributes: Any) -> BorderCase:
    arrays = [np.asarray(values, dtype=np.float32) for values in inputs]
    return BorderCase(op_type=op_type, name=name, inputs=arrays, bad=bad, attributes=attributes, opset=opset)


def batch(name: str, variance: float, bad: bool, epsilon: float = 0.0, mean: float = 0.0) -> BorderCase:
    inputs: list[Any] = [[[2.0]], [1.0], [0.0], [mean], [variance]]
    return border("BatchNormalization", name, inputs, bad, opset=15, epsilon=epsilon)


SAME, APART = [[[0.25, 0.25, 0.25, 0.25]]], [[[0.25, 0.25, 0.25, 0.5]]]
PIXELS = [[[[0.25, 0.5], [0.25, 0.25]]]]

BORDERS = [
    batch("zero", 0.0, True),
    batch("zero-at-mean", 0.0, True, mean=2.0),
    batch("negative", -1e-6, True),
    batch("smallest", 1e-45, False),
    batch("rescued", 0.0, False, epsilon=1e-5),
    batch("just-rescued", -0.25, False, epsilon=0.25000003),
    batch("not-rescued", -0.25, True, epsilon=0.25),
    border("BatchNormalization", "overflow", [[[3e38]], [2], [0], [0], [1]], True, opset=15),
    border("InstanceNormalization", "same", [SAME, [1], [0]], True, epsilon=0.0),
    border("InstanceNormalization", "apart", [APART, [1], [0]], False, epsilon=0.0),
    border("InstanceNormalization", "underflow", [[[[0, 1e-30]]], [1], [0]], True, epsilon=0.0),
    border("InstanceNormalization", "rescued", [SAME, [1], [0]], False),
    border("InstanceNormalization", "infinite", [[[[np.inf, 1]]], [1], [0]], True),
    border("LayerNormalization", "same", [SAME, [1] * 4], True, epsilon=0.0),
    border("LayerNormalization", "apart", [APART, [1] * 4], False, epsilon=0.0),
    border("LayerNormalization", "rescued", [SAME, [1] * 4], False),
    border("LayerNormalization", "overflow", [[[1e30, -1e30]], [1, 1]], False),
    border("GroupNormalization", "same", [[[[0.5], [0.5]]], [1, 1], [0, 0]], True, num_groups=1, epsilon=0.0),
    border("GroupNormalization", "apart", [[[[0.5], [1]]], [1, 1], [0, 0]], False, num_groups=1, epsilon=0.0),
    border("RMSNormalization", "zeros", [[[0, 0]], [1, 1]], True, opset=23, epsilon=0.0),
    border("RMSNormalization", "one", [[[0, 1e-20]], [1, 1]], False, opset=23, epsilon=0.0),
    border("RMSNormalization", "rescued", [[[0, 0]], [1, 1]], False, opset=23),
    border("MeanVarianceNormalization", "same", [[[[[0.25, 0.25]]]]], True),
    border("MeanVarianceNormalization", "apart", [PIXELS], False),
    border("LpNormalization", "zeros", [[[0, 0]]], False),
    border("LpNormalization", "infinite", [[[1, np.inf]]], True),
    border("LRN", "zero", [[[[[0]], [[1]]]]], [[[[True]], [[False]]]], size=1, bias=0.0, alpha=1.0),
    border("LRN", "negative", [[[[[0]], [[2]]]]], [[[[True]], [[False]]]], size=1, bias=-1.0, alpha=1.0),
    border("LRN", "whole-power", [[[[[0]], [[1]]]]], [[[[False]], [[True]]]], size=1, bias=-1.0, alpha=1.0, beta=2.0),
]
