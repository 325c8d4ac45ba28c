"""Branch and bound: a box is cut into smaller ones until backward linear bounds decide each.

The steps of the graph are those of the whole box, whose bounds on rounding hold for every part of it.  Many boxes go
through them at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.condensing import condense
from ranum_falsify.domain.linear.functionals import Functional, LinearBounds
from ranum_falsify.domain.linear.passes import BoxBatch, descend
from ranum_falsify.domain.linear.program import Program
from ranum_falsify.domain.linear.steps import Box, CurveStep, MatrixStep
from ranum_falsify.lazy import cached_property

__all__ = ["BranchAndBound", "SplitResult", "bound_parts", "split_and_bound"]

_COEFFICIENTS = 1 << 20
"""Coefficients of one variable in one pass over many boxes: as many as the caches of a core hold."""

_MOST_BYTES = 1 << 30
"""Memory that boxes may take while they wait."""

_DEPTH = 64
"""Cuts of a box, one inside another, for which there is room."""

_FEWEST = 32
"""Boxes of one batch, however many coefficients they have."""

_WIDTH = 1e-9
"""Weight of an element's width in the choice of the cut if no functional depends on it."""

_SHARP_SHARE = 0.5
"""Share of the time that is left for slopes, at most, before the box is cut."""

Decision = Callable[[LinearBounds], Tensor]
"""Tells of each box, from the bounds `(boxes, rows)`, whether it is proved: booleans `(boxes,)`."""


@dataclass(frozen=True)
class SplitResult:
    """The outcome of cutting a box.

    Attributes:
        proved: Whether every part of it is proved.
        boxes: How many boxes were bounded.
        open_boxes: For each input of the graph, lower and upper bounds `(count, *shape)` in float64 of parts that
            remain open, the worst first; None for an input that is not floating or has one value.
    """

    proved: bool
    boxes: int
    open_boxes: tuple[tuple[Tensor, Tensor] | None, ...]


class BranchAndBound:
    """The proof of a statement about linear functionals over the box of an analysis, which can be taken up again.

    First come the bounds on the whole box, then those with slopes chosen for what they leave open; then the box is cut.
    """

    def __init__(
        self,
        analysis: LinearAnalysis,
        ops: Sequence[Operation],
        rows: Tensor | None,
        is_proved: Decision,
        find_open: Decision | None = None,
    ) -> None:
        """Prepare.

        Args:
            analysis: The analysis of the whole box, run.
            ops: Operations that the functionals read; see
                :func:`ranum_falsify.domain.linear.bounds.bound_functional`.
            rows: Their coefficients `(rows, elements)`; each element on its own if not given.
            is_proved: Decides for each box.  It must be monotone: if true for bounds, it is true for narrower ones.
            find_open: Tells of the bounds of one box which rows, and then which of their negatives, must have better
                bounds to prove it, `(2 rows,)`; if not given, no slopes are chosen.
        """
        self._analysis, self._is_proved, self._find_open = analysis, is_proved, find_open
        self._functional = Functional.of(analysis, analysis.program, ops, rows)
        self._whole: LinearBounds | None = None
        self._is_sharp = False
        self._proved = False
        self._boxes = 0

    def run(self, deadline: float, keep: int = 64, *, cuts: bool = True) -> SplitResult:
        """Go on until the statement is proved, nothing can be cut, or time is up.

        Args:
            deadline: When to stop, on the clock of `time.monotonic`.
            keep: How many of the open boxes are returned.
            cuts: Whether the box is cut.
        """
        program = self._analysis.program
        if not self._proved:
            self._bound_whole(deadline)
        if self._proved or not cuts or all(v is None for v in program.inputs):  # there is nothing to cut
            return SplitResult(self._proved, self._boxes, _empty(program))
        result = self._search.run(deadline, keep)
        self._proved = result.proved
        return result

    @cached_property
    def _search(self) -> _Search:
        return _Search(self._analysis.program, self._functional, self._is_proved)

    def _bound_whole(self, deadline: float) -> None:
        if self._whole is None and time.monotonic() < deadline:
            self._whole, self._boxes = self._functional.bound(BoxBatch(self._analysis.program, {})), 1
            self._proved = bool(self._is_proved(self._whole).all())
        if self._whole is not None and not self._proved and self._find_open is not None and not self._is_sharp:
            now = time.monotonic()
            self._is_sharp = True
            self._sharpen(self._whole, self._find_open, now + _SHARP_SHARE * (deadline - now))

    def _sharpen(self, bounds: LinearBounds, find_open: Decision, deadline: float) -> None:
        done = torch.zeros(len(self._functional.constant), dtype=torch.bool)
        while not self._proved and time.monotonic() < deadline:
            # Where several sides of one condition are open, the next one shows once the worst is better.
            sides = find_open(bounds) & ~done
            if not bool(sides.any()):
                return
            bounds, done = self._analysis.sharpen(self._functional, bounds, sides, deadline=deadline), done | sides
            self._proved = bool(self._is_proved(bounds).all())


def split_and_bound(
    analysis: LinearAnalysis,
    ops: Sequence[Operation],
    rows: Tensor | None,
    is_proved: Decision,
    *,
    deadline: float,
    keep: int = 64,
) -> SplitResult:
    """Prove a statement about linear functionals by cutting the box of an analysis; see :class:`BranchAndBound`."""
    return BranchAndBound(analysis, ops, rows, is_proved).run(deadline, keep)


def bound_parts(
    analysis: LinearAnalysis, ops: Sequence[Operation], parts: Sequence[tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Bound operations on each of some parts of the box of an analysis.

    Args:
        analysis: The analysis of the whole box, run.
        ops: The operations.
        parts: For each input of the graph, lower and upper bounds `(parts, *shape)` in float64.

    Returns:
        Lower and upper bounds `(parts, elements)` in float64 of the elements of all operations; infinite where there
        are none.
    """
    functional = Functional.of(analysis, analysis.program, ops, None)
    chosen = [part for part, v in zip(parts, analysis.program.inputs, strict=True) if v is not None]
    if not chosen:  # all parts are the same point
        whole, count = functional.bound(BoxBatch(analysis.program, {})), len(parts[0][0])
        return whole.lower.expand(count, -1), whole.upper.expand(count, -1)
    search = _Search(analysis.program, functional, lambda bounds: torch.zeros(len(bounds.lower), dtype=torch.bool))
    lower, upper = search.bound_each([(_flatten(low), _flatten(high)) for low, high in chosen], len(parts[0][0]))
    return lower.nan_to_num(-math.inf, math.inf, -math.inf), upper.nan_to_num(math.inf, math.inf, -math.inf)


def _flatten(bound: Tensor) -> Tensor:
    return bound.reshape(len(bound), -1)


@dataclass(frozen=True)
class _Boxes:
    """Boxes that wait: flat bounds `(boxes, elements)` of the inputs, and of the watched variables after them."""

    low: Tensor
    high: Tensor

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, part: slice | Tensor) -> _Boxes:
        return _Boxes(self.low[part], self.high[part])

    @property
    def bytes(self) -> int:
        """Memory of both bounds."""
        return 2 * self.low.numel() * self.low.element_size()

    def columns(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        return self.low[:, start:stop], self.high[:, start:stop]


class _Search:
    def __init__(self, program: Program, functional: Functional, is_proved: Decision) -> None:
        self._functional, self._is_proved = functional, is_proved
        self._program = condense(program, functional.variables)
        self._inputs = [v for v in program.inputs if v is not None]
        order = self._program.select_before(functional.variables)
        watched = {v for i in order for v in self._program.steps[i].watched if v in self._program.writers}
        self._watched = sorted(watched, key=lambda v: self._program.writers[v])
        self._start: dict[int, int] = {}
        stop = 0
        for v in (*self._inputs, *self._watched):
            self._start[v] = stop
            stop += self._size(v)
        self._width = sum(self._size(v) for v in self._inputs)
        self._largest = max((self._size(v) for i in order for v in self._program.steps[i].reads), default=1)
        self._rows = len(functional.constant)
        self._waiting: list[_Boxes] = []
        self._stuck: _Boxes | None = None
        self._count = -1

    def _size(self, variable: int) -> int:
        return math.prod(self._program.variables[variable].shape)

    def run(self, deadline: float, keep: int) -> SplitResult:
        """Cut until nothing is open or time is up, from where the last run ended."""
        root = self._root()
        if self._count < 0:
            self._waiting, self._count = [root], 0
        while self._waiting and self._stuck is None and time.monotonic() < deadline:
            batch = self._take(self._waiting)
            bounds, batch = self._bound(batch)
            self._count += len(batch)
            stays = ~self._is_proved(bounds)
            if not bool(stays.any()):
                continue
            batch = batch[stays]
            low, high = batch.columns(0, self._width)
            if not bool((low < high).any(1).all()):
                # A point that is not proved cannot be cut.
                self._stuck = batch
            else:
                self._waiting.append(_halves(batch, self._scores(bounds, stays, high - low)))
        found, parts = len(self._stuck or ()), [self._stuck or root[:0]]
        for part in reversed(self._waiting if self._stuck is None else ()):
            if found >= keep:
                break
            parts, found = [*parts, part], found + len(part)
        return SplitResult(not found, self._count, self._cut_out(_join(parts), keep))

    def bound_each(self, inputs: Sequence[tuple[Tensor, Tensor]], count: int) -> tuple[Tensor, Tensor]:
        """Return bounds `(count, rows)` of the functional on parts of the box, given flat bounds of the inputs."""
        root = self._root()
        known = [end[:, self._width :].expand(count, -1) for end in (root.low, root.high)]
        low, high = (torch.cat([*(part[side] for part in inputs), known[side]], dim=1) for side in (0, 1))
        waiting, found = [_Boxes(low, high)], []
        while waiting:
            bounds, _ = self._bound(self._take(waiting))
            found.append((bounds.lower, bounds.upper))
        # The last ones are taken first.
        lower, upper = (torch.cat(ends) for ends in zip(*found[::-1], strict=True))
        return lower, upper

    def _root(self) -> _Boxes:
        ends = [self._program.variables[v].box for v in (*self._inputs, *self._watched)]
        return _Boxes(*(torch.cat([box[side].reshape(1, -1) for box in ends], dim=1) for side in (0, 1)))

    def _take(self, waiting: list[_Boxes]) -> _Boxes:
        """Take the boxes that were cut last: they are neighbours, in which the same operands are bent."""
        size = max(_FEWEST, _COEFFICIENTS // (self._largest * self._rows))
        # The fewer are cut at once, the fewer wait: of each cut, one half, as deep as the cuts go.
        room = _MOST_BYTES - sum(part.bytes for part in waiting)
        size = max(1, min(size, room // (_DEPTH * max(1, waiting[-1][:1].bytes))))
        taken, count = [], 0
        while waiting and count < size:
            last = waiting.pop()
            room = size - count
            if len(last) > room:
                waiting.append(last[: len(last) - room])
                last = last[len(last) - room :]
            taken.append(last)
            count += len(last)
        self._rows = len(self._functional.constant)
        return _join(taken)

    def _bound(self, batch: _Boxes) -> tuple[LinearBounds, _Boxes]:
        """Bound the functional over boxes; also return the boxes, with their watched variables narrowed."""
        count = len(batch)
        region = BoxBatch(self._program, {v: self._box(v, batch) for v in self._inputs})
        low, high = batch.low.clone(), batch.high.clone()
        for variable in self._watched:
            start = self._start[variable]
            stop = start + self._size(variable)
            narrow = self._narrow(variable, region, self._box(variable, batch))
            region.narrow(variable, narrow)
            low[:, start:stop], high[:, start:stop] = (bound.reshape(count, -1) for bound in narrow)
        return self._functional.bound(region, count), _Boxes(low, high)

    def _box(self, variable: int, batch: _Boxes) -> Box:
        start, shape = self._start[variable], self._program.variables[variable].shape
        low, high = batch.columns(start, start + self._size(variable))
        return low.reshape(len(batch), *shape), high.reshape(len(batch), *shape)

    def _narrow(self, variable: int, region: BoxBatch, box: Box) -> Box:
        """Bound those elements of a watched variable whose bounds matter, for each box its own."""
        low, high = (bound.reshape(len(bound), -1).clone() for bound in box)
        bent = self._find_bent(variable, box).reshape(len(low), -1)
        most = int(bent.sum(1).amax())
        if not most:
            return box
        self._rows = max(self._rows, 2 * most)
        # A box with fewer of them bounds others too, which does no harm.
        chosen = bent.to(torch.uint8).topk(most, dim=1).indices
        constant, weights = self._rows_of(variable, chosen)
        # What is known to be one number still has bounds apart, by rounding.
        lower = descend(weights, region)[0] + constant if weights else constant.expand(len(low), -1)
        least, greatest = lower[:, :most], -lower[:, most:]
        # Rounding may make the two bounds of a point cross.
        least, greatest = torch.minimum(least, greatest), torch.maximum(least, greatest)
        old = low.gather(1, chosen), high.gather(1, chosen)
        new = torch.minimum(torch.maximum(old[0], least), old[1])
        low.scatter_(1, chosen, new)
        high.scatter_(1, chosen, torch.maximum(torch.minimum(old[1], greatest), new))
        return low.reshape(box[0].shape), high.reshape(box[1].shape)

    def _find_bent(self, variable: int, box: Box) -> Tensor:
        found = torch.zeros(box[0].shape, dtype=torch.bool)
        for step in self._program.steps:
            if variable in step.watched:
                found |= step.find_bent(box) if isinstance(step, CurveStep) else box[0] < box[1]
        return found

    def _rows_of(self, variable: int, chosen: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """Return coefficients that each select one of the chosen elements `(boxes, count)`, then their negatives."""
        step = self._program.steps[self._program.writers[variable]]
        if isinstance(step, MatrixStep):
            parts = zip(step.reads, step.matrices, step.shapes, strict=True)
            gathered = {v: (matrix[chosen], shape) for v, matrix, shape in parts}
            weights = {v: torch.cat([w, -w], 1).reshape(len(w), -1, *shape) for v, (w, shape) in gathered.items()}
            offset, error = step.offset[chosen], step.error[chosen]
            return torch.cat([offset - error, -offset - error], 1), weights
        rows = torch.nn.functional.one_hot(chosen, self._size(variable)).double()
        weight = torch.cat([rows, -rows], 1).reshape(len(rows), -1, *self._program.variables[variable].shape)
        return torch.zeros(1, dtype=torch.float64), {variable: weight}

    def _scores(self, bounds: LinearBounds, stays: Tensor, width: Tensor) -> Tensor:
        """Return for each box and input element how much of the functionals' spread is due to it."""
        size = torch.zeros_like(width)
        for coefficients in (bounds.lower_coefficients, bounds.upper_coefficients):
            size += torch.cat(
                [x[stays].reshape(len(width), x.shape[1], -1).abs().sum(1) for x in coefficients if x is not None],
                dim=1,
            )
        return torch.where(width > 0, size * width + _WIDTH * width, -1.0)

    def _cut_out(self, boxes: _Boxes, keep: int) -> tuple[tuple[Tensor, Tensor] | None, ...]:
        return tuple(None if v is None else self._box(v, boxes[:keep]) for v in self._program.inputs)


def _empty(program: Program) -> tuple[tuple[Tensor, Tensor] | None, ...]:
    none = [None if v is None else program.variables[v].box[0][:0] for v in program.inputs]
    return tuple(None if x is None else (x, x) for x in none)


def _join(parts: Sequence[_Boxes]) -> _Boxes:
    return _Boxes(torch.cat([part.low for part in parts]), torch.cat([part.high for part in parts]))


def _halves(boxes: _Boxes, scores: Tensor) -> _Boxes:
    """Return both halves of boxes, cut along the input element of the highest score."""
    number, element = torch.arange(len(boxes)), scores.argmax(1)
    middle = (boxes.low[number, element] + boxes.high[number, element]) / 2
    left, right = boxes.high.clone(), boxes.low.clone()
    left[number, element], right[number, element] = middle, middle
    # Halves of one box stay neighbours.
    return _Boxes(_interleave(boxes.low, right), _interleave(left, boxes.high))


def _interleave(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first, second], 1).flatten(0, 1)
