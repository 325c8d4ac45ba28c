"""Passes that replace one operator by others, wherever it occurs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import onnx_ir as ir

from ranum_falsify.transform.operands import opset_at
from ranum_falsify.transform.rewrite import Rewrite

__all__ = ["Lowering"]


class Lowering(Rewrite):
    """A pass that replaces each node of an operator, whatever its number of operands and outputs.

    Attributes:
        opset: That of the node that was checked last.
        node: That node.
    """

    operator: ClassVar[str]
    """The operator that it replaces."""

    opset: int
    node: ir.Node

    def pattern(self, op: Any, x: Any) -> Any:
        """Match every node of the operator of which one output is used, the first."""
        return getattr(op, self.operator)(x, _allow_other_inputs=True, _outputs=["y"])

    def patterns(self, model: ir.Model) -> Sequence[Callable[..., Any]]:
        """Return a pattern for each number of outputs that nodes of the model have."""
        scopes: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
        nodes = [node for scope in scopes for node in scope.all_nodes() if node.op_type == self.operator]
        counts = sorted({_used_outputs(node) for node in nodes})
        return [self.pattern if count == 1 else self._pattern_of(count) for count in counts]

    def check(self, context: Any, **operands: Any) -> bool:
        """Ask whether the node may be replaced."""
        self.opset, self.node = opset_at(context), context.root
        self.accept(self.node)
        return True

    def rewrite(self, op: Any, **operands: Any) -> Any:
        """Replace the outputs of the node, up to the last one that is used."""
        made = self.lower(op, self.node)
        return made[: _used_outputs(self.node)] if isinstance(made, list) else made

    @abstractmethod
    def accept(self, node: ir.Node) -> None:
        """Check that a node may be replaced.

        Raises:
            RefusedError: It may not, for the reason that it says.
        """

    @abstractmethod
    def lower(self, op: Any, node: ir.Node) -> Any:
        """Return what takes the place of the first output of a node, or a list for all; never one of its operands."""

    def _pattern_of(self, count: int) -> Callable[..., Any]:
        names = [f"y{number}" for number in range(count)]
        return lambda op, x: getattr(op, self.operator)(x, _allow_other_inputs=True, _outputs=names)


def _used_outputs(node: ir.Node) -> int:
    """Return how many outputs of a node are there up to the last one that is used."""
    used = [index for index, value in enumerate(node.outputs) if value.uses() or value.is_graph_output()]
    return max(used, default=0) + 1
