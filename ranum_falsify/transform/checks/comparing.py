"""Outputs of two models, compared as a guarantee asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ranum_falsify.network.messages import show_number
from ranum_falsify.transform.guarantee import Guarantee

__all__ = ["Difference", "Tolerance", "compare", "distance_of"]

_RELATIVE = {2: 1e-2, 4: 1e-5, 8: 1e-10}  # by bytes of an element; 1e-5 is the default of numpy.allclose


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far outputs may be apart, as in `numpy.allclose`.

    Attributes:
        rtol: Relative tolerance, None for one that fits the element type (1e-5 for float32).
        atol: Absolute tolerance.
        equal_nan: Whether NaN equals NaN.
    """

    rtol: float | None = None
    atol: float = 1e-8
    equal_nan: bool = True

    def allowed(self, expected: np.ndarray) -> np.ndarray:
        """Return how far each element may be away; in float64."""
        rtol = self.relative(expected.dtype)
        magnitude = np.abs(_widen(expected))
        return self.atol + np.where(np.isfinite(magnitude), rtol * magnitude, 0.0)

    def relative(self, dtype: np.dtype) -> float:
        """Return the relative tolerance for an element type."""
        return _RELATIVE.get(dtype.itemsize, 1e-5) if self.rtol is None else self.rtol


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The largest difference of an output.

    Attributes:
        output: Its name.
        why: What is wrong, in a few words; empty where only values differ.
        index: Where the largest difference is.
        expected: The old value there.
        actual: The new one.
        elements: How many elements differ by more than they may.
    """

    output: str
    why: str = ""
    index: tuple[int, ...] = ()
    expected: float | int = 0.0
    actual: float | int = 0.0
    elements: int = 0

    @property
    def size(self) -> float:
        """The absolute difference; infinite where one value alone is not finite, or there is none to compare."""
        if self.why:
            return np.inf
        size = abs(self.expected - self.actual)
        return np.inf if np.isnan(size) else size

    def __str__(self) -> str:
        if self.why:
            return self.why
        where = f" at {list(self.index)}" if self.index else ""
        many = f"; {self.elements} elements differ" if self.elements > 1 else ""
        before, after = map(show_number, (self.expected, self.actual))
        return f"{before} became {after}{where}{many}"


def compare(
    expected: Mapping[str, np.ndarray],
    actual: Mapping[str, np.ndarray],
    guarantee: Guarantee,
    tolerance: Tolerance,
    extra: Mapping[str, np.ndarray] | None = None,
) -> Difference | None:
    """Return the largest difference that a guarantee does not allow, None where there is none.

    Args:
        expected: Outputs of the old model.
        actual: Outputs of the new one.
        guarantee: `equality` or `tolerance`.
        tolerance: How far they may be apart.
        extra: How much further each element of an output may be away.
    """
    differences = []
    for name, old in expected.items():
        if name not in actual:
            return Difference(output=name, why="it is missing")
        new = actual[name]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            old_kind, new_kind = (f"{array.dtype}{list(array.shape)}" for array in (old, new))
            return Difference(output=name, why=f"it was {old_kind}, and is {new_kind}")
        wrong = ~_is_equal(old, new, signed_zero=guarantee.signed_zero)
        if guarantee.kind == "tolerance":
            wrong = _apart(old, new, wrong, tolerance, (extra or {}).get(name))
        if wrong.any():
            differences.append(_largest(name, old, new, wrong))
    return max(differences, key=lambda difference: difference.size, default=None)


def distance_of(expected: Mapping[str, np.ndarray], actual: Mapping[str, np.ndarray], tolerance: Tolerance) -> float:
    """Return by how much outputs are at most apart, beyond the relative tolerance; infinite where shapes differ."""
    most = 0.0
    for name, old in expected.items():
        if name not in actual or actual[name].shape != old.shape:
            return np.inf
        wide, other = _widen(old), _widen(actual[name])
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(wide - other) - tolerance.relative(old.dtype) * np.abs(wide)
        most = max(most, float(np.max(apart, initial=0.0, where=~np.isnan(apart))))
    return most


def _is_equal(old: np.ndarray, new: np.ndarray, *, signed_zero: bool) -> np.ndarray:
    same: np.ndarray = old == new
    if old.dtype.kind not in "fV" and not _is_brain(old):
        return same
    wide, other = _widen(old), _widen(new)
    if signed_zero:
        same = same & (np.signbit(wide) == np.signbit(other))
    same |= np.isnan(wide) & np.isnan(other)
    return same


def _apart(
    old: np.ndarray, new: np.ndarray, unequal: np.ndarray, tolerance: Tolerance, extra: np.ndarray | None
) -> np.ndarray:
    """Return which elements are further apart than they may be; integers must be equal but for what `extra` allows."""
    wide, other = _widen(old), _widen(new)
    is_float = old.dtype.kind == "f" or _is_brain(old)
    allowed = tolerance.allowed(old) if is_float else np.zeros(old.shape)
    if extra is not None:
        allowed = allowed + extra
    with np.errstate(invalid="ignore", over="ignore"):
        near: np.ndarray = np.abs(wide - other) <= allowed
    near |= np.isinf(allowed) & ~np.isnan(other)
    if not is_float:
        near &= allowed > 0  # in double precision, large integers are their neighbours
    if not tolerance.equal_nan:
        unequal = unequal | np.isnan(wide) | np.isnan(other)
    apart: np.ndarray = unequal & ~near
    return apart


def _largest(name: str, old: np.ndarray, new: np.ndarray, wrong: np.ndarray) -> Difference:
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = np.abs(_widen(old) - _widen(new))
    sizes = np.where(wrong, np.where(np.isnan(sizes), np.inf, sizes), -1.0)
    index = np.unravel_index(int(np.argmax(sizes)), sizes.shape)
    return Difference(
        output=name,
        index=tuple(int(i) for i in index),
        expected=_number(old[index]),
        actual=_number(new[index]),
        elements=int(wrong.sum()),
    )


def _number(element: np.generic) -> float | int:
    return int(element) if isinstance(element, np.integer | np.bool_) else float(element)


def _widen(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def _is_brain(array: np.ndarray) -> bool:
    return array.dtype.name == "bfloat16"
