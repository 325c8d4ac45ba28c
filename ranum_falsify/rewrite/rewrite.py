"""Rewrites of patterns: the base class of passes with `pattern`, `check` and `rewrite`, and how they are applied."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import onnx_ir as ir
from onnxscript.rewriter import MatchResult
from onnxscript.rewriter.pattern import RewriteRule, RewriteRuleClassBase, RewriteRuleSet

from ranum_falsify.rewrite.naming import NodeNames, all_nodes


class RefusedError(Exception):
    """A match that does not meet what its rewrite needs; the text says what."""


@dataclass(frozen=True)
class Refusal:
    """A node that a pass left as it is.

    Attributes:
        node: Its name.
        op_type: Its operator.
        reason: What the pass needs and the node does not have.
    """

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
