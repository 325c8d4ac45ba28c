"""Conditions under which an operator is valid, said once for proofs, branches and checks; and ONNX Runtime's own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain import Interval, Visited
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network import OperatorSpec, spec_of
from ranum_falsify.network.blackbox import BlackBox
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.operators.support.functions import ints
from ranum_falsify.validity import Bounds, Condition, Constraint, Finite, Operands

if TYPE_CHECKING:
    from ranum_falsify.domain.interval import Interval


def list_stated_conditions(op: Operation) -> tuple[Constraint, ...]:
    """Return the conditions that an operator's row states and a node may break, in the row's order."""
    # The registry, which comes before `validity`, knows less of them.
    return spec_of(op).stated(op)  # type: ignore[return-value]


def list_refusals(op: Operation, *, integers: bool = False) -> tuple[Constraint, ...]:
    """Return the conditions without which ONNX Runtime does not run an operator.

    If it reads integers, there are some that it cannot divide.
    """
    divides = integers and spec_of(op).divides
    return tuple(condition for condition in list_stated_conditions(op) if condition.refuses or divides)


def originates_nonfinite(op: Operation) -> bool:
    """Tell whether an operator can be the first to write NaN or infinity; if not, it hands on those that it reads."""
    return isinstance(op, BlackBox) or spec_of(op).originates_nonfinite


def gradient_conditions(op: Operation) -> tuple[Constraint, ...]:
    """Return the further conditions that keep an operator's derivative finite."""
    return spec_of(op).gradient_valid  # type: ignore[return-value]


def conditions_of(op: Operation) -> tuple[Constraint, ...]:
    """Return all that must hold for an operator to be valid.

    Rows without conditions promise that their operators are never the first to fail.  The rule of an operator with
    subgraphs marks its bounds unless everything in the subgraphs is proved.
    """
    spec = spec_of(op)
    conditions = list(list_stated_conditions(op))
    if isinstance(op, BlackBox) and op.body is None:
        conditions.append(_NoRow(reason=op.why))
    elif spec.originates_nonfinite:
        # Close to a limit that operands keep, kernels may stray beyond.
        conditions.append(Finite())
    return tuple(conditions)


def name_bounds(spec: OperatorSpec, visited: Visited) -> Bounds:
    """Return the bounds of an operator's operands and outputs by the names that conditions use."""
    operands = {
        name: Interval.point(x) if isinstance(x, np.ndarray) else x
        for name, x in spec.name_values(visited.operands).items()
        if x is not None
    }
    return operands | {"output" if i == 0 else f"output_{i}": y for i, y in enumerate(visited.outputs)}


def is_bounded_valid(visited: Visited) -> bool:
    """Tell whether the bounds of an operator alone show that it is valid; see :func:`conditions_of`."""
    conditions = conditions_of(visited.op)
    bounds = name_bounds(spec_of(visited.op), visited) if conditions else {}
    return all(condition.holds(visited.op, bounds) for condition in conditions)


class _NoRow(Finite):
    """An operator without a row is valid; nothing is known about it."""

    def holds(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.holds`."""
        return False


@dataclass(frozen=True)
class ReadsNan(Finite):
    """The operator computes with no NaN that the model stores."""

    reason: str = "NaN that the model stores"

    def holds(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.holds`; bounds leave NaN out."""
        return False

    def describe(self) -> str:
        """See :meth:`Constraint.describe`."""
        return "no operand holds NaN that the model stores"


Limits = tuple[int | Tensor, int | Tensor]
"""The least and the greatest integer that is accepted; tensors broadcast with the operand."""

ADDRESSES = 2**47
"""How many bytes a process on x86-64 can address; larger sizes also overflow where ONNX Runtime multiplies them."""

_ANY = torch.iinfo(torch.int64).max
_MANY = 256
"""Up to this number, all integers within bounds are tried."""


@dataclass(frozen=True)
class WithinLimits(Constraint):
    """Every element of an operand, mostly of integers, lies within limits; it is a violation where one does not.

    Attributes:
        operand: Name of the operand, which may be absent.
        text: See :meth:`Constraint.describe`.
        limits: Returns the limits, given the operation and its operands, or bounds of these, by name; only shapes and
            operands that no input reaches may be read.
        ignored: Returns an integer that is accepted wherever it stands, None where there is none.
        reason: See :class:`Constraint`.
        decided_by: See :class:`Constraint`.
    """

    operand: str
    text: str
    limits: Callable[[Operation, Mapping[str, Any]], Limits]
    ignored: Callable[[Operation], int | None] = lambda op: None
    reason: str = "an index outside of its table"
    refuses: bool = True
    decided_by: tuple[str, ...] = ()

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
        beyond = (_widen(x.upper) < low) | (_widen(x.lower) > high)
        ignored = self.ignored(op)
        return bool((beyond if ignored is None else beyond & ~x.contains(ignored)).any())

    def _find_accepted(self, op: Operation, operands: Bounds, x: Interval) -> Tensor:
        """Return where all integers within bounds are accepted."""
        low, high = self.limits(op, operands)
        lower, upper = _widen(x.lower), _widen(x.upper)
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


def _widen(x: Tensor) -> Tensor:
    """Return integers that can be compared with any limit: torch wraps a number that their own type lacks."""
    return x if x.is_floating_point() or x.dtype is torch.uint64 else x.long()


def _on(limit: int | Tensor, x: Tensor) -> int | Tensor:
    return limit.to(x.device) if isinstance(limit, Tensor) else limit


def indices_of(operand: str, table: str, axis: Callable[[Operation], int], *, wraps: bool = True) -> WithinLimits:
    """Return the condition that indices lie within a table along an axis; negative ones may count from the end."""

    def limits(op: Operation, operands: Mapping[str, Any]) -> Limits:
        size = int(operands[table].shape[axis(op)])
        return -size if wraps else 0, size - 1

    least = "-n" if wraps else "0"
    return WithinLimits(operand, f"{least} <= {operand} < n, the size of {table} along the axis", limits)


def taking(accepts: Callable[..., bool], *by: str, text: str) -> Condition:
    """Return the condition that ONNX Runtime takes operands which say where, how many or how large.

    `accepts(op, shape, *arrays)` tells whether it does, given the shape of the operand `x` and the operands `by` which
    it is decided, None where absent.
    """

    def is_taken(op: Operation, operands: Mapping[str, Any], arrays: Sequence[np.ndarray | None]) -> bool:
        return accepts(op, tuple(operands["x"].shape) if "x" in operands else (), *arrays)

    def margin(op: Operation, operands: Operands) -> Tensor:
        given = [None if name not in operands else to_numpy(operands[name]) for name in by]
        return torch.tensor(1.0 if is_taken(op, operands, given) else -1.0)

    def holds(op: Operation, operands: Bounds) -> bool:
        choices = [[None] if name not in operands else _list_values(operands[name]) for name in by]
        if not 0 < math.prod(map(len, choices)) <= _MANY:
            return False
        return all(is_taken(op, operands, arrays) for arrays in itertools.product(*choices))

    reason = "operands that ONNX Runtime refuses"
    return Condition(text, reason, margin, refuses=True, decided_by=by, holds_of=holds)


def _list_values(x: Interval) -> Sequence[np.ndarray]:
    """Return all tensors within bounds; none where they are too many, or not integers."""
    low, high = (to_numpy(end) for end in x.expand())
    if x.is_point:
        return [low]
    if x.is_floating or (x.upper.double() - x.lower.double()).amax() >= _MANY:
        return []
    ranges = [range(int(a), int(b) + 1) for a, b in zip(low.flat, high.flat, strict=True)]
    if math.prod(map(len, ranges)) > _MANY:
        return []
    return [np.array(values, low.dtype).reshape(low.shape) for values in itertools.product(*ranges)]


def check_axes(x: Tensor, axes: Sequence[int]) -> None:
    """Check that an operand without elements, which ONNX Runtime reduces along the axes as they are, has them all."""
    if not x.numel() and not all(0 <= axis < x.ndim for axis in axes):
        raise UnsupportedAttributeError("nothing is reduced along negative axes, or others that it does not have")


def are_axes(axes: np.ndarray | None, rank: int, *, repeated: bool = False) -> bool:
    """Tell whether all axes are among those of a rank, and each comes once, unless they may be repeated."""
    chosen = ints(axes) or []
    return all(-rank <= axis < rank for axis in chosen) and (
        repeated or len({axis % rank for axis in chosen}) == len(chosen)
    )


def axes_of(operand: str, table: str) -> WithinLimits:
    """Return the condition that axes which inputs compute, and may repeat, are among those of a tensor."""

    def limits(op: Operation, operands: Mapping[str, Any]) -> Limits:
        rank = len(operands[table].shape)
        # Of one number without dimensions, every axis is taken.
        return (-rank, rank - 1) if rank else (-_ANY, _ANY)

    return WithinLimits(
        operand,
        f"-r <= {operand} < r, the rank of {table}",
        limits,
        reason="an axis that there is not",
        decided_by=(operand,),
    )


def not_negative(operand: str) -> WithinLimits:
    """Return the condition that sizes which inputs compute are not negative."""
    return WithinLimits(
        operand, f"{operand} >= 0", lambda op, operands: (0, _ANY), reason="a negative size", decided_by=(operand,)
    )


def count_bytes(sizes: Iterable[int], itemsize: int) -> int:
    """Return how many bytes a tensor has, a size of 0 counted as 1: ONNX Runtime multiplies those before it, too."""
    return itemsize * math.prod(max(int(size), 1) for size in sizes)


def addressable(operand: str, itemsize: Callable[[Operation], int]) -> Condition:
    """Return the condition that the sizes which inputs compute are those of a tensor that a process can address."""

    def margin(op: Operation, operands: Operands) -> Tensor:
        count = count_bytes(ints(to_numpy(operands[operand])) or [], itemsize(op))
        return torch.tensor(float(ADDRESSES - 1 - min(count, 2**63)))

    def holds(op: Operation, operands: Bounds) -> bool:
        most = to_numpy(operands[operand].expand()[1])
        return count_bytes(ints(most) or [], itemsize(op)) < ADDRESSES

    text, reason = "the output has fewer than 2**47 bytes", "a tensor that no process can address"
    return Condition(text, reason, margin, refuses=True, decided_by=(operand,), holds_of=holds)
