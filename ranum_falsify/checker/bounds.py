"""Bounds of tensors, in the tensors' own types or in float64, and how real numbers are rounded to these.

Notation: u is the unit roundoff of a type, half the distance from 1 to the next larger number.  A sum of n products, in
any order, with or without fused operations, strays by at most (1 + u)^n - 1 <= exp(n u) - 1 times the sum of their
magnitudes (N. Higham, Accuracy and Stability of Numerical Algorithms, 2002, lemma 3.1 and section 3.1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ranum_falsify.checker.forms import Form


def require(*facts: Any) -> None:
    """Raise where one of some facts does not hold everywhere: nothing is shown then."""
    if not all(np.all(fact) for fact in facts):
        raise ValueError("not shown")


def unit(dtype: np.dtype[Any]) -> float:
    """Return the unit roundoff of a floating type."""
    return float(np.finfo(dtype).eps) / 2


def least(dtype: np.dtype[Any]) -> float:
    """Return the smallest positive number that no runtime replaces by 0: denormal ones only of float16 stay."""
    return 2.0**-24 if dtype == np.float16 else float(np.finfo(dtype).tiny)


def drift(roundings: int, dtype: np.dtype[Any]) -> float:
    """Return exp(n u) - 1, with as many roundings in float64 for our own sum."""
    shares = (roundings * unit(dtype), 8 * roundings * 2.0**-53)
    return sum(math.expm1(min(share, 700.0)) for share in shares) * (1 + 1e-6)


@dataclass(frozen=True)
class Bounds:
    """Least and greatest values of a tensor, element by element; arithmetic rounds outward in float64.

    Attributes:
        lower: The least.
        upper: The greatest, in the same type and shape.
        form: The tensor as linear functions, if it is followed as such.
    """

    lower: np.ndarray
    upper: np.ndarray
    form: Form | None = None

    @classmethod
    def of(cls, value: Any) -> Bounds:
        """Return bounds of what is known; numbers are float64."""
        return cls(np.asarray(value), np.asarray(value))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.lower.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.lower.shape

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating numbers that rules are about."""
        return self.dtype in (np.float16, np.float32, np.float64)

    @property
    def is_point(self) -> bool:
        """Whether its values are known."""
        return np.array_equal(self.lower, self.upper)

    @property
    def is_sound(self) -> bool:
        """Whether its ends are finite and in order."""
        alike = self.shape == self.upper.shape and self.dtype == self.upper.dtype and self.dtype.kind in "biuf"
        finite = alike and bool(np.isfinite(self.lower).all() and np.isfinite(self.upper).all())
        return finite and bool((self.lower <= self.upper).all())

    @property
    def real(self) -> Bounds:
        """The same in float64."""
        return self.map(lambda end: end.astype(np.float64, copy=False))

    @property
    def linear(self) -> Form:
        """Its form, or one that says no more than the bounds."""
        return self.form or Form.between(self.real.lower, self.real.upper)

    @property
    def ends(self) -> list[np.ndarray]:
        """Both ends, one if they are the same."""
        return [self.lower] if self.is_point else [self.lower, self.upper]

    @property
    def size(self) -> np.ndarray:
        """The greatest magnitudes, in float64."""
        return np.asarray(np.maximum(np.abs(self.real.lower), np.abs(self.real.upper)))

    @property
    def nearest(self) -> np.ndarray:
        """The smallest magnitudes, in float64."""
        return np.asarray(np.maximum(np.maximum(self.real.lower, -self.real.upper), 0.0))

    def map(self, rising: Callable[[np.ndarray], np.ndarray]) -> Bounds:
        """Return what an exact function that never falls makes of both ends."""
        return Bounds(np.asarray(rising(self.lower)), np.asarray(rising(self.upper)))

    def at_least(self, floor: np.ndarray | float) -> Bounds:
        """Return the same, but for what lies below a number."""
        return Bounds(np.maximum(self.lower, np.asarray(floor).astype(self.dtype)), self.upper, self.form)

    def flushed(self) -> Bounds:
        """Return bounds that hold where denormal numbers are replaced by 0, too, with what its form says."""
        if not self.is_float or not self.lower.size:
            return self
        edge, zero, form = least(self.dtype), self.dtype.type(0), self.form
        lower, upper = self.lower, self.upper
        if form is not None:
            form = form.widened(edge)
            known = enclose(Bounds(*form.range), self.dtype)
            if known.is_sound:
                lower, upper = np.maximum(lower, known.lower), np.minimum(upper, known.upper)
            else:
                form = None  # it says less than the type
        low, high = (lower > 0) & (lower < edge), (upper < 0) & (upper > -edge)
        return Bounds(np.where(low, zero, lower), np.where(high, zero, upper), form)

    def widen(self, error: np.ndarray | float) -> Bounds:
        """Return the intervals with a margin."""
        return _outward(Bounds(self.real.lower - error, self.real.upper + error))

    def __add__(self, other: Bounds) -> Bounds:
        return _outward(Bounds(self.real.lower + other.real.lower, self.real.upper + other.real.upper))

    def __sub__(self, other: Bounds) -> Bounds:
        return _outward(Bounds(self.real.lower - other.real.upper, self.real.upper - other.real.lower))

    def __mul__(self, other: Bounds) -> Bounds:
        return _outward(corners(np.multiply, self.real.ends, other.real.ends))


def corners(apply: Callable[..., np.ndarray], *choices: Sequence[np.ndarray]) -> Bounds:
    """Return the least and the greatest of what comes of all choices of a value for each operand.

    If the values of each operand lie at the ends of stretches on which a function only rises or only falls, whatever
    the others are, these are its bounds.
    """
    values = [apply(*one) for one in itertools.product(*choices)]
    return Bounds(np.minimum.reduce(values), np.maximum.reduce(values))


def _outward(found: Bounds) -> Bounds:
    return Bounds(np.nextafter(found.lower, -np.inf), np.nextafter(found.upper, np.inf))


def enclose(
    found: Bounds, dtype: np.dtype[Any], error: np.ndarray | float | None = None, form: Form | None = None
) -> Bounds:
    """Return the narrowest bounds of a type around real numbers, with their form, if results stray by an error."""
    wide = found if error is None else found.widen(error)
    low, high = wide.lower.astype(dtype), wide.upper.astype(dtype)
    low = np.where(low > wide.lower, np.nextafter(low, dtype.type(-np.inf)), low)
    high = np.where(high < wide.upper, np.nextafter(high, dtype.type(np.inf)), high)
    return Bounds(low, high, form and form.widened(0.0 if error is None else error))
