"""Tensors as linear functions of directions, which are what a proof file names: inputs, and what lines leave out.

Each direction is an unknown number in [-1, 1], the same in all forms.  So differences of what comes of one source
cancel, which bounds element by element do not see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_MOST_ELEMENTS = 1 << 23
_SMALL = 1e-4  # the share of a margin, of roundings as a rule, that is not worth a direction
_OWN = 2.0**-52  # twice the unit roundoff of float64, in which forms are computed

Bilinear = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Form:
    """Linear functions with a margin.

    Attributes:
        planes: The constant, and coefficients of each direction so far: `(1 + directions, *shape)`.
        radius: How far the tensor strays from that.
    """

    planes: np.ndarray
    radius: np.ndarray

    @classmethod
    def between(cls, low: np.ndarray, high: np.ndarray) -> Form:
        """Return the constants in the middle of intervals."""
        middle = low / 2 + high / 2
        reach = np.nextafter(np.maximum(high - middle, middle - low), np.inf)
        return cls(np.asarray(middle)[None], np.where((low == middle) & (high == middle), 0.0, reach))

    @property
    def reach(self) -> np.ndarray:
        """How far the tensor strays from the constants."""
        total = np.abs(self.planes[1:]).sum(0) + self.radius
        return np.asarray(total * (1 + (len(self.planes) + 4) * _OWN))

    @property
    def extent(self) -> np.ndarray:
        """The magnitudes of all parts, added up."""
        return np.asarray(np.abs(self.planes[0]) + self.reach)

    @property
    def range(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and greatest values."""
        middle, reach = self.planes[0], self.reach
        return np.nextafter(middle - reach, -np.inf), np.nextafter(middle + reach, np.inf)

    def widened(self, error: np.ndarray | float) -> Form:
        """Return a form with a larger margin."""
        return Form(self.planes, np.nextafter(self.radius + error, np.inf))

    def named(self, directions: int) -> tuple[Form, int]:
        """Name what the margin leaves open of each element, if it is not small.

        Args:
            directions: How many directions there are.

        Returns:
            The form, and how many directions there are then; the same where that would be too much to compute.
        """
        wide = np.flatnonzero(self.radius > _SMALL * self.extent)
        count = directions + wide.size
        if not wide.size or (1 + count) * self.radius.size > _MOST_ELEMENTS:
            return self, directions
        planes, radius = np.zeros((1 + count, self.radius.size)), self.radius.reshape(-1).copy()
        planes[: len(self.planes)] = self.planes.reshape(len(self.planes), -1)
        planes[1 + directions + np.arange(wide.size), wide] = radius[wide]
        radius[wide] = 0.0
        return Form(planes.reshape(-1, *self.radius.shape), radius.reshape(self.radius.shape)), count


def add_up(*forms: Form) -> Form | None:
    """Add up forms; None where that is too much to compute."""
    count, radius = max(len(one.planes) for one in forms), np.asarray(sum(one.radius for one in forms))
    if count * radius.size > _MOST_ELEMENTS:
        return None
    planes = np.zeros((count, *radius.shape))
    for one in forms:
        for total, plane in zip(planes, one.planes, strict=False):
            total += plane
    return Form(planes, radius + (len(forms) + 8) * _OWN * sum(one.extent for one in forms))


def multiply(apply: Bilinear, a: Form, b: Form, terms: int) -> Form | None:
    """Return what a bilinear map, of so many terms, makes of forms: a m + n (b - m) + (a - n)(b - m), at n and m."""
    n, m = a.planes[0], b.planes[0]
    sizes = [apply(a.extent, np.abs(m)), apply(np.abs(n), b.reach), apply(a.reach, b.reach)]
    count = max(len(a.planes), len(b.planes))
    if count * sizes[0].size > _MOST_ELEMENTS:
        return None
    planes = np.zeros((count, *sizes[0].shape))
    for total, plane in zip(planes, a.planes, strict=False):
        total += apply(plane, m)
    for total, plane in zip(planes[1:], b.planes[1:], strict=False):
        total += apply(n, plane)
    radius = apply(a.radius, np.abs(m)) + apply(np.abs(n), b.radius) + sizes[2]
    return Form(planes, radius + (terms + 10) * _OWN * sum(sizes))
