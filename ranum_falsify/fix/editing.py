"""Guards and clips, written into a model as nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from ranum_falsify.fix.guards import Guard
from ranum_falsify.network.tensors import numpy_dtype
from ranum_falsify.transform.model import to_proto
from ranum_falsify.transform.naming import NodeNames, all_nodes

__all__ = ["Edited", "insert_guards"]

_LIMITS_ARE_INPUTS = 11  # opset
_EXTREMES_BROADCAST = 8  # opset


@dataclass(frozen=True)
class Edited:
    """A changed model.

    Attributes:
        model: The model.
        tensors: The tensor that each guard limits; None where its node has no place for it, and nothing is changed.
    """

    model: onnx.ModelProto
    tensors: Sequence[str | None]


def insert_guards(model: onnx.ModelProto, guards: Sequence[Guard]) -> Edited:
    """Return a model with guards before the operands of its nodes; all other readers of the tensors stay as they are."""
    changed = ir.from_proto(model)
    nodes = {node.name or "": node for node in changed.graph.all_nodes()}
    writer = _Writer(changed)
    tensors = [writer.insert(nodes.get(guard.node), guard) for guard in guards]
    return Edited(to_proto(changed), tensors)


class _Writer:
    """Adds nodes to a model, under names of their own."""

    def __init__(self, model: ir.Model) -> None:
        self._opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))
        self._names = NodeNames(all_nodes(model))
        self._taken = {
            value.name for graph in model.graphs() for value in (*graph.inputs, *graph.initializers.values())
        }
        self._taken |= {value.name for node in all_nodes(model) for value in node.outputs}

    def insert(self, node: ir.Node | None, guard: Guard) -> str | None:
        """Put a guard before an operand of a node, and return the tensor that it limits."""
        operand = None if node is None or guard.index >= len(node.inputs) else node.inputs[guard.index]
        if node is None or operand is None or not isinstance(node.graph, ir.Graph):
            return None
        made = _Nodes(self._opset, guard)
        limited = made.build(operand)
        self._names.name(made.nodes, f"{node.name}/guard")
        for inner in made.nodes:
            for value in inner.outputs:
                value.name = self._fresh(f"{operand.name}/{inner.op_type}")
        for value in made.constants:
            value.name = self._fresh(f"{operand.name}/limit")
            node.graph.register_initializer(value)
        node.graph.insert_before(node, made.nodes)
        node.replace_input_with(guard.index, limited)
        return operand.name

    def _fresh(self, name: str) -> str:
        found, number = name, 1
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found


class _Nodes:
    """The nodes of one guard."""

    def __init__(self, opset: int, guard: Guard) -> None:
        self._opset = opset
        self._guard = guard
        self._dtype = ir.DataType.from_numpy(numpy_dtype(guard.dtype))
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []

    def build(self, x: ir.Value) -> ir.Value:
        """Add the nodes, and return what they make of a tensor."""
        guard = self._guard
        if guard.gap:
            return self._keep_from_zero(x, guard.step)
        if guard.adds:
            return self._op("Add", x, self._number(guard.step))
        if guard.is_clip or (guard.low is not None and guard.high is not None) or self._opset < _EXTREMES_BROADCAST:
            return self._clip(x)
        if guard.low is not None:
            return self._op("Max", x, self._number(guard.low))
        assert guard.high is not None
        return self._op("Min", x, self._number(guard.high))

    def _keep_from_zero(self, x: ir.Value, step: float) -> ir.Value:
        below, above = self._number(-step), self._number(step)
        is_below = self._op("Less", x, self._number(0.0), dtype=ir.DataType.BOOL)
        made = self._op("Where", is_below, self._op("Min", x, below), self._op("Max", x, above))
        made.shape = x.shape
        return made

    def _clip(self, x: ir.Value) -> ir.Value:
        low, high = self._guard.low, self._guard.high
        if self._opset < _LIMITS_ARE_INPUTS:
            limits: Mapping[str, float | None] = {"min": low, "max": high}
            return self._op("Clip", x, attributes={name: limit for name, limit in limits.items() if limit is not None})
        ends = [None if end is None else self._number(end) for end in (low, high)]
        return self._op("Clip", x, *(ends if ends[1] is not None else ends[:1]))

    def _number(self, number: float) -> ir.Value:
        tensor = ir.tensor(np.asarray(number).astype(self._dtype.numpy()))
        value = ir.Value(const_value=tensor, shape=ir.Shape([]), type=ir.TensorType(self._dtype))
        self.constants.append(value)
        return value

    def _op(
        self,
        op_type: str,
        x: ir.Value,
        *others: ir.Value | None,
        dtype: ir.DataType | None = None,
        attributes: Mapping[str, float] | None = None,
    ) -> ir.Value:
        made = ir.node(op_type, [x, *others], attributes=attributes)
        output = made.outputs[0]
        output.shape = x.shape
        output.type = ir.TensorType(dtype or self._dtype)
        self.nodes.append(made)
        return output
