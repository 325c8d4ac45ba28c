"""Two models as one network, in which what both compute alike is computed once.

Its output is, for each element of each output, by how much the two models are further apart than they may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.compose
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.network.nesting import attribute_graphs, names_read
from ranum_falsify.rewrite.checks.value_numbering import Numbering, without_functions
from ranum_falsify.rewrite.model import to_proto

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
    """Return two models with the same inputs and outputs as one.

    Args:
        old: The one.
        new: The other.
        numbering: What has numbered tensors of theirs, which takes long for large weights.
    """
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
