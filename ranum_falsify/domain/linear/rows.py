"""Steps of functions of rows of numbers, each of whose results depends on all of its row: Softmax, LayerNormalization.

The planes below and above a result share their coefficients: a number of its own, and multiples of a few linear
functions of the row, so that a pass takes no longer than through an elementwise function.  What a combination of the
results comes to at least, whatever the row is, bounds it where the planes are far apart.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import accumulation, double_share, tiny, unit
from ranum_falsify.domain.linear.steps import Box, PlaneChoice, Step

_SHARE = 0.25
"""Planes and constants are compared where a plane has come this share of the way from its middle to its worst value.

In the middle itself, planes would be chosen that are far beyond all values at some vertices of the box.
"""


_FAR = 1000.0
"""exp(-1000) is 0 in float64."""

_FURTHER = 2.0**-40
"""Share of large numbers that is taken from them besides, as 1000 is lost in their rounding."""

_LARGEST = 1e300
"""Beyond it, float64 has no room for that."""


@dataclass(frozen=True)
class Plane:
    """Linear functions of rows, one for each result: `own * x_i + sum of shares[k] * common[k](x) + offset`.

    Attributes:
        own: `(..., n)`.
        shares: `(functions, ..., n)`.
        offset: `(..., n)`.
    """

    own: Tensor
    shares: Tensor
    offset: Tensor

    def keep(self, chosen: Tensor, otherwise: Tensor) -> Plane:
        """Return the functions where they are chosen, and constants elsewhere."""
        return Plane(
            torch.where(chosen, self.own, 0.0),
            torch.where(chosen, self.shares, 0.0),
            torch.where(chosen, self.offset, otherwise),
        )


@dataclass(frozen=True)
class RowLines:
    """What is known of a function on rows between bounds; all are float64.

    Attributes:
        common: Coefficients of linear functions of the row, `(functions, ..., n)`.
        lower: Planes below the results in real numbers.
        upper: Planes above them.
        stray: The most by which runtimes' results may stray from these, `(..., n)`; infinite where nothing is known.
        least: Least results, in real numbers and of runtimes, `(..., n)`; may be infinite.
        greatest: Greatest results.
    """

    common: Tensor
    lower: Plane
    upper: Plane
    stray: Tensor
    least: Tensor
    greatest: Tensor


class RowFunction(ABC):
    """A function of rows of n numbers to as many.

    Attributes:
        is_masked: Whether an element of -inf is as if it were not there; its result is 0.
        centred: Whether results depend on the mean of the squares of the numbers less their mean, or of the numbers
            themselves; None if on neither.
    """

    is_masked = False
    centred: bool | None = None

    @abstractmethod
    def bound(self, low: Tensor, high: Tensor, shares: Sequence[Tensor] = (), squares: Box | None = None) -> RowLines:
        """Return what holds for all rows `(..., n)` between two finite bounds.

        Args:
            low: Lower bounds.
            high: Upper bounds.
            shares: Numbers from 0 to 1 that choose planes, as those of `starts` do; planes hold for any of them.
            squares: Bounds of the mean square that results depend on, `(..., 1)`, if more is known of it.
        """

    def starts(self, low: Tensor, high: Tensor) -> Sequence[Tensor]:
        """Return the numbers that choose the planes which `bound` returns without any; none if there is no choice."""
        return ()

    @abstractmethod
    def minimise(self, weights: Tensor, least: Tensor, greatest: Tensor) -> Tensor:
        """Return lower bounds of linear functions of the results in real numbers, whatever the row is.

        Args:
            weights: Their coefficients, `(boxes, rows, rows of the tensor, n)`.
            least: Bounds of the results, `(boxes or 1, 1, rows of the tensor, n)`.
            greatest: Likewise.

        Returns:
            `(boxes, rows, rows of the tensor)`; less than the true ones by what float64 rounds, at least.
        """


@dataclass(frozen=True)
class _PreparedRows:
    """Planes that enclose what runtimes compute, bounds of that, and middle and radius of the operand's box."""

    lines: RowLines
    results: Box
    middle: Tensor
    radius: Tensor


class Rows:
    """A tensor as rows of a matrix.

    Attributes:
        size: Elements of a row.
    """

    def __init__(self, shape: Sequence[int], dims: Sequence[int]) -> None:
        """Describe the rows that some dimensions of a shape make up."""
        self._shape, rank = tuple(shape), len(shape)
        chosen = sorted(dim % rank for dim in dims) if rank else []
        self._order = [dim for dim in range(rank) if dim not in chosen] + chosen
        self.size = math.prod(shape[dim] for dim in chosen)

    def keep_some(self, box: Box) -> bool:
        """Tell whether elements of rows are finite or surely -inf, though not all of a row."""
        low, high = (self.cut(bound) for bound in box)
        finite = low.isfinite() & high.isfinite()
        return bool((finite | (high == -math.inf)).all() and finite.any(-1).all())

    def cut(self, x: Tensor) -> Tensor:
        """Return a tensor `(..., *shape)` as rows `(..., rows, n)`."""
        lead = x.ndim - len(self._shape)
        moved = x.permute(*range(lead), *(lead + dim for dim in self._order))
        return moved.reshape(*x.shape[:lead], -1, self.size)

    def join(self, rows: Tensor) -> Tensor:
        """Return rows as a tensor again."""
        lead = rows.ndim - 2
        moved = rows.reshape(*rows.shape[:lead], *(self._shape[dim] for dim in self._order))
        back = [lead + self._order.index(dim) for dim in range(len(self._shape))]
        return moved.permute(*range(lead), *back)


class RowStep(Step):
    """A function of rows between planes."""

    def __init__(
        self,
        read: int,
        write: int,
        function: RowFunction,
        rows: Rows,
        results: Box,
        dtype: torch.dtype,
        squares: Sequence[int] = (),
    ) -> None:
        """Prepare.

        Args:
            read: Variable of the operand.
            write: Variable of the result, of the same shape.
            function: The function.
            rows: The operand's rows.
            results: Finite bounds of the results that hold in any case.
            dtype: Type of both.
            squares: Variable of the mean squares that the results depend on, one for each row, if there is one.
        """
        self.reads, self.writes, self.watched = (read,), (write,), (read, *squares)
        self._function, self._rows = function, rows
        self._results = rows.cut(results[0]), rows.cut(results[1])
        # Runtimes may round what a node of half precision reads, or not, and take denormal numbers for 0.
        self._rounding = 0.0 if accumulation(dtype) is dtype else 2 * unit(dtype)
        self._smallest = tiny(dtype)
        self.work = results[0].numel() * 16
        self.choices = results[0].numel() * 4

    def prepare(self, boxes: Sequence[Box]) -> _PreparedRows:
        """Return planes that enclose what runtimes compute; constant where the results' bounds are closer."""
        return self._prepare(boxes)

    def find_choice(self, boxes: Sequence[Box]) -> PlaneChoice | None:
        """See :meth:`Step.find_choice`."""
        starts = self._function.starts(*self._cut(boxes[0]))
        return PlaneChoice(starts, partial(self._prepare, boxes)) if starts else None

    def _prepare(self, boxes: Sequence[Box], shares: Sequence[Tensor] = ()) -> _PreparedRows:
        low, high = self._cut(boxes[0])
        y = self._function.bound(low, high, shares, self._find_squares(boxes, torch.maximum(low.abs(), high.abs())))
        least = torch.maximum(y.least.nan_to_num(-math.inf), self._results[0])
        # Either bound holds where rounding makes two of them cross.
        greatest = torch.minimum(y.greatest.nan_to_num(math.inf), self._results[1]).maximum(least)
        stray = y.stray + self._error(y, torch.maximum(low.abs(), high.abs()))
        middle, radius = (low + high) / 2, (high - low) / 2
        lower = _choose(y.lower, y.common, least, stray, middle, radius, -1.0)
        upper = _choose(y.upper, y.common, greatest, stray, middle, radius, 1.0)
        lines = replace(y, common=y.common.nan_to_num(0.0, 0.0, 0.0), lower=lower, upper=upper)
        return _PreparedRows(lines, (least, greatest), middle, radius)

    def _cut(self, box: Box) -> Box:
        """Return bounds of the rows; what is -inf is so far below the others of its row that its share vanishes."""
        low, high = (self._rows.cut(bound) for bound in box)
        gone = high == -math.inf
        if not bool(gone.any()):
            return low, high
        least = torch.where(gone, math.inf, low).amin(-1, keepdim=True)
        below = least - _FAR - _FURTHER * least.abs()
        # Nothing is known of rows near the end of float64.
        cut_off = gone & (below < -_LARGEST)
        return torch.where(gone, below, low).masked_fill(cut_off, -math.inf), torch.where(gone, below, high)

    def _find_squares(self, boxes: Sequence[Box], size: Tensor) -> Box | None:
        """Return bounds of mean squares, also of numbers of at most some sizes that are taken for 0 where denormal."""
        if len(boxes) == 1:
            return None
        low, high = (bound.unsqueeze(-1) for bound in boxes[1])
        greatest = size.amax(-1, keepdim=True)
        spare = double_share(self._rows.size) * high + 8 * self._smallest * (greatest + self._smallest)
        return low - spare, high + spare

    def _error(self, y: RowLines, size: Tensor) -> Tensor:
        """Return the most by which planes differ for operands that are rounded, and in passes, which use float64."""
        own = double_share(self._rows.size)
        reach = (own + self._rounding) * size + self._smallest
        common = (y.common.abs() * reach).sum(-1, keepdim=True)
        sides = [
            p.own.abs() * reach + (p.shares.abs() * common).sum(0) + own * p.offset.abs() for p in (y.lower, y.upper)
        ]
        return torch.maximum(*sides)

    def back(self, weights: Sequence[Tensor], known: object) -> tuple[tuple[Tensor, ...], Tensor]:
        """See :meth:`Step.back`."""
        of = cast(_PreparedRows, known)
        y, weight = of.lines, self._rows.cut(weights[0])
        up, down = weight.clamp(min=0), weight.clamp(max=0)
        passed = up * _lift(y.lower.own) + down * _lift(y.upper.own)
        for below, above, common in zip(y.lower.shares, y.upper.shares, y.common, strict=True):
            passed = passed + (up * _lift(below) + down * _lift(above)).sum(-1, keepdim=True) * _lift(common)
        constant = (up * _lift(y.lower.offset) + down * _lift(y.upper.offset)).sum(-1)
        level = self._minimise(weight, of)
        middle, spread = (passed * _lift(of.middle)).sum(-1), (passed.abs() * _lift(of.radius)).sum(-1)
        flat = level >= constant + middle - _SHARE * spread
        passed = torch.where(flat.unsqueeze(-1), 0.0, passed)
        return (self._rows.join(passed),), torch.where(flat, level, constant).sum(-1)

    def _minimise(self, weight: Tensor, of: _PreparedRows) -> Tensor:
        """Return what the results of each row contribute at least, `(boxes, rows, rows of the tensor)`."""
        least, greatest = (_lift(bound) for bound in of.results)
        alone = weight.clamp(min=0) * least + weight.clamp(max=0) * greatest
        own = double_share(self._rows.size)
        apart = alone.sum(-1) - own * alone.abs().sum(-1)
        stray = torch.where(weight == 0, 0.0, weight.abs() * _lift(of.lines.stray)).sum(-1)
        together = self._function.minimise(weight, _lift(of.lines.least), _lift(of.lines.greatest)) - stray * (1 + own)
        return torch.maximum(apart, together.nan_to_num(nan=-math.inf))


def _lift(x: Tensor) -> Tensor:
    """Return `(boxes, rows of the tensor, n)` for all rows of a pass."""
    return x.unsqueeze(1)


def _choose(
    plane: Plane, common: Tensor, end: Tensor, stray: Tensor, middle: Tensor, radius: Tensor, side: float
) -> Plane:
    """Return planes moved outward by what results stray, and constants where the bounds of the results are closer."""
    plane = replace(plane, offset=plane.offset + side * stray)
    value = plane.own * middle + (plane.shares * (common * middle).sum(-1, keepdim=True)).sum(0) + plane.offset
    others = (common.abs() * radius).sum(-1, keepdim=True) - common.abs() * radius
    spread = (plane.own + (plane.shares * common).sum(0)).abs() * radius + (plane.shares.abs() * others).sum(0)
    closer = side * value + _SHARE * spread < side * end
    closer &= plane.own.isfinite() & plane.shares.isfinite().all(0) & plane.offset.isfinite()
    return plane.keep(closer, end)
