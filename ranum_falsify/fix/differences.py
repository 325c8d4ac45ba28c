"""The differences of the outputs of two models, and which of them is nearer to what the first one means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ranum_falsify.fix.repair import OutputChange

__all__ = ["OutputDifferences"]

_SAME = 1e-5
"""Relative differences up to this one are rounding: other orders of float32 operations make as much."""
_ROUNDINGS = 16
"""How many units of an output's own type are rounding, where that is more."""


class OutputDifferences:
    """Gathers by how much outputs differ, sample by sample."""

    def __init__(self) -> None:
        self._samples = self._equal = self._elements = 0
        self._largest = self._relative = self._sum = self._away = 0.0
        self._errors: tuple[float, float] | None = None

    def add(
        self,
        old: Mapping[str, np.ndarray],
        new: Mapping[str, np.ndarray],
        mean: Callable[[], Mapping[str, np.ndarray]],
    ) -> None:
        """Compare the outputs on one input.

        Args:
            old: Those of the original.
            new: Those of the repaired model.
            mean: Returns those of the original in double precision, those of them that are known; called only where
                the others differ by more than rounding.
        """
        self._samples += 1
        self._equal += all(np.array_equal(old[name], new[name], equal_nan=True) for name in old)
        for name, one in old.items():
            change = _distance(one, new[name])
            if not change.size:
                continue
            relative = _share(float(change.max()), one)
            self._elements += change.size
            self._sum += float(change.sum())
            self._largest = max(self._largest, float(change.max()))
            self._relative = max(self._relative, relative)
            if relative > _rounding(one):
                self._away = max(self._away, self._judge(one, new[name], mean().get(name), relative))

    def _judge(self, old: np.ndarray, new: np.ndarray, exact: np.ndarray | None, relative: float) -> float:
        """Return how much farther than the original an output is from its meaning; all of it where that is unknown."""
        if exact is None or exact.shape != old.shape or not exact.size or not np.isfinite(exact).all():
            return relative
        before, after = _distance(old, exact), _distance(new, exact)
        least, most = self._errors or (0.0, 0.0)
        self._errors = max(least, _share(float(before.max()), exact)), max(most, _share(float(after.max()), exact))
        away = _share(max(0.0, float((after - before).max())), exact)
        return away if away > _rounding(old) else 0.0

    def result(self) -> OutputChange:
        """Return what was found."""
        return OutputChange(
            samples=self._samples,
            largest=self._largest,
            mean=self._sum / max(self._elements, 1),
            relative=self._relative,
            equal=self._equal,
            away=self._away,
            errors=self._errors,
        )


def _distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the absolute differences of the elements; none where both are the same infinity.

    Arrays of different shapes, as loops of different lengths collect them, are infinitely apart.
    """
    if one.shape != other.shape:
        return np.full(1, np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        wide, others = np.asarray(one, np.float64), np.asarray(other, np.float64)
        apart: np.ndarray = np.where(wide == others, 0.0, np.abs(wide - others))
    return apart


def _share(number: float, of: np.ndarray) -> float:
    """Return a number as a share of the greatest finite magnitude of an array."""
    greatest = float(np.abs(of[np.isfinite(of)]).max(initial=0.0))
    return number / greatest if greatest else (math.inf if number else 0.0)


def _rounding(array: np.ndarray) -> float:
    """Return up to which relative difference an output counts as the same."""
    return max(_SAME, _ROUNDINGS * float(np.finfo(array.dtype).eps)) if array.dtype.kind == "f" else 0.0
