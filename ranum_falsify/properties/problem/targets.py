"""Targets: one per vulnerable operator and condition, each proved or searched on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from dnnv.nn import Operation

from ranum_falsify.errors import PropertyError, name_near
from ranum_falsify.network import Graph, OperatorSpec, spec_of
from ranum_falsify.network.order import operands_in
from ranum_falsify.network.tensors import is_floating, torch_dtype
from ranum_falsify.operators.support.conditions import gradient_conditions, list_stated_conditions
from ranum_falsify.properties.formula.terms import ValidityGoal
from ranum_falsify.validity import Constraint, Finite


@dataclass(frozen=True)
class Target:
    """One condition on the operands of one operator.

    Attributes:
        goal: Position of the validity goal in the problem.
        network: Name of the network.
        op: The operator.
        spec: Its row.
        constraint: The condition.
        dtype: Floating element type of what the operator reads.
        is_remote: Whether no descent on it is worthwhile unless something overflows first: the generic overflow
            condition, and conditions that only an infinite operand violates where no constant is infinite.
        is_gradient: Whether a violation leaves the output valid and only the derivative not finite.
    """

    goal: int
    network: str
    op: Operation
    spec: OperatorSpec
    constraint: Constraint
    dtype: torch.dtype
    is_remote: bool
    is_gradient: bool


def targets_of(position: int, goal: ValidityGoal, graph: Graph | None = None) -> list[Target]:
    """Return the targets of a validity goal, in topological order of the operators.

    Args:
        position: The goal's position in the problem.
        goal: The goal.
        graph: What the search runs in place of the goal's own graph: the same with some inputs as constants.

    Raises:
        PropertyError: `only` or `nodes` names what the network does not have.
    """
    graph = graph or goal.call.graph
    _check_names(goal, (graph, goal.call.graph))
    infinite = _find_below_infinity(graph)
    targets = []
    for op in operators_of(goal, graph):
        spec = spec_of(op)
        stated, of_derivative = list_stated_conditions(op), gradient_conditions(op)
        conditions = [*stated, *(of_derivative if goal.gradient else ())]
        if spec.overflow and _writes_floats(graph, op):
            conditions.append(Finite())
        dtype = _type_read(graph, op)
        for condition in conditions:
            remote = isinstance(condition, Finite) or (condition.needs_infinity and id(op) not in infinite)
            of_gradient = condition not in stated and condition in of_derivative
            shown = condition.as_read(dtype)
            targets.append(Target(position, goal.call.network, op, spec, shown, dtype, remote, of_gradient))
    return targets


def operators_of(goal: ValidityGoal, graph: Graph) -> list[Operation]:
    """Return the operators that a validity goal asks about, in topological order."""
    return [
        op
        for op in graph.nodes
        if (goal.only is None or spec_of(op).op_type in goal.only) and (goal.nodes is None or op.name in goal.nodes)
    ]


def _find_below_infinity(graph: Graph) -> set[int]:
    """Return the operations that an infinite constant can reach, by `id`."""
    reached: set[int] = set()
    for op in graph.order:
        if any(id(operand) in reached for operand in operands_in(op)) or _reads_infinity(op):
            reached.add(id(op))
    return reached


def _reads_infinity(op: Operation) -> bool:
    constants = (value for value in op.__dict__.values() if isinstance(value, np.ndarray) and value.dtype.kind == "f")
    return any(bool(np.isinf(value).any()) for value in constants)


def _check_names(goal: ValidityGoal, graphs: Sequence[Graph]) -> None:
    nodes = [op for graph in graphs for op in graph.nodes]
    names, types = {op.name for op in nodes}, {spec_of(op).op_type for op in nodes}
    for wanted, known, what in ((goal.nodes, names, "node"), (goal.only, types, "operator")):
        for name in wanted or ():
            if name not in known:
                where = f"no_invalid_input: network {goal.call.network}"
                raise PropertyError(f"{where} has no {what} {name!r}; {name_near(name, sorted(known))}")


def _type_read(graph: Graph, op: Operation) -> torch.dtype:
    for field in spec_of(op).operands_of(op):
        if field is not None:
            dtype = graph.details_of(field).dtype if isinstance(field, Operation) else field.dtype
            if is_floating(dtype):
                return torch_dtype(dtype)
    return torch.float32


def _writes_floats(graph: Graph, op: Operation) -> bool:
    if len(op.output_names) > 1:
        # The floats may be in another output than the first, and nothing need read it.
        return True
    return is_floating(graph.details_of(op).dtype)
