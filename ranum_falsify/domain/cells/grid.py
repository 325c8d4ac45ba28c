"""Cells of a range of numbers, between which no number of the type lies.

Numbers are counted: the *place* of a number is how many numbers of its type lie between it and 0, negative below 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_BITS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
"""The integers of the same size."""

_FACTOR = 4.0
"""Cells of numbers that differ by more are cut into equal counts of numbers, others into equal lengths."""


def places_of(x: Tensor) -> Tensor:
    """Return the places of numbers, as int64; of integers, the numbers themselves."""
    kind = _BITS.get(x.dtype)
    if kind is None:
        return x.long()
    bits = x.view(kind).long()
    return torch.where(bits >= 0, bits, torch.iinfo(kind).min - bits)


def numbers_at(places: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the numbers of a type at some places."""
    kind = _BITS.get(dtype)
    if kind is None:
        return places.to(dtype)
    return torch.where(places >= 0, places, torch.iinfo(kind).min - places).to(kind).view(dtype)


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Parts of the ranges of some groups of elements, which share their function and their range.

    Attributes:
        first: Place of the first number of each cell: `(cells,)`.
        last: Place of its last number.
        group: The group that it belongs to.
        dtype: Type of the numbers.
    """

    first: Tensor
    last: Tensor
    group: Tensor
    dtype: torch.dtype

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.first)

    def ends(self) -> tuple[Tensor, Tensor]:
        """Return the least and the greatest number of each cell."""
        return numbers_at(self.first, self.dtype), numbers_at(self.last, self.dtype)

    def select(self, chosen: Tensor) -> Cells:
        """Return some cells."""
        return Cells(first=self.first[chosen], last=self.last[chosen], group=self.group[chosen], dtype=self.dtype)

    def points(self) -> Cells:
        """Return three numbers of each cell, as cells: its ends, and one in the middle."""
        at = torch.cat([self.first, self.last, self.first + (self.last - self.first) // 2])
        return Cells(first=at, last=at, group=self.group.repeat(3), dtype=self.dtype)

    def count_widest(self) -> int:
        """Return how many numbers there are in the cell of the most numbers."""
        return int((self.last - self.first).max()) + 1

    def split(self, parts: int, *, closed: bool) -> Cells:
        """Return the parts of all cells, which together hold the same numbers.

        Args:
            parts: How many parts of a cell there are, at most.
            closed: Whether a part also holds the first number of the next one.
        """
        share = torch.arange(parts, dtype=torch.float64) / parts
        low, high = (end.double().unsqueeze(1) for end in self.ends())
        by_length = places_of((low * (1 - share) + high * share).to(self.dtype))
        width = (self.last - self.first).unsqueeze(1)
        by_count = self.first.unsqueeze(1) + torch.div(width * torch.arange(parts), parts, rounding_mode="floor")
        size, other = torch.minimum(low.abs(), high.abs()), torch.maximum(low.abs(), high.abs())
        near = (other <= _FACTOR * size) | (width < parts)
        # So many float64 numbers lie in a cell that their count times the parts may not fit.
        near |= width > torch.iinfo(torch.int64).max // parts
        few = width < parts
        starts = torch.where(few | ~near, by_count, by_length)
        starts = torch.where(
            few, torch.minimum(self.first.unsqueeze(1) + torch.arange(parts), self.last.unsqueeze(1)), starts
        )
        return _between(starts, self.first, self.last, self.group, self.dtype, closed=closed)


def first_cells(low: Tensor, high: Tensor, count: int, marks: Sequence[float] = (), *, closed: bool = False) -> Cells:
    """Return cells of the ranges of some groups: of equal length, with 0 and other numbers as cells of their own.

    Args:
        low: The least number of each group, `(groups,)`.
        high: The greatest number.
        count: How many cells of equal length each range is cut into.
        marks: Numbers at which functions bend or jump.
        closed: See :meth:`Cells.split`.
    """
    dtype, groups = low.dtype, len(low)
    first, last = places_of(low), places_of(high)
    share = torch.arange(count, dtype=torch.float64) / count
    even = low.double().unsqueeze(1) * (1 - share) + high.double().unsqueeze(1) * share
    starts = [places_of(even.to(dtype))]
    special = torch.tensor([0.0, *marks], dtype=torch.float64).to(dtype)
    at = places_of(special[special.isfinite()] if dtype.is_floating_point else special)
    starts += [(at + step).expand(groups, -1) for step in (0, 1)]
    group = torch.arange(groups)
    return _between(torch.cat(starts, 1), first, last, group, dtype, closed=closed)


def _between(starts: Tensor, first: Tensor, last: Tensor, group: Tensor, dtype: torch.dtype, *, closed: bool) -> Cells:
    """Return the cells from each start to the next, for starts `(ranges, starts)` of ranges from `first` to `last`."""
    first, last = first.unsqueeze(1), last.unsqueeze(1)
    inside = torch.minimum(torch.maximum(starts, first), last)
    inside = torch.cat([first, inside], 1).sort(1).values
    ends = torch.cat([inside[:, 1:] - 1, last], 1)
    kept = inside <= ends
    if closed:
        ends = torch.minimum(ends + 1, last)
    return Cells(first=inside[kept], last=ends[kept], group=group.unsqueeze(1).expand_as(kept)[kept], dtype=dtype)
