"""Linear bounds of the greatest of some numbers, or of the least: of windows, of rows, of several operands.

The greatest number is at least each of them.  It is at most max(x_1, u_2), where u_1 is the greatest of their upper
bounds and u_2 the second: a convex function of x_1, which lies below its chord.  In the middle of the box, no weights
of all of them from 0 to 1 give less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.linear.steps import Box, Step
from ranum_falsify.domain.slack import double_share, tiny, unit

__all__ = ["ExtremeStep"]

_FEWEST = 2
"""Numbers that decide the bound from above."""


@dataclass(frozen=True)
class _ExtremeLines:
    """Lines of a maximum.

    Attributes:
        below: Position of the operand that bounds it from below, `(boxes or 1, results)`.
        above: Position of the operand that bounds it from above, likewise.
        slope: The factor of that operand.
        offset: The constant of the bound from above.
        stray: The most by which runtimes' results, and our sums, may stray.
    """

    below: Tensor
    above: Tensor
    slope: Tensor
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
        self._error, self._lost = 4 * unit(dtype) + double_share(1), 2 * tiny(dtype)
        self.work = 4 * len(places)

    def prepare(self, boxes: Sequence[Box]) -> _ExtremeLines:
        """Return lines of the maximum; those of a minimum are those of the negative operands' maximum, mirrored."""
        count = max(len(box[0]) for box in boxes)
        ends = [self._join([box[side] for box in boxes], count) for side in (0, 1)]
        low, high = ends if self._sign > 0 else (-ends[1], -ends[0])
        # What is not there counts like the least of the others.
        least = torch.where(self._present, low, torch.inf).amin(-1, keepdim=True)
        low, high = (torch.where(self._present, end, least) for end in (low, high))
        below = (low + high).argmax(-1, keepdim=True)
        above, slope, offset = _bound_above(low, high)
        stray = self._error * (torch.maximum(low.abs(), high.abs()).amax(-1) + offset.abs()) + self._lost
        chosen = [self._places.expand(len(column), -1, -1).gather(-1, column).squeeze(-1) for column in (below, above)]
        return _ExtremeLines(chosen[0], chosen[1], slope, offset, stray)

    def _join(self, bounds: Sequence[Tensor], count: int) -> Tensor:
        parts = [x.reshape(len(x), -1).expand(count, -1) for x in bounds]
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
        for places, share in ((y.below, from_below), (y.above, from_above * y.slope.unsqueeze(1))):
            whole = whole.scatter_add(-1, places.unsqueeze(1).expand_as(share), share)
        constant = (whole[..., count:] * self._constants).sum(-1)
        constant = constant + self._sign * (from_above * y.offset.unsqueeze(1)).sum(-1)
        constant = constant - (weight.abs() * y.stray.unsqueeze(1)).sum(-1)
        passed = whole[..., :count].split(sizes, -1)
        return tuple(x.reshape(*x.shape[:2], *shape) for x, shape in zip(passed, self._shapes, strict=True)), constant


def _bound_above(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return which number bounds the greatest from above, `(..., results, 1)`, its factor and the constant.

    Any factor from 0 to 1 is sound, however it is rounded: the convex function is highest at an end of the chord.
    """
    top, chosen = high.topk(_FEWEST, -1)
    first, second = top.unbind(-1)
    least = low.gather(-1, chosen[..., :1]).squeeze(-1)
    width = first - least
    slope = torch.where(width > 0, (first - second) / torch.where(width > 0, width, 1.0), 0.0).clamp(0, 1)
    offset = torch.maximum(first - slope * first, torch.maximum(least, second) - slope * least)
    return chosen[..., :1], slope, offset
