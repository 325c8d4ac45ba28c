"""Training tasks: a network with weights as inputs, its loss, its data, the operator that is to fail, and its judge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect
from torch import Tensor

from ranum_falsify.errors import PropertyError, ReplayCrashError, ReplayTimeoutError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph
from ranum_falsify.network.naming import tensor_name
from ranum_falsify.network.order import topological_order
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.properties.formula.terms import NetworkCall, Trainable
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.properties.problem.targets import Target, targets_of
from ranum_falsify.verify.replay.confirmer import Confirmer
from ranum_falsify.verify.search.batching import margin_and_crossing_of, probe_of
from ranum_falsify.verify.search.converter import Probe, TorchModel, convert
from ranum_falsify.verify.search.starts import Box
from ranum_falsify.witness.oracle import Holder, Oracle
from ranum_falsify.witness.unit_test import Trigger


@dataclass(frozen=True, kw_only=True)
class Datum:
    """An input that a training run and an inference read: data, a label, or a draw.

    Attributes:
        name: Its ONNX name.
        variable: Its name in the property.
        box: Its range.
        is_one_hot: Whether each row along its last dimension is 0 but for a single 1; a row of one element is 0 or 1.
        is_draw: Whether it is what a random operator draws.
    """

    name: str
    variable: str
    box: Box
    is_one_hot: bool = False
    is_draw: bool = False

    def harden(self, x: Tensor) -> Tensor:
        """Return the value nearby, `(..., *shape)`, whose rows are one-hot if they must be."""
        if not self.is_one_hot or not x.is_floating_point():
            return x
        if x.shape[-1] == 1:
            return x.round()
        return torch.nn.functional.one_hot(x.argmax(-1), x.shape[-1]).to(x.dtype)


class TrainingTask:
    """A network that is trained, and the operator that is to fail afterwards.

    Attributes:
        problem: The property, with the draws of random operators as inputs, and with weights that may have any value.
        call: The application of the network.
        targets: The conditions of the operator; of several, in topological order, if any of them is to fail.
        data: The inputs but the weights.
        weights: The ONNX names of the weights that are trained, in the order of the network's inputs.
        ranges: The weights' ranges in the property, in the same order.
        notices: What users should know.
    """

    def __init__(
        self,
        problem: Problem,
        targets: Sequence[Target],
        model: TorchModel,
        trainable: Trainable,
        *,
        draws: Collection[str] = (),
    ) -> None:
        """Prepare.

        Args:
            problem: The property, with the draws of random operators as inputs.
            targets: The conditions of one operator, or of several of which any is to fail, in topological order.
            model: The network as a module.
            trainable: Weights, losses and labels.
            draws: The variables that are what random operators draw.

        Raises:
            PropertyError: There is no such node, label or part, or the loss depends on no weight, or a weight is no
                variable.
        """
        self.call: NetworkCall = problem.goals[targets[0].goal].call
        self.targets = tuple(targets)
        self._model = model
        self._probes = {id(group[0].op): probe_of(group) for group in self.by_operator}
        self._names = _list_variables(self.call)
        variables = {v.name: v for v in problem.inputs}
        self.weights = tuple(name for name in self.graph.input_names if name in set(trainable.weights))
        self.ranges = tuple(_box_of(variables[self._names[name]]) for name in self.weights)
        self.data = tuple(
            Datum(
                name=name,
                variable=variable,
                box=_box_of(variables[variable]),
                is_one_hot=name in trainable.one_hot,
                is_draw=variable in draws,
            )
            for name, variable in self._names.items()
            if name not in self.weights
        )
        self.problem = _unbound(problem, {self._names[name] for name in self.weights})
        self._losses = _find_losses(self.graph, trainable.loss)
        self._parts = trainable.parts
        self._check_names(trainable)
        self._check_path()

    @property
    def graph(self) -> Graph:
        """The network."""
        return self.call.graph

    @property
    def op(self) -> Operation:
        """The operator; the first if there are several."""
        return self.targets[0].op

    @property
    def by_operator(self) -> list[tuple[Target, ...]]:
        """The conditions of each operator."""
        return [tuple(group) for _, group in groupby(self.targets, key=lambda target: id(target.op))]

    def narrow_to(self, failing: Sequence[Target]) -> TrainingTask:
        """Return the same about one of its operators."""
        twin = copy(self)
        twin.targets = tuple(failing)
        twin._probes = {id(failing[0].op): probe_of(failing)}
        return twin

    @property
    def is_separable(self) -> bool:
        """Whether several training runs can be one batch of `torch.func.vmap`."""
        return self._model.separable

    @property
    def losses(self) -> tuple[str, ...]:
        """The tensors whose sum is made small, by ONNX name."""
        return tuple(tensor_name(op) for op in self._losses)

    @cached_property
    def in_float64(self) -> TrainingTask:
        """The same with a module whose constants are float64."""
        twin = copy(self)
        twin._model = convert(self.graph).double()
        return twin

    @cached_property
    def notices(self) -> tuple[str, ...]:
        """What users should know about the loss."""
        sizes = {tensor_name(op): self.graph.details_of(op).shape for op in self._losses}
        return tuple(
            f"the loss {name!r} has the shape {list(shape)}; the sum of its elements is trained"
            for name, shape in sizes.items()
            if shape and np.prod(shape) != 1
        )

    def loss(self, weights: Sequence[Tensor], data: Sequence[Tensor]) -> Tensor:
        """Return the loss of one batch, differentiable."""
        if not self._parts:
            return self._observe(weights, data, {id(op): _total for op in self._losses}).sum()
        losses = [
            self._observe(self._hold_others(weights, part), data, {id(op): _total})
            for op, part in zip(self._losses, self._parts, strict=True)
        ]
        return torch.cat(losses).sum()

    def _hold_others(self, weights: Sequence[Tensor], part: str) -> list[Tensor]:
        """Return the weights, those outside a part without a gradient."""
        return [w if name.startswith(part) else w.detach() for name, w in zip(self.weights, weights, strict=True)]

    def margins(self, weights: Sequence[Tensor], data: Sequence[Tensor]) -> Tensor:
        """Return the margin of each target, differentiable; negative is violated."""
        return self._observe(weights, data, self._probes)

    def crossings(self, target: int, weights: Sequence[Tensor], data: Sequence[Tensor]) -> Tensor:
        """Return the margin of a target, and the values that may not be 0, flattened; none where nothing crosses."""
        wanted = self.targets[target]
        return self._observe(weights, data, {id(wanted.op): margin_and_crossing_of(wanted)})

    def _observe(self, weights: Sequence[Tensor], data: Sequence[Tensor], probes: Mapping[int, Probe]) -> Tensor:
        given = dict(zip((*self.weights, *(d.name for d in self.data)), (*weights, *data), strict=True))
        inputs = [given[name] for name in self.graph.input_names]
        return torch.cat([x.reshape(-1) for x in self._model.observe(inputs, probes, outputs=False)[1]])

    def environment(self, weights: Sequence[np.ndarray], data: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return arrays by the names of the property's variables."""
        named = {d.variable: x for d, x in zip(self.data, data, strict=True)}
        return named | {self._names[name]: x for name, x in zip(self.weights, weights, strict=True)}

    def _check_names(self, trainable: Trainable) -> None:
        data = [datum.name for datum in self.data]
        for name in trainable.one_hot:
            if name not in data:
                raise PropertyError(
                    f"training: one_hot names {name!r}, which is no input of the network; "
                    f"inputs: {', '.join(map(repr, data))}"
                )
        for part in trainable.parts:
            if not any(name.startswith(part) for name in self.weights):
                raise PropertyError(
                    f"training: no freed weight has a name that begins with {part!r}, as parts has it; "
                    f"weights: {', '.join(map(repr, self.weights))}"
                )

    def _check_path(self) -> None:
        reached = {id(op) for op in topological_order(self._losses)}
        inputs = {tensor_name(op): op for op in self.graph.inputs}
        if self.weights and not any(id(inputs[name]) in reached for name in self.weights):
            raise PropertyError(
                f"training: the loss {', '.join(map(repr, self.losses))} depends on none of the freed weights "
                f"({', '.join(map(repr, self.weights))}); free those that it depends on, or name another loss"
            )


def _total(op: Operation, operands: Sequence[object], outputs: Sequence[Tensor]) -> Tensor:
    return outputs[0].sum().reshape(1)


def _list_variables(call: NetworkCall) -> dict[str, str]:
    """Return the variable that each input of the network is, by ONNX name."""
    names = {}
    for name, variable in zip(call.graph.input_names, call.variables, strict=True):
        if variable is None:
            raise PropertyError(
                f"training: input {name!r} of network {call.network!r} is an expression; "
                "apply the network to variables, each a range of its own"
            )
        names[name] = variable
    return names


def _find_losses(graph: Graph, names: Sequence[str]) -> tuple[Operation, ...]:
    """Return the operations that compute a loss: a node by its name, or a tensor by its own."""
    found = []
    outputs = dict(zip((info.name for info in graph.model.graph.output), graph.output_operations, strict=True))
    for name in names:
        op = outputs.get(name) or _find_node(graph, name)
        if op is None or isinstance(op, Input):
            known = ", ".join(map(repr, outputs))
            raise PropertyError(f"training: there is no node or output {name!r} that could be a loss; outputs: {known}")
        if not np.dtype(graph.details_of(op).dtype).kind == "f":
            raise PropertyError(f"training: the loss {name!r} is not of floating type, so it has no gradient")
        found.append(op)
    return tuple(found)


def _find_node(graph: Graph, name: str) -> Operation | None:
    for op in graph.order:
        if isinstance(op, OutputSelect):
            if tensor_name(op) == name:
                return op
        elif not isinstance(op, Input) and len(op.output_names) == 1 and name in (op.name, *op.output_names):
            return op
    return None


def _box_of(variable: InputVariable) -> Box:
    return Box(to_torch(variable.lower), to_torch(variable.upper))


def _unbound(problem: Problem, names: set[str]) -> Problem:
    """Return a problem in which some variables may have any finite value."""

    def widen(variables: Sequence[InputVariable]) -> tuple[InputVariable, ...]:
        return tuple(_widen(v) if v.name in names else v for v in variables)

    return replace(problem, inputs=widen(problem.inputs), regions=tuple(map(widen, problem.regions)))


def _widen(variable: InputVariable) -> InputVariable:
    most = np.full(variable.shape, np.finfo(variable.dtype).max, dtype=variable.dtype)
    return replace(variable, lower=-most, upper=most)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How a trained model fails."""

    targets: tuple[Target, ...]
    trigger: Trigger


class Judge(Holder):
    """Decides whether a trained model fails; a context manager that holds ONNX Runtime's process."""

    def __init__(self, task: TrainingTask) -> None:
        self._task = task
        self._oracle = self._held = Oracle(task.problem)

    @property
    def confirmer(self) -> Confirmer:
        """Runs the network, and parts of it."""
        return self._oracle.confirmer

    def judge(self, weights: Sequence[np.ndarray], point: Sequence[np.ndarray]) -> Verdict | None:
        """Return how an operator fails, None if none does, or if a weight is not finite.

        Args:
            weights: The trained weights, in the task's order.
            point: The inference input, in the order of the task's data.
        """
        return self._judge(self._task.by_operator, weights, point)

    def find_shown(self, verdict: Verdict) -> tuple[str, ...]:
        """Return the outputs that show a failure to users; see `Oracle.find_shown`."""
        goal = self._task.problem.goals[verdict.targets[0].goal]
        return self._oracle.find_shown(goal.call, verdict.trigger)

    def name_failing(self, weights: Sequence[np.ndarray], point: Sequence[np.ndarray]) -> str:
        """Return the first operator of the network that fails, an empty text if none does."""
        goal = self._task.targets[0].goal
        all_targets = targets_of(goal, self._task.problem.goals[goal])
        groups = (tuple(targets) for _, targets in groupby(all_targets, key=lambda target: target.op))
        verdict = self._judge(groups, weights, point)
        return "" if verdict is None else str(verdict.targets[0].op.name)

    def _judge(
        self, groups: Iterable[tuple[Target, ...]], weights: Sequence[np.ndarray], point: Sequence[np.ndarray]
    ) -> Verdict | None:
        if not all(np.isfinite(w).all() for w in weights):
            return None
        for targets in groups:
            try:
                trigger = self._oracle.judge(targets, self._task.environment(weights, point))
            except (ReplayCrashError, ReplayTimeoutError):
                continue
            # What ONNX Runtime hides, no file that runs it can show.
            if trigger is not None and trigger.oracle != "reference":
                return Verdict(targets=targets, trigger=trigger)
        return None
