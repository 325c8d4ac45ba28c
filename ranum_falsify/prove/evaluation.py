"""The networks of a case run on ONNX Runtime, on several points at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph
from ranum_falsify.network.runs import ModelRunner, RunError
from ranum_falsify.network.tensors import stored_once, to_numpy, to_torch
from ranum_falsify.properties.formula.applications import NetworkCall, ValidityGoal
from ranum_falsify.properties.formula.frame import Frame
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.prove.departures import REPORT, Stack, restore
from ranum_falsify.prove.points import Point

__all__ = ["Evaluation", "WatchedRuns"]


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
    """Runs all networks of a case at the default level."""

    def __init__(
        self,
        case: Problem,
        graphs: Mapping[int, Graph],
        runners: Mapping[int, ModelRunner],
        points: Sequence[Point],
    ) -> None:
        """Prepare.

        Args:
            case: The case.
            graphs: The graphs that run, by `id` of the application.
            runners: What runs each, by `id` of the graph.
            points: The inputs, by variable.
        """
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
        """Run all networks on the points.

        Args:
            seconds: How long each may run; that this, or memory, does not suffice is no fault then.
            patience: After how much processor time no further point is begun.
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


def _share(array: np.ndarray) -> Tensor:
    return to_torch(stored_once(array)).expand(array.shape)
