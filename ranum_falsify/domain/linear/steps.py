"""Steps of a backward pass: each turns a linear bound on a node's results into one on its operands.

A pass carries the coefficients of lower bounds: tensors `(boxes, rows, *shape)` in float64, one per variable.  A step
takes those of its output and returns those of its operands, and its contribution to the constant, `(boxes, rows)`,
which includes the most that the runtimes' rounding and our own can add.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import double_share
from ranum_falsify.domain.linear.relaxations import Lines, Relaxation, Slopes
from ranum_falsify.lazy import cached_property

Box = tuple[Tensor, Tensor]
"""Lower and upper bounds of a variable, `(boxes, *shape)` in float64; 1 in place of `boxes` holds for all of them."""

Function = Callable[..., tuple[Tensor, ...]]
"""A linear function of float64 tensors, one per operand, to one tensor per output."""


def minimise(weights: Tensor, box: Box) -> Tensor:
    """Return the least value of a linear function over boxes.

    Args:
        weights: Its coefficients `(boxes, rows, *shape)`.
        box: Bounds of the variable; may be infinite.

    Returns:
        `(boxes, rows)`.
    """
    low, high = (bound.unsqueeze(1) for bound in box)
    if bool(low.isfinite().all()) and bool(high.isfinite().all()):
        return dot(weights.clamp(min=0), box[0]) + dot(weights.clamp(max=0), box[1])
    worst = weights * torch.where(weights > 0, low, high)
    return flatten(torch.where(weights == 0, 0.0, worst), 2).sum(-1)


def dot(weights: Tensor, values: Tensor) -> Tensor:
    """Return the products `(boxes, rows)` of `(boxes, rows, *shape)` with `(boxes or 1, *shape)`."""
    flat = flatten(weights, 2)
    if values.shape[0] == 1:
        return flat @ values.reshape(-1)
    return (flat @ values.reshape(len(values), -1, 1)).squeeze(-1)


def flatten(x: Tensor, axis: int) -> Tensor:
    """Return a tensor whose axes from one on, which may be none or without elements, are one."""
    return x.unsqueeze(-1).flatten(axis)


@dataclass(frozen=True)
class PlaneChoice:
    """What may be chosen of a step's bounds: numbers from 0 to 1, which are sound whatever they are.

    Attributes:
        starts: Those of the bounds that `prepare` returns, or near them, `(boxes or 1, ...)`.
        make: Returns what `prepare` does, for chosen numbers; they may have more boxes than the bounds.
    """

    starts: Sequence[Tensor]
    make: Callable[[Sequence[Tensor]], object]


class Step(ABC):
    """A node of the graph, or a part of one.

    Attributes:
        reads: Variables of its operands, by number.
        writes: Variables of its outputs.
        watched: Operands whose bounds the step needs.
        work: Multiplications that one row of a pass takes, roughly.
        choices: How many numbers may be chosen, at most, besides two for each result.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    watched: tuple[int, ...] = ()
    work: int = 0
    choices: int = 0

    def prepare(self, boxes: Sequence[Box]) -> object:
        """Return what `back` needs to know of boxes, given the bounds of each watched operand."""
        return boxes

    def find_choice(self, boxes: Sequence[Box]) -> PlaneChoice | None:
        """Return what may be chosen in place of what `prepare` returns; None if that is nothing."""
        return None

    @abstractmethod
    def back(self, weights: Sequence[Tensor], known: object) -> tuple[tuple[Tensor, ...], Tensor]:
        """Pass coefficients from the outputs to the operands.

        Args:
            weights: Coefficients of each output, `(boxes, rows, *shape)`.
            known: What `prepare` returned.

        Returns:
            Coefficients of each operand, and the constant `(boxes, rows)`.
        """


_FEW_COEFFICIENTS = 1 << 16
"""Coefficients of an affine function up to which it is kept as matrices."""


class AffineFunction:
    """An affine function of some tensors, whose linear part is its derivative.

    Attributes:
        sizes: The numbers of elements of its operands.
    """

    def __init__(self, function: Function, shapes: Sequence[tuple[int, ...]]) -> None:
        """Prepare; nothing is computed before it is asked for.

        Args:
            function: The function, constant included.
            shapes: Shapes of the operands.
        """
        self._function, self._shapes = function, shapes
        self.sizes = [math.prod(shape) for shape in shapes]

    @cached_property
    def results(self) -> tuple[Tensor, ...]:
        """The constants, each of the shape of one result."""
        return tuple(y.detach() for y in self._traced[1])

    @property
    def coefficients(self) -> int:
        """How many coefficients the results have in the elements of the operands, zeros among them."""
        return sum(y.numel() for y in self.results) * sum(self.sizes)

    @cached_property
    def matrices(self) -> list[Tensor]:
        """The coefficients `(elements of all results, elements)` of each operand."""
        counts = [y.numel() for y in self.results]
        rows = torch.eye(sum(counts), dtype=torch.float64).split(counts, 1)
        weights = [row.reshape(len(row), *y.shape) for row, y in zip(rows, self.results, strict=True)]
        return [flatten(x, 1) for x in self._pull(weights)]

    def pull(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the coefficients `(rows, *operand)` of functionals of the results, given theirs `(rows, *result)`."""
        if self.coefficients > _FEW_COEFFICIENTS:
            return self._pull(weights)
        rows = torch.cat([flatten(weight, 1) for weight in weights], 1)
        of = zip(self.matrices, self._shapes, strict=True)
        return [(rows @ matrix).reshape(len(rows), *shape) for matrix, shape in of]

    @cached_property
    def _traced(self) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        zeros = [torch.zeros(shape, dtype=torch.float64, requires_grad=True) for shape in self._shapes]
        with torch.enable_grad():
            return zeros, self._function(*zeros)

    def _pull(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        zeros, results = self._traced
        return pull_back(results, zeros, weights)


class AffineStep(Step):
    """An affine function; the results stray from it by at most `error`.

    Attributes:
        function: The function.
        gone: Where results are infinite, by result; nothing bounds what reads them there.
    """

    def __init__(
        self,
        reads: tuple[int, ...],
        writes: tuple[int, ...],
        function: AffineFunction,
        errors: Callable[[], Sequence[Tensor]],
        gone: Sequence[Tensor] = (),
    ) -> None:
        """Prepare; nothing is computed before the first pass.

        Args:
            reads: See :class:`Step`.
            writes: See :class:`Step`.
            function: The function.
            errors: Returns the most by which each output may stray.
            gone: Where outputs are infinite; none are if not given.
        """
        self.reads, self.writes, self.gone = reads, writes, gone
        self.function, self._errors_of = function, errors

    @cached_property
    def _errors(self) -> list[Tensor]:
        return [error.expand(y.shape) for error, y in zip(self._errors_of(), self.function.results, strict=True)]

    def bound_terms(self, boxes: Sequence[Box]) -> Box:
        """Return bounds of what each element of the operands, and the constant, adds to each element of the result.

        Args:
            boxes: Bounds of the operands, of their own shapes.

        Returns:
            Lower and upper bounds, `(results, elements + 1)`.
        """
        of = zip(self.function.matrices, boxes, strict=True)
        ends = [[matrix * end.reshape(-1) for end in box] for matrix, box in of]
        offset = self.function.results[0].reshape(-1, 1)
        return (
            torch.cat([*(torch.minimum(*pair) for pair in ends), offset], 1),
            torch.cat([*(torch.maximum(*pair) for pair in ends), offset], 1),
        )

    def back(self, weights: Sequence[Tensor], known: object) -> tuple[tuple[Tensor, ...], Tensor]:
        """See :meth:`Step.back`."""
        passed, (offset, error) = self.parts(weights)
        return passed, offset - error

    def parts(self, weights: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Tensor, Tensor]]:
        """Pass coefficients back; the constant and the most that may be subtracted from it are returned separately."""
        count, rows = weights[0].shape[0], weights[0].shape[1]
        constant, stray = torch.zeros(2, count, rows, dtype=torch.float64)
        for weight, offset, error in zip(weights, self.function.results, self._errors, strict=True):
            constant = constant + dot(weight, offset.unsqueeze(0))
            stray = stray + dot(weight.abs(), error.unsqueeze(0))
        for weight, gone in zip(weights, self.gone, strict=False):
            constant = constant.masked_fill(flatten((weight != 0) & gone, 2).any(-1), -math.inf)
        pulled = self.function.pull([weight.flatten(0, 1) for weight in weights])
        return tuple(x.unflatten(0, (count, rows)) for x in pulled), (constant, stray)


def pull_back(results: Sequence[Tensor], operands: Sequence[Tensor], weights: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the products `(rows, *operand)` of coefficients `(rows, *result)` with the derivatives of results."""
    computed = [(y, w) for y, w in zip(results, weights, strict=True) if y.requires_grad]
    if not computed:
        return [torch.zeros(len(weights[0]), *x.shape, dtype=torch.float64) for x in operands]
    of = [y for y, _ in computed]
    again = any(w.requires_grad for w in weights)

    def pull(*given: Tensor) -> tuple[Tensor, ...]:
        found = torch.autograd.grad(of, operands, given, retain_graph=True, allow_unused=True, create_graph=again)
        return tuple(torch.zeros_like(x) if y is None else y for x, y in zip(operands, found, strict=True))

    with warnings.catch_warnings():
        # Some derivatives are computed row by row, which is slower, but nothing that a user needs to know.
        warnings.simplefilter("ignore", UserWarning)
        found: tuple[Tensor, ...] = torch.func.vmap(pull)(*(w for _, w in computed))
        return found


class CurveStep(Step):
    """An elementwise function between two lines."""

    def __init__(
        self, read: int, write: int, relaxation: Relaxation, error: Tensor, smallest: float, results: Box
    ) -> None:
        """Prepare.

        Args:
            read: Variable of the operand.
            write: Variable of the result.
            relaxation: The function.
            error: The most by which kernels may stray from it, of the operand's shape or one number.
            smallest: Operands closer to 0 may have been replaced by 0.
            results: Finite bounds of the results that hold in any case, used where there are no lines.
        """
        self.reads, self.writes, self.watched = (read,), (write,), (read,)
        self._relaxation, self._error, self._smallest, self._results = relaxation, error, smallest, results
        self.work = results[0].numel() * 4

    def find_bent(self, box: Box) -> Tensor:
        """Return where narrower bounds would give other lines, `(boxes or 1, *shape)`."""
        return self._relaxation.find_bent(*box)

    def select(self, elements: Tensor, read: int, write: int) -> CurveStep:
        """Return the step of some elements alone, given by their places, as flat variables."""
        shape = self._results[0].shape
        low, high = (end.reshape(1, -1)[:, elements] for end in self._results)
        error = self._error.expand(shape).reshape(1, -1)[:, elements]
        return CurveStep(read, write, self._relaxation.select(shape, elements), error, self._smallest, (low, high))

    def find_cut(self, box: Box) -> Tensor:
        """Return where to cut bounds that are bent, `(boxes or 1, *shape)`."""
        return self._relaxation.find_cut(*box)

    def prepare(self, boxes: Sequence[Box]) -> Lines:
        """Return lines that enclose what runtimes compute, of `(boxes or 1, *shape)`."""
        return self._include_errors(boxes[0], self._relaxation.lines(*boxes[0]))

    def find_choice(self, boxes: Sequence[Box]) -> PlaneChoice | None:
        """See :meth:`Step.find_choice`: slopes, as shares of the way from one end of their range to the other."""
        box = boxes[0]
        first, last = self._relaxation.find_range(*box)
        if torch.equal(first.lower, last.lower) and torch.equal(first.upper, last.upper):
            return None
        y = self.prepare(boxes)
        ends = ((first.lower, last.lower), (first.upper, last.upper))

        def tilt(shares: Sequence[Tensor]) -> Lines:
            slopes = Slopes(*(a + share * (b - a) for share, (a, b) in zip(shares, ends, strict=True)))
            return self._include_errors(box, self._relaxation.tilt(*box, slopes))

        starts = [_share_of(own, *end) for own, end in zip((y.lower_slope, y.upper_slope), ends, strict=True)]
        return PlaneChoice(starts, tilt)

    def _include_errors(self, box: Box, y: Lines) -> Lines:
        known = [part.isfinite() for part in (y.lower_slope, y.lower_offset, y.upper_slope, y.upper_offset)]
        below, above = known[0] & known[1], known[2] & known[3]
        # Later steps may compute with the mean and the difference of both lines, so the larger one decides.
        size = torch.maximum(box[0].abs(), box[1].abs())
        slope = torch.maximum(y.lower_slope.abs(), y.upper_slope.abs())
        own = double_share(1)
        stray = self._error + slope * (self._smallest + own * size)
        low = torch.where(below, y.lower_offset - stray, self._results[0])
        high = torch.where(above, y.upper_offset + stray, self._results[1])
        rounded = own * torch.maximum(low.abs(), high.abs())
        low_slope, high_slope = torch.where(below, y.lower_slope, 0.0), torch.where(above, y.upper_slope, 0.0)
        return Lines(low_slope, low - rounded, high_slope, high + rounded)

    def back(self, weights: Sequence[Tensor], known: object) -> tuple[tuple[Tensor, ...], Tensor]:
        """See :meth:`Step.back`."""
        assert isinstance(known, Lines), "curves are prepared to lines"
        y, weight = known, weights[0]
        size = weight.abs()
        # w+ a + w- b = w (a + b) / 2 + |w| (a - b) / 2
        constant = dot(weight, (y.lower_offset + y.upper_offset) / 2)
        constant += dot(size, (y.lower_offset - y.upper_offset) / 2)
        passed = weight * ((y.lower_slope + y.upper_slope) / 2).unsqueeze(1)
        return (passed.addcmul_(size, ((y.lower_slope - y.upper_slope) / 2).unsqueeze(1)),), constant


def _share_of(own: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Return how far a slope is on the way from one end of its range to the other."""
    width = last - first
    return torch.where(width == 0, 0.0, (own - first) / torch.where(width == 0, 1.0, width)).clamp(0, 1)


class MatrixStep(Step):
    """An affine function as matrices, one per operand; the result strays from it by at most `error`."""

    def __init__(
        self,
        reads: tuple[int, ...],
        write: int,
        matrices: Sequence[Tensor],
        shapes: Sequence[tuple[int, ...]],
        offset: Tensor,
        error: Tensor,
    ) -> None:
        """Prepare.

        Args:
            reads: See :class:`Step`.
            write: Variable of the result.
            matrices: `(elements of the result, elements of the operand)` for each operand.
            shapes: Shapes of the operands.
            offset: The constant, flat.
            error: The most by which each element of the result may stray, flat.
        """
        self.reads, self.writes = reads, (write,)
        self.matrices, self.shapes = matrices, shapes
        self.offset, self.error = offset, error
        self.work = sum(matrix.numel() for matrix in matrices)

    def back(self, weights: Sequence[Tensor], known: object) -> tuple[tuple[Tensor, ...], Tensor]:
        """See :meth:`Step.back`."""
        weight = flatten(weights[0], 2)
        constant = weight @ self.offset - weight.abs() @ self.error
        parts = zip(self.matrices, self.shapes, strict=True)
        return tuple((weight @ matrix).reshape(*weight.shape[:2], *shape) for matrix, shape in parts), constant
