"""What is shown without a search: how operands came to their bounds, and which operators are in question."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ranum_falsify.domain.explanation import ChainLink, OperandHistory
    from ranum_falsify.properties.problem.problem import Problem


def explanation(histories: Mapping[str, tuple[OperandHistory, ...]], varying: Sequence[str] = ()) -> Iterator[str]:
    """Yield the operators that each operand comes through, the one that widened its bounds most first."""
    for title, operands in histories.items():
        yield title
        for operand in operands:
            low, high = operand.bounds
            within = f"in [{low:.7g}, {high:.7g}]"
            if low == high or math.isnan(low):
                within = "with NaN" if math.isnan(low) else f"= {low:.7g}"
            origin = f"through {len(operand.chain)} operators" if operand.chain else "a constant"
            yield f"  {operand.name} {within}, {origin}"
            yield from (f"    {_line(step)}" for step in operand.widest)
        if not operands:
            yield "  no operand has bounds" if varying else "  no operand holds numbers"
    yield from varying


def _line(step: ChainLink) -> str:
    low, high = step.bounds
    bounds = f"[{low:.7g}, {high:.7g}]"
    if step.op_type == "Input":
        return f"input            {step.node} in {bounds}"
    return f"width x {step.growth:<8.3g} {step.node} ({step.op_type}) in {bounds}"


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
