"""Linear bounds of the greatest of some numbers, or of the least: of windows, of rows, of several operands.

The greatest number is at least each of them, and any mean of them.  It is at most b plus the sum of s_i x_i for any
weights s_i from 0 to 1, with b = max_k (u_k (1 - s_k) + s_k l_k) - sum of s_i l_i for numbers between l_i and u_i: the
greatest value of x_k less that sum is where x_k is u_k and the others are l_i.  One weight alone is best in the middle
of the box, where no others give less: the greatest upper bound's, with the chord of max(x_1, u_2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.error_bounds import double_share, tiny, unit
from ranum_falsify.domain.linear.steps import Box, PlaneChoice, Step, flatten

_FEWEST = 2
"""Numbers that decide the bound from above."""


@dataclass(frozen=True)
class _ExtremeLines:
    """Lines of a maximum.

    Attributes:
        below: Positions of the operands that bound it from below, and their factors, `(boxes or 1, results, some)`.
        above: Likewise of those that bound it from above.
        offset: The constant of the bound from above, `(boxes or 1, results)`.
        stray: The most by which runtimes' results, and our sums, may stray.
    """

    below: tuple[Tensor, Tensor]
    above: tuple[Tensor, Tensor]
    offset: Tensor
    stray: Tensor


class ExtremeStep(Step):
    """The greatest or least of some elements of some operands."""

    def __init__(
        self,
        reads: tuple[int, ...],
        write: int,
        shapes: Sequence[tuple[int, ...]],
        constants: Tensor,
        places: Tensor,
        *,
        greatest: bool,
        dtype: torch.dtype,
    ) -> None:
        """Prepare.

        Args:
            reads: See :class:`Step`.
            write: Variable of the results.
            shapes: Shapes of the operands that are read.
            constants: Further numbers to choose from.
            places: `(results, most)`: for each result, where the numbers stand of which it is the extreme, in the
                operands one after the other and then the constants; -1 for none.
            greatest: Whether the greatest is chosen.
            dtype: Type of the numbers.
        """
        self.reads, self.writes, self.watched = reads, (write,), reads
        self._shapes, self._constants = shapes, constants.unsqueeze(0)
        places = functional.pad(places, (0, max(0, _FEWEST - places.shape[1])), value=-1)
        self._present = places >= 0
        # What is not there may be chosen where all are equal, and is another one then.
        self._places = torch.where(self._present, places, places.amax(-1, keepdim=True))
        self._sign = 1.0 if greatest else -1.0
        # Either side of the comparison may be rounded to half precision, or be 0 where it is denormal.
        self._error, self._lost = 4 * unit(dtype) + double_share(places.shape[1]), 2 * tiny(dtype)
        self.work = 4 * len(places)
        self.choices = 2 * places.numel()

    def prepare(self, boxes: Sequence[Box]) -> _ExtremeLines:
        """Return lines of the maximum; those of a minimum are those of the negative operands' maximum, mirrored."""
        low, high = self._find_ends(boxes)
        below = (low + high).argmax(-1, keepdim=True)
        above, slope = _find_chord(low, high)
        places = self._places.expand(low.shape)
        factors = torch.zeros_like(low).scatter(-1, above, slope)
        offset, stray = self._bound_rest(low, high, factors)
        return _ExtremeLines(
            (places.gather(-1, below), torch.ones_like(slope)), (places.gather(-1, above), slope), offset, stray
        )

    def find_choice(self, boxes: Sequence[Box]) -> PlaneChoice | None:
        """See :meth:`Step.find_choice`: the mean that is below, and the factors of what is above."""
        low, high = self._find_ends(boxes)
        # What lies below the greatest lower bound is never the greatest.
        candidates = self._present & (high >= low.amax(-1, keepdim=True))
        if bool((candidates.sum(-1) == 1).all()):
            return None
        first = torch.zeros_like(low).scatter(-1, (low + high).argmax(-1, keepdim=True), 1.0)
        chord = torch.zeros_like(low).scatter(-1, *_find_chord(low, high))

        def mix(shares: Sequence[Tensor]) -> _ExtremeLines:
            mean, factors = (torch.where(candidates, share, 0.0) for share in shares)
            total = mean.sum(-1, keepdim=True)
            mean = torch.where(total > 0, mean / torch.where(total > 0, total, 1.0), first)
            offset, stray = self._bound_rest(low, high, factors)
            places = self._places.expand(low.shape)
            return _ExtremeLines((places, mean), (places, factors), offset, stray)

        return PlaneChoice([first, chord], mix)

    def _find_ends(self, boxes: Sequence[Box]) -> tuple[Tensor, Tensor]:
        """Return bounds of what is chosen from, `(boxes, results, most)`; what is not there counts like the least."""
        count = max(len(box[0]) for box in boxes)
        ends = [self._join([box[side] for box in boxes], count) for side in (0, 1)]
        low, high = ends if self._sign > 0 else (-ends[1], -ends[0])
        least = torch.where(self._present, low, torch.inf).amin(-1, keepdim=True)
        return torch.where(self._present, low, least), torch.where(self._present, high, least)

    def _bound_rest(self, low: Tensor, high: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the constant above the maximum less a sum with some factors, and the most that all of it may stray."""
        beside = factors * low
        offset = (high * (1 - factors) + beside).amax(-1) - beside.sum(-1)
        sizes = torch.maximum(low.abs(), high.abs())
        own = double_share(low.shape[-1]) * ((factors * sizes).sum(-1) + offset.abs())
        return offset, self._error * (sizes.amax(-1) + offset.abs()) + self._lost + own

    def _join(self, bounds: Sequence[Tensor], count: int) -> Tensor:
        parts = [flatten(x, 1).expand(count, -1) for x in bounds]
        return torch.cat([*parts, self._constants.expand(count, -1)], 1)[:, self._places]

    def back(self, weights: Sequence[Tensor], known: object) -> tuple[tuple[Tensor, ...], Tensor]:
        """See :meth:`Step.back`."""
        y = cast(_ExtremeLines, known)
        weight = weights[0].reshape(*weights[0].shape[:2], -1)
        rising, falling = weight.clamp(min=0), weight.clamp(max=0)
        # The maximum of the negatives is the negative of the minimum: its bound from above bounds that from below.
        from_below, from_above = (rising, falling) if self._sign > 0 else (falling, rising)
        sizes = [math.prod(shape) for shape in self._shapes]
        count = sum(sizes)
        whole = weight.new_zeros(*weight.shape[:2], count + self._constants.shape[1])
        for (places, factors), share in ((y.below, from_below), (y.above, from_above)):
            parts = share.unsqueeze(-1) * factors.unsqueeze(1)
            whole = whole.scatter_add(-1, places.unsqueeze(1).expand_as(parts).flatten(2), parts.flatten(2))
        constant = (whole[..., count:] * self._constants).sum(-1)
        constant = constant + self._sign * (from_above * y.offset.unsqueeze(1)).sum(-1)
        constant = constant - (weight.abs() * y.stray.unsqueeze(1)).sum(-1)
        passed = whole[..., :count].split(sizes, -1)
        return tuple(x.reshape(*x.shape[:2], *shape) for x, shape in zip(passed, self._shapes, strict=True)), constant


def _find_chord(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return which number bounds the greatest from above, `(..., results, 1)`, and its factor, from 0 to 1."""
    top, chosen = high.topk(_FEWEST, -1)
    first, second = top.split(1, -1)
    width = first - low.gather(-1, chosen[..., :1])
    slope = torch.where(width > 0, (first - second) / torch.where(width > 0, width, 1.0), 0.0).clamp(0, 1)
    return chosen[..., :1], slope


def find_places(operands: Sequence[object], sizes: Sequence[int]) -> tuple[list[Tensor | None], Tensor]:
    """Return positions of the elements of each operand, and the constants among them, whose positions come last.

    Args:
        operands: Variables, constants, and what is neither.
        sizes: Elements of each variable.

    Returns:
        Flat positions by operand, with -1 for infinite constants, and None for what has none.
    """
    remaining, start, end = iter(sizes), 0, sum(sizes)
    places: list[Tensor | None] = []
    constants = [torch.zeros(0, dtype=torch.float64)]
    for x in operands:
        if isinstance(x, int):
            size = next(remaining)
            places.append(torch.arange(start, start + size))
            start += size
        elif isinstance(x, Tensor):
            flat = x.flatten().double()
            places.append(torch.where(flat.isfinite(), torch.arange(end, end + len(flat)), -1))
            constants.append(torch.where(flat.isfinite(), flat, 0.0))
            end += len(flat)
        else:
            places.append(None)
    return places, torch.cat(constants)
