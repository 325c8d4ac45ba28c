"""Integers that must lie within limits: indices of tables, counts, lengths.

ONNX Runtime refuses to go on where one does not, so that there is no result at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.validity import Bounds, Constraint, Operands

if TYPE_CHECKING:
    from ranum_falsify.domain.interval import Interval

__all__ = ["Limits", "WithinLimits", "indices_of"]

Limits = tuple[int | Tensor, int | Tensor]
"""The least and the greatest integer that is accepted; tensors broadcast with the operand."""


@dataclass(frozen=True)
class WithinLimits(Constraint):
    """Every element of an integer operand lies within limits; it is a violation where one does not.

    Attributes:
        operand: Name of the operand, which may be absent.
        text: See :meth:`Constraint.describe`.
        limits: Returns the limits, given the operation and its operands, or bounds of these, by name; only shapes and
            operands that no input reaches may be read.
        ignored: Returns an integer that is accepted wherever it stands, None where there is none.
        reason: See :class:`Constraint`.
    """

    operand: str
    text: str
    limits: Callable[[Operation, Mapping[str, Any]], Limits]
    ignored: Callable[[Operation], int | None] = lambda op: None
    reason: str = "an index outside of its table"
    refuses: bool = True

    def margin(self, op: Operation, operands: Operands) -> Tensor:
        """See :meth:`Constraint.margin`."""
        x = operands.get(self.operand)
        if x is None:
            return torch.zeros(0)
        low, high = self.limits(op, operands)
        exact = x.double()
        room = torch.minimum(exact - _on(low, x), _on(high, x) - exact)
        ignored = self.ignored(op)
        return room if ignored is None else torch.where(x == ignored, torch.inf, room)

    def holds(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.holds`."""
        x = operands.get(self.operand)
        return x is None or not x.size or bool(self._find_accepted(op, operands, x).all())

    def fails(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.fails`."""
        x = operands.get(self.operand)
        if x is None or not x.size:
            return False
        low, high = self.limits(op, operands)
        beyond = (x.upper < low) | (x.lower > high)
        ignored = self.ignored(op)
        return bool((beyond if ignored is None else beyond & ~x.contains(ignored)).any())

    def _find_accepted(self, op: Operation, operands: Bounds, x: Interval) -> Tensor:
        """Return where all integers within bounds are accepted."""
        low, high = self.limits(op, operands)
        lower, upper = x.lower, x.upper
        ignored = self.ignored(op)
        if ignored is None:
            return (lower >= low) & (upper <= high)
        point = (lower == ignored) & (upper == ignored)
        lower = torch.where(lower == ignored, lower + 1, lower)
        upper = torch.where(upper == ignored, upper - 1, upper)
        return point | ((lower >= low) & (upper <= high))

    def describe(self) -> str:
        """See :meth:`Constraint.describe`."""
        return self.text


def _on(limit: int | Tensor, x: Tensor) -> int | Tensor:
    return limit.to(x.device) if isinstance(limit, Tensor) else limit


def indices_of(operand: str, table: str, axis: Callable[[Operation], int], *, wraps: bool = True) -> WithinLimits:
    """Return the condition that indices lie within a table.

    Args:
        operand: Name of the indices.
        table: Name of the table.
        axis: Returns the axis along which they count.
        wraps: Whether negative ones count from the end.
    """

    def limits(op: Operation, operands: Mapping[str, Any]) -> Limits:
        size = int(operands[table].shape[axis(op)])
        return -size if wraps else 0, size - 1

    least = "-n" if wraps else "0"
    return WithinLimits(operand, f"{least} <= {operand} < n, the size of {table} along the axis", limits)
