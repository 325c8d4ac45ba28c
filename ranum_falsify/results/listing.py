"""`--list-operators`: the operators that a property is about, without a search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ranum_falsify.properties.problem.problem import Problem


def list_operators(problem: Problem) -> Iterator[str]:
    """Yield a line per operator in question, in topological order, and one per condition on it.

    Raises:
        PropertyError: `only` or `nodes` names what the network does not have.
    """
    from ranum_falsify.properties.problem.targets import targets_of  # imports torch

    if not problem.goals:
        yield "no operator is in question: the property says nothing about invalid inputs"
    for position, goal in enumerate(problem.goals):
        by_node: dict[str, list[str]] = {}
        for target in targets_of(position, goal):
            title = f"{target.op.name} ({target.spec.op_type})"
            condition = f"{target.constraint.describe()} (else: {target.constraint.reason})"
            by_node.setdefault(title, []).append(condition)
        nodes = len(goal.call.graph.nodes)
        yield f"{goal.call.network}: {len(by_node)} of {nodes} operators are in question (nothing was proved)"
        for title, conditions in by_node.items():
            yield f"  {title}"
            yield from (f"    valid where {condition}" for condition in conditions)
