"""Tensors as linear functions of directions, which are what a proof file names: inputs, and what lines leave out.

Each direction is an unknown number in [-1, 1], the same in all forms.  So differences of what comes of one source
cancel, which bounds element by element do not see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_MOST_ELEMENTS = 1 << 23
_SMALL = 1e-4
"""The share of a margin, of roundings as a rule, that is not worth a direction."""
_OWN = 2.0**-52
"""Twice the unit roundoff of float64, in which forms are computed."""

Map = Callable[[np.ndarray], np.ndarray]
Share = tuple["Form", Map, Map]
"""A form, a linear map, and the map of magnitudes that belongs to it."""


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
    def extent(self) -> np.ndarray:
        """The magnitudes of all parts, added up."""
        return np.asarray(np.abs(self.planes[0]) + self.reach)

    @property
    def reach(self) -> np.ndarray:
        """How far the tensor strays from the constants."""
        total = np.abs(self.planes[1:]).sum(0) + self.radius
        return np.asarray(total * (1 + (len(self.planes) + 4) * _OWN))

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


def aligned(forms: Sequence[Form]) -> list[np.ndarray]:
    """Return the planes of forms, of as many directions each."""
    most = max(len(one.planes) for one in forms)
    return [np.concatenate([one.planes, np.zeros((most - len(one.planes), *one.radius.shape))]) for one in forms]


def add_up(shares: Sequence[Share], terms: int = 1) -> Form | None:
    """Add up linear maps of forms, each of so many terms; None where that is too much to compute."""
    count, radius = max(len(form.planes) for form, _, _ in shares), sum(size(form.radius) for form, _, size in shares)
    shape = np.broadcast_shapes(*(apply(form.planes[0]).shape for form, apply, _ in shares), np.shape(radius))
    if count * np.prod(shape) > _MOST_ELEMENTS:
        return None
    planes = np.zeros((count, *shape))
    for form, apply, _ in shares:
        for total, plane in zip(planes, form.planes, strict=False):
            total += apply(plane)
    own = (terms + len(shares) + 8) * _OWN * sum(size(form.extent) for form, _, size in shares)
    return Form(planes, np.broadcast_to(np.zeros(()), shape) + radius + own)


def multiply(apply: Callable[[np.ndarray, np.ndarray], np.ndarray], a: Form, b: Form, terms: int) -> Form | None:
    """Return what a bilinear map makes of two forms: a m + n (b - m) + (a - n)(b - m), at their constants n and m."""
    n, m = a.planes[0], b.planes[0]
    rest = Form(np.concatenate([np.zeros_like(b.planes[:1]), b.planes[1:]]), b.radius)
    shares: list[Share] = [
        (a, lambda plane: apply(plane, m), lambda size: apply(size, np.abs(m))),
        (rest, lambda plane: apply(n, plane), lambda size: apply(np.abs(n), size)),
    ]
    found = add_up(shares, terms)
    return found and found.widened(apply(a.reach, b.reach) * (1 + (terms + 8) * _OWN))
