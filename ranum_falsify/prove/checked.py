"""What one interval analysis says of the conditions of a graph's operators."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from dnnv.nn import Operation

from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.network import Graph, OperatorSpec, spec_of
from ranum_falsify.network.trace import UnfitBranch
from ranum_falsify.validity import Bounds, Constraint, Finite

__all__ = ["Checked", "check", "conditions_of", "named"]


@dataclass(frozen=True)
class Checked:
    """Bounds of the outputs, and the conditions that bounds do not show.

    Attributes:
        outputs: Bounds of each output; None where the shape depends on the input.
        open: By `id` of the operator, its conditions that may be violated if no operator before it is invalid;
            those of a derivative aside.
        open_gradient: The same of the conditions on derivatives, which break nothing after them.
        constants: Names of the operators with open conditions that make constants of the graph.
    """

    outputs: tuple[Interval | None, ...]
    open: Mapping[int, tuple[Constraint, ...]]
    open_gradient: Mapping[int, tuple[Constraint, ...]]
    constants: tuple[str, ...] = ()


def check(
    analysis: IntervalAnalysis,
    inputs: Sequence[Interval],
    *,
    only: Collection[int] | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Checked:
    """Analyse a graph over a box and check every condition of its operators.

    Args:
        analysis: The analysis of the graph.
        inputs: The box.
        only: The operators to check, by `id`; all if not given.
        tick: Called at every operator; may raise to end the analysis.
    """
    graph = analysis.graph
    wanted = [op for op in graph.nodes if only is None or id(op) in only]
    found = {id(op): conditions_of(op) for op in wanted}
    of_gradient: dict[int, tuple[Constraint, ...]] = {
        id(op): tuple(spec_of(op).gradient_valid)  # type: ignore[arg-type]
        for op in wanted
        if spec_of(op).gradient_valid
    }

    def observe(visited: Visited) -> None:
        tick()
        key = id(visited.op)
        if found.get(key) or of_gradient.get(key):
            bounds = named(spec_of(visited.op), visited)
            for table in (found, of_gradient):
                table[key] = tuple(c for c in table.get(key, ()) if not c.holds(visited.op, bounds))

    outputs = analysis.run(inputs, observe)
    # What was not analysed has kept all its conditions.
    left, left_gradient = ({key: left for key, left in table.items() if left} for table in (found, of_gradient))
    return Checked(outputs, left, left_gradient, tuple(v.op.name for v in analysis.folded if _fails(v)))


def _fails(visited: Visited) -> bool:
    bounds = named(spec_of(visited.op), visited)
    return not all(c.holds(visited.op, bounds) for c in conditions_of(visited.op))


def conditions_of(op: Operation) -> tuple[Constraint, ...]:
    """Return all that must hold for an operator to be valid.

    Rows without conditions promise that their operators are never the first to fail.
    """
    spec = spec_of(op)
    conditions: list[Constraint] = list(spec.valid)  # type: ignore[arg-type]
    if any(isinstance(value, Graph | UnfitBranch) for value in op.__dict__.values()):
        conditions.append(_Opaque())
    elif spec.overflow:
        conditions.append(Finite())
    elif spec.valid:
        conditions.append(_Computed())
    return tuple(conditions)


class _Computed(Finite):
    """The output is finite as the kernels compute it, which may stray close to a limit that the operand keeps."""

    def holds(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.holds`."""
        written = [x for name, x in operands.items() if name.startswith("output")]
        if any(y.nan or y.overflows for y in written):
            return False
        read = [x for name, x in operands.items() if not name.startswith("output")]
        return not any(y.may_be_infinite for y in written) or any(x.may_be_infinite for x in read)


class _Opaque(Finite):
    """No operator of a subgraph fails, of which the bounds outside tell nothing."""

    def holds(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.holds`."""
        return False


def named(spec: OperatorSpec, visited: Visited) -> Bounds:
    """Return the bounds of an operator's operands and outputs by the names that conditions use."""
    operands = {
        name: Interval.point(x) if isinstance(x, np.ndarray) else x
        for name, x in spec.named(visited.operands).items()
        if x is not None
    }
    return operands | {"output" if i == 0 else f"output_{i}": y for i, y in enumerate(visited.outputs)}
