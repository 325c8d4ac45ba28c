"""The networks of a case run on ONNX Runtime, on points of a box at which wrong bounds show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph
from ranum_falsify.network.runs import ModelRunner, RunError
from ranum_falsify.network.tensors import stored_once, to_numpy, to_torch
from ranum_falsify.properties.formula.terms import Frame, NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.problem import InputVariable, Problem

REPORT = "a fault of ranum-falsify, please report it"

_MOST = 64
"""Points of a box that is more than a point."""

_SPARSE = 3
"""About how many elements of a sparse point are off the centre."""

_SPECIAL = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)
"""Where functions have kinks, zeros and poles; with the neighbours of the ends, and of 0."""

Stack = Any
"""A tensor on several points, `(count, *shape)`; a list of them where shapes differ."""

Point = Mapping[str, np.ndarray]
Choice = Callable[[np.ndarray, np.ndarray, tuple[int, ...]], np.ndarray]
"""Returns numbers between stored ends, for a shape."""


def make_points(variables: Sequence[InputVariable]) -> Iterator[Point]:
    """Yield points of a box: one that is cheap to run; its ends, a corner, and points of all kinds in turn."""
    ends = [(v, stored_once(v.lower), stored_once(v.upper)) for v in variables]

    def choose(point: Choice) -> Point:
        return {v.name: np.broadcast_to(point(lower, upper, v.shape), v.shape) for v, lower, upper in ends}

    yield choose(lambda lower, upper, shape: _choose_plain(lower, upper))
    if all(bool((lower == upper).all()) for _, lower, upper in ends):
        return
    yield choose(lambda lower, upper, shape: lower)
    yield choose(lambda lower, upper, shape: upper)
    rng = np.random.default_rng(0)

    def corner(lower: np.ndarray, upper: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return np.where(rng.random(shape) < 0.5, lower, upper)

    def uniform(lower: np.ndarray, upper: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return _between(lower, upper, rng.random(shape))

    def special(lower: np.ndarray, upper: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        known = [np.broadcast_to(x, shape) for x in _list_special(lower, upper)]
        return np.asarray(np.choose(rng.integers(len(known), size=shape), known), lower.dtype)

    def sparse(lower: np.ndarray, upper: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        off = rng.random(shape) * max(1, math.prod(shape)) < _SPARSE
        return np.where(off, uniform(lower, upper, shape), _between(lower, upper, 0.5))

    def constant(lower: np.ndarray, upper: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return _between(lower, upper, rng.random())

    yield choose(corner)
    kinds: Sequence[Choice] = (uniform, special, uniform, sparse, uniform, corner, uniform, special, uniform, constant)
    for number in range(_MOST - 4):
        yield choose(kinds[number % len(kinds)])


def _list_special(lower: np.ndarray, upper: np.ndarray) -> Iterator[np.ndarray]:
    dtype = lower.dtype
    numbers = _SPECIAL if dtype.kind in "fV" else (0, 1, 2) if dtype.kind == "u" else (0, 1, -1, 2)
    for number in numbers if dtype.kind != "b" else ():
        yield np.clip(np.asarray(number, dtype), lower, upper)
    if dtype.kind in "fV":
        yield np.clip(np.nextafter(lower, upper), lower, upper)
        yield np.clip(np.nextafter(upper, lower), lower, upper)
        zero = np.zeros_like(lower)
        yield np.clip(np.nextafter(zero, np.ones_like(lower)), lower, upper)
    yield lower
    yield upper


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
    with np.errstate(invalid="ignore"):  # infinite ends, where both are the same
        middle = lower.astype(wide) * (1 - part) + upper.astype(wide) * part
    return np.asarray(np.clip(np.where(np.isnan(middle), lower, middle), lower, upper), dtype)


def _span(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return how far the ends of integers lie apart, unsigned: there, differences that wrap around are right."""
    bits = np.dtype(f"u{lower.dtype.itemsize}")
    return np.asarray(upper.view(bits) - lower.view(bits))


@dataclass
class WatchedRuns:
    """The runs of all networks of a case at the default level.

    Attributes:
        points: The inputs, by variable.
        count: On how many of them, from the first on, all networks ran.
        feeds: By `id` of the application, its inputs at each point.
        shown: By `id` of the application, its outputs on all points; None where one is no tensor of numbers, or has
            another shape than usual.
        faults: By `id` of the application, why nothing is proved of it, whatever its bounds are.
        faulty: On which point.
        seconds: Processor time of loading and running the networks.
    """

    points: Sequence[Point]
    count: int
    feeds: dict[int, Sequence[Point]] = field(default_factory=dict)
    shown: dict[int, Sequence[Stack | None]] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)
    faulty: int = 0
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether all networks ran on all points."""
        return not self.faults and self.count == len(self.points)


class Evaluation:
    """Runs all networks of a case at the default level on points.

    The graphs go by `id` of the application, what runs them by `id` of the graph.
    """

    def __init__(
        self,
        case: Problem,
        graphs: Mapping[int, Graph],
        runners: Mapping[int, ModelRunner],
        points: Sequence[Point],
    ) -> None:
        self._points, self._found = points, WatchedRuns(points, len(points))
        self._case, self._graphs, self._runners = case, graphs, runners
        self._seconds = self._patience = math.inf

    @cached_property
    def _frame(self) -> Frame:
        columns = {name: [_share(point[name]) for point in self._points] for name in self._points[0]}
        return Frame({name: x[0][None] if len(x) == 1 else torch.stack(x) for name, x in columns.items()}, self)

    def meets_conditions(self) -> list[bool]:
        """Tell, for each point, whether the side conditions hold, which are about no network."""
        if not self._case.penalties:
            return [True] * len(self._points)
        margins = self._case.penalty_circuit.margins(self._frame)
        met: list[bool] = (margins >= 0).all(1).expand(len(self._points)).tolist()
        return met

    def find_refusals(self) -> WatchedRuns:
        """Run the networks in turn, until one is needed that does not run."""
        for call in self._case.calls:
            try:
                self._frame.outputs(call)
            except RunError as error:
                self._refuse(call, 0, error)
            if self._found.faults or not self._found.count:
                break
        return self._found

    def run(self, seconds: float = math.inf, patience: float = math.inf) -> WatchedRuns:
        """Run all networks on the points, each for some seconds at most.

        That such a limit, or memory, does not suffice is no fault.  After `patience` seconds of processor time no
        further point is begun.
        """
        self._seconds, self._patience = seconds, patience
        self.find_refusals()
        if self._found.faults and len(self._points) > 1 and len(self._found.shown) < len(self._case.calls):
            # The process ended, and it is not known on which point.
            for point in self._points:
                one = Evaluation(self._case, self._graphs, self._runners, [point]).run(seconds, patience)
                if one.faults:
                    return one
        if (
            not self._found.faults
            and self._found.count
            and not self._case.goals
            and (violated := self._find_violated())
        ):
            self._found.faulty = violated[0]
            self._found.faults = {
                id(call): f"which violates the property against its proof: {REPORT}" for call in self._case.calls
            }
        return self._found

    def _find_violated(self) -> list[int]:
        if any(array is None for shown in self._found.shown.values() for array in shown):
            return []
        margins = self._case.clause_circuit.margins(self._frame)
        violated = (margins < 0).any(1).expand(len(self._points))[: self._found.count]
        found: list[int] = violated.nonzero().flatten().tolist()
        return found

    def _refuse(self, call: NetworkCall, count: int, error: RunError) -> None:
        self._found.count = min(self._found.count, count)
        if not (error.is_limit and self._seconds < math.inf):
            self._found.faulty, self._found.faults = count, {id(call): f"which {error}"}

    def outputs(self, call: NetworkCall, arguments: tuple[Tensor, ...]) -> Sequence[Tensor]:
        """See `Evaluator.outputs`; what is no tensor of numbers, or has another shape than usual, is NaN here."""
        graph = self._graphs[id(call)]
        columns = dict(zip(call.graph.input_names, arguments, strict=True))
        batch = max((len(x) for x in arguments), default=1)
        rows = [
            {name: to_numpy(columns[name][min(row, len(columns[name]) - 1)]) for name in graph.input_names}
            for row in range(min(batch, max(self._found.count, 1)))
        ]
        runs = self._runners[id(graph)].run(rows, seconds=self._seconds, patience=self._patience)
        self._found.seconds += runs.seconds
        if runs.refusal is not None:
            if not runs.count:
                raise runs.refusal
            self._refuse(call, runs.count, runs.refusal)
        elif batch > 1:
            self._found.count = min(self._found.count, runs.count)
        # Points on which it did not run repeat the last one, and are left out; one argument is that of all points.
        places = np.minimum(np.arange(len(self._points)), runs.count - 1)
        self._found.feeds[id(call)] = [rows[place] for place in places]
        shown: list[Stack | None] = []
        outputs: list[Tensor] = []
        for name, details in zip(graph.output_names, graph.output_details, strict=True):
            value, size = runs.values.get(name), tuple(details.shape)
            known = isinstance(value, np.ndarray) and value.shape[1:] == size
            array = restore(value, np.dtype(details.dtype))[places] if known and isinstance(value, np.ndarray) else None
            shown.append(array)
            outputs.append(torch.full((1, *size), torch.nan) if array is None else to_torch(array))
        self._found.shown[id(call)] = shown
        return outputs

    def validity(self, goal: ValidityGoal, arguments: tuple[Tensor, ...]) -> Tensor:
        """See `Evaluator.validity`: outputs do not tell."""
        return torch.tensor([torch.nan])


def restore(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return an array that came as its bits, where NumPy itself lacks the type, in that type."""
    return array.view(dtype) if dtype.kind == "V" and array.dtype.kind == "u" else array


def _share(array: np.ndarray) -> Tensor:
    return to_torch(stored_once(array)).expand(array.shape)
