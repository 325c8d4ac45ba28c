"""Elementwise operators, judged element by element: an infinity elsewhere in an operand excuses nothing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def element_at(x: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
    """Return the element of an operand that the output's element at ``index`` is computed from, its dimensions kept."""
    tail = index[len(index) - x.ndim :]
    at = (0 if n == 1 else i for n, i in zip(x.shape, tail, strict=True))
    return np.asarray(x[tuple(slice(i, i + 1) for i in at)])


def find_invalid(y: np.ndarray, operands: Iterable[np.ndarray], *, overflow: bool) -> tuple[str, np.ndarray] | None:
    """Return kind and places of the elements that are invalid although the operands' elements there are good.

    Only operands that hold NaN or infinity are needed; an infinity is invalid only if it may be an `overflow`.
    """
    clean, finite = np.ones(y.shape, bool), np.ones(y.shape, bool)
    for x in operands:
        clean &= ~np.isnan(x)
        finite &= np.isfinite(x)
    for kind, bad in (("nan", np.isnan(y) & clean), ("inf", np.isinf(y) & finite & overflow)):
        if bad.any():
            return kind, bad
    return None
