"""A property of a model as VNN-LIB, and the network that the file is about.

VNN-LIB knows one input vector X and one output vector Y.  A model of one input and one output is that network as it is,
where the property asks about its output.  Where it asks whether operators receive invalid input, what they must not
receive becomes the output; several inputs, and several tensors that are asked about, become one vector each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from ranum_falsify.config import ProveConfig
from ranum_falsify.errors import PropertyError
from ranum_falsify.network import Graph
from ranum_falsify.network.naming import UniqueNames, tensor_name
from ranum_falsify.network.tensors import is_floating, torch_dtype
from ranum_falsify.properties.formula.formula import Formula, walk
from ranum_falsify.properties.formula.terms import NetworkCall, Output
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.properties.problem.scalars import Quantity
from ranum_falsify.properties.problem.targets import Target, targets_of
from ranum_falsify.properties.problem.vnnlib_writer import (
    Assertion,
    Naming,
    all_of,
    any_of,
    at_least,
    at_most,
    write_vnnlib,
)
from ranum_falsify.rewrite.checks.inputs import Box
from ranum_falsify.validity import InvalidRange
from ranum_falsify.verify.prove.prover import Prover

if TYPE_CHECKING:
    from dnnv.nn import Operation

_SLICE_HAS_INPUTS = 10  # opset
_MOST_NAMED = 3
_MOST_NUMBERS = 500_000


@dataclass(frozen=True, kw_only=True)
class StatedProperty:
    """A property as VNN-LIB.

    Attributes:
        model: The network that it is about.
        text: The file.
        box: Where the inputs of the network lie.
        notices: What the file does not say, or not exactly.
    """

    model: ir.Model
    text: str
    box: Box
    notices: tuple[str, ...]


@dataclass(frozen=True)
class _Tensor:
    """A tensor of the network that becomes part of the output."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


def state_property(problem: Problem) -> StatedProperty:
    """Return a problem as VNN-LIB, and the network that the file is about.

    Operators that one interval analysis proves are left out.

    Raises:
        PropertyError: VNN-LIB cannot say it.
    """
    call = _single_call(problem)
    graph, inputs = call.graph, _ordered_inputs(problem, call)
    watched, notices = _watch_operators(problem, graph)
    compared = _compared_outputs((*problem.clauses, *problem.penalties))
    shown = {index: _Tensor(graph.output_names[index], *_kind(graph, op)) for index, op in _outputs(graph, compared)}
    tensors = list(dict.fromkeys([*shown.values(), *(one for pairs in watched.values() for one, _ in pairs)]))
    tensors = tensors or [_Tensor(graph.output_names[0], *_kind(graph, graph.output_operations[0]))]
    first = dict(zip(tensors, np.cumsum([0, *(tensor.size for tensor in tensors)]).tolist(), strict=False))
    sizes = [variable.lower.size for variable in inputs]
    count = sum(sizes) + sum(tensor.size for tensor in tensors)
    if count > _MOST_NUMBERS:
        raise PropertyError(
            f"property: in VNN-LIB it would be about {count:,} numbers, at most {_MOST_NUMBERS:,} are written; ask "
            "about fewer operators (only, nodes), or free no weights"
        )
    written = write_vnnlib(
        problem,
        Naming(
            inputs=dict(zip((variable.name for variable in inputs), np.cumsum([0, *sizes]).tolist(), strict=False)),
            outputs={index: first[tensor] for index, tensor in shown.items()},
            input_count=sum(sizes),
            output_count=sum(tensor.size for tensor in tensors),
            goals={key: any_of(_say(pairs, first)) for key, pairs in watched.items()},
        ),
    )
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    _show(model, tensors)
    box = _join_inputs(model, graph, inputs)
    made = ir.from_proto(model)
    ir.passes.common.TopologicalSortPass()(made)
    ir.passes.common.RemoveUnusedNodesPass()(made)
    notices += _describe_interface(inputs, tensors, shown)
    return StatedProperty(model=made, text=written.text, box=box, notices=(*notices, *written.notices))


def _single_call(problem: Problem) -> NetworkCall:
    """Return the one application of a network to the inputs themselves."""
    calls = problem.calls
    if len(calls) != 1:
        named = ", ".join(dict.fromkeys(call.network for call in calls))
        raise PropertyError(
            f"property: VNN-LIB is about one application of one network; this one has {len(calls)} (of {named})"
        )
    names = [variable.name for variable in problem.inputs]
    if sorted(map(str, calls[0].variables)) != sorted(names):
        raise PropertyError("property: VNN-LIB is about a network of the inputs themselves, not of terms of them")
    return calls[0]


def _ordered_inputs(problem: Problem, call: NetworkCall) -> list[InputVariable]:
    """Return the inputs in the order of the network."""
    by_name = {variable.name: variable for variable in problem.inputs}
    inputs = [by_name[str(name)] for name in call.variables]
    dtypes = dict.fromkeys(str(variable.dtype) for variable in inputs)
    if len(dtypes) > 1:
        raise PropertyError(
            f"property: VNN-LIB has one vector of inputs; those of the network are {', '.join(dtypes)}; give the model "
            "without those that are no floats"
        )
    return inputs


def _kind(graph: Graph, op: Operation) -> tuple[tuple[int, ...], np.dtype]:
    details = graph.details_of(op)
    return tuple(int(size) for size in details.shape), np.dtype(details.dtype)


def _outputs(graph: Graph, indices: set[int]) -> Iterator[tuple[int, Operation]]:
    yield from ((index, graph.output_operations[index]) for index in sorted(indices))


def _compared_outputs(formulas: Sequence[Formula]) -> set[int]:
    """Return the outputs that formulas compare."""
    return {part.index for part in walk(formulas) if isinstance(part, Output)}


# operators ------------------------------------------------------------------------------------------------------------

_Watched = dict[int, list[tuple[_Tensor, InvalidRange]]]


def _watch_operators(problem: Problem, graph: Graph) -> tuple[_Watched, list[str]]:
    """Return what is invalid in tensors of operators that are not proved, by `id` of the validity goal, and notices."""
    if not problem.goals:
        return {}, []
    proof = Prover(problem, ProveConfig()).analyse()
    there = {value for node in graph.model.graph.node for value in node.output} | set(graph.input_names)
    watched: _Watched = {}
    unsaid: list[str] = []
    proved: set[str] = set()
    for position, goal in enumerate(problem.goals):
        watched[id(goal)] = []
        for target in targets_of(position, goal):
            name = target.op.name
            if proof.proves(position, name) and not target.is_gradient:
                proved.add(name)
                continue
            found = _invalid(target, graph, there)
            if found is None:
                unsaid.append(f"{name} ({target.spec.op_type}): {target.constraint.describe()}")
            watched[id(goal)] += found or []
    notices = []
    if proved:
        many = "1 operator is" if len(proved) == 1 else f"{len(proved)} operators are"
        notices.append(f"{many} proved, and not in the VNN-LIB file")
    if unsaid:
        more = f" and {len(unsaid) - _MOST_NAMED} more" if len(unsaid) > _MOST_NAMED else ""
        named = "; ".join(unsaid[:_MOST_NAMED])
        notices.append(f"VNN-LIB cannot say these conditions, so that they are not in the file: {named}{more}")
    return watched, notices


def _invalid(target: Target, graph: Graph, there: set[str]) -> list[tuple[_Tensor, InvalidRange]] | None:
    """Return the tensors that a condition is about, and where they violate it; None where that cannot be said."""
    operands = target.spec.name_values(target.spec.operands_of(target.op)) | {"output": target.op}
    computed = {name: op for name, op in operands.items() if op is not None and not isinstance(op, np.ndarray)}
    floats = (dtype for _, dtype in (_kind(graph, op) for op in computed.values()) if is_floating(dtype))
    dtype = next(floats, None)
    ranges = None if dtype is None else target.constraint.invalid_ranges(torch_dtype(dtype))
    if ranges is None:
        return None
    pairs = []
    for invalid in ranges:
        operand = computed.get(invalid.operand)
        if operand is None:
            return None
        tensor = _Tensor(tensor_name(operand), *_kind(graph, operand))
        if tensor.name not in there or not is_floating(tensor.dtype):
            return None
        pairs.append((tensor, invalid))
    return pairs


def _say(pairs: Sequence[tuple[_Tensor, InvalidRange]], first: Mapping[_Tensor, int]) -> Iterator[Assertion]:
    """Yield for each element of tensors that it lies in a range."""
    for tensor, invalid in pairs:
        for number in range(first[tensor], first[tensor] + tensor.size):
            y = Quantity(f"Y_{number}", tensor.dtype)
            ends = []
            if invalid.lower > -np.inf:
                ends.append(at_least(y, invalid.lower, strict=invalid.is_open))
            if invalid.upper < np.inf:
                ends.append(at_most(y, invalid.upper, strict=invalid.is_open))
            yield all_of(ends)


# the network ----------------------------------------------------------------------------------------------------------


def _show(model: onnx.ModelProto, tensors: Sequence[_Tensor]) -> None:
    """Make tensors the one output of a model; several, or an input, as one vector."""
    dtypes = dict.fromkeys(str(tensor.dtype) for tensor in tensors)
    if len(dtypes) > 1:
        raise PropertyError(f"property: VNN-LIB has one vector of outputs; what is asked about is {', '.join(dtypes)}")
    graph = model.graph
    del graph.output[:]
    kind = helper.np_dtype_to_tensor_dtype(tensors[0].dtype)
    if len(tensors) == 1 and any(tensors[0].name in node.output for node in graph.node):
        graph.output.append(helper.make_tensor_value_info(tensors[0].name, kind, list(tensors[0].shape)))
        return
    names = _unique_names(graph)
    flat, joined = names.take("flat"), names.take("Y")
    graph.initializer.append(numpy_helper.from_array(np.array([-1], dtype=np.int64), flat))
    parts = [names.take(f"{tensor.name}/flat") for tensor in tensors]
    for tensor, part in zip(tensors, parts, strict=True):
        graph.node.append(helper.make_node("Reshape", [tensor.name, flat], [part], name=part))
    graph.node.append(helper.make_node("Concat", parts, [joined], name=joined, axis=0))
    size = sum(tensor.size for tensor in tensors)
    graph.output.append(helper.make_tensor_value_info(joined, kind, [size]))


def _join_inputs(model: onnx.ModelProto, graph: Graph, inputs: Sequence[InputVariable]) -> Box:
    """Fix the shapes of a model's inputs, and make one of several; return where it lies."""
    proto = model.graph
    values = {value.name: value for value in proto.input}
    for name, variable in zip(graph.input_names, inputs, strict=True):
        kind = values[name].type.tensor_type.elem_type
        values[name].CopyFrom(helper.make_tensor_value_info(name, kind, list(variable.shape)))
    del proto.value_info[:]
    if len(inputs) == 1:
        return {graph.input_names[0]: (inputs[0].lower, inputs[0].upper)}
    names = _unique_names(proto)
    joined, ends = names.take("X"), np.cumsum([0, *(variable.lower.size for variable in inputs)]).tolist()
    nodes: list[onnx.NodeProto] = []

    def constant(label: str, numbers: Sequence[int]) -> str:
        made = names.take(label)
        proto.initializer.append(numpy_helper.from_array(np.array(numbers, dtype=np.int64), made))
        return made

    axis = constant("X/axis", [0])
    for name, variable, start, end in zip(graph.input_names, inputs, ends, ends[1:], strict=False):
        part = names.take(f"{name}/part")
        if graph.opset < _SLICE_HAS_INPUTS:
            nodes.append(helper.make_node("Slice", [joined], [part], name=part, axes=[0], starts=[start], ends=[end]))
        else:
            bounds = [constant(f"{name}/start", [start]), constant(f"{name}/end", [end])]
            nodes.append(helper.make_node("Slice", [joined, *bounds, axis], [part], name=part))
        shape = constant(f"{name}/shape", list(variable.shape))
        nodes.append(helper.make_node("Reshape", [part, shape], [name], name=names.take(f"{name}/whole")))
    kind = values[graph.input_names[0]].type.tensor_type.elem_type
    kept = [value for value in proto.input if value.name not in graph.input_names]
    del proto.input[:]
    proto.input.extend([helper.make_tensor_value_info(joined, kind, [ends[-1]]), *kept])
    rest = list(proto.node)
    del proto.node[:]
    proto.node.extend([*nodes, *rest])
    lower, upper = (
        np.concatenate([getattr(variable, side).reshape(-1) for variable in inputs]) for side in ("lower", "upper")
    )
    return {joined: (lower, upper)}


def _unique_names(graph: onnx.GraphProto) -> UniqueNames:
    nodes = [name for node in graph.node for name in (node.name, *node.input, *node.output)]
    return UniqueNames([*nodes, *(one.name for one in (*graph.input, *graph.initializer))])


def _describe_interface(
    inputs: Sequence[InputVariable], tensors: Sequence[_Tensor], shown: Mapping[int, _Tensor]
) -> list[str]:
    """Return what is different about the inputs and outputs of the network."""
    notices = []
    if len(inputs) > 1:
        named = ", ".join(variable.name for variable in inputs)
        notices.append(f"VNN-LIB has one input: X is {named}, one after the other, and so is the input of the network")
    if [*shown.values()] != list(tensors) or len(tensors) > 1:
        named = ", ".join(f"{tensor.name} ({tensor.size})" for tensor in tensors[:_MOST_NAMED])
        more = f" and {len(tensors) - _MOST_NAMED} more tensors" if len(tensors) > _MOST_NAMED else ""
        notices.append(f"the output of the network is what the property asks about: {named}{more}")
    return notices
