"""Arithmetic on bounds: pairs of floating-point tensors that enclose numbers, mostly in float64.

Results carry the rounding of the tensors' own type and no more: who uses them adds the errors of what they stand for.
NaN passes through to the bound that is computed from it; what it means is up to the users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor


class Enclosure(NamedTuple):
    """Bounds of numbers; a known number has one tensor as both, and costs less.

    Attributes:
        low: Least values.
        high: Greatest values.
    """

    low: Tensor
    high: Tensor

    @classmethod
    def stack(cls, parts: Sequence[Enclosure], dim: int = 0) -> Enclosure:
        """Return the parts along a new dimension."""
        return cls(torch.stack([part.low for part in parts], dim), torch.stack([part.high for part in parts], dim))

    @classmethod
    def hull_of(cls, points: Sequence[Tensor]) -> Enclosure:
        """Return the least and the greatest of some values, element by element."""
        return cls(reduce(torch.minimum, points), reduce(torch.maximum, points))

    @property
    def size(self) -> Tensor:
        """Greatest absolute values."""
        return torch.maximum(self.low.abs(), self.high.abs())

    @property
    def ball(self) -> tuple[Tensor, Tensor]:
        """Centre and radius."""
        return (self.low + self.high) / 2, (self.high - self.low) / 2

    # functions ---------------------------------------------------------------------------------------------------

    def map(self, function: Callable[..., Tensor], *others: Enclosure) -> Enclosure:
        """Return bounds of a function that falls in no operand, or that only moves elements."""
        return Enclosure(
            function(self.low, *(other.low for other in others)), function(self.high, *(other.high for other in others))
        )

    def map_falling(self, function: Callable[[Tensor], Tensor]) -> Enclosure:
        """Return bounds of a function that rises nowhere."""
        return Enclosure(function(self.high), function(self.low))

    def map_even(self, function: Callable[[Tensor], Tensor], least: float = 0.0) -> Enclosure:
        """Return bounds of a function that falls until 0, where it has its least value, and rises after it."""
        at_low, at_high = function(self.low), function(self.high)
        around = (self.low <= 0) & (self.high >= 0)
        return Enclosure(
            torch.where(around, least, torch.minimum(at_low, at_high)),
            torch.maximum(at_low, at_high),
        )

    def corners(self, function: Callable[[Tensor, Tensor], Tensor], other: Enclosure) -> list[Tensor]:
        """Return the values at the corners, among which are the extremes of a function monotone in each operand."""
        firsts, seconds = (x[:1] if x.low is x.high else x for x in (self, other))
        return [function(p, q) for p in firsts for q in seconds]

    def negate(self) -> Enclosure:
        """Return bounds of the opposite numbers."""
        return self.map_falling(torch.neg)

    def add(self, other: Enclosure) -> Enclosure:
        """Return bounds of sums."""
        return Enclosure(self.low + other.low, self.high + other.high)

    def subtract(self, other: Enclosure) -> Enclosure:
        """Return bounds of differences."""
        return Enclosure(self.low - other.high, self.high - other.low)

    def multiply(self, other: Enclosure) -> Enclosure:
        """Return bounds of elementwise products."""
        return Enclosure.hull_of(self.corners(torch.mul, other))

    def divide(self, other: Enclosure) -> Enclosure:
        """Return bounds of quotients; they say nothing where a divisor may be 0."""
        return Enclosure.hull_of(self.corners(torch.div, other))

    # sets --------------------------------------------------------------------------------------------------------

    def hull(self, other: Enclosure) -> Enclosure:
        """Return bounds on the values of both."""
        return Enclosure(torch.minimum(self.low, other.low), torch.maximum(self.high, other.high))

    def where(self, condition: Tensor, other: Enclosure) -> Enclosure:
        """Return these bounds where a condition holds, and others elsewhere."""
        return Enclosure(torch.where(condition, self.low, other.low), torch.where(condition, self.high, other.high))

    def widen(self, error: Tensor | float) -> Enclosure:
        """Return the bounds moved outwards."""
        return Enclosure(self.low - error, self.high + error)

    # shapes ------------------------------------------------------------------------------------------------------

    def chunk(self, count: int) -> list[Enclosure]:
        """Return equal parts along the last dimension."""
        return [Enclosure(*ends) for ends in zip(self.low.chunk(count, -1), self.high.chunk(count, -1), strict=True)]

    def last(self, begin: int, end: int) -> Enclosure:
        """Return a part of the last dimension."""
        return Enclosure(self.low[..., begin:end], self.high[..., begin:end])

    def spread(self, *sizes: int) -> Enclosure:
        """Return the bounds repeated along dimensions of size 1."""
        return Enclosure(self.low.expand(sizes), self.high.expand(sizes))
