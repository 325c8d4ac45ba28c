"""`--explain NODE`: how the operands of a node came to their bounds, as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ranum_falsify.domain.explanation import ChainLink, OperandHistory


def explanation(histories: Mapping[str, tuple[OperandHistory, ...]], varying: Sequence[str] = ()) -> Iterator[str]:
    """Yield the operators that each operand comes through, the one that widened its bounds most first.

    Args:
        histories: Of each operand, by title of the node.
        varying: Why there are none of operands whose shape varies, one sentence each.
    """
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
