"""Passes that replace single nodes: those whose outputs are several, or may be missing; lowerings of one operator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import onnx_ir as ir

from ranum_falsify.rewrite.naming import NodeNames, all_nodes
from ranum_falsify.rewrite.rewrite import Refusal, RefusedError

Plan = Callable[[Any], Sequence[ir.Value | None]]
"""Builds, with operators `op.Name(...)`, a value for each output of a node; None for one that is not needed."""


class Expansion(ir.passes.InPlacePass):
    """A pass that replaces each node of an operator by others.

    Attributes:
        replaced: How many nodes were replaced.
        refusals: Those that were left, with the reasons.
    """

    operator: ClassVar[str]
    """The operator."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced = 0
        self.refusals: list[Refusal] = []

    @abstractmethod
    def plan(self, node: ir.Node, opset: int) -> Plan:
        """Return what builds the replacement of a node.

        Args:
            node: The node.
            opset: The opset of the default domain there.

        Raises:
            RefusedError: It stays; the text says why.
        """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace the nodes of the graph, of subgraphs and of local functions."""
        names = NodeNames(all_nodes(model))
        scopes: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
        for scope in scopes:
            imports = scope.opset_imports if isinstance(scope, ir.Function) else model.opset_imports
            opset = int(imports.get("", imports.get("ai.onnx", 1)))
            for node in [node for node in scope.all_nodes() if self._is_meant(node)]:
                try:
                    plan = self.plan(node, opset)
                except RefusedError as error:
                    name = node.name or next((value.name for value in node.outputs if value.name), "")
                    self.refusals.append(Refusal(name, node.op_type, str(error)))
                    continue
                _replace(node, plan, names)
                self.replaced += 1
        return ir.passes.PassResult(model, bool(self.replaced))

    def _is_meant(self, node: ir.Node) -> bool:
        return node.op_type == self.operator and node.domain in ("", "ai.onnx")


def is_read(value: ir.Value) -> bool:
    """Tell whether anything reads an output of a node."""
    return bool(value.name) and (value.is_graph_output() or bool(value.uses()))


def _replace(node: ir.Node, plan: Plan, names: NodeNames) -> None:
    builder = _NodeTape()
    made = plan(builder)
    names.name(builder.nodes, node.name or node.op_type)
    pairs = [(old, new) for old, new in zip(node.outputs, made, strict=False) if new is not None and is_read(old)]
    assert node.graph is not None
    ir.convenience.replace_nodes_and_values(
        node.graph, node, [node], list(builder.nodes), [old for old, _ in pairs], [new for _, new in pairs]
    )


class _NodeTape(ir.tape.Tape):
    """A tape on which `op.Name(x, y, attribute=1)` puts a node with one output."""

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self.op(op_type, inputs, attributes or None)


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
