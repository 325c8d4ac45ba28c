"""Bounds of tensors, in the tensors' own types, and how real numbers are rounded to these.

Notation: u is the unit roundoff of a type, half the distance from 1 to the next larger number.  A sum of n products, in
any order, with or without fused operations, strays by at most (1 + u)^n - 1 <= exp(n u) - 1 times the sum of their
magnitudes (N. Higham, Accuracy and Stability of Numerical Algorithms, 2002, lemma 3.1 and section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

FLOATS = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))
_MOST_ROUNDINGS = 700.0


def unit(dtype: np.dtype[Any]) -> float:
    """Return the unit roundoff of a floating type."""
    return float(np.finfo(dtype).eps) / 2


def least(dtype: np.dtype[Any]) -> float:
    """Return the smallest positive number that no runtime replaces by 0: denormal ones only of float16 stay."""
    return 2.0**-24 if dtype == np.float16 else float(np.finfo(dtype).tiny)


def drift(roundings: int, dtype: np.dtype[Any]) -> float:
    """Return exp(n u) - 1, with as many roundings in float64 for our own sum."""
    shares = (roundings * unit(dtype), 8 * roundings * 2.0**-53)
    return sum(math.expm1(min(share, _MOST_ROUNDINGS)) for share in shares) * (1 + 1e-6)


@dataclass(frozen=True)
class Bounds:
    """Least and greatest values of a tensor, element by element, in its own type and shape."""

    lower: np.ndarray
    upper: np.ndarray

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.lower.dtype

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating numbers that rules are about."""
        return self.dtype in FLOATS

    @property
    def is_point(self) -> bool:
        """Whether its values are known."""
        return np.array_equal(self.lower, self.upper)

    @property
    def is_sound(self) -> bool:
        """Whether its ends are finite and in order."""
        if self.lower.shape != self.upper.shape or self.lower.dtype != self.upper.dtype:
            return False
        if self.dtype.kind not in "biuf":
            return False
        with np.errstate(invalid="ignore"):
            finite = bool(np.isfinite(self.lower).all() and np.isfinite(self.upper).all())
            return finite and bool((self.lower <= self.upper).all())

    @property
    def real(self) -> Real:
        """The same in float64."""
        return Real(self.lower.astype(np.float64), self.upper.astype(np.float64))

    def flushed(self) -> Bounds:
        """Return bounds that hold where denormal numbers are replaced by 0, too."""
        if not self.is_float or not self.lower.size:
            return self
        edge, zero = least(self.dtype), self.dtype.type(0)
        low, high = (self.lower > 0) & (self.lower < edge), (self.upper < 0) & (self.upper > -edge)
        return Bounds(np.where(low, zero, self.lower), np.where(high, zero, self.upper))


@dataclass(frozen=True)
class Real:
    """Intervals of real numbers in float64, each operation on which rounds outward."""

    low: np.ndarray
    high: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """The greatest magnitudes."""
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)))

    @property
    def square(self) -> Real:
        """The squares, none below 0."""
        smallest = np.where((self.low <= 0) & (self.high >= 0), 0.0, np.minimum(np.abs(self.low), np.abs(self.high)))
        found = _outward(smallest**2, self.size**2)
        return Real(np.maximum(found.low, 0.0), found.high)

    def apply(self, rising: Callable[[np.ndarray], np.ndarray]) -> Real:
        """Return what an exact function that never falls makes of both ends."""
        return Real(rising(self.low), rising(self.high))

    def widen(self, error: np.ndarray | float) -> Real:
        """Return the intervals with a margin."""
        return _outward(self.low - error, self.high + error)

    def __add__(self, other: Real) -> Real:
        return _outward(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Real) -> Real:
        return _outward(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Real) -> Real:
        return self._corners(other, np.multiply)

    def __truediv__(self, other: Real) -> Real:
        return self._corners(other, np.divide)

    def _corners(self, other: Real, combine: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Real:
        values = [combine(x, y) for x in (self.low, self.high) for y in (other.low, other.high)]
        return _outward(np.minimum.reduce(values), np.maximum.reduce(values))


def _outward(low: np.ndarray, high: np.ndarray) -> Real:
    return Real(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))


def enclose(
    found: Real, dtype: np.dtype[Any], error: np.ndarray | float | None = None, *, at_least: float = -math.inf
) -> Bounds:
    """Return the narrowest bounds of a type around real numbers.

    Args:
        found: The numbers.
        dtype: The type.
        error: How far results stray from them; None where they are the results.
        at_least: What no result lies below.
    """
    wide = found if error is None else found.widen(error)
    low, high = wide.low.astype(dtype), wide.high.astype(dtype)
    low = np.where(low > wide.low, np.nextafter(low, dtype.type(-np.inf)), low)
    high = np.where(high < wide.high, np.nextafter(high, dtype.type(np.inf)), high)
    return Bounds(np.maximum(low, dtype.type(at_least)), high)
