"""A trial before a proof counts: ONNX Runtime runs the networks of a problem once, on inputs that the property allows.

A proof rests on the rows' knowledge of operators.  Where ONNX Runtime refuses to run what they describe, or shows
what a proof has excluded, nothing is proved for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.network import Graph
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.network.trial import TrialError, run_once
from ranum_falsify.properties.formula.applications import NetworkCall, ValidityGoal
from ranum_falsify.properties.formula.frame import Frame
from ranum_falsify.properties.problem.problem import InputVariable, Problem

__all__ = ["Trial", "make_points", "try_out"]

_REGIONS = 16
"""Boxes in which inputs are looked for that the property allows."""

_RANDOM = 13
"""Random points of each, after its centre and its ends."""

_REPORT = "a fault of ranum-falsify, please report it"

Surely = Callable[[int, NetworkCall], Sequence[Enclosure]]
"""Returns proved bounds of the outputs of an application on a box, given its position; NaN where nothing is proved."""


@dataclass(frozen=True)
class Trial:
    """What ONNX Runtime did.

    Attributes:
        inputs: What it ran on, by input variable.
        faults: By `id` of the application, why nothing is proved of it, to follow the name of ONNX Runtime.
    """

    inputs: Mapping[str, np.ndarray] = field(repr=False)
    faults: Mapping[int, str]


def try_out(problem: Problem, graphs: Mapping[int, Graph], surely: Surely) -> Trial | None:
    """Run all applications once, on inputs that meet the property's conditions if some are found.

    Args:
        problem: The problem.
        graphs: The graph that runs for each application, by `id` of the application.
        surely: What is proved of their outputs.

    Returns:
        None where the property allows no inputs at all.
    """
    boxes = [(case, variables) for case in problem.each_case for variables in case.regions]
    for number, (case, variables) in enumerate(boxes[:_REGIONS]):
        for inputs in make_points(variables):
            attempt = _Attempt(case, graphs, inputs)
            if attempt.meets_conditions():
                return Trial(inputs, attempt.find_faults(partial(surely, number)))
    if not boxes:
        return None
    case, variables = boxes[0]
    inputs = next(make_points(variables))
    return Trial(inputs, _Attempt(case, graphs, inputs).find_refusals())


def make_points(variables: Sequence[InputVariable]) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield points of a box: one that is cheap to run; its ends, and random ones, if it is more than a point."""
    fixed = all(np.array_equal(v.lower, v.upper) for v in variables)
    yield {v.name: _choose_plain(v) for v in variables}
    if fixed:
        return
    yield {v.name: v.lower for v in variables}
    yield {v.name: v.upper for v in variables}
    rng = np.random.default_rng(0)
    for _ in range(_RANDOM):
        yield {v.name: _between(v, rng.random(v.shape)) for v in variables}


def _choose_plain(variable: InputVariable) -> np.ndarray:
    """Return the centre, or 1 of integers, as near as the bounds allow: they may be how often a loop runs."""
    if variable.dtype.kind not in "iu":
        return _between(variable, 0.5)
    return np.clip(np.ones(variable.shape, variable.dtype), variable.lower, variable.upper)


def _between(variable: InputVariable, share: float | np.ndarray) -> np.ndarray:
    """Return values at a share of the way from the lower to the upper bound."""
    lower, upper = variable.lower, variable.upper
    if variable.dtype.kind in "iu":
        # Differences of integers wrap around into the unsigned type of the same size, where they are right.
        bits = np.dtype(f"u{variable.dtype.itemsize}")
        span = upper.view(bits) - lower.view(bits)
        step = np.minimum(np.floor(span * share), np.nextafter(np.float64(2.0 ** (8 * bits.itemsize)), 0)).astype(bits)
        return np.asarray((lower.view(bits) + np.minimum(step, span)).view(variable.dtype))
    wide = np.promote_types(variable.dtype, np.float32)
    part = np.asarray(share, wide)
    middle = lower.astype(wide) * (1 - part) + upper.astype(wide) * part
    return np.asarray(np.clip(middle, lower, upper), variable.dtype)


class _Attempt:
    """One run of the networks of a case.

    Args:
        case: The case.
        graphs: The graphs that run, by `id` of the application.
        inputs: The inputs, by variable.
    """

    def __init__(self, case: Problem, graphs: Mapping[int, Graph], inputs: Mapping[str, np.ndarray]) -> None:
        self._case = case
        self._graphs = graphs
        self._frame = Frame({name: to_torch(x)[None] for name, x in inputs.items()}, self)
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
                return {id(call): f"which {error}"}
        return {}

    def find_faults(self, surely: Callable[[NetworkCall], Sequence[Enclosure]]) -> dict[int, str]:
        """Return why nothing is proved of applications, given proved bounds of their outputs."""
        faults = self.find_refusals()
        if faults:
            return faults
        if not self._case.goals and self._is_violated():
            return {id(call): f"which violates the property against its proof: {_REPORT}" for call in self._case.calls}
        if not self._case.is_pure_validity:
            return {}
        for call in self._case.calls:
            pairs = zip(self._graphs[id(call)].output_names, self._shown[id(call)], surely(call), strict=True)
            for name, shown, bounds in pairs:
                if shown is not None and (outside := _find_outside(shown, bounds)):
                    faults[id(call)] = f"which gives {outside} at output {name!r}: {_REPORT}"
        return faults

    def _is_violated(self) -> bool:
        if any(array is None for shown in self._shown.values() for array in shown):
            return False
        return bool((self._case.clause_circuit.margins(self._frame) < 0).any())

    def outputs(self, call: NetworkCall, arguments: tuple[Tensor, ...]) -> Sequence[Tensor]:
        """See `Evaluator.outputs`; what is no tensor of numbers is NaN here."""
        arrays = dict(zip(call.graph.input_names, (to_numpy(x[0]) for x in arguments), strict=True))
        graph = self._graphs[id(call)]
        found = run_once(graph, {name: arrays[name] for name in graph.input_names})
        shown = self._shown[id(call)] = [found.get(name) for name in graph.output_names]
        sizes = [details.shape for details in graph.output_details]
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
