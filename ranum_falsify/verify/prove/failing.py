"""Proofs of the opposite: boxes at every point of which an operator receives invalid input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect

from ranum_falsify.config import RUNTIMES, Runtime
from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.infinities import Value
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.order import topological_order
from ranum_falsify.operators.relations.discarded import list_doubtful
from ranum_falsify.operators.support.conditions import is_bounded_valid, name_bounds
from ranum_falsify.validity import Constraint


class AnalysisUpTo(IntervalAnalysis):
    """An analysis of everything that an operation of a graph depends on, for :func:`surely_fails` on many boxes.

    It takes all inputs of the graph, but spends no time on operations that the given one does not depend on.  The
    operands of this one are shown, to `look`, before its rule is run.
    """

    def __init__(self, graph: Graph, op: Operation, *, runtimes: Sequence[Runtime] = RUNTIMES) -> None:
        # Constants are bounded at once, by `generic_visit` too.
        self.look: Callable[[tuple[Value, ...]], None] = _ignore
        self.op = op
        # Of an operation with several outputs, the graph knows the shapes by their selections.
        selections = [inner for inner in graph.order if isinstance(inner, OutputSelect) and inner.operation is op]
        super().__init__(graph.cut_after(selections or [op]), runtimes=runtimes)

    def generic_visit(self, operation: Operation) -> tuple[Interval, ...] | None:
        """Return the result of the row's rule, unless the look at the operands ends the analysis."""
        if operation is self.op:
            self.look(self.operands(operation))
        return super().generic_visit(operation)


class _Decided(Exception):
    """It is known what the box does to the operator."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.fails = fails


def surely_fails(
    analysis: AnalysisUpTo,
    inputs: Sequence[Interval],
    conditions: Sequence[Constraint],
    tick: Callable[[], None] = lambda: None,
) -> bool:
    """Tell whether every point of a box surely gives the analysis' operator invalid input, and none before it.

    On each runtime of the analysis, one of the conditions (of its validity, or of its derivative) is violated at one
    element, whatever the operator can receive, and every operator that it depends on is proved to be valid.  Nothing
    after the operator is looked at.
    """
    op = analysis.op
    way = {id(inner) for inner in topological_order([op])} - {id(op)}
    waiting = {id(inner) for inner in analysis.graph.nodes if id(inner) in way}

    def is_violated(visited: Visited) -> bool:
        bounds = name_bounds(spec_of(op), visited)
        return not waiting and any(c.fails(op, bounds) for c in conditions)

    def look(operands: tuple[Value, ...]) -> None:
        known = all(x is None or isinstance(x, Interval | np.ndarray) for x in operands)
        if known and is_violated(Visited(op=op, operands=operands, outputs=())):
            raise _Decided(fails=True)

    def observe(visited: Visited) -> None:
        tick()
        if visited.op is op:
            raise _Decided(fails=is_violated(visited))
        if id(visited.op) in waiting:
            if not is_bounded_valid(visited):
                raise _Decided(fails=False)
            waiting.discard(id(visited.op))

    if list_doubtful(analysis):
        return False
    analysis.look = look
    try:
        analysis.run(inputs, observe)
    except _Decided as decided:
        return decided.fails
    finally:
        analysis.look = _ignore
    return False


def _ignore(operands: tuple[Value, ...]) -> None:
    """Do nothing."""
