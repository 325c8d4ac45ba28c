"""What a repair costs: by how much it changes outputs, and how many operations it adds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from dnnv.nn import Operation

from ranum_falsify.errors import ReplayError
from ranum_falsify.fix.repair import OutputChange
from ranum_falsify.fix.subject import RepairSubject
from ranum_falsify.network import Graph
from ranum_falsify.network.fields import array_of
from ranum_falsify.network.model_file import free_model
from ranum_falsify.network.order import operands_in
from ranum_falsify.network.registry import schema_of, spec_of
from ranum_falsify.properties.problem.problem import InputVariable
from ranum_falsify.replay.replayer import Replayer

__all__ = ["OutputMeter", "count_operations"]

_SPREADS = (1.0, 0.1, 0.01, 0.001)
_WAVES = 3
_LEAST_WAVE = 64
"""How long the last dimension of an input is that gets waves now and then, as recordings have."""


@dataclass(frozen=True)
class _Sample:
    """An input, what comes out of the original, and whether all its operators receive valid input."""

    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    is_valid: bool


class OutputMeter:
    """Compares repaired models with the original on the same inputs, drawn from the property's box.

    Args:
        subject: The original.
        samples: How many inputs to draw, at most.
        seconds: How long drawing may take.
        seed: Seed of the draws.
        keep: Tells, given the values of an input, whether it counts; all do by default.
    """

    def __init__(
        self,
        subject: RepairSubject,
        *,
        samples: int,
        seconds: float,
        seed: int,
        keep: Callable[[Mapping[str, np.ndarray]], bool] = lambda inputs: True,
    ) -> None:
        self._subject = subject
        self._most = samples
        self._seconds = seconds
        self._seed = seed
        self._keep = keep
        self._samples: Sequence[_Sample] | None = None

    def measure(self, model: onnx.ModelProto) -> OutputChange | None:
        """Return by how much a model's outputs differ; None where no input can be drawn on which the original is valid.

        Raises:
            ReplayError: ONNX Runtime does not run the model.
        """
        if self._samples is None:
            self._samples = self._run_original()
        if not any(sample.is_valid for sample in self._samples):
            return None
        found = _Differences()
        with Replayer(self._runnable(model)) as replayer:
            for sample in self._samples:
                if self._draws:
                    # A seeded generator draws the same numbers only in the same run of the same kind.
                    outputs = replayer.run(sample.inputs).outputs
                elif sample.is_valid:
                    outputs = replayer.outputs(sample.inputs)
                if sample.is_valid:
                    found.add(sample.outputs, outputs)
        return found.result()

    @cached_property
    def _draws(self) -> bool:
        """Whether the model draws random numbers."""
        return any(spec_of(op).is_random(op) for op in self._subject.graph.nodes)

    def _run_original(self) -> Sequence[_Sample]:
        """Draw inputs, and run the original on them."""
        call = self._subject.call
        if None in call.variables:
            return []
        samples: list[_Sample] = []
        ends = time.monotonic() + self._seconds
        try:
            with Replayer(self._runnable(self._subject.model)) as replayer:
                for inputs in self._draw():
                    if not self._keep(inputs):
                        continue
                    seen = replayer.run(inputs)
                    samples.append(_Sample(inputs, seen.outputs, not seen.findings))
                    if time.monotonic() > ends:
                        break
        except ReplayError:
            return []
        return samples

    def _runnable(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Return a model whose inputs are those of the property, and whose random numbers are seeded."""
        made = onnx.ModelProto()
        made.CopyFrom(free_model(model, self._subject.graph.options.free))
        for node in made.graph.node:
            schema = schema_of(node.op_type, node.domain, self._subject.graph.opset)
            seed = None if schema is None else schema.attributes.get("seed")
            if seed is not None and not any(attribute.name == seed.name for attribute in node.attribute):
                is_whole = seed.type == onnx.defs.OpSchema.AttrType.INT
                node.attribute.append(onnx.helper.make_attribute(seed.name, 1 if is_whole else 1.0))
        return made

    def _draw(self) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield inputs: over the whole box, and ever nearer to 0 and to the weights in the file."""
        call = self._subject.call
        variables = {variable.name: variable for variable in self._subject.problem.inputs}
        free = self._subject.graph.options.free
        values = {t.name: array_of(t) for t in self._subject.model.graph.initializer if t.name in free}
        rng = np.random.default_rng(self._seed)
        for number in range(self._most):
            spread = _SPREADS[number % len(_SPREADS)]
            drawn = {
                variable: _draw(rng, variables[variable], values.get(name), spread, number)
                for name, variable in zip(call.graph.input_names, call.variables, strict=True)
                if variable is not None
            }
            yield {
                name: drawn[variable]
                for name, variable in zip(call.graph.input_names, call.variables, strict=True)
                if variable is not None
            }


def _draw(
    rng: np.random.Generator, variable: InputVariable, known: np.ndarray | None, spread: float, number: int
) -> np.ndarray:
    """Return values of one input: any of the box, waves, or some near 0, or near its own numbers in the file."""
    if variable.dtype.kind == "b":
        flags: np.ndarray = (rng.random(variable.shape) < 0.5) & variable.upper | variable.lower
        return flags
    low, high = variable.lower.astype(np.float64), variable.upper.astype(np.float64)
    if variable.dtype.kind in "iu":
        return np.clip(np.floor(low + rng.random(variable.shape) * (high - low + 1)), low, high).astype(variable.dtype)
    share: np.ndarray = rng.random(variable.shape)
    if known is None and variable.shape and variable.shape[-1] >= _LEAST_WAVE and number // len(_SPREADS) % 2:
        share = _waves(rng, variable.shape)
    drawn: np.ndarray = low + share * (high - low)
    centre = np.clip(np.zeros(()) if known is None else np.asarray(known, np.float64), low, high)
    drawn = centre + spread * (drawn - centre)
    inside: np.ndarray = np.clip(drawn.astype(variable.dtype), variable.lower, variable.upper)
    return inside


def _waves(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Return sums of a few sines along the last dimension, between 0 and 1."""
    place = np.arange(shape[-1])
    total = np.zeros(shape)
    for _ in range(_WAVES):
        frequency = math.pi * rng.random((*shape[:-1], 1)) ** 3
        total = total + rng.random((*shape[:-1], 1)) * np.sin(frequency * place + 2 * math.pi * rng.random())
    result: np.ndarray = 0.5 + total / (2 * _WAVES)
    return result


class _Differences:
    """The differences of the outputs of two models."""

    def __init__(self) -> None:
        self._samples = self._equal = self._elements = 0
        self._largest = self._relative = self._sum = 0.0

    def add(self, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> None:
        """Compare the outputs on one input, the original's first."""
        self._samples += 1
        self._equal += all(np.array_equal(ours[name], theirs[name], equal_nan=True) for name in ours)
        for name, one in ours.items():
            with np.errstate(invalid="ignore", over="ignore"):
                wide, other = np.asarray(one, np.float64), np.asarray(theirs[name], np.float64)
                change = np.where(wide == other, 0.0, np.abs(wide - other))
            if not change.size:
                continue
            greatest = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
            most = float(change.max())
            self._elements += change.size
            self._sum += float(change.sum())
            self._largest = max(self._largest, most)
            self._relative = max(self._relative, most / greatest if greatest else (math.inf if most else 0.0))

    def result(self) -> OutputChange:
        """Return what was found."""
        return OutputChange(
            samples=self._samples,
            largest=self._largest,
            mean=self._sum / max(self._elements, 1),
            relative=self._relative,
            equal=self._equal,
        )


def count_operations(graph: Graph) -> int:
    """Return how many floating numbers the nodes of a graph read or write, whichever is more, sum over the nodes."""
    return sum(_count(graph, op) for op in graph.nodes)


def _count(graph: Graph, op: Operation) -> int:
    sizes = [0]
    for tensor in (op, *operands_in(op)):
        try:
            details = graph.details_of(tensor)
        except KeyError:
            continue
        if details.dtype.kind == "f":
            sizes.append(math.prod(details.shape))
    return max(sizes)
