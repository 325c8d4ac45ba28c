"""Many boxes at once: what holds on the hull of some boxes holds on each of them.

A property may bound its inputs by thousands of boxes, each with conditions of its own.  Their hull is analysed first,
which decides some of them; the others are cut into two halves of neighbours, and so on.  Where that decides too little,
linear bounds take many boxes at a time, and what is still open is analysed box by box.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain import Interval
from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.branch_and_bound import bound_parts
from ranum_falsify.domain.rounding import flush
from ranum_falsify.network.tensors import torch_dtype
from ranum_falsify.properties.formula.circuit import Circuit
from ranum_falsify.properties.formula.terms import ValidityGoal
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.verify.prove.analyses import Analyses, make_linear
from ranum_falsify.verify.prove.applications import Applications, Box
from ranum_falsify.verify.prove.term_bounds import BoundsFrame, margin_bounds

_FEWEST = 32
"""Boxes; fewer are analysed one by one."""

_MOST_ELEMENTS = 1 << 22
"""Elements of all boxes together."""

_MOST_LEAVES = 64
"""Steps that the conditions of all boxes take on one hull; where they have little in common, it is one for each."""

_MANY = 512
"""Boxes for which linear bounds in batches take less time than an analysis of each."""

_BATCH = 128
"""Boxes whose bounds are computed at once."""

_SPARE = 1 / 8
"""Share of the boxes of which as many hulls may be analysed in vain."""

Decided = tuple[Applications | None, bool]
"""What is known about the applications over a box, or over a hull that it lies in; whether the property holds there.

Where it does, without validity goals or for another reason than these, nothing is kept.
"""


def decide_together(problem: Problem, apply: Callable[[Box], Applications]) -> list[Decided | None]:
    """Decide the problem's boxes in groups, at worst by an eighth more analyses than there are boxes.

    None stands for each region where they are too few, too large, or too different to gain by that.
    """
    boxes = [variables for case in problem.each_case for variables in case.regions]
    one_by_one: list[Decided | None] = [None] * len(boxes)
    if len(boxes) < _FEWEST or len(boxes) * sum(v.lower.size for v in boxes[0]) > _MOST_ELEMENTS:
        return one_by_one
    if any(v.dtype.kind not in "fiub" for v in boxes[0]) or not all(case.clauses for case in problem.each_case):
        return one_by_one
    conditions = _CaseConditions(problem)
    if conditions.count > _MOST_LEAVES:
        return one_by_one
    return _HullSearch(_RegionBoxes(boxes), conditions, apply, goals=problem.goals).run()


class _CaseConditions:
    """The conditions of all cases, evaluated together."""

    def __init__(self, problem: Problem) -> None:
        cases = problem.each_case
        self._cases = np.repeat(np.arange(len(cases)), [len(case.regions) for case in cases])
        self._clauses = problem.clause_circuit
        self._penalties = Circuit([penalty for case in cases for penalty in case.penalties])
        self._starts = np.cumsum([0, *(len(case.clauses) for case in cases[:-1])])  # every case has a clause
        self._limited = np.array([number for number, case in enumerate(cases) if case.penalties], np.int64)
        self._penalty_starts = np.cumsum([0, *(len(cases[number].penalties) for number in self._limited[:-1])])
        self.count = len(self._clauses.leaves) + len(self._penalties.leaves)

    def find_met(self, frame: BoundsFrame, groups: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return which boxes of groups hold no counterexample, given bounds on a hull of each group."""
        low = margin_bounds(self._clauses, frame).low.numpy()
        met = np.logical_and.reduceat(low >= 0, self._starts, axis=1)
        if len(self._limited):
            high = margin_bounds(self._penalties, frame).high.numpy()
            met[:, self._limited] |= np.logical_or.reduceat(high < 0, self._penalty_starts, axis=1)
        return [row[self._cases[group]] for row, group in zip(met, groups, strict=True)]


class _RegionBoxes:
    """Boxes by their positions; numbers tell which of them are the same."""

    def __init__(self, boxes: Sequence[Sequence[InputVariable]]) -> None:
        self._variables = boxes[0]
        columns = list(zip(*boxes, strict=True))
        self._low = [np.stack([v.lower for v in column]) for column in columns]
        self._high = [np.stack([v.upper for v in column]) for column in columns]
        known: dict[bytes, int] = {}
        keys = (b"".join(end.tobytes() for v in box for end in (v.lower, v.upper)) for box in boxes)
        self.numbers = np.array([known.setdefault(key, len(known)) for key in keys])
        # Halves, because the difference of two numbers may overflow.
        ends = [np.concatenate([_flatten(x) for x in side], 1) for side in (self._low, self._high)]
        self._centres = ends[0] + ends[1]
        self._widths = ends[1].max(0) - ends[0].min(0)

    def hull(self, group: np.ndarray) -> Box:
        """Return the smallest box around some."""
        hull = {}
        for variable, low, high in zip(self._variables, self._low, self._high, strict=True):
            lower, upper = (np.asarray(end) for end in (low[group].min(0), high[group].max(0)))
            hull[variable.name] = Interval.box(lower, upper)
        return hull

    def parts(self, groups: Sequence[np.ndarray]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return bounds `(groups, *shape)` in float64 of each variable on the boxes of groups of the same."""
        firsts = [group[0] for group in groups]
        sides = zip(self._variables, self._low, self._high, strict=True)
        return {v.name: (_to_doubles(low[firsts]), _to_doubles(high[firsts])) for v, low, high in sides}

    def split(self, group: np.ndarray) -> list[np.ndarray]:
        """Return two halves of boxes that are not all the same, cut where they lie farthest apart for all boxes."""
        centres = self._centres[group]
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = (centres.max(0) - centres.min(0)) / self._widths
        element = int(np.nan_to_num(shares).argmax())
        group = group[np.lexsort((self.numbers[group], centres[:, element]))]
        borders = 1 + np.flatnonzero(np.diff(self.numbers[group]))
        return np.split(group, [borders[np.abs(borders - len(group) / 2).argmin()]])

    def take_apart(self, group: np.ndarray) -> list[np.ndarray]:
        """Return groups of boxes that are the same."""
        group = group[np.argsort(self.numbers[group], kind="stable")]
        return np.split(group, 1 + np.flatnonzero(np.diff(self.numbers[group]))) if len(group) else []

    def count(self, group: np.ndarray) -> int:
        """Return how many different boxes there are."""
        return len(np.unique(self.numbers[group]))


class _HullSearch:
    """The search for groups that one analysis decides."""

    def __init__(
        self,
        boxes: _RegionBoxes,
        conditions: _CaseConditions,
        apply: Callable[[Box], Applications],
        *,
        goals: Sequence[ValidityGoal],
    ) -> None:
        self._boxes, self._conditions, self._apply, self._goals = boxes, conditions, apply, goals
        self._found: dict[int, Decided] = {}

    def run(self) -> list[Decided | None]:
        """Decide every box: large groups first, then single boxes, many in batches, or those that are left open."""
        left = self._decide_hulls()
        in_batches = len(left) >= _MANY
        if in_batches:
            left = self._decide_batches(left)
        for group in self._boxes.take_apart(left):
            known, rest = self._decide(group)
            self._found.update((int(number), (known, False)) for number in rest)
        left = np.array([number for number in left if not self._found[int(number)][1]], np.int64)
        if len(left) >= _FEWEST and not in_batches:
            self._decide_batches(left)
        return [self._found[number] for number in range(len(self._boxes.numbers))]

    def _decide_hulls(self) -> np.ndarray:
        """Decide groups as long as that pays; return the boxes that are left."""
        every = np.arange(len(self._boxes.numbers))
        waiting, alone = deque([every]), [every[:0]]
        spare = _SPARE * self._boxes.count(every)
        while waiting and spare >= 1:
            group = waiting.popleft()
            count = self._boxes.count(group)
            if count == 1:
                alone.append(group)
                continue
            _, left = self._decide(group)
            rest = self._boxes.count(left)
            spare += count - rest - 1
            waiting.extend(self._boxes.split(left) if rest > 1 else [left] if rest else [])
        return np.concatenate([*alone, *waiting])

    def _decide(self, group: np.ndarray) -> tuple[Applications, np.ndarray]:
        """Analyse the hull of some boxes; return what is known over it, and the boxes that this leaves open."""
        known = self._apply(self._boxes.hull(group))
        (met,) = self._conditions.find_met(known.frame_surely(), [group])
        # Where the property holds for another reason, a box may prove operators that stay open on the hull.
        kept = known if self._goals and all(map(known.is_valid, self._goals)) else None
        self._found.update((int(number), (kept, True)) for number in group[met])
        return known, group[~met]

    def _decide_batches(self, group: np.ndarray) -> np.ndarray:
        """Decide boxes by linear bounds, unless half of the first ones remain open; return those that are left."""
        met = np.zeros(len(self._boxes.numbers), bool)
        batches = LinearBatches(self._apply(self._boxes.hull(group)))
        groups = self._boxes.take_apart(group) if batches.is_usable else []
        for start in range(0, len(groups), _BATCH):
            part = groups[start : start + _BATCH]
            found = [self._conditions.find_met(frame, part) for frame in batches.frames(self._boxes.parts(part))]
            for same, *each in zip(part, *found, strict=True):
                met[same] = np.logical_and.reduce(each)
            if start == 0 and 2 * met.sum() < sum(map(len, part)):
                break
        self._found.update((int(number), (None, True)) for number in np.flatnonzero(met))
        return np.asarray(group[~met[group]])


def _to_doubles(x: np.ndarray) -> Tensor:
    return torch.from_numpy(x.astype(np.float64))


def _flatten(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1).astype(np.float64) / 2


# batches --------------------------------------------------------------------------------------------------------------

_WORK = 2e8
"""Multiplications for linear bounds of the hull."""

_MOST_INSIDE = 4096
"""Elements of all tensors of a network; in larger ones, boxes have little in common but their number."""

Parts = Mapping[str, tuple[Tensor, Tensor]]
"""Lower and upper bounds `(boxes, *shape)` of each input variable."""


class LinearBatches:
    """Linear bounds of the outputs of the only application of a problem, over many parts of a box."""

    def __init__(self, known: Applications) -> None:
        self._known = known
        self._linear = self._analyse()

    @property
    def is_usable(self) -> bool:
        """Whether there are such bounds."""
        return self._linear is not None

    def frames(self, parts: Parts) -> Iterator[BoundsFrame]:
        """Yield bounds of terms on parts of the box: of the network as written, and of what runs in its place."""
        assert self._linear is not None
        (call,) = self._known.problem.calls
        types = {v.name: torch_dtype(v.dtype) for v in self._known.problem.inputs}
        flushed = {name: _flush(low, high, types[name]) for name, (low, high) in parts.items()}
        count = len(next(iter(flushed.values())).low)
        for analysis in self._linear.linear:
            self._known.tick()
            ops = analysis.graph.output_operations
            places = map(call.graph.input_names.index, analysis.graph.input_names)
            ends = [flushed[str(call.variables[place])] for place in places]
            low, high = bound_parts(analysis, ops, [(end.low, end.high) for end in ends])
            shapes = [details.shape for details in call.graph.output_details]
            sizes = [math.prod(shape) for shape in shapes]
            columns = zip(low.split(sizes, 1), high.split(sizes, 1), shapes, strict=True)
            outputs = [Enclosure(a.reshape(count, *shape), b.reshape(count, *shape)) for a, b, shape in columns]
            yield _frame(flushed, outputs)

    def _analyse(self) -> Analyses | None:
        problem = self._known.problem
        call, *more = problem.calls
        names = [v.name for v in problem.inputs]
        if more or problem.goals or sorted(map(str, call.variables)) != sorted(names):
            return None
        if any(v.dtype.kind != "f" for v in problem.inputs):
            return None
        plain = self._known.analyses_of(call)
        if plain.execution is not None and plain.executed is None:
            return None
        if any(set(a.graph.input_names) != set(call.graph.input_names) for a in plain.all):
            return None
        linear = make_linear(plain, None, work=_WORK, ascent=0.0, tick=self._known.tick)
        over = Applications(problem, self._known.graphs, lambda call: linear, self._known.box, self._known.tick)
        bounds = over.check(call).outputs
        if not over.is_sound(call) or any(x is None or not x.is_floating for x in bounds):
            return None
        return linear if all(map(_is_small, linear.linear)) else None


def _is_small(analysis: LinearAnalysis) -> bool:
    return sum(math.prod(variable.shape) for variable in analysis.program.variables) <= _MOST_INSIDE


def _frame(env: Mapping[str, Enclosure], outputs: Sequence[Enclosure]) -> BoundsFrame:
    def nothing_is_asked(goal: object) -> Tensor:
        raise AssertionError("there are no validity goals")

    return BoundsFrame(env, lambda call: outputs, nothing_is_asked)


def _flush(low: Tensor, high: Tensor, dtype: torch.dtype) -> Enclosure:
    """Return bounds in float64 that enclose 0 where numbers are so small that kernels may take them for it."""
    x = flush(Interval(low.to(dtype), high.to(dtype), tuple(low.shape)))
    return Enclosure(*x.expand()).map(lambda end: end.double())
