"""Guards and clips, written into a model as nodes; all changes in words: of ONNX, of PyTorch and of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from torch import finfo

from ranum_falsify.network.naming import UniqueNames
from ranum_falsify.network.nesting import nested_nodes
from ranum_falsify.network.shaped import NodeOrigin
from ranum_falsify.network.tensors import numpy_dtype
from ranum_falsify.repair.abstraction.ranges import KeptRange
from ranum_falsify.repair.guards import OperandGuard
from ranum_falsify.repair.repair import Change, Kind
from ranum_falsify.rewrite.catalogue import find_pass
from ranum_falsify.rewrite.model import NodeNames, all_nodes, all_outputs, given_tensors, to_proto
from ranum_falsify.validity import largest

_LIMITS_ARE_INPUTS = 11  # opset
_EXTREMES_BROADCAST = 8  # opset
_CONSTANTS_ARE_INPUTS = 3  # last version of the representation in which initializers must be inputs


@dataclass(frozen=True)
class Edited:
    """A changed model.

    Attributes:
        model: The model.
        tensors: The tensor that each guard limits, empty for an attribute; None where its node has no place for it, and
            nothing is changed.
    """

    model: onnx.ModelProto
    tensors: Sequence[str | None]


def insert_guards(model: onnx.ModelProto, guards: Sequence[OperandGuard]) -> Edited:
    """Return a model with guards before the operands of nodes; all other readers of the tensors stay as they are."""
    changed = ir.from_proto(model)
    nodes = {node.name or "": node for node in changed.graph}
    writer = _LimitWriter(changed)
    places = [
        nodes.get(guard.site.name) if guard.site.origin is None else _find_inner(changed, guard.site.origin)
        for guard in guards
    ]
    tensors = [writer.guard(node, guard) for node, guard in zip(places, guards, strict=True)]
    return Edited(to_proto(changed), tensors)


def _find_inner(model: ir.Model, origin: NodeOrigin) -> ir.Node | None:
    """Return the node that lies at a place in a model's subgraphs, None where there is none."""
    graph = model.graph
    for output, attribute in origin.path:
        holder = _find_writer(graph, output)
        found = None if holder is None else holder.attributes.get(attribute)
        if found is None or found.type != ir.AttributeType.GRAPH:
            return None
        graph = found.as_graph()
    return _find_writer(graph, origin.output)


def _find_writer(graph: ir.Graph, tensor: str) -> ir.Node | None:
    return next((node for node in graph if node.outputs and node.outputs[0].name == tensor), None)


def insert_clips(model: onnx.ModelProto, ranges: Sequence[KeptRange]) -> onnx.ModelProto:
    """Return a model in which all nodes read tensors clipped to ranges; a tensor that is an output stays one."""
    changed = ir.from_proto(model)
    writer = _LimitWriter(changed)
    values = {value.name: value for value in (*changed.graph.inputs, *changed.graph.initializers.values())}
    values |= {value.name: value for node in changed.graph for value in node.outputs}
    for part in ranges:
        writer.clip(values[part.tensor], part)
    return to_proto(changed)


class _LimitWriter:
    """Adds nodes to a model, under names of their own."""

    def __init__(self, model: ir.Model) -> None:
        self._graph = model.graph
        self._as_nodes = (model.ir_version or 0) <= _CONSTANTS_ARE_INPUTS
        self._opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))
        self._names = NodeNames(all_nodes(model))
        self._tensors = UniqueNames(value.name or "" for value in (*given_tensors(model), *all_outputs(model)))

    def guard(self, node: ir.Node | None, guard: OperandGuard) -> str | None:
        """Put a guard before an operand of a node, and return the tensor that it limits; empty for an attribute."""
        if node is not None and guard.attribute:
            node.attributes[guard.attribute] = ir.AttrFloat32(guard.attribute, guard.step)
            return ""
        operand = None if node is None or guard.index >= len(node.inputs) else node.inputs[guard.index]
        if node is None or operand is None or not isinstance(node.graph, ir.Graph):
            return None
        made = _LimitNodes(self._opset, numpy_dtype(guard.dtype), as_nodes=self._as_nodes)
        if guard.halvings:
            self._restore(node, guard)
        limited = made.guard(operand, guard)
        self._name(made, operand, f"{node.name}/guard", node.graph)
        node.graph.insert_before(node, made.nodes)
        node.replace_input_with(guard.index, limited)
        return operand.name

    def _restore(self, node: ir.Node, guard: OperandGuard) -> None:
        """Have a node's readers read its result, kept finite, times what its operand is divided by."""
        result = node.outputs[0]
        uses, name, graph = list(result.uses()), result.name, node.graph
        assert isinstance(graph, ir.Graph), "functions are inlined"
        made = _LimitNodes(self._opset, numpy_dtype(guard.dtype), as_nodes=self._as_nodes)
        whole = made.restore(result, guard.halvings, largest(guard.dtype))
        self._name(made, result, f"{node.name}/guard", graph)
        graph.insert_after(node, made.nodes)
        for reader, index in uses:
            reader.replace_input_with(index, whole)
        for place, output in enumerate(graph.outputs):
            if output is result:
                graph.outputs[place] = whole
                result.name, whole.name = self._tensors.take(f"{name}/scaled"), name

    def clip(self, value: ir.Value, part: KeptRange) -> None:
        """Clip what all nodes read of a tensor."""
        made = _LimitNodes(self._opset, part.lower.dtype, as_nodes=self._as_nodes)
        uses = list(value.uses())
        limited = made.limit(value, part)
        self._name(made, value, f"{value.name}/clip", self._graph)
        producer = value.producer()
        if producer is None:
            self._graph.insert_before(self._graph[0], made.nodes)
        else:
            self._graph.insert_after(producer, made.nodes)
        for node, index in uses:
            node.replace_input_with(index, limited)

    def _name(self, made: _LimitNodes, of: ir.Value, root: str, graph: ir.Graph) -> None:
        self._names.name(made.nodes, root)
        for inner in made.nodes:
            for value in inner.outputs:
                value.name = self._tensors.take(f"{of.name}/{inner.op_type}")
        for value in made.constants:
            value.name = self._tensors.take(f"{of.name}/limit")
            graph.register_initializer(value)


class _LimitNodes:
    """The nodes of one guard or clip."""

    def __init__(self, opset: int, dtype: np.dtype, *, as_nodes: bool) -> None:
        self._opset, self._as_nodes = opset, as_nodes
        self._numpy = dtype
        self._dtype = ir.DataType.from_numpy(dtype)
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []

    def guard(self, x: ir.Value, guard: OperandGuard) -> ir.Value:
        """Add the nodes of a guard, and return what they make of a tensor."""
        low, high = guard.low, guard.high
        if guard.gap:
            return self._keep_from_zero(x, guard.step)
        if guard.adds:
            return self._op("Add", x, self._number(guard.step))
        if guard.halvings:
            return self._op("Mul", x, self._number(2.0**-guard.halvings))
        if guard.is_clip or (low is not None and high is not None) or self._opset < _EXTREMES_BROADCAST:
            return self._clip(x, low, high)
        return self._op("Max", x, self._number(low)) if low is not None else self._op("Min", x, self._number(high))

    def restore(self, x: ir.Value, halvings: int, most: float) -> ir.Value:
        """Add the nodes that double a result again, as far as it stays finite."""
        most *= 2.0**-halvings
        return self._op("Mul", self._clip(x, -most, most), self._number(2.0**halvings))

    def limit(self, x: ir.Value, part: KeptRange) -> ir.Value:
        """Add the nodes of a clip to a range."""
        if part.is_uniform:
            return self._clip(x, part.lower.flat[0], part.upper.flat[0])
        # Clip takes single numbers only.
        below = self._op("Min", x, self._number(part.upper))
        return self._op("Max", below, self._number(part.lower))

    def _keep_from_zero(self, x: ir.Value, step: float) -> ir.Value:
        below, above = self._number(-step), self._number(step)
        is_below = self._op("Less", x, self._number(0.0), dtype=ir.DataType.BOOL)
        made = self._op("Where", is_below, self._op("Min", x, below), self._op("Max", x, above))
        made.shape = x.shape
        return made

    def _clip(self, x: ir.Value, low: float | None, high: float | None) -> ir.Value:
        if self._opset < _LIMITS_ARE_INPUTS:
            limits = {"min": low, "max": high}
            attributes = [ir.AttrFloat32(name, float(limit)) for name, limit in limits.items() if limit is not None]
            return self._op("Clip", x, attributes=attributes)
        ends = [None if end is None else self._number(end) for end in (low, high)]
        return self._op("Clip", x, *(ends if ends[1] is not None else ends[:1]))

    def _number(self, number: float | np.ndarray | None) -> ir.Value:
        array = np.array(number).astype(self._numpy, order="C")
        if self._as_nodes:
            node = ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(array))])
            node.outputs[0].shape, node.outputs[0].type = ir.Shape(array.shape), ir.TensorType(self._dtype)
            self.nodes.append(node)
            return node.outputs[0]
        value = ir.Value(const_value=ir.tensor(array), shape=ir.Shape(array.shape), type=ir.TensorType(self._dtype))
        self.constants.append(value)
        return value

    def _op(
        self,
        op_type: str,
        x: ir.Value,
        *others: ir.Value | None,
        dtype: ir.DataType | None = None,
        attributes: Sequence[ir.Attr] = (),
    ) -> ir.Value:
        made = ir.Node("", op_type, [x, *others], attributes)
        output = made.outputs[0]
        output.shape = x.shape
        output.type = ir.TensorType(dtype or self._dtype)
        self.nodes.append(made)
        return output


def rewrite_changes(steps: Sequence[tuple[str, onnx.ModelProto]], original: onnx.ModelProto) -> Iterator[Change]:
    """Yield what each of several passes did."""
    before = original
    for name, model in steps:
        spec = find_pass(name).spec
        counterpart = spec.stands_for
        yield Change(
            kind="rewrite",
            place="graph",
            node=", ".join(_replaced(before, model, spec.takes)),
            text=name,
            torch="" if counterpart is None else counterpart.pytorch,
            tensorflow="" if counterpart is None else counterpart.tensorflow,
        )
        before = model


def _replaced(before: onnx.ModelProto, after: onnx.ModelProto, kinds: Sequence[str]) -> list[str]:
    """Return the names of the nodes of some operators that are gone; of the others, if there are none of these."""
    left = {node.name for node in nested_nodes(after.graph)}
    nodes = [node for node in nested_nodes(before.graph) if node.name not in left]
    return [node.name for node in nodes if node.op_type in kinds] or [node.name for node in nodes]


def guard_change(guard: OperandGuard, tensor: str, kind: Kind) -> Change:
    """Return what a guard changes."""
    text, torch, tensorflow, unchanged = _describe(guard, tensor)
    return Change(
        kind=kind,
        place="attribute" if guard.attribute else "operand",
        node=guard.site.name,
        tensor=tensor,
        text=text,
        kept=guard.kept(),
        unchanged=unchanged,
        keeps_gradient=guard.adds or bool(guard.attribute),
        torch=torch,
        tensorflow=tensorflow,
    )


def clip_change(part: KeptRange) -> Change:
    """Return what a clip of a tensor changes."""
    ends = [number_text(float(end.flat[0])) if part.is_uniform else name for end, name in _ends(part)]
    x, (low, high) = part.tensor, ends
    each = "" if part.is_uniform else ", a range for each element"
    return Change(
        kind="clip",
        place=part.place,
        node="",
        tensor=x,
        text=f"Clip({x}, {low}, {high}){each}",
        kept=(part.kept, part.least),
        unchanged=f"{low} <= {x} <= {high}",
        keeps_gradient=False,
        torch=f"x = x.clamp({low}, {high})",
        tensorflow=f"x = tf.clip_by_value(x, {low}, {high})",
    )


def _ends(part: KeptRange) -> Iterator[tuple[np.ndarray, str]]:
    return iter(((part.lower, "lower"), (part.upper, "upper")))


def _describe(guard: OperandGuard, x: str) -> tuple[str, str, str, str]:
    """Return a guard as ONNX, PyTorch, TensorFlow, and where it changes nothing."""
    if guard.halvings:
        return _describe_scaling(guard, x)
    step = number_text(guard.step)
    if guard.attribute:
        large = number_text(guard.step * 4 / finfo(guard.dtype).eps)
        text = f"{guard.attribute} = {step}"
        return text, f"eps={step}", text, f"{guard.attribute} is added to {large} or more"
    if guard.gap:
        return (
            f"Where({x} < 0, Min({x}, -{step}), Max({x}, {step}))",
            f"x = torch.where(x < 0, x.clamp(max=-{step}), x.clamp(min={step}))",
            f"x = tf.where(x < 0, tf.minimum(x, -{step}), tf.maximum(x, {step}))",
            f"|{x}| >= {step}",
        )
    if guard.adds:
        large = number_text(guard.step * 4 / finfo(guard.dtype).eps)
        return f"{x} + {step}", f"x = x + {step}", f"x = x + {step}", f"{x} >= {large}"
    low = None if guard.low is None else number_text(guard.low)
    high = None if guard.high is None else number_text(guard.high)
    if low is not None and high is not None:
        clip, torch, tensorflow = f"({x}, {low}, {high})", f"min={low}, max={high}", f"x, {low}, {high}"
        return (
            f"Clip{clip}",
            f"x = x.clamp({torch})",
            f"x = tf.clip_by_value({tensorflow})",
            f"{low} <= {x} <= {high}",
        )
    if low is not None:
        name = f"Clip({x}, min={low})" if guard.is_clip else f"Max({x}, {low})"
        return name, f"x = x.clamp(min={low})", f"x = tf.maximum(x, {low})", f"{x} >= {low}"
    name = f"Clip({x}, max={high})" if guard.is_clip else f"Min({x}, {high})"
    return name, f"x = x.clamp(max={high})", f"x = tf.minimum(x, {high})", f"{x} <= {high}"


def _describe_scaling(guard: OperandGuard, x: str) -> tuple[str, str, str, str]:
    factor, info = 2**guard.halvings, finfo(guard.dtype)
    most, least = number_text(info.max / factor), number_text(info.tiny * factor)
    return (
        f"{x} / {factor}, and Clip(result, -{most}, {most}) * {factor}, instead of {x}",
        f"y = f(x / {factor}).clamp(-{most}, {most}) * {factor}",
        f"y = tf.clip_by_value(f(x / {factor}), -{most}, {most}) * {factor}",
        f"the result is finite, and terms are 0 or at least {least}",
    )


def number_text(number: float) -> str:
    """Return a number with as many digits as float32 has."""
    return f"{number:.9g}"
