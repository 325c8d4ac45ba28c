"""The model of unit tests: tensors that its tests look at are outputs, and draws of random operators inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
import onnx
from dnnv.nn import Operation
from dnnv.nn.utils import TensorDetails
from onnx import TensorProto, helper

from ranum_falsify.errors import PropertyError
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.naming import UniqueNames, tensor_name
from ranum_falsify.network.nesting import names_read
from ranum_falsify.network.random_inputs import DEVIATIONS, Draw, expose_draws, is_cut
from ranum_falsify.properties.formula.formula import Goal
from ranum_falsify.properties.formula.terms import NetworkCall, Variable
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.validity import GreaterThan, LessThan
from ranum_falsify.verify.replay.worker.graph import clear_repeated_names

Limit = tuple[str, str, float]
"""A tensor, `at most` or `at least`, and a number from which on a derivative is not finite."""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The tensors that a test of one operator looks at, by ONNX name.

    Attributes:
        node: Name of the operator.
        op_type: ONNX operator.
        reads: Floating tensors that it reads and that inputs of the network can change.
        writes: Tensors that it writes.
        limits: Where its derivative is not finite.
        is_elementwise: Whether each element that it writes depends on the elements at the same place alone.
        is_integer: Whether it works on integers, so that ONNX Runtime stops at a division by zero.
        names: What the model of the tests calls tensors that the graph calls otherwise.
    """

    node: str
    op_type: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    limits: tuple[Limit, ...]
    is_elementwise: bool
    is_integer: bool
    names: Mapping[str, str]


@dataclass(frozen=True)
class _Written:
    """The model that tests run.

    Attributes:
        model: The model.
        names: What it calls tensors that the graph calls otherwise.
        tensors: Shape and dtype, by its names, of every tensor that an input can change.
    """

    model: onnx.ModelProto
    names: Mapping[str, str]
    tensors: Mapping[str, TensorDetails]


_written: WeakKeyDictionary[Graph, _Written] = WeakKeyDictionary()


def _write(graph: Graph) -> _Written:
    """Return the model of a graph, or the graph written as one where that has operators in subgraphs."""
    if graph not in _written:
        tensors = {tensor_name(op): graph.details_of(op) for op in graph.order}
        model, names = graph.model, dict[str, str]()
        outside = {name for node in model.graph.node for name in node.output}
        if graph.origins or not all(outside.issuperset(filter(None, op.output_names)) for op in graph.nodes):
            model = graph.as_onnx()
            outputs = {node.name: node.output for node in model.graph.node}
            pairs = (pair for op in graph.nodes for pair in zip(op.output_names, outputs[op.name], strict=False))
            names = {own: other for own, other in pairs if own and own != other}
        _written[graph] = _Written(model, names, {names.get(name, name): one for name, one in tensors.items()})
    return _written[graph]


def watch_operator(graph: Graph, op: Operation, targets: Sequence[Target]) -> Watched:
    """Return the tensors that a test of one operator looks at."""
    model = _write(graph)
    tensors, names = model.tensors, model.names
    written = [names.get(name, name) for name in op.output_names if name]
    node = next(node for node in model.model.graph.node if written[0] in node.output)
    reads = dict.fromkeys(name for name in names_read(node) if _is_float(tensors.get(name)))
    return Watched(
        node=op.name,
        op_type=spec_of(op).op_type,
        reads=tuple(reads),
        writes=tuple(name for name in written if _is_float(tensors.get(name))),
        limits=tuple(
            (names.get(name, name), side, bound)
            for target in targets
            if target.is_gradient
            for name, side, bound in _limits(op, target)
        ),
        is_elementwise=spec_of(op).elementwise,
        is_integer=not _is_float(tensors.get(written[0])),
        names=names,
    )


def runs_as_written(graph: Graph) -> bool:
    """Tell whether the model of tests is the graph's own, in which no loop is unrolled."""
    return _write(graph).model is graph.model


def expose_operators(graph: Graph, operators: Sequence[Watched]) -> tuple[bytes, bytes]:
    """Return a graph's model, and what to append for all tensors that tests look at to be among its outputs.

    Messages of protobuf, one after the other, are one message with the fields of both.
    Loops are unrolled there, and branches that are always taken are no branches.
    NumPy has no bfloat16: such a tensor `x` is the output `x:float32`.
    """
    written = _write(graph)
    model, added = onnx.ModelProto(), onnx.ModelProto()
    model.CopyFrom(written.model)
    tensors, given = written.tensors, {info.name for info in (*model.graph.input, *model.graph.output)}
    for name in dict.fromkeys(name for one in operators for name in (*one.reads, *one.writes)):
        shape, dtype = tensors[name]
        shown, kind = name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        if kind == TensorProto.BFLOAT16:
            shown, kind = f"{name}:float32", TensorProto.FLOAT
            added.graph.node.append(helper.make_node("Cast", [name], [shown], to=kind))
        if shown not in given:
            # Sizes stay open: some depend on values.
            added.graph.output.append(helper.make_tensor_value_info(shown, kind, [None] * len(shape)))
    clear_repeated_names(model.graph)
    return model.SerializeToString(deterministic=True), added.SerializeToString(deterministic=True)


def _is_float(details: TensorDetails | None) -> bool:
    return details is not None and (np.dtype(details.dtype).kind == "f" or np.dtype(details.dtype).name == "bfloat16")


def _limits(op: Operation, target: Target) -> Iterator[Limit]:
    condition, output = target.constraint, str(op.output_names[0])
    if not isinstance(condition, GreaterThan | LessThan):
        # The other conditions are about roots and norms, which are 0 there.
        yield output, "at most", 0.0
        return
    assert isinstance(condition.bound, float)
    operand = target.spec.name_values(target.spec.operands_of(op)).get(condition.operand)
    name = tensor_name(operand) if isinstance(operand, Operation) else output
    yield name, "at most" if isinstance(condition, GreaterThan) else "at least", condition.bound


def make_repeatable(problem: Problem) -> Problem:
    """Return the validity goals of a problem, with the draws of random operators as additional inputs.

    Raises:
        PropertyError: The property asks for something other than validity.
    """
    if not problem.is_pure_validity:
        raise PropertyError(
            "confirm: the property asks for more than valid operands; write one whose conclusion is no_invalid_input"
        )
    names = UniqueNames(variable.name for variable in problem.inputs)
    draws: list[InputVariable] = []
    calls: dict[int, NetworkCall] = {}
    for goal in problem.goals:
        if id(goal.call) in calls:
            continue
        graph, found = expose_draws(goal.call.graph)
        known = len(goal.call.graph.inputs)
        new = [
            _variable(names.take(draw.name), draw, details.shape, details.dtype)
            for draw, details in zip(found, graph.input_details[known:], strict=True)
        ]
        draws += new
        arguments = (*goal.call.arguments, *(Variable(v.name, v.shape, v.dtype) for v in new))
        calls[id(goal.call)] = replace(goal.call, graph=graph, arguments=arguments) if new else goal.call
    goals = tuple(replace(goal, call=calls[id(goal.call)]) for goal in problem.goals)
    # Side conditions still apply the original networks.
    others = problem.calls if problem.penalties else ()
    return Problem(
        inputs=(*problem.inputs, *draws),
        regions=tuple((*region, *draws) for region in problem.regions),
        calls=tuple({id(call): call for call in (*others, *calls.values())}.values()),
        goals=goals,
        clauses=tuple(Goal(goal) for goal in goals),
        penalties=problem.penalties,
    )


def notices_of(problem: Problem) -> Iterator[str]:
    """Yield what users should know about draws that a repeatable problem leaves out."""
    for graph in {id(goal.call.graph): goal.call.graph for goal in problem.goals}.values():
        cut = [op.name for op in graph.nodes if is_cut(op)]
        if cut:
            yield (
                f"tests keep normal draws ({', '.join(cut)}) within {DEVIATIONS:g} standard deviations of the mean; "
                "proofs cover all draws"
            )


def _variable(name: str, draw: Draw, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> InputVariable:
    lower, upper = (np.full(shape, end, dtype=dtype) for end in (draw.low, draw.high))
    return InputVariable(name=name, shape=shape, dtype=dtype, lower=lower, upper=upper)
