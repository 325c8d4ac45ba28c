"""What passes are made of: analyses, rewrites of patterns, and lowerings of single nodes; and how they are applied."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Protocol

import onnx_ir as ir
from onnxscript.rewriter import MatchResult
from onnxscript.rewriter.pattern import RewriteRule, RewriteRuleClassBase, RewriteRuleSet

from ranum_falsify.rewrite.model import NodeNames, all_nodes


class Op(Protocol):
    """What builds nodes: `op.Name(x, y, attribute=1)` returns the output of a new one."""

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]: ...


Plan = Callable[[Op], ir.Value]
"""Builds what takes the place of a value."""


class AnalysisPass(ABC):
    """A pass that changes nothing; what it finds is told, and known to the passes after it.

    Attributes:
        state: What analyses before it found, by the name of the pass.
    """

    state: Mapping[str, Any] = {}

    @abstractmethod
    def analyse(self, model: ir.Model) -> Any:
        """Return what is found, made of numbers, texts, lists and mappings, as JSON holds them."""


class RefusedError(Exception):
    """A match that does not meet what its rewrite needs; the text says what."""


@dataclass(frozen=True)
class Refusal:
    """A node that a pass left as it is."""

    node: str
    op_type: str
    reason: str


class Rewrite(ABC):
    """A pass that replaces each match of a pattern; what it makes is not matched again.

    The methods mean what they mean in `onnxscript.rewriter`, whose own rules are passes too.  A match of several nodes
    is none if anything else reads a tensor inside it.
    """

    state: Mapping[str, Any] = {}
    """What analyses before it found, by the name of the pass."""

    needs_shapes: ClassVar[bool] = False
    """Whether shapes are inferred before it runs, unless its registration says so."""

    commute = False
    """Whether operands of Add and Mul in the pattern match in either order."""

    remove_nodes = True
    """Whether the nodes of a match go; where others may read them, they must stay."""

    @abstractmethod
    def pattern(self, op: Any, *args: Any, **operands: Any) -> Any:
        """Return the operators that are looked for, `op.Name(...)` of variables; their names bind the operands."""

    def patterns(self, model: ir.Model) -> Sequence[Callable[..., Any]]:
        """Return all patterns, the first that matches and is not refused counts; one, where a pass has no more."""
        return [self.pattern]

    def check(self, context: Any, *args: Any, **operands: Any) -> bool:
        """Tell whether a match may be replaced; all may, where a pass does not say otherwise.

        Args:
            context: Holds `model`, `root` (the last node of the match), and `nodes`.
            args: What the variables of the pattern are bound to.
            operands: The same, by name.

        Raises:
            RefusedError: It may not, and the report is to say why; see `refuse`.
        """
        return True

    @abstractmethod
    def rewrite(self, op: Any, *args: Any, **operands: Any) -> Any:
        """Return what takes the place of a match, built from operators `op.Name(...)`."""

    def refuse(self, reason: str) -> NoReturn:
        """Leave the match as it is, and have the report say why; for `check`.

        Raises:
            RefusedError: Always.
        """
        raise RefusedError(reason)


def apply_rewrite(rewrite: Rewrite | RewriteRuleClassBase, model: ir.Model) -> tuple[int, tuple[Refusal, ...]]:
    """Replace all matches in a model's graph, subgraphs and local functions.

    Returns:
        How many matches were replaced, and which were refused.
    """
    application = _Application(rewrite, model)
    patterns = rewrite.patterns(model) if isinstance(rewrite, Rewrite) else [rewrite.pattern]
    rules = [
        RewriteRule(
            pattern,
            application.rewrite,
            application.check,
            remove_nodes=rewrite.remove_nodes,
            # Rules of onnxscript may have them.
            graph_pre_visitor=getattr(rewrite, "setup", None),
            graph_post_visitor=getattr(rewrite, "cleanup", None),
        )
        for pattern in patterns
    ]
    if not rules:
        return 0, ()
    replaced = RewriteRuleSet(rules, commute=getattr(rewrite, "commute", False)).apply_to_model(model)
    return replaced, tuple(application.refusals.values())


class _Application:
    """One run of a rewrite over a model: which nodes it may match, how new ones are named, and what it refused."""

    def __init__(self, rewrite: Rewrite | RewriteRuleClassBase, model: ir.Model) -> None:
        self._rewrite = rewrite
        self._original = set(all_nodes(model))
        self._names = NodeNames(self._original)
        self._root = ""
        self.refusals: dict[ir.Node, Refusal] = {}

    def check(self, context: Any, **operands: Any) -> bool:
        """Check a match, and remember why it is refused."""
        root = context.root
        if root not in self._original:
            return False
        result: Any = False
        try:
            result = self._rewrite.check(context, **operands)
            reason = result.reason if isinstance(result, MatchResult) and not result else ""
        except RefusedError as error:
            reason = str(error)
        if result:
            self._root = root.name or root.op_type
            self.refusals.pop(root, None)
        elif reason:
            # Of several patterns, the first says the most.
            self.refusals.setdefault(root, Refusal(root.name or root.outputs[0].name or "", root.op_type, reason))
        return bool(result)

    def rewrite(self, op: Any, **operands: Any) -> Any:
        """Build what takes the place of the match that was checked last; its nodes are named after it."""
        rewrite: Any = self._rewrite.rewrite
        outputs = rewrite(op, **operands)
        self._names.name(op.nodes, self._root)
        return outputs


class Lowering(ir.passes.InPlacePass):
    """A pass that replaces each node of an operator by others, if it may be replaced.

    Attributes:
        takes: The operator; set where the pass is registered.
        opset: The opset of the default domain at the node that was asked for last.
        replaced: How many nodes were replaced.
        refusals: Those that were left, with the reasons.
    """

    needs_shapes: ClassVar[bool] = True
    takes: ClassVar[tuple[str, ...]]
    opset: int

    def __init__(self) -> None:
        super().__init__()
        self.replaced = 0
        self.refusals: list[Refusal] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace the nodes of the graph, of subgraphs and of local functions."""
        names = NodeNames(all_nodes(model))
        scopes: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
        for scope in scopes:
            self.opset = default_opset(scope if isinstance(scope, ir.Function) else model)
            meant = [node for node in scope.all_nodes() if node.op_type in self.takes and is_standard(node)]
            for node in meant:
                try:
                    self._accept(node, operand(node, 0))
                except RefusedError as error:
                    name = node.name or next((value.name for value in node.outputs if value.name), "")
                    self.refusals.append(Refusal(name, node.op_type, str(error)))
                    continue
                self._replace(node, names)
                self.replaced += 1
        return ir.passes.PassResult(model, bool(self.replaced))

    def _replace(self, node: ir.Node, names: NodeNames) -> None:
        tape = _NodeTape()
        made = self._lower(tape, node, operand(node, 0))
        names.name(tape.nodes, node.name or node.op_type)
        outputs = zip(node.outputs, made if isinstance(made, list) else [made], strict=False)
        pairs = [(old, new) for old, new in outputs if new is not None and is_read(old)]
        assert node.graph is not None
        ir.convenience.replace_nodes_and_values(
            node.graph, node, [node], list(tape.nodes), [old for old, _ in pairs], [new for _, new in pairs]
        )

    @abstractmethod
    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        """Check that a node, whose first operand is x, may be replaced."""

    @abstractmethod
    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        """Return what replaces the first output, never an operand; or a list for all, None for what is not read."""


class _NodeTape(ir.tape.Tape):
    """A tape on which `op.Name(x, y, attribute=1)` puts a node with one output."""

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self.op(op_type, inputs, attributes or None)


def operand(node: ir.Node, place: int) -> ir.Value:
    """Return an operand that the operator always has."""
    found = node.inputs[place]
    assert found is not None
    return found


def is_standard(node: ir.Node) -> bool:
    """Tell whether a node is of an operator of ONNX itself."""
    return node.domain in ("", "ai.onnx")


def default_opset(scope: ir.Model | ir.Function) -> int:
    """Return the opset of the default domain of a model or a local function."""
    return int(scope.opset_imports.get("", scope.opset_imports.get("ai.onnx", 1)))


def is_read(value: ir.Value) -> bool:
    """Tell whether anything reads an output of a node."""
    return bool(value.name) and (value.is_graph_output() or bool(value.uses()))
