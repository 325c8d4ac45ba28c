"""The differences of the outputs of two models, and how far each is from what the first one means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ranum_falsify.repair.repair import OutputChange

_SAME = 1e-5
"""Relative differences up to this one are rounding: other orders of float32 operations make as much."""
_ROUNDINGS = 16
"""How many units of an output's own type are rounding, where that is more."""
_WORSE = 2.0
"""How many times as far as the original may be a repaired model, as another order of operations makes it."""
_WRONG = 1e-2
"""Relative errors of the original from this one on: its outputs were not right."""
_FLOOR = 1e-3
"""Errors are relative to the number that is meant, or to this share of the greatest of its output, and to no number so
small that runtimes may replace it by 0."""
_NORMAL = 1e4


class OutputDifferences:
    """Gathers by how much outputs differ, sample by sample."""

    def __init__(self) -> None:
        self._samples = self._equal = self._elements = self._broken = 0
        self._largest = self._relative = self._sum = self._away = self._beyond = 0.0
        self._errors: tuple[float, float] | None = None

    def add(
        self,
        old: Mapping[str, np.ndarray],
        new: Mapping[str, np.ndarray],
        mean: Mapping[str, np.ndarray],
        *,
        is_valid: bool = True,
        flushed: Callable[[], Mapping[str, np.ndarray]] = dict,
    ) -> None:
        """Compare the outputs on one input.

        Args:
            old: Those of the original.
            new: Those of the repaired model.
            mean: Those that the original means, as far as they are known; NaN where they have no value.
            is_valid: Whether no operator of the original receives invalid input.
            flushed: Returns those of the original with denormal numbers replaced by 0, as on many processors; called
                where the repaired model is worse.  Where they are not right, the original is not.
        """
        if is_valid:
            self._count(old, new)
        else:
            self._broken += 1
        for name, one in old.items():
            exact = mean.get(name)
            if exact is None or exact.shape != one.shape or one.shape != new[name].shape:
                exact = np.full(one.shape, math.nan)
            self._judge(name, one, new[name], exact, is_valid=is_valid, flushed=flushed)

    @staticmethod
    def are_equal(old: Mapping[str, np.ndarray], new: Mapping[str, np.ndarray]) -> bool:
        """Tell whether all outputs are the same, bit for bit."""
        return all(np.array_equal(old[name], new[name], equal_nan=True) for name in old)

    def _count(self, old: Mapping[str, np.ndarray], new: Mapping[str, np.ndarray]) -> None:
        self._samples += 1
        self._equal += self.are_equal(old, new)
        for name, one in old.items():
            change = _distance(one, new[name])
            if not change.size:
                continue
            self._elements += change.size
            self._sum += float(change.sum())
            self._largest = max(self._largest, float(change.max()))
            self._relative = max(self._relative, _share(float(change.max()), one))

    def _judge(
        self,
        name: str,
        old: np.ndarray,
        new: np.ndarray,
        exact: np.ndarray,
        *,
        is_valid: bool,
        flushed: Callable[[], Mapping[str, np.ndarray]],
    ) -> None:
        """Note how much farther than the original an output is from its meaning, and how far where that has none."""
        if old.shape != new.shape:
            self._away = math.inf
        if old.shape != new.shape or not old.size:
            return
        known = np.isfinite(exact) & (
            np.abs(exact) <= (float(np.finfo(old.dtype).max) if old.dtype.kind == "f" else math.inf)
        )
        meant = np.where(known, exact, old)
        scale = _scale(meant, old.dtype)
        before, after = _distance(old, meant) / scale, _distance(new, meant) / scale
        works = np.isfinite(old) if is_valid else np.isfinite(old) & known
        rounding = _rounding(old)
        if _error_beyond(before, after, works, rounding):
            under = np.maximum(before, _distance(flushed().get(name, old), meant) / scale)
            self._away = max(self._away, _error_beyond(under, after, works, rounding))
        if is_valid and known.any() and float((_distance(old, new) / scale)[works].max(initial=0.0)) > rounding:
            errors = (float(one[works & known].max(initial=0.0)) for one in (before, after))
            least, most = self._errors or (0.0, 0.0)
            self._errors = max(least, next(errors)), max(most, next(errors))
        self._beyond = max(self._beyond, float(after[known & ~works].max(initial=0.0)))

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
            broken=self._broken,
            beyond=self._beyond,
        )


def _error_beyond(before: np.ndarray, after: np.ndarray, works: np.ndarray, rounding: float) -> float:
    """Return the greatest error after a repair where there was little before; 0 if it is no more than rounding."""
    right = works & (before < _WRONG)
    error, noise = (float(one[right].max(initial=0.0)) for one in (after, before))
    return error if error > rounding and error > _WORSE * noise else 0.0


def _distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the absolute differences of the elements; none where both are the same infinity.

    Arrays of different shapes, as loops of different lengths collect them, are infinitely apart.
    """
    if one.shape != other.shape:
        return np.full(1, np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        wide, others = np.asarray(one, np.float64), np.asarray(other, np.float64)
        apart: np.ndarray = np.where(wide == others, 0.0, np.abs(wide - others))
    return np.where(np.isnan(apart), np.inf, apart)


def _scale(meant: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return what errors of the elements of an output are relative to."""
    size = np.abs(np.where(np.isfinite(meant), meant, 0.0).astype(np.float64))
    floor = _FLOOR if dtype.kind == "f" else 1.0
    least = _NORMAL * float(np.finfo(dtype).tiny) if dtype.kind == "f" else 1.0
    scale: np.ndarray = np.maximum(np.maximum(size, floor * size.max(initial=0.0)), least)
    return scale


def _share(number: float, of: np.ndarray) -> float:
    """Return a number as a share of the greatest finite magnitude of an array."""
    greatest = float(np.abs(of[np.isfinite(of)]).max(initial=0.0))
    return number / greatest if greatest else (math.inf if number else 0.0)


def _rounding(array: np.ndarray) -> float:
    """Return up to which relative difference an output counts as the same."""
    return max(_SAME, _ROUNDINGS * float(np.finfo(array.dtype).eps)) if array.dtype.kind == "f" else 0.0
