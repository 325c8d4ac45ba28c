"""Costs of a repair: by how much it changes outputs, and how many operations it adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from dnnv.nn import Operation
from dnnv.nn.utils import TensorDetails

from ranum_falsify.errors import ReplayError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph, read
from ranum_falsify.network.fields import array_of
from ranum_falsify.network.model_file import free_model
from ranum_falsify.network.order import operands_in
from ranum_falsify.network.random_inputs import DEVIATIONS, Draw, expose_draws, is_cut
from ranum_falsify.network.registry import schema_of, spec_of
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.problem.problem import InputVariable
from ranum_falsify.repair.differences import OutputDifferences
from ranum_falsify.repair.meaning import Meaning
from ranum_falsify.repair.repair import OutputChange
from ranum_falsify.repair.subject import RepairSubject
from ranum_falsify.verify.prove.checked import branches_of
from ranum_falsify.verify.replay.replayer import Replayer

_SPREADS = (1.0, 0.1, 0.01, 0.001)
_WAVES = 3
_LEAST_WAVE = 64
"""How long the last dimension of an input is that gets waves now and then, as recordings have."""


def draw_values(rng: np.random.Generator, variable: InputVariable, known: np.ndarray | None, number: int) -> np.ndarray:
    """Return values of one input: any of the box, waves, ends, numbers of any order, or near those in the file."""
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
    turn = number % (2 * len(_SPREADS))
    if turn < len(_SPREADS):
        centre = np.clip(np.zeros(()) if known is None else np.asarray(known, np.float64), low, high)
        drawn = centre + _SPREADS[turn] * (drawn - centre)
    else:
        drawn = _extreme(rng, drawn, low, high, float(np.finfo(variable.dtype).tiny))
    inside: np.ndarray = np.clip(drawn.astype(variable.dtype), variable.lower, variable.upper)
    return inside


def _extreme(rng: np.random.Generator, drawn: np.ndarray, low: np.ndarray, high: np.ndarray, tiny: float) -> np.ndarray:
    """Return numbers as rarely come up by themselves."""
    most = np.maximum(np.maximum(np.abs(low), np.abs(high)), tiny)
    orders = np.log(most) - math.log(tiny)
    each = np.exp(math.log(tiny) + orders * rng.random(drawn.shape))
    common = np.minimum(np.exp(math.log(tiny) + orders.max(initial=0.0) * rng.random()), most)
    sign = np.where((rng.random(drawn.shape) < 0.5) & (low < 0) | (high <= 0), -1.0, 1.0)
    is_other = rng.random(drawn.shape) < 0.5
    kinds = (
        lambda: sign * each,
        lambda: sign * common * rng.random(drawn.shape),
        lambda: np.where(is_other, drawn, sign * each),
        lambda: np.where(is_other, drawn, 0.0),
        lambda: np.where(is_other, low, high),
        lambda: np.broadcast_to(drawn.flat[0] if drawn.size else 0.0, drawn.shape),
        lambda: np.round(drawn),
    )
    made: np.ndarray = kinds[int(rng.integers(len(kinds)))]()
    return made


def _waves(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Return sums of a few sines along the last dimension, between 0 and 1."""
    place = np.arange(shape[-1])
    total = np.zeros(shape)
    for _ in range(_WAVES):
        frequency = math.pi * rng.random((*shape[:-1], 1)) ** 3
        total = total + rng.random((*shape[:-1], 1)) * np.sin(frequency * place + 2 * math.pi * rng.random())
    result: np.ndarray = 0.5 + total / (2 * _WAVES)
    return result


def draw_numbers(rng: np.random.Generator, draw: Draw, details: TensorDetails, *, is_normal: bool) -> np.ndarray:
    """Return numbers as a random operator draws them."""
    share = rng.random(details.shape)
    if is_normal:
        share = np.clip(0.5 + rng.standard_normal(details.shape) / (2 * DEVIATIONS), 0, 1)
    drawn: np.ndarray = np.asarray(draw.low + share * (draw.high - draw.low)).astype(details.dtype)
    return drawn


_FOR_MEANING = 10.0
"""Seconds for what outputs mean, if there are as many; samples of which it is not known then do not count."""
_SMALL = 20_000
"""Operations of models that are evaluated in real numbers; of larger ones, double precision has to do."""


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
        self._known: dict[int, Mapping[str, np.ndarray]] = {}
        self._without_denormals: Sequence[Mapping[str, np.ndarray]] = []

    def measure(self, model: onnx.ModelProto) -> OutputChange | None:
        """Return by how much a model's outputs differ; None where there is no input to compare them on.

        Raises:
            ReplayError: ONNX Runtime does not run the model.
        """
        if self._samples is None:
            self._samples = self._run_original()
        if not self._samples:
            return None
        found = OutputDifferences()
        ends = Deadline.after(max(self._seconds, min(self._subject.deadline.left, _FOR_MEANING)))
        runnable = self._runnable(model)
        names = {value.name for value in runnable.graph.input}
        given = {*self._samples[0].inputs, *(tensor.name for tensor in runnable.graph.initializer)}
        if not given.issuperset(names):
            return None  # it draws other random numbers
        with Replayer(runnable) as replayer:
            for number, sample in enumerate(self._samples):
                # What nobody reads any more may be gone: draws that were only needed for what was replaced.
                inputs = {name: array for name, array in sample.inputs.items() if name in names}
                # A seeded generator draws the same numbers only in the same run of the same kind.
                outputs = replayer.run(inputs).outputs if self._is_seeded else replayer.outputs(inputs)
                is_kept = sample.is_valid and found.are_equal(sample.outputs, outputs)
                meant = {} if is_kept or self._is_seeded else self._meant(number, ends)
                if meant is not None:
                    flushed = partial(self._flushed, number)
                    found.add(sample.outputs, outputs, meant, is_valid=sample.is_valid, flushed=flushed)
        return found.result()

    def _meant(self, number: int, ends: Deadline) -> Mapping[str, np.ndarray] | None:
        """Return what the original means by a sample; None where there is no time left to find out."""
        if number not in self._known and not ends.has_passed and self._samples is not None:
            self._known[number] = self._meaning.run(self._samples[number].inputs)
        return self._known.get(number)

    def _flushed(self, number: int) -> Mapping[str, np.ndarray]:
        """Return what the original makes of a sample where denormal numbers are replaced by 0."""
        if self._is_seeded or self._samples is None:
            return {}
        if not self._without_denormals:
            with Replayer(self._runnable(self._subject.model), flush=True) as replayer:
                self._without_denormals = [replayer.outputs(sample.inputs) for sample in self._samples]
        return self._without_denormals[number]

    @cached_property
    def _meaning(self) -> Meaning:
        is_small = count_operations(self._subject.graph) <= _SMALL
        return Meaning(self._runnable(self._subject.model), is_small=is_small)

    @cached_property
    def _repeatable(self) -> tuple[Graph, tuple[Draw, ...]]:
        """The original with the numbers that it draws as inputs, as far as they can be."""
        return expose_draws(self._subject.graph)

    @property
    def _is_seeded(self) -> bool:
        """Whether the original draws other random numbers, too."""
        return any(spec_of(op).is_random(op) for op in self._repeatable[0].nodes)

    def _run_original(self) -> Sequence[_Sample]:
        """Draw inputs, and run the original on them."""
        call = self._subject.call
        if None in call.variables:
            return []
        samples: list[_Sample] = []
        ends = Deadline.after(self._seconds)
        try:
            with Replayer(self._runnable(self._subject.model)) as replayer:
                for inputs in self._draw_inputs():
                    if not self._keep(inputs):
                        continue
                    seen = replayer.run(inputs)
                    samples.append(_Sample(inputs, seen.outputs, not seen.findings))
                    if ends.has_passed:
                        break
        except ReplayError:
            return []
        return samples

    def _draw_inputs(self) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield inputs, and the numbers that the original draws."""
        call = self._subject.call
        variables = {variable.name: variable for variable in self._subject.problem.inputs}
        free = self._subject.graph.options.free
        values = {t.name: array_of(t) for t in self._subject.model.graph.initializer if t.name in free}
        names = dict(zip(call.graph.input_names, call.variables, strict=True))
        graph, draws = self._repeatable
        details = dict(zip(graph.input_names, graph.input_details, strict=True))
        normal = {op.name for op in self._subject.graph.nodes if is_cut(op)}
        rng = np.random.default_rng(self._seed)
        for number in range(self._most):
            drawn = {
                variable: draw_values(rng, variables[variable], values.get(name), number)
                for name, variable in names.items()
                if variable is not None
            }
            inputs = {name: drawn[variable] for name, variable in names.items() if variable is not None}
            yield inputs | {
                draw.name: draw_numbers(rng, draw, details[draw.name], is_normal=draw.node in normal) for draw in draws
            }

    def _runnable(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Return a model whose inputs are those of the property, and whose random numbers are inputs, or seeded."""
        options = self._subject.graph.options
        made = onnx.ModelProto()
        made.CopyFrom(free_model(model, options.free))
        if self._repeatable[1]:
            drawn = read(made, dims=options.dims, assumed=options.assumed, strict=options.strict, sample=options.sample)
            made.CopyFrom(expose_draws(drawn)[0].model)
        for node in made.graph.node:
            schema = schema_of(node.op_type, node.domain, self._subject.graph.opset)
            seed = None if schema is None else schema.attributes.get("seed")
            if seed is not None and not any(attribute.name == seed.name for attribute in node.attribute):
                is_whole = seed.type == onnx.defs.OpSchema.AttrType.INT
                node.attribute.append(onnx.helper.make_attribute(seed.name, 1 if is_whole else 1.0))
        return made


def count_operations(graph: Graph) -> int:
    """Return how many floating numbers the nodes of a graph read or write, whichever is more, sum over the nodes.

    Both branches of a node count.
    """
    inner = (branch for op in graph.nodes for branch in branches_of(op))
    return sum(_count(graph, op) for op in graph.nodes) + sum(map(count_operations, inner))


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
