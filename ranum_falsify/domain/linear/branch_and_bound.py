"""Branch and bound: a box is cut into smaller ones until backward linear bounds decide each.

The steps of the graph are those of the whole box, whose bounds on rounding hold for every part of it.  Many boxes go
through them at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.linear.backsubstitution import BoxBatch, Program
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.branching import Boxes, Branching, Decision, InputBranching, halve, join, take
from ranum_falsify.domain.linear.curve_branching import CurveBranching, find_thresholds
from ranum_falsify.domain.linear.functionals import Functional, LinearBounds
from ranum_falsify.lazy import cached_property
from ranum_falsify.network.tensors import processors, torch_threads
from ranum_falsify.process.deadline import Deadline

_FEW_INPUTS = 32
"""Input elements that vary, at most, where cutting them one after another decides more than cutting inside."""

_SHARP_SHARE = 0.5
"""Share of the time that is left for slopes, at most, before the box is cut."""


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

    First come the bounds on the whole box, then those with slopes chosen for what they leave open; then the box is cut:
    along inputs where few of them vary, else along operands of curves if each row that is open decides on its own.
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

    def run(self, deadline: Deadline, keep: int = 64, *, cuts: bool = True) -> SplitResult:
        """Go on until the statement is proved, nothing can be cut, or time is up.

        Args:
            deadline: When to stop.
            keep: How many of the open boxes are returned.
            cuts: Whether the box is cut.
        """
        program = self._analysis.program
        if not self._proved:
            self._bound_whole(deadline)
        if self._proved or not cuts or all(v is None for v in program.inputs):  # there is nothing to cut
            return SplitResult(self._proved, self._boxes, _empty(program))
        if self._whole is None:  # there was no time to find out how to cut
            return SplitResult(False, 0, _cut_out(program))
        result = self._search.run(deadline, keep)
        self._proved = result.proved
        return result

    @cached_property
    def _search(self) -> _Search:
        return _Search(self._find_curves() or InputBranching(self._analysis.program, self._functional, self._is_proved))

    def _find_curves(self) -> CurveBranching | None:
        """Return how to cut along operands of curves; None where inputs are few or sides do not decide on their own."""
        program = self._analysis.program
        boxes = [program.variables[v].box for v in program.inputs if v is not None]
        are_few = sum(int((low < high).sum()) for low, high in boxes) <= _FEW_INPUTS
        if self._find_open is None or self._whole is None or are_few:
            return None
        sides = self._find_open(self._whole)
        thresholds = find_thresholds(self._is_proved, self._whole, sides) if bool(sides.any()) else None
        return None if thresholds is None else CurveBranching(program, self._functional, thresholds, sides)

    def _bound_whole(self, deadline: Deadline) -> None:
        if self._whole is None and not deadline.has_passed:
            self._whole, self._boxes = self._functional.bound(BoxBatch(self._analysis.program, {})), 1
            self._proved = bool(self._is_proved(self._whole).all())
        if self._whole is not None and not self._proved and self._find_open is not None and not self._is_sharp:
            self._is_sharp = True
            self._sharpen(self._whole, self._find_open, deadline.share(_SHARP_SHARE))

    def _sharpen(self, bounds: LinearBounds, find_open: Decision, deadline: Deadline) -> None:
        done = torch.zeros(len(self._functional.constant), dtype=torch.bool)
        while not self._proved and not deadline.has_passed:
            # Where several sides of one condition are open, the next one shows once the worst is better.
            sides = find_open(bounds) & ~done
            if not bool(sides.any()):
                return
            bounds, done = self._analysis.sharpen(self._functional, bounds, sides, deadline=deadline), done | sides
            self._whole = bounds
            self._proved = bool(self._is_proved(bounds).all())


def split_and_bound(
    analysis: LinearAnalysis,
    ops: Sequence[Operation],
    rows: Tensor | None,
    is_proved: Decision,
    *,
    deadline: Deadline,
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
    branching = InputBranching(
        analysis.program, functional, lambda bounds: torch.zeros(len(bounds.lower), dtype=torch.bool)
    )
    lower, upper = branching.bound_each([(_flatten(low), _flatten(high)) for low, high in chosen], len(parts[0][0]))
    return lower.nan_to_num(-math.inf, math.inf, -math.inf), upper.nan_to_num(math.inf, math.inf, -math.inf)


def _flatten(bound: Tensor) -> Tensor:
    return bound.reshape(len(bound), -1)


class _Search:
    """Batches of boxes, bounded and cut until none is left: in a thread for each processor where batches are small."""

    def __init__(self, branching: Branching) -> None:
        self._branching = branching
        self._waiting = [branching.root]
        self._stuck: Boxes | None = None
        self._count = self._busy = 0
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_torn = False

    def run(self, deadline: Deadline, keep: int) -> SplitResult:
        """Cut until nothing is open or time is up, from where the last run ended."""
        self._cut(deadline)
        found, parts = len(self._stuck or ()), [self._stuck or self._branching.root[:0]]
        for part in reversed(self._waiting if self._stuck is None else ()):
            if found >= keep:
                break
            parts, found = [*parts, part], found + len(part)
        return SplitResult(not found, self._count, self._branching.cut_out(join(parts), keep))

    def _cut(self, deadline: Deadline) -> None:
        if self._is_torn:  # an error or an interrupt may have lost boxes that were being cut
            self._waiting, self._busy = [self._branching.root], 0
        self._is_torn = True
        until, is_light = threading.Event(), self._branching.is_light
        count = processors() if is_light else 1
        crew = [threading.Thread(target=self._work, args=(deadline, until)) for _ in range(count - 1)]
        with torch_threads(1 if is_light else torch.get_num_threads()):
            try:
                for thread in crew:
                    thread.start()
                self._work(deadline, until)
            except BaseException as error:
                self._error = error
            until.set()
            with self._changed:
                self._changed.notify_all()
            for thread in crew:
                thread.join()
        failed, self._error = self._error, None
        if failed is not None:
            raise failed
        self._is_torn = False

    def _work(self, deadline: Deadline, until: threading.Event) -> None:
        while (batch := self._take(deadline, until)) is not None:
            halves: list[Boxes] = []
            try:
                with torch.no_grad():
                    cuts = self._branching.bound(batch, deadline)
                if len(cuts.boxes) and not cuts.is_possible:
                    # A point that is not proved cannot be cut.
                    self._stuck = cuts.boxes
                elif len(cuts.boxes):
                    halves = [halve(cuts.boxes, cuts.element, cuts.at)]
            except BaseException as error:
                self._error = error
                until.set()
            with self._changed:
                self._busy -= 1
                self._waiting += halves
                self._changed.notify_all()

    def _take(self, deadline: Deadline, until: threading.Event) -> Boxes | None:
        """Take a batch; wait for one while other threads may leave some.  None where there is nothing left to do."""
        with self._changed:
            while not self._waiting and self._busy and not until.is_set():
                self._changed.wait()
            if not self._waiting or self._stuck is not None or until.is_set() or deadline.has_passed:
                return None
            batch = take(self._waiting, self._branching.most)
            self._busy, self._count = self._busy + 1, self._count + len(batch)
            return batch


def _cut_out(program: Program) -> tuple[tuple[Tensor, Tensor] | None, ...]:
    return tuple(None if v is None else program.variables[v].box for v in program.inputs)


def _empty(program: Program) -> tuple[tuple[Tensor, Tensor] | None, ...]:
    none = [None if v is None else program.variables[v].box[0][:0] for v in program.inputs]
    return tuple(None if x is None else (x, x) for x in none)
