"""Branch and bound: a box is cut into smaller ones until backward linear bounds decide each.

The steps of the graph are those of the whole box, whose bounds on rounding hold for every part of it.  Many boxes go
through them at once.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.linear.backsubstitution import BoxBatch, Program
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.branching import Boxes, Branching, Decision, InputBranching, halve, join, take
from ranum_falsify.domain.linear.curve_branching import CurveBranching, find_thresholds
from ranum_falsify.domain.linear.functionals import Functional, LinearBounds
from ranum_falsify.domain.linear.steps import flatten
from ranum_falsify.lazy import cached_property
from ranum_falsify.network.tensors import processors, torch_threads
from ranum_falsify.process.deadline import Deadline, OutOfTime

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
        self._ops, self._rows = ops, rows
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
        curves = self._find_curves()
        branching = curves or InputBranching(self._analysis.program, self._functional, self._is_proved)
        return _Search(branching, self._deepen if curves is None else None)

    def _deepen(self, low: Tensor, high: Tensor, deadline: Deadline) -> InputBranching:
        """Return how to cut a part of the box, given its flat bounds: by an analysis of that part alone."""
        analysis = self._analysis.over(low, high, deadline.check)
        functional = Functional.of(analysis, analysis.program, self._ops, self._rows)
        return InputBranching(analysis.program, functional, self._is_proved)

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
    lower, upper = branching.bound_each([(flatten(low, 1), flatten(high, 1)) for low, high in chosen], len(parts[0][0]))
    return lower.nan_to_num(-math.inf, math.inf, -math.inf), upper.nan_to_num(math.inf, math.inf, -math.inf)


_LONGER = 2
"""How many times as long as one for which there was no time an analysis is expected to take."""

_MANY = 50
"""How many boxes of a part are cut, at least, before parts of it are analysed anew, and for as long as that takes."""

_GROUP = 64
"""Boxes that are analysed anew together, at most."""

Deepen = Callable[[Tensor, Tensor, Deadline], Branching]


@dataclass(eq=False)
class _Level:
    """Boxes that wait, of one part of the box, which one analysis bounds.

    Attributes:
        branching: Bounds and cuts them.
        hull: The bounds of the part's inputs, one box.
        waiting: The boxes.
        spent: Seconds that its boxes have taken.
        busy: Threads that have boxes of it in hand.
        count: How many boxes have been bounded.
    """

    branching: Branching
    hull: Boxes
    waiting: list[Boxes]
    spent: float = 0.0
    busy: int = 0
    count: int = 0

    def is_worn(self, price: float) -> bool:
        """Tell whether new analyses of what waits are worth the seconds that one takes."""
        return self.spent > price and self.count > _MANY

    def count_for(self, deadline: Deadline) -> int:
        """Return how many boxes make a batch that is done in time."""
        seconds = self.spent / self.count if self.count else 0.0
        return max(1, int(min(self.branching.most, deadline.left / seconds if seconds else math.inf)))

    def is_no_more_than(self, boxes: Boxes) -> bool:
        """Tell whether there is one box, which is all of the part."""
        return len(boxes) == 1 and torch.equal(self.hull.low, boxes.low) and torch.equal(self.hull.high, boxes.high)


class _Search:
    """Batches of boxes, bounded and cut until none is left: in a thread for each processor where batches are small.

    Where inputs are cut, boxes that stay open are analysed anew, some neighbours together: in a small part, numbers are
    smaller, and so is their rounding, and fewer curves are bent.
    """

    def __init__(self, branching: Branching, deepen: Deepen | None) -> None:
        """Prepare.

        Args:
            branching: Cuts the whole box.
            deepen: Returns what cuts a part of the box, given its flat bounds and until when; None where there is only
                one analysis.
        """
        self._branching, self._deepen = branching, deepen
        self._levels = [self._begin()]
        self._stuck: Boxes | None = None
        self._count = 0
        self._price = 0.0  # seconds that an analysis of a part takes
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_torn = False

    def run(self, deadline: Deadline, keep: int) -> SplitResult:
        """Cut until nothing is open or time is up, from where the last run ended."""
        self._cut(deadline)
        parts = [] if self._stuck is None else [self._stuck]
        for level in reversed(self._levels if self._stuck is None else []):
            for part in reversed(level.waiting):
                if sum(map(len, parts)) < keep:
                    parts.append(self._branching.strip(part))
        left = join([*parts, self._branching.strip(self._branching.root[:0])])
        return SplitResult(not len(left), self._count, self._branching.cut_out(left, keep))

    def _cut(self, deadline: Deadline) -> None:
        if self._is_torn:  # an error or an interrupt may have lost boxes that were being cut
            self._levels = [self._begin()]
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
        while (task := self._take(deadline, until)) is not None:
            began, (level, boxes, deepens) = time.perf_counter(), task
            left: list[Boxes] = []
            deeper: _Level | None = None
            try:
                with torch.no_grad():
                    if deepens:
                        left, deeper = self._analyse(level, boxes, deadline)
                    else:
                        left, deeper = self._halve(level, boxes, deadline)
            except BaseException as error:
                self._error = error
                until.set()
            with self._changed:
                level.busy -= 1
                level.spent += 0.0 if deepens else time.perf_counter() - began
                level.waiting += left
                self._levels += [] if deeper is None else [deeper]
                self._changed.notify_all()

    def _take(self, deadline: Deadline, until: threading.Event) -> tuple[_Level, Boxes, bool] | None:
        """Take boxes of a level, and tell whether they are analysed anew; None where there is nothing left to do.

        Waits for boxes while other threads may leave some.
        """
        with self._changed:
            while not (ready := [of for of in self._levels if of.waiting]) and not until.is_set():
                if not any(of.busy for of in self._levels):
                    return None
                self._changed.wait()
            if self._stuck is not None or until.is_set() or deadline.has_passed:
                return None
            self._levels = [of for of in self._levels if of.waiting or of.busy]
            level = ready[-1]
            deepens = self._deepen is not None and level.is_worn(self._price) and deadline.left > self._price
            batch = take(level.waiting, _GROUP if deepens else level.count_for(deadline))
            level.busy += 1
            level.count += 0 if deepens else len(batch)
            self._count += 0 if deepens else len(batch)
            return level, batch, deepens

    def _halve(self, level: _Level, batch: Boxes, deadline: Deadline) -> tuple[list[Boxes], _Level | None]:
        """Bound boxes; return halves of those that stay open, or those that cannot be cut, some of them anew."""
        cuts = level.branching.bound(batch, deadline)
        if not len(cuts.boxes):
            return [], None
        if cuts.is_possible:
            return [halve(cuts.boxes, cuts.element, cuts.at)], None
        count = (len(cuts.boxes) + 1) // 2
        inputs = self._branching.strip(cuts.boxes)
        if self._deepen is None or level.is_no_more_than(inputs):
            # A point that is not proved cannot be cut.
            self._stuck = inputs
            return [], None
        left, deeper = self._analyse(level, cuts.boxes[:count], deadline)
        return [*left, cuts.boxes[count:]] if count < len(cuts.boxes) else left, deeper

    def _analyse(self, level: _Level, boxes: Boxes, deadline: Deadline) -> tuple[list[Boxes], _Level | None]:
        """Return boxes as a level of their own; as they are if time is up."""
        assert self._deepen is not None, "there is an analysis for each part"
        began, inputs = time.perf_counter(), level.branching.strip(boxes)
        hull = Boxes(inputs.low.amin(0, keepdim=True), inputs.high.amax(0, keepdim=True))
        try:
            branching = self._deepen(hull.low[0], hull.high[0], deadline)
        except OutOfTime:
            self._price = _LONGER * (time.perf_counter() - began)
            return [boxes], None
        self._price = time.perf_counter() - began
        return [], _Level(branching, hull, [branching.adopt(inputs)])

    def _begin(self) -> _Level:
        root = self._branching.root
        return _Level(self._branching, self._branching.strip(root), [root])


def _cut_out(program: Program) -> tuple[tuple[Tensor, Tensor] | None, ...]:
    return tuple(None if v is None else program.variables[v].box for v in program.inputs)


def _empty(program: Program) -> tuple[tuple[Tensor, Tensor] | None, ...]:
    none = [None if v is None else program.variables[v].box[0][:0] for v in program.inputs]
    return tuple(None if x is None else (x, x) for x in none)
