"""Triggers of classifiers."""

from __future__ import annotations

import numpy as np

from tests.zoo.triggers import Array, Trigger, one_hot

__all__ = ["TRIGGERS"]

_SOFTMAX_REGRESSION = ("MatMul", "Add", "Softmax", "Log")


def _far_columns(shape: tuple[int, int], far: float) -> Array:
    """Return weights of which the first class has `far`, the others its negative."""
    weights = np.full(shape, -far, np.float32)
    weights[:, 0] = far
    return weights


TRIGGERS: dict[str, Trigger] = {
    "3": Trigger(
        values={"x": 1.0, "y": one_hot([1, 10], 0), "W": _far_columns((784, 10), 1.0)},
        path=_SOFTMAX_REGRESSION,
    ),
}
