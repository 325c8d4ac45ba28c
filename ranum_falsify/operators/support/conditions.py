"""What must hold for an operator to be valid, said once for proofs, branches and checks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from dnnv.nn import Operation

from ranum_falsify.domain import Interval, Visited
from ranum_falsify.network import OperatorSpec, spec_of
from ranum_falsify.network.blackbox import BlackBox
from ranum_falsify.validity import Bounds, Constraint, Finite

__all__ = [
    "ReadsNan",
    "computes",
    "conditions_of",
    "gradient_conditions",
    "is_bounded_valid",
    "list_refusals",
    "list_stated_conditions",
    "name_bounds",
]


def list_stated_conditions(op: Operation) -> tuple[Constraint, ...]:
    """Return the conditions that an operator's row states and a node may break, in the row's order."""
    # The registry, which comes before `validity`, knows less of them.
    return spec_of(op).stated(op)  # type: ignore[return-value]


def list_refusals(op: Operation, *, integers: bool = False) -> tuple[Constraint, ...]:
    """Return the conditions without which ONNX Runtime does not run an operator.

    Args:
        op: The operator.
        integers: Whether it reads integers, of which there are some that it cannot divide.
    """
    divides = integers and spec_of(op).divides
    return tuple(condition for condition in list_stated_conditions(op) if condition.refuses or divides)


def computes(op: Operation) -> bool:
    """Tell whether an operator can be the first to write NaN or infinity; if not, it hands on those that it reads."""
    return isinstance(op, BlackBox) or spec_of(op).computes


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
    elif spec.computes:
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
