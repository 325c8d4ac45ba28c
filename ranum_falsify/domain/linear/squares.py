"""Mean squares of rows as variables of their own, which passes narrow: what is standardised depends on them."""

from __future__ import annotations

import torch
from torch import Tensor

from ranum_falsify.domain.linear.curves import SQUARE
from ranum_falsify.domain.linear.program import BoundedTensor
from ranum_falsify.domain.linear.rows import Rows
from ranum_falsify.domain.linear.steps import AffineStep, Box, CurveStep, Step
from ranum_falsify.domain.slack import double_share

__all__ = ["squares_of_rows"]


def squares_of_rows(
    read: int, first: int, rows: Rows, box: Box, *, centred: bool
) -> tuple[list[Step], list[BoundedTensor]]:
    """Return steps to the mean squares of rows, in real numbers, and the variables that they write.

    Args:
        read: Variable of the rows.
        first: Number of the first variable that is written; the last one has the mean squares, one for each row.
        rows: The rows.
        box: Bounds of them, `(1, *shape)`.
        centred: Whether the mean is subtracted first.
    """
    own, shape = double_share(rows.size), tuple(box[0].shape[1:])
    steps: list[Step] = []
    found: list[BoundedTensor] = []
    if centred:
        reach = own * torch.maximum(box[0].abs(), box[1].abs()).max()
        box = box[0] - _spread(rows, box[1]) - reach, box[1] - _spread(rows, box[0]) + reach
        found.append(BoundedTensor(shape, box))
        steps.append(AffineStep((read,), (first,), lambda x: (x - _spread(rows, x),), [shape], lambda: [2 * reach]))
        read, first = first, first + 1
    ends = box[0].square(), box[1].square()
    least = torch.where((box[0] < 0) & (box[1] > 0), 0.0, torch.minimum(*ends)) * (1 - own)
    squares = least, torch.maximum(*ends) * (1 + own)
    found.append(BoundedTensor(shape, squares))
    steps.append(CurveStep(read, first, SQUARE, torch.zeros(1, dtype=torch.float64), 0.0, squares))
    error = own * squares[1].max()
    low, high = (rows.cut(end).mean(-1) for end in squares)
    found.append(BoundedTensor(tuple(low.shape[1:]), (low - error, high + error)))
    steps.append(AffineStep((first,), (first + 1,), lambda x: (rows.cut(x).mean(-1),), [shape], lambda: [error]))
    return steps, found


def _spread(rows: Rows, x: Tensor) -> Tensor:
    """Return the mean of each row at the place of each of its elements."""
    parts = rows.cut(x)
    return rows.join(parts.mean(-1, keepdim=True).expand_as(parts))
