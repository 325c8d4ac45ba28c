"""Passes that replace one operator by others, wherever it occurs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import onnx_ir as ir

from ranum_falsify.transform.expansion import Expansion, Plan

__all__ = ["Lowering"]


class Lowering(Expansion):
    """A pass that asks of each node whether it may be replaced, and then replaces it.

    Attributes:
        opset: The opset of the default domain at the node that was asked for last.
    """

    opset: int

    def plan(self, node: ir.Node, opset: int) -> Plan:
        """Check a node, and return what builds its replacement."""
        self.opset = opset
        self.accept(node)

        def build(op: Any) -> list[ir.Value]:
            made = self.lower(op, node)
            return made if isinstance(made, list) else [made]

        return build

    @abstractmethod
    def accept(self, node: ir.Node) -> None:
        """Check that a node may be replaced.

        Raises:
            RefusedError: It may not, for the reason that it says.
        """

    @abstractmethod
    def lower(self, op: Any, node: ir.Node) -> Any:
        """Return what takes the place of the first output of a node, or a list for all; never one of its operands."""
