"""Elementwise operators, judged element by element: an infinity elsewhere in an operand excuses nothing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

__all__ = ["find_invalid"]


def find_invalid(y: np.ndarray, operands: Iterable[np.ndarray], *, overflow: bool) -> tuple[str, np.ndarray] | None:
    """Return kind and places of the elements that are invalid although the operands' elements there are good.

    Args:
        y: what the operator wrote.
        operands: those of the tensors that it read that hold NaN or infinity; they broadcast to ``y``.
        overflow: whether an infinity is invalid at all.
    """
    clean, finite = np.ones(y.shape, bool), np.ones(y.shape, bool)
    for x in operands:
        clean &= ~np.isnan(x)
        finite &= np.isfinite(x)
    for kind, bad in (("nan", np.isnan(y) & clean), ("inf", np.isinf(y) & finite & overflow)):
        if bad.any():
            return kind, bad
    return None
