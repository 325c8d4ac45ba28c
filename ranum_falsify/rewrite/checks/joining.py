"""Two models as one network, in which what both compute alike is computed once.

Its output is, for each element of each output, by how much the two models are further apart than they may be.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.compose
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.network.nesting import attribute_graphs, names_read
from ranum_falsify.rewrite.model import copy_model, to_proto

_SOME = 64
"""Bytes at either end of a tensor that tell most tensors apart."""
_DRAWS = onnx.defs.OpSchema.NodeDeterminism.NonDeterministic


def without_functions(model: ir.Model) -> ir.Model:
    """Return a model in which calls of local functions are replaced by their bodies: itself, where it has none."""
    if not model.functions:
        return model
    inlined: ir.Model = ir.passes.common.InlinePass()(copy_model(model)).model
    return inlined


class Numbering:
    """Numbers of the tensors of any number of models, which must have no local functions."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._tensors: dict[int, tuple[ir.TensorProtocol, Hashable]] = {}
        self._alike: dict[Hashable, list[ir.TensorProtocol]] = {}
        self._constants: set[int] = set()

    def number(self, model: ir.Model) -> Mapping[ir.Value, int]:
        """Return the number of each tensor of a model's main graph, by value."""
        found: dict[ir.Value, int] = {}
        inputs: dict[ir.Value, Hashable] = {}
        for value in model.graph.inputs:
            default = None if value.const_value is None else self._tensor_key(value.const_value)
            inputs[value] = "input", value.name, str(value.type), default
        self._visit(model.graph, model.opset_imports, inputs, found, depth=0)
        return {value: found[value] for value in _values(model.graph) if value in found}

    def is_same(self, old: ir.Model, new: ir.Model) -> bool:
        """Tell whether a model computes what another one does, and nothing else."""
        before, after = without_functions(old), without_functions(new)
        was, now = self.number(before), self.number(after)
        pairs = zip(before.graph.outputs, after.graph.outputs, strict=True)
        return all(one in was and was[one] == now.get(other) for one, other in pairs) and not (
            set(now.values()) - set(was.values())
        )

    def _visit(
        self,
        graph: ir.Graph,
        opsets: Mapping[str, int],
        inputs: Mapping[ir.Value, Hashable],
        found: dict[ir.Value, int],
        *,
        depth: int,
    ) -> None:
        found.update((value, self._number_of(key)) for value, key in inputs.items())
        for value in graph.initializers.values():
            if value not in inputs and value.const_value is not None:
                found[value] = self._number_of_constant(value.const_value)
        for node in graph:
            key = self._key(node, opsets, found, depth)
            for position, value in enumerate(node.outputs):
                found[value] = key if isinstance(key, int) else self._number_of((*key, position))

    def _number_of(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _number_of_constant(self, tensor: ir.TensorProtocol) -> int:
        number = self._number_of(self._tensor_key(tensor))
        self._constants.add(number)
        return number

    def _key(
        self, node: ir.Node, opsets: Mapping[str, int], found: dict[ir.Value, int], depth: int
    ) -> tuple[Hashable, ...] | int:
        """Return what determines a node's outputs, or the number of the tensor that its only output is."""
        own = (node, "nothing else is like it")
        if any(value is not None and value not in found for value in node.inputs):
            return own
        operands = [None if value is None else found[value] for value in node.inputs]
        while operands and operands[-1] is None:
            operands.pop()
        if node.op_type == "Identity" and node.domain == "":
            (operand,) = operands
            if operand is not None and operand not in self._constants:
                return operand
        constant = ir.convenience.get_const_tensor(node.outputs[0]) if not operands and node.outputs else None
        if constant is not None:
            return self._number_of_constant(constant)
        try:
            schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
        except onnx.defs.SchemaError:
            return own
        has_graphs = any(attribute.type in _GRAPHS for attribute in node.attributes.values())
        draws = schema.node_determinism == _DRAWS  # type: ignore[attr-defined]  # missing in its stub
        if draws and not has_graphs:
            return own
        attributes = self._attributes(node, schema, opsets, found, depth)
        version = (node.domain, node.op_type, schema.since_version)
        return (*version, attributes, tuple(operands), tuple(bool(value.name) for value in node.outputs))

    def _attributes(
        self,
        node: ir.Node,
        schema: onnx.defs.OpSchema,
        opsets: Mapping[str, int],
        found: dict[ir.Value, int],
        depth: int,
    ) -> Hashable:
        """Return the attributes of a node, those that it leaves out as their defaults."""
        values: dict[str, Hashable] = {}
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name:
                default: ir.Attr = ir.serde.deserialize_attribute(attribute.default_value)
                values[name] = self._attribute_key(default, opsets, found, depth)
        for name, given in node.attributes.items():
            values[name] = self._attribute_key(given, opsets, found, depth)
        return tuple(sorted(values.items(), key=lambda item: item[0]))

    def _attribute_key(
        self, attribute: ir.Attr, opsets: Mapping[str, int], found: dict[ir.Value, int], depth: int
    ) -> Hashable:
        value: Any = attribute.value
        if attribute.type in _GRAPHS:
            graphs = [value] if isinstance(value, ir.Graph) else value
            return tuple(self._graph_key(graph, opsets, found, depth + 1) for graph in graphs)
        if isinstance(value, ir.TensorProtocol):
            return self._tensor_key(value)
        if isinstance(value, str | bytes | int) or value is None:
            return attribute.type, value
        return attribute.type, repr(value)

    def _graph_key(
        self, graph: ir.Graph, opsets: Mapping[str, int], found: dict[ir.Value, int], depth: int
    ) -> Hashable:
        """Return what a subgraph computes of its inputs, which are named by their depth and position."""
        inputs = {value: ("formal", depth, position) for position, value in enumerate(graph.inputs)}
        inside = dict(found)
        self._visit(graph, opsets, inputs, inside, depth=depth)
        return len(graph.inputs), tuple(inside.get(value, _Unknown()) for value in graph.outputs)

    def _tensor_key(self, tensor: ir.TensorProtocol) -> Hashable:
        """Return what tells a tensor apart; all its elements are looked at only where another one is much like it."""
        if id(tensor) not in self._tensors:
            sketch = "tensor", tensor.dtype, tuple(tensor.shape.numpy()), _sketch(tensor)
            alike = self._alike.setdefault(sketch, [])
            place = next((i for i, other in enumerate(alike) if _is_equal(other, tensor)), len(alike))
            alike[place:] = alike[place:] or [tensor]
            self._tensors[id(tensor)] = tensor, (*sketch, place)
        return self._tensors[id(tensor)][1]


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


class _Unknown:
    """A tensor that equals no other."""


def _sketch(tensor: ir.TensorProtocol) -> Hashable:
    """Return what equal tensors have in common: where they are stored, or their elements, of large ones some."""
    if isinstance(tensor, ir.ExternalTensor):
        return str(tensor.path), tensor.offset, tensor.length
    if tensor.dtype == ir.DataType.STRING:
        return tuple(tensor.numpy().reshape(-1).tolist())
    data = tensor.tobytes()
    return data[:_SOME], data[-_SOME:]


def _is_equal(tensor: ir.TensorProtocol, other: ir.TensorProtocol) -> bool:
    """Tell whether tensors of one sketch are equal, bit for bit."""
    is_known = isinstance(tensor, ir.ExternalTensor) or tensor.dtype == ir.DataType.STRING
    return is_known or tensor.tobytes() == other.tobytes()


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    parts: Iterable[Iterable[ir.Value]] = (
        graph.inputs,
        graph.initializers.values(),
        (value for node in graph for value in node.outputs),
    )
    for part in parts:
        yield from part


Allowance = tuple[float, float]
"""Relative and absolute tolerance."""

_OUTPUT = "difference"


@dataclass(frozen=True)
class Joined:
    """Two models as one graph.

    Attributes:
        model: The old model, whose names start with `old/`, and those nodes of the new one that compute something else,
            whose names start with `new/`; it has no outputs yet.
        outputs: The tensors that are each output of the old and of the new model, by its name.
        added: Names of the nodes that compute something else.
        is_partial: Whether the new model has nodes besides: those that no output depends on are left out, and those of
            subgraphs are part of others.
    """

    model: onnx.ModelProto
    outputs: Mapping[str, tuple[str, str]]
    added: tuple[str, ...]
    is_partial: bool = False

    @property
    def is_same(self) -> bool:
        """Whether the models compute the same."""
        return all(old == new for old, new in self.outputs.values())

    def subtract(self, allowed: Mapping[str, Allowance], *, exposed: bool = False) -> onnx.ModelProto:
        """Return the network of the difference, as far as outputs are not the same tensor.

        Args:
            allowed: Tolerances by output.
            exposed: Whether what the new model computes in between is an output, too.
        """
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        graph, ends = model.graph, []
        for name, (old, new) in self.outputs.items():
            if old != new:
                graph.node.extend(_differ(name, old, new, allowed[name]))
                ends.append(f"{name}/flat")
        graph.initializer.append(numpy_helper.from_array(np.array([-1], dtype=np.int64), "flat"))
        graph.node.append(helper.make_node("Concat", ends, [_OUTPUT], name=_OUTPUT, axis=0))
        graph.output.append(helper.make_tensor_value_info(_OUTPUT, TensorProto.DOUBLE, [None]))
        if exposed:
            inside = [name for node in graph.node if node.name in self.added for name in node.output if name]
            graph.output.extend(onnx.ValueInfoProto(name=name) for name in inside)
        return model


def join(old: ir.Model, new: ir.Model, numbering: Numbering | None = None) -> Joined:
    """Return two models with the same inputs and outputs as one."""
    before, after = without_functions(old), without_functions(new)
    same = _same_tensors(before, after, numbering or Numbering())
    joined, other = (
        onnx.compose.add_prefix(to_proto(model), prefix, rename_inputs=False, inplace=True)
        for model, prefix in ((before, "old/"), (after, "new/"))
    )
    graph = joined.graph
    known = {opset.domain for opset in joined.opset_import}
    joined.opset_import.extend(opset for opset in other.opset_import if opset.domain not in known)
    outputs = [value.name for value in graph.output]
    del graph.value_info[:], graph.output[:]
    for number, node in enumerate(graph.node):
        node.name = f"old/{number}"  # names may be missing, or shared
    graph.initializer.extend(tensor for tensor in other.graph.initializer if tensor.name not in same)
    ends = {
        was.removeprefix("old/"): (was, same.get(now.name, now.name))
        for was, now in zip(outputs, other.graph.output, strict=True)
    }
    changed = [node for node in other.graph.node if not all(name in same for name in node.output if name)]
    for number, node in enumerate(changed):
        _rename(node, same)
        node.name = f"new/{number}"
    live = _live(changed, {now for _, now in ends.values()})
    graph.node.extend(live)
    is_partial = len(live) < len(changed) or any(list(attribute_graphs(node)) for node in live)
    return Joined(joined, ends, tuple(node.name for node in live), is_partial)


def _live(nodes: Sequence[onnx.NodeProto], needed: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes, which are in topological order, that needed tensors depend on."""
    live = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.output):
            needed.update(names_read(node))
            live.append(node)
    return live[::-1]


def _same_tensors(old: ir.Model, new: ir.Model, numbering: Numbering) -> dict[str, str]:
    """Return the tensors of the new model that the old one computes too, by their names in the joined graph."""
    inputs = {value.name for value in old.graph.inputs if not value.is_initializer()}
    names: dict[int, str] = {}
    for value, number in numbering.number(old).items():
        if value.name:
            names.setdefault(number, value.name if value.name in inputs else f"old/{value.name}")
    return {
        f"new/{value.name}": names[number]
        for value, number in numbering.number(new).items()
        if value.name and number in names and value.name not in inputs
    }


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename what a node reads, in its subgraphs too."""
    for position, name in enumerate(node.input):
        node.input[position] = names.get(name, name)
    for graph in attribute_graphs(node):
        for inner in graph.node:
            _rename(inner, names)
        for output in graph.output:
            output.name = names.get(output.name, output.name)


def _differ(name: str, old: str, new: str, allowed: Allowance) -> Iterator[onnx.NodeProto]:
    """Yield what computes by how much more than allowed two outputs differ, in double precision and flat."""

    def node(op_type: str, inputs: Sequence[str], step: str, **attributes: int) -> onnx.NodeProto:
        made = helper.make_node(op_type, inputs, [f"{name}/{step}"], name=f"{name}/{step}")
        made.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        return made

    def constant(value: float, step: str) -> onnx.NodeProto:
        tensor = numpy_helper.from_array(np.array(value, dtype=np.float64))
        return helper.make_node("Constant", [], [f"{name}/{step}"], name=f"{name}/{step}", value=tensor)

    relative, absolute = allowed
    yield node("Cast", [old], "wide_old", to=TensorProto.DOUBLE)
    yield node("Cast", [new], "wide_new", to=TensorProto.DOUBLE)
    yield node("Sub", [f"{name}/wide_new", f"{name}/wide_old"], "signed")
    yield node("Abs", [f"{name}/signed"], "distance")
    yield constant(relative, "relative")
    yield constant(absolute, "absolute")
    yield node("Abs", [f"{name}/wide_old"], "size")
    yield node("Mul", [f"{name}/size", f"{name}/relative"], "share")
    yield node("Add", [f"{name}/share", f"{name}/absolute"], "allowed")
    yield node("Sub", [f"{name}/distance", f"{name}/allowed"], "excess")
    yield node("Reshape", [f"{name}/excess", "flat"], "flat")
