"""Bounds are watched before they count: ONNX Runtime runs the networks of a problem, and all tensors must lie in them.

A proof rests on the rows' knowledge of operators.  Where ONNX Runtime refuses to run what they describe, or shows what
they exclude, nothing is proved for it.  It runs as users run it, and, with every tensor exposed, both the written graph
and the one that its optimiser makes, on points that try to leave the bounds.  On some of the points, the box of that
point alone is analysed too: its bounds are as narrow as the errors of kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from weakref import WeakKeyDictionary

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect
from torch import Tensor

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.runs import Level, ModelRunner, RunError, find_size
from ranum_falsify.network.tensors import numpy_dtype, stored_once, to_torch
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.verify.prove.analyses import Analyses
from ranum_falsify.verify.prove.applications import Applications
from ranum_falsify.verify.prove.checked import branches_of
from ranum_falsify.verify.prove.evaluation import REPORT, Evaluation, Point, Stack, WatchedRuns, make_points, restore

Drive = Callable[[Sequence[InputVariable]], Sequence[Point]]
"""Returns points of a box at which tensors are near their extremes."""

_REGIONS = 16
"""Boxes in which inputs are looked for that the property allows."""
_POINTS = 4
"""On how many points the networks run in any case, as far as some seconds suffice, and memory."""
_SECONDS, _LIMIT = 2.0, 5.0
"""Seconds of processor time after which no further of them is begun, and those after which they are given up."""
_ELEMENTS = 2**21
"""The most numbers that the inputs of all points have."""
_WIDEST = 2**16
"""The widest range of integers that may be how often a loop runs of which more than one point is tried."""
_BYTES = 2**27
"""The most bytes that the exposed tensors of all points take."""
_FLOOR, _SHARE = 0.03, 0.1
"""Seconds of this process that all else may take for a small model, and as a share of the time of the analyses."""
_SMALL = 0.1
"""Seconds in which a small model is loaded and run, which runs on many points."""
_MEDIUM = 1.0
"""Seconds in which a model is loaded and run whose tensors are looked at, on one point at least."""
_PATIENCE = 0.02
"""Seconds after which no further point is begun, of a small model."""


@dataclass(frozen=True)
class Observed:
    """What ONNX Runtime did.

    Attributes:
        inputs: What it ran on, by input variable; of several points, the one with faults.
        faults: By `id` of the application, why nothing is proved of it, to follow the name of ONNX Runtime.
        feeds: Where it left proved bounds, the inputs of that network by name; else empty.
    """

    inputs: Mapping[str, np.ndarray] = field(repr=False)
    faults: Mapping[int, str]
    feeds: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ProvedBounds:
    """Who knows the bounds that are watched, on a box of the problem, by its position, and on other boxes of a case.

    The seconds are processor time of the analyses.
    """

    region: Callable[[int], Applications]
    at: Callable[[Problem, Sequence[InputVariable]], Applications]
    seconds: float


@dataclass(frozen=True)
class _Tried:
    """The runs of a problem at the default level; it must not hold the problem that it is kept for.

    Attributes:
        graphs: What ran, by `id` of the application.
        number: The position of the box that the points are from.
        box: The box.
        runs: The runs, each on some points.
        seconds: Processor time of loading and of the first run.
    """

    graphs: Mapping[int, Graph]
    number: int
    box: Sequence[InputVariable]
    runs: Sequence[WatchedRuns]
    seconds: float

    @property
    def points(self) -> list[Point]:
        """All points."""
        return [point for run in self.runs for point in run.points[: run.count]]

    def feeds(self, call: NetworkCall) -> list[Point]:
        """Return the inputs of an application on all points."""
        return [feeds for run in self.runs for feeds in run.feeds[id(call)][: run.count]]

    def shown(self, call: NetworkCall) -> dict[str, Stack]:
        """Return the outputs of an application on all points, as far as they are tensors of numbers."""
        names = self.graphs[id(call)].output_names
        columns = zip(*(run.shown[id(call)] for run in self.runs), strict=True)
        found = dict(zip(names, columns, strict=True))
        return {name: np.concatenate(column) for name, column in found.items() if all(x is not None for x in column)}


_tried: WeakKeyDictionary[Problem, _Tried] = WeakKeyDictionary()
"""What ran last for a problem: provers may ask again, and have other bounds."""


def watch(
    problem: Problem,
    graphs: Mapping[int, Graph],
    analyses_of: Callable[[NetworkCall], Analyses],
    bounds: ProvedBounds,
    drive: Drive,
) -> Observed | None:
    """Run all applications on inputs that meet the property's conditions, if some are found, and look at all tensors.

    That they run on the first point is needed; on the others, time or memory may not suffice.  `drive` finds points
    besides for a network that is small.  None is returned where the property allows no inputs at all.
    """
    ends = Deadline.after(_FLOOR + _SHARE * bounds.seconds, time.thread_time)
    with ExitStack() as stack:
        runners: dict[int, ModelRunner] = {}
        for call in {id(graphs[id(call)]): call for call in problem.calls}.values():
            graph, executed = graphs[id(call)], analyses_of(call).executed
            runner = ModelRunner(graph, None if executed is None else executed.graph)
            runners[id(graph)] = stack.enter_context(runner)
        tried = _tried.get(problem)
        if tried is None or any(tried.graphs[call] is not graph for call, graph in graphs.items()):
            tried = _run_problem(problem, graphs, runners, ends, drive)
            if tried is None:
                return None
            if not any(run.faults for run in tried.runs):  # another time, there may be more time, or memory
                _tried[problem] = tried
        for run in tried.runs:
            if run.faults:
                return Observed(run.points[run.faulty], run.faults)
        return _TensorComparison(problem, tried, runners, bounds, ends).run()


# runs as users run it -------------------------------------------------------------------------------------------------


def _run_problem(
    problem: Problem, graphs: Mapping[int, Graph], runners: Mapping[int, ModelRunner], clock: Deadline, drive: Drive
) -> _Tried | None:
    boxes = [(case, box) for case in problem.each_case for box in case.regions]

    def evaluate(case: Problem, points: Sequence[Point]) -> Evaluation:
        return Evaluation(case, graphs, runners, points)

    for number, (case, box) in enumerate(boxes[:_REGIONS]):
        most = _count_points(box, graphs)
        made = make_points(box)
        found: list[Point] = []
        while len(found) < most and (portion := list(islice(made, most))):
            meets = evaluate(case, portion).meets_conditions()
            found += [point for point, allowed in zip(portion, meets, strict=True) if allowed]
        if found:
            runs = [evaluate(case, found[:1]).run()]
            if not runs[0].faults and found[1:most]:
                # Of a model that takes longer, all tensors on one input tell more than outputs on more of them.
                few = found[1 : min(most, _POINTS if runs[0].seconds < _SMALL else 2)]
                runs.append(evaluate(case, few).run(seconds=_LIMIT, patience=_SECONDS))
            if runs[0].seconds < _SMALL and found[_POINTS:most] and runs[-1].is_whole:
                patience = max(_PATIENCE, clock.left / 4)
                driven = drive(box)
                allowed = evaluate(case, driven).meets_conditions() if driven else []
                further = [*found[_POINTS:most], *(point for point, met in zip(driven, allowed, strict=True) if met)]
                runs.append(evaluate(case, further).run(seconds=_LIMIT, patience=patience))
            return _Tried(graphs, number, box, [run for run in runs if run.faults or run.count], runs[0].seconds)
    if not boxes:
        return None
    case, box = boxes[0]
    return _Tried(graphs, 0, box, [evaluate(case, [next(make_points(box))]).find_refusals()], 0.0)


def _count_points(variables: Sequence[InputVariable], graphs: Mapping[int, Graph]) -> int:
    """Return on how many points networks run at most."""
    wide = any(v.dtype.kind in "iu" and _span(v) > _WIDEST for v in variables)
    if wide and any(_computes_sizes(graph) for graph in graphs.values()):
        return 1
    return max(1, min(64, _ELEMENTS // max(1, sum(v.lower.size for v in variables))))


def _span(variable: InputVariable) -> int:
    lower, upper = stored_once(variable.lower), stored_once(variable.upper)
    return int(upper.max(initial=0)) - int(lower.min(initial=0))


def _computes_sizes(graph: Graph) -> bool:
    """Tell whether values may decide how much is computed."""
    return any(
        spec_of(op).dynamic_shape
        or any(isinstance(getattr(op, name), Operation) for name in spec_of(op).static)
        or branches_of(op)
        for op in graph.nodes
    )


# all tensors ----------------------------------------------------------------------------------------------------------


class _TensorComparison:
    """Compares what ONNX Runtime computes, also beyond the runs that were tried, with what is proved."""

    def __init__(
        self,
        problem: Problem,
        tried: _Tried,
        runners: Mapping[int, ModelRunner],
        bounds: ProvedBounds,
        clock: Deadline,
    ) -> None:
        self._tried, self._runners, self._bounds, self._clock = tried, runners, bounds, clock
        self._case = [case for case in problem.each_case for _ in case.regions][tried.number]
        self._points = tried.points
        self._region = bounds.region(tried.number)
        self._shown: dict[int, Mapping[Level, Mapping[str, Stack]]] = {}

    def run(self) -> Observed:
        """Compare the tensors of all applications with their bounds until one is found outside."""
        calls = self._case.calls
        for call in calls:
            bounds = self._list_tensors(self._region, call)
            found = self._shown[id(call)] = {**self._expose(call, list(bounds)), "default": self._tried.shown(call)}
            departure = find_departure(bounds, found)
            if departure is not None:
                return self._report(call, *departure)
        for number in self._choose(calls):
            known = self._bounds.at(self._case, self._box_at(number))
            for call in calls:
                found = {
                    level: {name: stack[number : number + 1] for name, stack in tensors.items() if number < len(stack)}
                    for level, tensors in self._shown[id(call)].items()
                }
                departure = find_departure(self._list_tensors(known, call), found)
                if departure is not None:
                    return self._report(call, number, f"{departure[1]} for this input alone")
        return Observed(self._points[0], {})

    def _report(self, call: NetworkCall, number: int, departure: str) -> Observed:
        fault = f"which gives {departure}: {REPORT}"
        return Observed(self._points[number], {id(call): fault}, self._tried.feeds(call)[number])

    def _list_tensors(self, known: Applications, call: NetworkCall) -> dict[Level, Tensors]:
        """Return the bounds of tensors on a box that hold in any case, of the written graph and of what runs."""
        inputs, is_bounded = known.inputs(call), self._region.find_bounded(call)
        if inputs is None:
            return {}
        levels: tuple[Level, ...] = ("written", "optimised")
        return {
            level: [entry for entry in list_bounds(analysis) if is_bounded(analysis, entry[0])]
            for level, analysis in zip(levels, known.analyses_of(call).run(inputs), strict=False)
        }

    def _expose(self, call: NetworkCall, levels: Sequence[Level]) -> dict[Level, Mapping[str, Stack]]:
        """Run models with all tensors exposed, as far as time and memory allow."""
        graph, found = self._tried.graphs[id(call)], dict[Level, Mapping[str, Stack]]()
        feeds = self._tried.feeds(call)[: max(1, _BYTES // max(1, find_size(graph)))]
        for level in levels if find_size(graph) <= _BYTES else ():
            if self._tried.seconds > max(_MEDIUM, self._clock.left):
                break
            patience = max(_PATIENCE, self._clock.left / 4)
            with suppress(RunError):  # unoptimised, it may refuse what is folded away else
                runs = self._runners[id(graph)].run(feeds, level=level, seconds=_LIMIT, patience=patience)
                found[level] = runs.values
        return found

    def _choose(self, calls: Sequence[NetworkCall]) -> Iterator[int]:
        """Yield points of which the box of the point is to be analysed, while there is time."""
        if all(np.array_equal(v.lower, v.upper) for v in self._tried.box):
            return  # that is done
        several = [number for call in calls for number in find_unequal(self._shown[id(call)])]
        numbers = range(len(self._points))
        seconds = self._bounds.seconds / 4
        for position, number in enumerate(dict.fromkeys((*several[:1], *numbers[_POINTS:], *numbers[:_POINTS]))):
            began = self._clock.left
            # On a slow machine, too, one point of a small model is analysed.
            if (not began or began < seconds) and (position or seconds > _PATIENCE):
                return
            yield number
            seconds = began - self._clock.left

    def _box_at(self, number: int) -> list[InputVariable]:
        point = self._points[number]
        return [replace(v, lower=point[v.name], upper=point[v.name]) for v in self._tried.box]


# departures of tensors from their bounds ------------------------------------------------------------------------------

Tensors = Sequence[tuple[Operation, str, Interval]]
"""Tensors in topological order: who writes them, name, bounds."""

_WHERE: Mapping[Level, str] = {
    "default": "at output {name!r}, of {node} ({op_type}),",
    "written": "at {name!r}, of {node} ({op_type}), run without optimisations,",
    "optimised": "at {name!r}, of {node} ({op_type}) in the optimised graph,",
}
_UNITS = 4.0
"""Units in the last place by which results of two levels may differ before it is asked which are right."""


def list_bounds(analysis: IntervalAnalysis) -> Iterator[tuple[Operation, str, Interval]]:
    """Yield the constants that are made, then what is known and kept of the latest run, in topological order."""
    for op, arrays in analysis.graph.folded:
        made = any(field is not None for field in spec_of(op).operands_of(op))
        for name, array in zip(op.output_names, arrays, strict=False) if made else ():
            bounds = analysis.find_known(array)
            if name and bounds is not None and not (array.dtype.kind in "fV" and np.isnan(array.astype(float)).any()):
                yield op, name, bounds
    for op in analysis.graph.order:
        node, index = (op.operation, op.index) if isinstance(op, OutputSelect) else (op, 0)
        with suppress(KeyError):
            bounds = None if isinstance(op, Input) else analysis.bounds_of(op)
            if bounds is not None and node.output_names[index]:
                yield node, node.output_names[index], bounds


def find_departure(
    bounds: Mapping[Level, Tensors], shown: Mapping[Level, Mapping[str, Stack]]
) -> tuple[int, str] | None:
    """Return on which point the first tensor of the first level leaves its bounds, and how.

    The default level, of which only outputs are known, computes what the last level that has bounds does.
    """
    levels: list[tuple[Level, Tensors]] = [(level, tensors) for level, tensors in bounds.items() if level in shown]
    levels += [("default", tensors) for tensors in list(bounds.values())[-1:]]
    for level, tensors in levels:
        for op, name, known in tensors:
            stack = shown[level].get(name)
            found = None if stack is None else _find_outside(stack, known)
            if found is not None:
                position, value, proved = found
                where = _WHERE[level].format(name=name, node=op.name, op_type=spec_of(op).op_type)
                return position, f"{value} {where} where {proved} is proved"
    return None


def _find_outside(stack: Stack, bounds: Interval) -> tuple[int, str, str] | None:
    """Return the first point at which a tensor lies outside, the value there, and the bounds."""
    for position, one in enumerate(stack):
        if tuple(one.shape) != bounds.shape:
            return position, f"shape {tuple(one.shape)}", f"{bounds.shape}"
    dtype = numpy_dtype(bounds.dtype)
    array = restore(np.asarray(stack), dtype)
    if array.dtype != dtype:
        return None
    values = to_torch(array)
    outside = ~bounds.encloses(values)
    if not bool(outside.any()):
        return None
    position, *index = outside.nonzero()[0].tolist()
    low, high = (end[tuple(index)] for end in bounds.expand())
    return position, _write(values[(position, *index)]), f"[{_write(low)}, {_write(high)}]"


def _write(number: Tensor) -> str:
    """Return a number in so many digits that neighbours differ."""
    value = number.item()
    if not number.dtype.is_floating_point:
        return str(int(value))
    return f"{value:.17g}" if number.dtype is torch.float64 else f"{value:.9g}"


def find_unequal(shown: Mapping[Level, Mapping[str, Stack]]) -> list[int]:
    """Return the points at which an output of the default level differs most from that of an unoptimised run."""
    found: list[int] = []
    for name, stack in shown["default"].items():
        other = shown.get("written", {}).get(name)
        if not isinstance(other, np.ndarray) or other.dtype != stack.dtype or other.shape[1:] != stack.shape[1:]:
            continue
        a, b = (to_torch(x[: min(len(stack), len(other))]) for x in (stack, other))
        if not a.numel() or a.dtype is torch.bool or torch.equal(a, b):
            continue
        if a.is_floating_point():
            units = (a.double() - b.double()).abs() / (torch.finfo(a.dtype).eps * b.double().abs() + 1e-300)
            worst = units.nan_to_num(torch.inf).reshape(len(a), -1).amax(1)
        else:
            worst = torch.where(a != b, torch.inf, 0.0).reshape(len(a), -1).amax(1)
        if float(worst.amax()) > _UNITS:
            found.append(int(worst.argmax()))
    return found
