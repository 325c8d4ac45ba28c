"""Operation graph to ONNX: generic over operators, the reverse of the reader.

The names of a node's inputs and attributes, and which of its fields used to be attributes, come from the operator's
schema at the version that the node was read with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
from dnnv.nn import Operation, OperationGraph
from dnnv.nn.operations import Input, OutputSelect
from dnnv.nn.utils import TensorDetails
from onnx import helper, numpy_helper

from ranum_falsify.errors import ModelError
from ranum_falsify.network.blackbox import BlackBox
from ranum_falsify.network.fields import input_fields
from ranum_falsify.network.model_file import OLDEST_OPSET
from ranum_falsify.network.naming import UniqueNames
from ranum_falsify.network.nesting import nodes_with_branches, rename_captured
from ranum_falsify.network.order import operands_in
from ranum_falsify.network.registry import OperatorSpec, opsets_of, schema_of, spec_of
from ranum_falsify.network.shaped import ShapedGraph
from ranum_falsify.network.trace import UnfitBranch

_Tensor = tuple[int, int]
"""Identity of a node and index of its output."""

_OLDEST_IR = 4
"""From this version of the format on, initializers need not be inputs."""

_ATTRIBUTE_TYPES = onnx.AttributeProto.AttributeType
_LISTS = frozenset({_ATTRIBUTE_TYPES.INTS, _ATTRIBUTE_TYPES.FLOATS, _ATTRIBUTE_TYPES.STRINGS})


def to_onnx(graph: ShapedGraph) -> onnx.ModelProto:
    """Return an ONNX model that computes what a graph computes.

    Inputs keep their names and order, outputs their order; an output is renamed where its name is taken.

    Raises:
        ModelError: No single opset offers every node at its version, as in compositions of networks of different
            opsets, or an operand that was an attribute at that version is computed.
    """
    opsets = _opsets(graph)
    writer = _Writer(opsets)
    proto = writer.write_graph(graph)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(
        proto,
        producer_name="ranum-falsify",
        opset_imports=imports,
        ir_version=max(_OLDEST_IR, helper.find_min_ir_version_for(imports, ignore_unknown=True)),
    )


# opsets ---------------------------------------------------------------------------------------------------------------


def _opsets(graph: ShapedGraph) -> dict[str, int]:
    """Return an opset per domain that has every node's version: the graph's own, or else the nearest one that does."""
    users: dict[tuple[str, str, int], str] = {}
    for op in nodes_with_branches(graph):
        spec = spec_of(op)
        users.setdefault((spec.domain, spec.op_type, op.version), op.name)
    opsets = {"": graph.opset}
    for domain in sorted({"", *(domain for domain, _, _ in users)}):
        needs = {need: name for need, name in users.items() if need[0] == domain}
        opsets[domain] = _opset(domain, needs, opsets.get(domain, 1))
    return opsets


def _opset(domain: str, needs: Mapping[tuple[str, str, int], str], wanted: int) -> int:
    spans = {need: _span(*need) for need in needs}
    oldest = OLDEST_OPSET if domain == "" else 1
    lowest = max((first for first, _ in spans.values()), default=oldest)
    highest = min((last for _, last in spans.values()), default=wanted)
    if max(lowest, oldest) <= highest:
        return min(max(wanted, lowest, oldest), highest)
    newer = max(spans, key=lambda need: spans[need][0])
    older = min(spans, key=lambda need: spans[need][1])
    raise ModelError(
        f"no opset offers both {newer[1]}-{newer[2]} (node {needs[newer]!r}) and {older[1]}-{older[2]} (node "
        f"{needs[older]!r}); convert the networks to one opset with onnx.version_converter before composing them"
    )


def _span(domain: str, op_type: str, version: int) -> tuple[int, int]:
    """Return the first and last opset in which an operator has a version."""
    _, newest = opsets_of(domain)
    last = version
    while last < newest:
        schema = schema_of(op_type, domain, last + 1)
        if schema is None or schema.since_version != version:
            break
        last += 1
    return version, last


# nodes ----------------------------------------------------------------------------------------------------------------


class _Writer:
    """Writes one model: names are unique over all its graphs, and initializers are kept once, in the outermost."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self.opsets = opsets
        self.names = UniqueNames()
        self.initializers: list[onnx.TensorProto] = []
        self.initializer_names: dict[int, str] = {}

    def write_graph(self, graph: ShapedGraph) -> onnx.GraphProto:
        names = {_tensor(op): self.names.take(op.name) for op in graph.inputs}
        nodes, outputs = self._body(graph, names)
        rigid = _rigid_tensors(graph)
        return helper.make_graph(
            nodes,
            "network",
            [_value_info(name, d) for name, d in zip(names.values(), graph.input_details, strict=True)],
            [
                _value_info(name, graph.details_of(op), rigid=_tensor(op) in rigid)
                for name, op in zip(outputs, graph.output_operations, strict=True)
            ],
            self.initializers,
        )

    def _branch(self, graph: ShapedGraph, captured: Sequence[str], name: str) -> onnx.GraphProto:
        names = {_tensor(op): outer for op, outer in zip(graph.inputs, captured, strict=True)}
        nodes, outputs = self._body(graph, names, captures=True)
        pairs = zip(outputs, graph.output_operations, strict=True)
        infos = [_value_info(output, graph.details_of(op), rigid=False) for output, op in pairs]
        return helper.make_graph(nodes, name, [], infos)

    def _body(
        self, graph: ShapedGraph, names: dict[_Tensor, str], *, captures: bool = False
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """Return a graph's nodes and the names of its outputs.

        Args:
            graph: The graph.
            names: Names of its input tensors.
            captures: Whether its inputs belong to an enclosing graph, which may not be outputs themselves.
        """
        outputs: list[str] = []
        copies: list[onnx.NodeProto] = []
        known = dict(names)
        for op, wanted in zip(graph.output_operations, graph.output_names, strict=True):
            tensor = _tensor(op)
            if tensor not in known:
                known[tensor] = self.names.take(wanted)
                outputs.append(known[tensor])
            elif known[tensor] == wanted and not captures and wanted not in outputs:
                outputs.append(wanted)
            else:
                outputs.append(self.names.take(wanted))
                copies.append(helper.make_node("Identity", [known[tensor]], [outputs[-1]]))
        nodes = [self._node(op, known) for op in graph.nodes]
        return nodes + copies, outputs

    def _node(self, op: Operation, names: dict[_Tensor, str]) -> onnx.NodeProto:
        if isinstance(op, BlackBox):
            return self._black_box(op, names)
        spec = spec_of(op)
        schema = schema_of(spec.op_type, spec.domain, self.opsets[spec.domain])
        assert schema is not None, "the opset was chosen so that every node has a schema"
        inputs, given = self._inputs(op, spec, schema, names)
        node = helper.make_node(spec.op_type, inputs, self._outputs(op, names), name=op.name, domain=spec.domain)
        for name, formal in schema.attributes.items():
            field = spec.field_of(name)
            value = None if field in given else op.__dict__.get(field)
            if value is not None:
                kind: Any = formal.type
                node.attribute.append(self._attribute(op, name, int(kind), value, names))
        return node

    def _black_box(self, op: BlackBox, names: dict[_Tensor, str]) -> onnx.NodeProto:
        reads = [self._operand(op, f"x_{position}", value, names) for position, value in enumerate(op.x)]
        node = onnx.NodeProto()
        node.CopyFrom(op.proto)
        outer = len(node.input)
        rename_captured(node, dict(zip(op.captured or (), reads[outer:], strict=True)), self.names.take)
        node.name, node.input[:], node.output[:] = op.name, reads[:outer], self._outputs(op, names)
        return node

    def _inputs(
        self, op: Operation, spec: OperatorSpec, schema: onnx.defs.OpSchema, names: Mapping[_Tensor, str]
    ) -> tuple[list[str], frozenset[str]]:
        """Return the names of a node's inputs, and the fields that they fill."""
        fields = input_fields(spec, schema, len(schema.inputs))
        values: list[tuple[str, Any]] = []
        for field in fields:
            value = op.__dict__.get(field)
            if spec.variadic and field == spec.operands[-1]:
                values += [(f"{field}_{index}", item) for index, item in enumerate(value or ())]
                break
            values.append((field, value))
        while values and values[-1][1] is None:
            values.pop()
        return [self._operand(op, field, value, names) for field, value in values], frozenset(fields)

    def _operand(self, op: Operation, field: str, value: Any, names: Mapping[_Tensor, str]) -> str:
        if value is None:
            return ""
        if isinstance(value, Operation):
            return names[_tensor(value)]
        if id(value) not in self.initializer_names:
            name = self.names.take(f"{op.name}.{field}")
            self.initializer_names[id(value)] = name
            self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return self.initializer_names[id(value)]

    def _outputs(self, op: Operation, names: dict[_Tensor, str]) -> list[str]:
        """Name a node's outputs, except those named already as outputs of the graph; absent ones stay absent."""
        outputs = []
        for index, name in enumerate(op.output_names):
            tensor = (id(op), index)
            if name and tensor not in names:
                names[tensor] = self.names.take(name)
            outputs.append(names.get(tensor, ""))
        return outputs

    def _attribute(
        self, op: Operation, name: str, kind: int, value: Any, names: Mapping[_Tensor, str]
    ) -> onnx.AttributeProto:
        if isinstance(value, Operation):
            raise ModelError(
                f"node {op.name!r}: {name!r} is computed, but an attribute at opset {self.opsets[spec_of(op).domain]}; "
                "convert the network to a newer opset with onnx.version_converter"
            )
        if isinstance(value, UnfitBranch):
            raise ModelError(f"node {op.name!r}: {value.error}")
        if isinstance(value, OperationGraph):
            captured = [names[_tensor(source)] for source in op.captured]
            value = self._branch(cast("ShapedGraph", value), captured, f"{op.name}.{name}")
        elif kind == _ATTRIBUTE_TYPES.TENSOR:
            value = numpy_helper.from_array(np.asarray(value))
        elif isinstance(value, np.ndarray):
            value = value.reshape(-1).tolist() if kind in _LISTS else value.reshape(()).item()
        return helper.make_attribute(name, value, attr_type=kind)


def _tensor(op: Operation) -> _Tensor:
    return (id(op.operation), op.index) if isinstance(op, OutputSelect) else (id(op), 0)


def _rigid_tensors(graph: ShapedGraph) -> set[_Tensor]:
    """Return the tensors whose shape is the same for every input."""
    rigid: set[int] = set()
    for op in graph.order:
        if not all(id(operand) in rigid for operand in operands_in(op)):
            continue
        if isinstance(op, (Input, OutputSelect)) or spec_of(op).has_fixed_shape(
            [None if value is None else not isinstance(value, Operation) for value in spec_of(op).operands_of(op)]
        ):
            rigid.add(id(op))
    return {_tensor(op) for op in graph.order if id(op) in rigid}


def _value_info(name: str, details: TensorDetails, *, rigid: bool = True) -> onnx.ValueInfoProto:
    """Declare a tensor; the sizes of one that is not rigid stay open."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(details.dtype))
    return helper.make_tensor_value_info(name, kind, [size if rigid else None for size in details.shape])
