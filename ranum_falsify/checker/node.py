"""A node of a model, as rules see it, and the table of the rules by operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ranum_falsify.checker.bounds import Bounds, require

Operands = Sequence[Bounds | None]
"""Bounds of a node's operands; None for those that it is not given."""

Rule = Callable[..., Any]
"""Returns bounds of a node's results, given the node and its operands; raises where it shows nothing of them."""

RULES: dict[str, Rule] = {}
"""The rules by ONNX operator, with its domain where it is another one."""

_IDLE = frozenset(
    "linear_before_reset momentum noop_with_empty_axes ratio saturate seed select_last_index stash_type"
    " storage_order".split()
)
"""Attributes that change nothing of what rules show that do not read them."""


def rule(names: str) -> Callable[[Rule], Rule]:
    """Enter a rule for some operators."""

    def enter(one: Rule) -> Rule:
        RULES.update(dict.fromkeys(names.split(), one))
        return one

    return enter


class NodeView:
    """A node, with what its model says about it.

    Attributes:
        proto: The node itself.
        op: Its operator, without the domain.
        key: Its operator, with the domain where it is none of ONNX's own.
        opset: The version of ONNX's own operators.
        away: No element of its second operand is nearer to 0.
    """

    def __init__(self, proto: onnx.NodeProto, opsets: Sequence[onnx.OperatorSetIdProto], away: float = 0.0) -> None:
        self.proto, self.op, self.away = proto, proto.op_type, away
        self.key = self.op if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{self.op}"
        self.opset = next((one.version for one in opsets if one.domain in ("", "ai.onnx")), 0)
        self._given, self._read = {one.name: one for one in proto.attribute}, set(_IDLE)

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute; numbers are float32, those of a default, too."""
        self._read.add(name)
        default = float(np.float32(default)) if isinstance(default, float) else default
        value = onnx.helper.get_attribute_value(self._given[name]) if name in self._given else default
        return value.decode() if isinstance(value, bytes) else value

    def require_read(self) -> None:
        """Raise where an attribute that no rule asked for is not what it is by default."""
        for name in self._given.keys() - self._read:
            default = onnx.defs.get_schema(self.op, self.opset, self.proto.domain).attributes[name].default_value
            require(onnx.helper.get_attribute_value(default) == onnx.helper.get_attribute_value(self._given[name]))

    def like(self, op: str, **attributes: Any) -> NodeView:
        """Return a node of another operator in its place, with those of its attributes that this has, too."""
        shared = (self._given.keys() & onnx.defs.get_schema(op, self.opset).attributes.keys()) - attributes.keys()
        proto = onnx.helper.make_node(op, [f"x{i}" for i in range(9)], self.proto.output[:1], **attributes)
        proto.attribute.extend(self._given[name] for name in shared)
        self._read |= shared
        return NodeView(proto, [onnx.helper.make_opsetid("", self.opset)])

    def call(self, op: str, *operands: Bounds, **attributes: Any) -> Bounds:
        """Return bounds of what another operator would make in its place."""
        node = self.like(op, **attributes)
        found = RULES[op](node, *operands)
        first: Bounds = found if isinstance(found, Bounds) else found[0]
        node.require_read()
        require(first.is_sound)
        return first.flushed()

    def run(self, *arrays: np.ndarray | None) -> list[np.ndarray]:
        """Return what the reference evaluator of ONNX makes of operands."""
        self._read |= onnx.defs.get_schema(self.op, self.opset).attributes.keys()
        require("" not in self.proto.output)
        if self.op == "GatherElements":  # the evaluator's own takes 32 places at most
            x, at, axis = np.asarray(arrays[0]), np.asarray(arrays[1]), int(self.attribute("axis", 0))
            require(np.delete(x.shape, axis) == np.delete(at.shape, axis))
            return [np.take_along_axis(x, at % x.shape[axis], axis)]
        feeds = {f"x{i}": np.asarray(array) for i, array in enumerate(arrays) if array is not None}
        proto = onnx.NodeProto()
        proto.CopyFrom(self.proto)
        del proto.input[:]
        proto.input.extend(name if (name := f"x{i}") in feeds else "" for i in range(len(arrays)))
        kinds = {name: onnx.helper.np_dtype_to_tensor_dtype(one.dtype) for name, one in feeds.items()}
        given = [onnx.helper.make_tensor_value_info(name, kinds[name], one.shape) for name, one in feeds.items()]
        made = [onnx.ValueInfoProto(name=name) for name in proto.output]
        graph = onnx.helper.make_graph([proto], "node", given, made)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)])
        found = [np.asarray(one) for one in ReferenceEvaluator(model).run(None, feeds)]
        for one, value in zip(found, onnx.shape_inference.infer_shapes(model).graph.output, strict=True):
            dims = value.type.tensor_type.shape.dim  # by a program of its own
            require(not dims or [dim.dim_value or n for dim, n in zip(dims, one.shape, strict=True)] == [*one.shape])
        return found
