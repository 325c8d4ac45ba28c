"""Bounds of tensors, in the tensors' own types or in float64, and how real numbers are rounded to these.

Notation: u is the unit roundoff of a type, half the distance from 1 to the next larger number.  A sum of n products, in
any order, with or without fused operations, strays by at most (1 + u)^n - 1 <= exp(n u) - 1 times the sum of their
magnitudes (N. Higham, Accuracy and Stability of Numerical Algorithms, 2002, lemma 3.1 and section 3.1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

MOST_ELEMENTS = 1 << 23  # of all planes of a form
_SMALL = 1e-4  # the share of a margin, of roundings as a rule, that is not worth a direction


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

    A tensor may be followed as linear functions, too, of directions, which are what a proof file names: inputs, and
    what lines leave out.  Each is an unknown number in [-1, 1], the same for all tensors.  So differences of what comes
    of one source cancel, which bounds element by element do not see.
    """

    lower: np.ndarray
    upper: np.ndarray
    planes: Any = None  # coefficients of each direction so far, `(directions, *shape)`, of a linear function
    rest: Bounds | None = None  # what is left beside these, in float64
    stray: np.ndarray | float = 0.0  # how far results may be from what real numbers come to
    away: float = 0.0  # no element is nearer to 0

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
        return alike and bool((np.isfinite(self.lower) & np.isfinite(self.upper) & (self.lower <= self.upper)).all())

    @property
    def real(self) -> Bounds:
        """The same in float64, of values alone."""
        lower, upper = (end.astype(np.float64, copy=False) for end in (self.lower, self.upper))
        return Bounds(lower, upper, away=self.away)

    @property
    def ends(self) -> list[np.ndarray]:
        """Both ends, one if they are the same."""
        return [self.lower] if self.is_point else [self.lower, self.upper]

    @property
    def size(self) -> np.ndarray:
        """The greatest magnitudes, in float64."""
        return np.asarray(np.maximum(np.abs(self.real.lower), np.abs(self.real.upper)))

    @property
    def ball(self) -> tuple[np.ndarray, np.ndarray]:
        """About the middles, and how far the ends are from these, at most, in float64."""
        real, middle = self.real, np.asarray(self.real.lower / 2 + self.real.upper / 2)
        reach = np.nextafter(np.maximum(real.upper - middle, middle - real.lower), np.inf)
        return middle, np.where(self.lower == self.upper, 0.0, reach)

    @property
    def nearest(self) -> np.ndarray:
        """The smallest magnitudes, in float64."""
        return np.asarray(np.maximum(np.maximum(self.real.lower, -self.real.upper), self.away))

    def map(self, rising: Callable[[np.ndarray], np.ndarray]) -> Bounds:
        """Return what an exact function that never falls makes of both ends."""
        return Bounds(np.asarray(rising(self.lower)), np.asarray(rising(self.upper)))

    def clip(self, low: np.ndarray | float = -np.inf, high: float = np.inf) -> Bounds:
        """Return the same floating numbers, but for those that lie outside of a range, which none does."""
        lower, upper = (np.clip(end, low, high).astype(self.dtype) for end in (self.lower, self.upper))
        return replace(self, lower=lower, upper=upper)

    @property
    def spread(self) -> Bounds:
        """Least and greatest values, by its linear function alone."""
        return (self.rest or self).widen(np.abs(self.planes).sum(0) * (1 + (len(self.planes) + 4) * 2.0**-52))

    def lined(self, planes: np.ndarray, rest: Bounds) -> Bounds:
        """Return the same, followed as a sum of planes, each rounded once, and of what is left."""
        return replace(self, planes=planes, rest=rest.widen(np.abs(planes).sum(0) * 2.0**-52))

    def flushed(self) -> Bounds:
        """Return bounds that hold where denormal numbers are replaced by 0, too, with what its planes say."""
        if not self.is_float or not self.lower.size:
            return self
        edge, zero, (lower, upper) = least(self.dtype), self.dtype.type(0), (self.lower, self.upper)
        found = replace(self, rest=self.rest and self.rest.widen(edge))
        if self.rest and (known := enclose(found.spread, self.dtype)).is_sound:  # else it says less than the type
            lower, upper = np.maximum(lower, known.lower), np.minimum(upper, known.upper)
        low, high = (lower > 0) & (lower < edge), (upper < 0) & (upper > -edge)
        return replace(found, lower=np.where(low, zero, lower), upper=np.where(high, zero, upper))

    def named(self, directions: int) -> tuple[Bounds, int]:
        """Name what is left of each element, if it is not small, beside so many directions; return how many there are.

        Nothing is named where that would be too much to compute.
        """
        found = self if self.rest else replace(self, planes=np.zeros((0, *self.shape)), rest=self.real)
        rest = found.rest or self
        middle, radius = rest.ball
        is_wide = radius > _SMALL * found.spread.size
        wide = np.flatnonzero(is_wide)
        count = directions + wide.size
        if not wide.size or count * radius.size > MOST_ELEMENTS:
            return found, directions
        planes = np.zeros((count, *radius.shape))
        planes[: len(found.planes)] = found.planes
        planes.reshape(count, -1)[directions + np.arange(wide.size), wide] = radius.flat[wide]
        return replace(self, planes=planes, rest=rest.map(lambda end: np.where(is_wide, middle, end))), count

    def widen(self, error: np.ndarray | float = 0.0) -> Bounds:
        """Return the intervals with a margin, so that they also enclose real numbers that were rounded to the ends."""
        low, high = self.real.lower - error, self.real.upper + error
        return Bounds(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(self.real.lower + other.real.lower, self.real.upper + other.real.upper).widen()

    def __sub__(self, other: Bounds) -> Bounds:
        return Bounds(self.real.lower - other.real.upper, self.real.upper - other.real.lower).widen()

    def __mul__(self, other: Bounds) -> Bounds:
        return corners(np.multiply, self.real.ends, other.real.ends).widen()


def corners(apply: Callable[..., np.ndarray], *choices: Sequence[Any]) -> Bounds:
    """Return the least and the greatest of what comes of all choices of a value for each operand.

    If the values of each operand lie at the ends of stretches on which a function only rises or only falls, whatever
    the others are, these are its bounds.
    """
    values = [apply(*one) for one in itertools.product(*choices)]
    return Bounds(np.minimum.reduce(values), np.maximum.reduce(values))


def enclose(found: Bounds, dtype: np.dtype[Any], error: np.ndarray | float | None = None) -> Bounds:
    """Return the narrowest bounds of a type around real numbers, if results stray by an error; None: they are exact."""
    wide = found if error is None else found.widen(error)
    low, high = wide.lower.astype(dtype), wide.upper.astype(dtype)
    low = np.where(low > wide.lower, np.nextafter(low, dtype.type(-np.inf)), low)
    high = np.where(high < wide.upper, np.nextafter(high, dtype.type(np.inf)), high)
    return Bounds(low, high, stray=0.0 if error is None else error)
