"""A trial before a proof counts: ONNX Runtime runs the networks of a problem on a few inputs that the property allows.

A proof rests on the rows' knowledge of operators.  Where ONNX Runtime refuses to run what they describe, or shows
what a proof has excluded, nothing is proved for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.network import Graph
from ranum_falsify.network.tensors import stored_once, to_numpy, to_torch
from ranum_falsify.network.trial import TrialError, TrialRunner
from ranum_falsify.properties.formula.applications import NetworkCall, ValidityGoal
from ranum_falsify.properties.formula.frame import Frame
from ranum_falsify.properties.problem.problem import InputVariable, Problem

__all__ = ["Trial", "make_points", "try_out"]

_REGIONS = 16
"""Boxes in which inputs are looked for that the property allows."""

_RANDOM = 13
"""Random points of each, the first of them a corner, after its centre and its ends."""

_POINTS = 4
"""On how many points the networks run: wrong rules fail at ends of ranges rather than between them."""
_SECONDS = 2.0
"""How long all but the first of them may take."""
_LARGEST = 2**19
"""The most numbers of which more than one point is tried."""
_WIDEST = 2**16
"""The widest range of integers of which more than one is tried: they may be how often a loop runs."""

_REPORT = "a fault of ranum-falsify, please report it"

Surely = Callable[[int, NetworkCall], Sequence[Enclosure]]
"""Returns proved bounds of the outputs of an application on a box, given its position; NaN where nothing is proved."""


@dataclass(frozen=True)
class Trial:
    """What ONNX Runtime did.

    Attributes:
        inputs: What it ran on, by input variable; of several points, the one with faults.
        faults: By `id` of the application, why nothing is proved of it, to follow the name of ONNX Runtime.
    """

    inputs: Mapping[str, np.ndarray] = field(repr=False)
    faults: Mapping[int, str]


@dataclass(frozen=True)
class _TrialRun:
    """What ONNX Runtime does on one point.

    Attributes:
        inputs: The point, by input variable.
        shown: By `id` of the application, its outputs, None where one is no tensor of numbers or has another shape than
            usual; empty if they say nothing about what is proved of outputs.
        faults: Why nothing is proved, as in a trial, whatever the proved bounds of outputs are.
    """

    inputs: Mapping[str, np.ndarray]
    shown: Mapping[int, Sequence[np.ndarray | None]]
    faults: Mapping[int, str]


@dataclass(frozen=True)
class _Tried:
    """The runs of a problem.

    Attributes:
        graphs: What ran, by `id` of the application.
        number: The position of the box that the points are from.
        runs: The run on each of them.
    """

    graphs: Mapping[int, Graph]
    number: int
    runs: Sequence[_TrialRun]


_tried: WeakKeyDictionary[Problem, _Tried] = WeakKeyDictionary()
"""What ran last for a problem: provers may ask again, and have other bounds."""


def try_out(problem: Problem, graphs: Mapping[int, Graph], surely: Surely) -> Trial | None:
    """Run all applications, on inputs that meet the property's conditions if some are found.

    That they run on the first point is needed; on the others, time or memory may not suffice.

    Args:
        problem: The problem.
        graphs: The graph that runs for each application, by `id` of the application.
        surely: What is proved of their outputs.

    Returns:
        None where the property allows no inputs at all.
    """
    tried = _tried.get(problem)
    if tried is None or any(tried.graphs[call] is not graph for call, graph in graphs.items()):
        tried = _run_problem(problem, graphs)
        if tried is None:
            return None
        if not any(run.faults for run in tried.runs):  # another time, there may be more time, or memory
            _tried[problem] = tried
    for run in tried.runs:
        faults = run.faults or _find_faults(problem, tried, run, surely)
        if faults:
            return Trial(run.inputs, faults)
    return Trial(tried.runs[0].inputs, {})


def _run_problem(problem: Problem, graphs: Mapping[int, Graph]) -> _Tried | None:
    boxes = [(case, variables) for case in problem.each_case for variables in case.regions]
    with ExitStack() as stack:
        runners = {id(graph): stack.enter_context(TrialRunner(graph)) for graph in graphs.values()}
        for number, (case, variables) in enumerate(boxes[:_REGIONS]):
            attempts = (_Attempt(case, graphs, runners, inputs) for inputs in make_points(variables))
            allowed = (attempt for attempt in attempts if attempt.meets_conditions())
            found = list(islice(allowed, 1 if _is_costly(variables) else _POINTS))
            if found:
                return _Tried(graphs, number, _run_all(found))
        if not boxes:
            return None
        case, variables = boxes[0]
        attempt = _Attempt(case, graphs, runners, next(make_points(variables)))
        return _Tried(graphs, 0, [_TrialRun(attempt.inputs, {}, attempt.find_refusals())])


def _run_all(attempts: Sequence[_Attempt]) -> list[_TrialRun]:
    runs = [attempts[0].run()]
    end = time.monotonic() + _SECONDS
    for attempt in attempts[1:]:
        left = end - time.monotonic()
        if runs[-1].faults or left <= 0:
            break
        runs.append(attempt.run(seconds=left))
    return runs


def _find_faults(problem: Problem, tried: _Tried, run: _TrialRun, surely: Surely) -> dict[int, str]:
    """Return the applications whose outputs lie outside their proved bounds, and where."""
    faults = {}
    for call in problem.calls if run.shown else ():
        names, bounds_of_each = tried.graphs[id(call)].output_names, surely(tried.number, call)
        for name, shown, bounds in zip(names, run.shown[id(call)], bounds_of_each, strict=True):
            if shown is not None and (outside := _find_outside(shown, bounds)):
                faults[id(call)] = f"which gives {outside} at output {name!r}: {_REPORT}"
    return faults


def _is_costly(variables: Sequence[InputVariable]) -> bool:
    """Tell whether more than one point may take long."""
    if sum(v.lower.size for v in variables) > _LARGEST:
        return True
    return any(v.dtype.kind in "iu" and _span(v.lower, v.upper).max(initial=0) > _WIDEST for v in variables)


def make_points(variables: Sequence[InputVariable]) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield points of a box: one that is cheap to run; its ends, and random ones, if it is more than a point."""
    ends = [(v, stored_once(v.lower), stored_once(v.upper)) for v in variables]

    def choose(point: Callable[[np.ndarray, np.ndarray, tuple[int, ...]], np.ndarray]) -> Mapping[str, np.ndarray]:
        return {v.name: np.broadcast_to(point(lower, upper, v.shape), v.shape) for v, lower, upper in ends}

    yield choose(lambda lower, upper, shape: _choose_plain(lower, upper))
    if all(bool((lower == upper).all()) for _, lower, upper in ends):
        return
    yield choose(lambda lower, upper, shape: lower)
    yield choose(lambda lower, upper, shape: upper)
    rng = np.random.default_rng(0)
    yield choose(lambda lower, upper, shape: np.where(rng.random(shape) < 0.5, lower, upper))
    for _ in range(_RANDOM - 1):
        yield choose(lambda lower, upper, shape: _between(lower, upper, rng.random(shape)))


def _choose_plain(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return the centre, or 1 of integers, as near as the bounds allow: they may be how often a loop runs."""
    if lower.dtype.kind not in "iu":
        return _between(lower, upper, 0.5)
    return np.asarray(np.clip(np.ones_like(lower), lower, upper))


def _between(lower: np.ndarray, upper: np.ndarray, share: float | np.ndarray) -> np.ndarray:
    """Return values at a share of the way from the lower to the upper bound."""
    dtype = lower.dtype
    if dtype.kind in "iu":
        span = _span(lower, upper)
        bits = span.dtype
        step = np.minimum(np.floor(span * share), np.nextafter(np.float64(2.0 ** (8 * bits.itemsize)), 0)).astype(bits)
        return np.asarray((lower.view(bits) + np.minimum(step, span)).view(dtype))
    wide = np.promote_types(dtype, np.float32)
    part = np.asarray(share, wide)
    middle = lower.astype(wide) * (1 - part) + upper.astype(wide) * part
    return np.asarray(np.clip(middle, lower, upper), dtype)


def _span(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return how far the ends of integers lie apart, unsigned: there, differences that wrap around are right."""
    bits = np.dtype(f"u{lower.dtype.itemsize}")
    return np.asarray(upper.view(bits) - lower.view(bits))


class _Attempt:
    """One run of the networks of a case.

    Args:
        case: The case.
        graphs: The graphs that run, by `id` of the application.
        runners: What runs each, by `id` of the graph.
        inputs: The inputs, by variable.
    """

    def __init__(
        self,
        case: Problem,
        graphs: Mapping[int, Graph],
        runners: Mapping[int, TrialRunner],
        inputs: Mapping[str, np.ndarray],
    ) -> None:
        self.inputs = inputs
        self._case = case
        self._graphs = graphs
        self._runners = runners
        self._seconds = math.inf
        tensors = {name: to_torch(stored_once(x)).expand(x.shape) for name, x in inputs.items()}
        self._frame = Frame({name: x[None] for name, x in tensors.items()}, self)
        self._shown: dict[int, Sequence[np.ndarray | None]] = {}

    def meets_conditions(self) -> bool:
        """Tell whether the side conditions hold, which are about no network."""
        return not self._case.penalties or bool((self._case.penalty_circuit.margins(self._frame) >= 0).all())

    def find_refusals(self) -> dict[int, str]:
        """Return the applications that do not run, and why, until one is needed that does not."""
        for call in self._case.calls:
            try:
                self._frame.outputs(call)
            except TrialError as error:
                return {} if error.is_limit and self._seconds < math.inf else {id(call): f"which {error}"}
        return {}

    def run(self, seconds: float = math.inf) -> _TrialRun:
        """Run all applications.

        Args:
            seconds: How long each may run; that this, or memory, does not suffice is no fault then.
        """
        self._seconds = seconds
        faults = self.find_refusals()
        if faults or len(self._shown) < len(self._case.calls):
            return _TrialRun(self.inputs, {}, faults)
        if not self._case.goals and self._is_violated():
            why = f"which violates the property against its proof: {_REPORT}"
            return _TrialRun(self.inputs, {}, {id(call): why for call in self._case.calls})
        return _TrialRun(self.inputs, self._shown if self._case.is_pure_validity else {}, {})

    def _is_violated(self) -> bool:
        if any(array is None for shown in self._shown.values() for array in shown):
            return False
        return bool((self._case.clause_circuit.margins(self._frame) < 0).any())

    def outputs(self, call: NetworkCall, arguments: tuple[Tensor, ...]) -> Sequence[Tensor]:
        """See `Evaluator.outputs`; what is no tensor of numbers, or has another shape than usual, is NaN here."""
        arrays = dict(zip(call.graph.input_names, (to_numpy(x[0]) for x in arguments), strict=True))
        graph = self._graphs[id(call)]
        feeds = {name: arrays[name] for name in graph.input_names}
        found = self._runners[id(graph)].run(feeds, seconds=self._seconds)
        sizes = [tuple(details.shape) for details in graph.output_details]
        given = [found.get(name) for name in graph.output_names]
        pairs = zip(given, sizes, strict=True)
        shown = self._shown[id(call)] = [None if x is None or x.shape != size else x for x, size in pairs]
        return [
            torch.full((1, *size), torch.nan) if array is None else to_torch(array)[None]
            for array, size in zip(shown, sizes, strict=True)
        ]

    def validity(self, goal: ValidityGoal, arguments: tuple[Tensor, ...]) -> Tensor:
        """See `Evaluator.validity`: outputs do not tell."""
        return torch.tensor([torch.nan])


def _find_outside(shown: np.ndarray, bounds: Enclosure) -> str:
    """Return, in words, the first element of an output outside its bounds; "" if there is none."""
    low, high = (end[0] for end in bounds)
    value = to_torch(shown).double()
    if value.shape != low.shape:
        return ""
    outside = ~((value >= low) & (value <= high)) & ~low.isnan()
    if not bool(outside.any()):
        return ""
    return f"{float(value[outside][0]):g} where [{float(low[outside][0]):g}, {float(high[outside][0]):g}] is proved"
