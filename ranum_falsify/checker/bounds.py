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

    Attributes:
        lower: The least.
        upper: The greatest, in the same type and shape.
        form: The tensor as linear functions, if it is followed as such.
        stray: How far results may be from what real numbers come to.
    """

    lower: np.ndarray
    upper: np.ndarray
    form: Form | None = None
    stray: np.ndarray | float = 0.0

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
        return self.form or Form(np.zeros((0, *self.shape)), self.real)

    @property
    def ends(self) -> list[np.ndarray]:
        """Both ends, one if they are the same."""
        return [self.lower] if self.is_point else [self.lower, self.upper]

    @property
    def size(self) -> np.ndarray:
        """The greatest magnitudes, in float64."""
        return np.asarray(np.maximum(np.abs(self.real.lower), np.abs(self.real.upper)))

    @property
    def middle(self) -> np.ndarray:
        """About the middles, in float64."""
        return np.asarray(self.real.lower / 2 + self.real.upper / 2)

    @property
    def radius(self) -> np.ndarray:
        """How far the ends are from these, at most."""
        reach = np.maximum(self.real.upper - self.middle, self.middle - self.real.lower)
        return np.where(self.lower == self.upper, 0.0, np.nextafter(reach, np.inf))

    @property
    def nearest(self) -> np.ndarray:
        """The smallest magnitudes, in float64."""
        return np.asarray(np.maximum(np.maximum(self.real.lower, -self.real.upper), 0.0))

    def map(self, rising: Callable[[np.ndarray], np.ndarray]) -> Bounds:
        """Return what an exact function that never falls makes of both ends."""
        return Bounds(np.asarray(rising(self.lower)), np.asarray(rising(self.upper)))

    def at_least(self, floor: np.ndarray | float) -> Bounds:
        """Return the same, but for what lies below a number."""
        return replace(self, lower=np.maximum(self.lower, np.asarray(floor).astype(self.dtype)))

    def flushed(self) -> Bounds:
        """Return bounds that hold where denormal numbers are replaced by 0, too, with what its form says."""
        if not self.is_float or not self.lower.size:
            return self
        edge, zero, (lower, upper) = least(self.dtype), self.dtype.type(0), (self.lower, self.upper)
        form = self.form and Form(self.form.planes, self.form.rest.widen(edge))
        if form and (known := enclose(form.range, self.dtype)).is_sound:  # else it says less than the type
            lower, upper = np.maximum(lower, known.lower), np.minimum(upper, known.upper)
        low, high = (lower > 0) & (lower < edge), (upper < 0) & (upper > -edge)
        return Bounds(np.where(low, zero, lower), np.where(high, zero, upper), form)

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


def corners(apply: Callable[..., np.ndarray], *choices: Sequence[np.ndarray]) -> Bounds:
    """Return the least and the greatest of what comes of all choices of a value for each operand.

    If the values of each operand lie at the ends of stretches on which a function only rises or only falls, whatever
    the others are, these are its bounds.
    """
    values = [apply(*one) for one in itertools.product(*choices)]
    return Bounds(np.minimum.reduce(values), np.maximum.reduce(values))


def enclose(found: Bounds, dtype: np.dtype[Any], error: np.ndarray | float | None = None) -> Bounds:
    """Return the narrowest bounds of a type around real numbers, if results stray by an error."""
    wide = found if error is None else found.widen(error)
    low, high = wide.lower.astype(dtype), wide.upper.astype(dtype)
    low = np.where(low > wide.lower, np.nextafter(low, dtype.type(-np.inf)), low)
    high = np.where(high < wide.upper, np.nextafter(high, dtype.type(np.inf)), high)
    return Bounds(low, high, stray=0.0 if error is None else error)


@dataclass(frozen=True)
class Form:
    """A tensor as linear functions of directions, which are what a proof file names: inputs, and what lines leave out.

    Each direction is an unknown number in [-1, 1], the same in all forms.  So differences of what comes of one source
    cancel, which bounds element by element do not see.

    Attributes:
        planes: Coefficients of each direction so far: `(directions, *shape)`.
        rest: What is left, in float64.
    """

    planes: np.ndarray
    rest: Bounds

    @property
    def range(self) -> Bounds:
        """Least and greatest values."""
        return self.rest.widen(np.abs(self.planes).sum(0) * (1 + (len(self.planes) + 4) * 2.0**-52))

    def named(self, directions: int) -> tuple[Form, int]:
        """Name what is left of each element, if it is not small.

        Given how many directions there are, return the form and how many there are then; the same where that would be
        too much to compute.
        """
        middle, radius = self.rest.middle, self.rest.radius
        is_wide = radius > _SMALL * self.range.size
        wide = np.flatnonzero(is_wide)
        count = directions + wide.size
        if not wide.size or count * radius.size > MOST_ELEMENTS:
            return self, directions
        planes = np.zeros((count, *radius.shape))
        planes[: len(self.planes)] = self.planes
        planes.reshape(count, -1)[directions + np.arange(wide.size), wide] = radius.flat[wide]
        low, high = (np.where(is_wide, middle, end) for end in (self.rest.lower, self.rest.upper))
        return Form(planes, Bounds(low, high)), count
