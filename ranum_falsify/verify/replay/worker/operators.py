"""Facts about operators from the parent's rows; a child process imports none of these."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

import onnx

from .graph import subgraphs

Key = tuple[str, str]  # domain and name of an operator


def _key(node: onnx.NodeProto) -> Key:
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


@dataclass(frozen=True, kw_only=True)
class Operators:
    """Facts about operators; see `ranum_falsify.network.registry.OperatorSpec`.

    Attributes:
        elementwise: those whose every output element depends on one element of each operand.
        shape_only: those that read only the shapes of their operands.
        shaping: positions of the inputs whose values decide shapes, of those that have some; None for all inputs.
        hides_nan: those whose NaN ONNX Runtime may hide.
        draws: position of the input without which, or if it is false, a node does not draw; None if all nodes draw.
        divides: those that divide the first operand by the second, integers included.
        conditional: those with conditions on their operands.
        refusing: those with conditions without which ONNX Runtime ends the run.
        steered: positions of the inputs that alone decide such conditions, of the others that have some.
        fallible: those that can be the first to be invalid; the others hand NaN on.
    """

    elementwise: frozenset[Key]
    shape_only: frozenset[Key]
    hides_nan: frozenset[Key]
    draws: Mapping[Key, int | None]
    divides: frozenset[Key]
    shaping: Mapping[Key, tuple[int, ...] | None] = field(default_factory=dict)
    conditional: frozenset[Key] = frozenset()
    refusing: frozenset[Key] = frozenset()
    steered: Mapping[Key, tuple[int, ...]] = field(default_factory=dict)
    fallible: frozenset[Key] = frozenset()

    def is_elementwise(self, node: onnx.NodeProto) -> bool:
        """Tell whether each element of the output depends on one element of each operand."""
        return _key(node) in self.elementwise

    def is_shape_only(self, node: onnx.NodeProto) -> bool:
        """Tell whether the values of its operands do not matter."""
        return _key(node) in self.shape_only

    def list_shaping(self, node: onnx.NodeProto) -> set[str]:
        """Return the inputs of a node whose values decide the shapes of what it writes."""
        positions = self.shaping.get(_key(node), ())
        if positions is None:
            return set(node.input)
        return {node.input[position] for position in positions if position < len(node.input)}

    def may_hide_nan(self, node: onnx.NodeProto) -> bool:
        """Tell whether its output may be finite although it should not be."""
        return _key(node) in self.hides_nan

    def is_random(self, node: onnx.NodeProto, false: Container[str]) -> bool:
        """Tell whether another run may draw other numbers, in a subgraph too; `false` are constants that are false."""
        if _key(node) in self.draws:
            position = self.draws[_key(node)]
            name = "" if position is None or len(node.input) <= position else node.input[position]
            if position is None or (name and name not in false):
                return True
        return any(self.is_random(child, false) for graph in subgraphs(node) for child in graph.node)

    def may_divide(self, node: onnx.NodeProto) -> bool:
        """Tell whether it divides its first operand by the second, integers included."""
        return _key(node) in self.divides

    def may_divide_inside(self, node: onnx.NodeProto) -> bool:
        """Tell whether a node in a subgraph of it does what `may_divide` asks about."""
        children = (child for graph in subgraphs(node) for child in graph.node)
        return any(self.may_divide(child) or self.may_divide_inside(child) for child in children)

    def may_refuse(self, node: onnx.NodeProto, is_stored: Callable[[str], bool]) -> bool:
        """Tell whether it, or a node in a subgraph of it, has operands that ONNX Runtime refuses.

        Stored tensors were tried when the model was read.
        """
        steering = (node.input[k] for k in self.steered.get(_key(node), ()) if k < len(node.input))
        if _key(node) in self.refusing or any(name and not is_stored(name) for name in steering):
            return True
        return any(self.may_refuse(child, is_stored) for graph in subgraphs(node) for child in graph.node)

    def originates_nonfinite(self, node: onnx.NodeProto) -> bool:
        """Tell whether it is one of those that can be the first to be invalid, and no subgraph."""
        return _key(node) in self.fallible and not any(True for _ in subgraphs(node))

    def has_conditions(self, node: onnx.NodeProto) -> bool:
        """Tell whether there are conditions on its operands, one of which it violates where it is invalid."""
        return _key(node) in self.conditional
