"""Non-finite outputs that no operator caused (stored constants), and derivatives that are not finite."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from dnnv.nn import Operation

from ranum_falsify.domain import Interval
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.properties.formula.terms import ValidityGoal
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.prove.applications import select_operators
from ranum_falsify.verify.prove.stored_nan import reach_of_nan

_MOST_NAMED = 4


def describe_constants(graph: Graph, doubtful: Collection[str]) -> Iterator[str]:
    """Yield which constants a network makes infinite, where that keeps anything from being proved.

    `doubtful` names the operators with open conditions that make constants.
    """
    infinite = [
        f"{op.name} ({spec_of(op).op_type})"
        for op, arrays in graph.folded
        if op.name in doubtful and any(x.dtype.kind == "f" and np.isinf(x).any() for x in arrays)
    ]
    if infinite:
        more = f" and {len(infinite) - _MOST_NAMED} more" if len(infinite) > _MOST_NAMED else ""
        yield (
            f"whatever the inputs are, {', '.join(infinite[:_MOST_NAMED])}{more} gives infinity: that is no violation, "
            "as it may be meant as a mask, and no proof either; store the infinity itself if it is"
        )


def describe_outputs(network: str, graph: Graph, bounds: Sequence[Sequence[Interval | None]]) -> Iterator[str]:
    """Yield which outputs may be NaN or infinite although all operators are valid, given their bounds on each box."""
    carriers = reach_of_nan(graph).carriers
    columns = zip(*bounds, strict=True)
    for name, end, several in zip(graph.output_names, graph.output_operations, columns, strict=bool(bounds)):
        kind = (
            "NaN"
            if id(end) in carriers and any(map(_is_floating, several))
            else "infinite"
            if any(map(_may_be_infinite, several))
            else ""
        )
        if kind:
            yield (
                f"output {name!r} may be {kind} although no operator makes it so; "
                f"finite_outputs({network}(...)) in a property asks about that"
            )


def list_steep(
    problem: Problem, graphs: Mapping[int, Graph], tests: Sequence[Callable[[ValidityGoal, Operation], bool]]
) -> tuple[str, ...]:
    """Return the titles of operators whose derivatives may not be finite; none where more is asked than validity.

    Each box has a test that tells so of an operator, where the goal does not ask about it.
    """
    if not problem.is_pure_validity:
        return ()
    several = len({call.network for call in problem.calls}) > 1
    titles = (
        f"{f'{goal.call.network}: ' if several else ''}{op.name} ({spec_of(op).op_type})"
        for goal in problem.goals
        for op in select_operators(goal, graphs[id(goal.call)])
        if any(is_steep(goal, op) for is_steep in tests)
    )
    return tuple(dict.fromkeys(titles))


def _is_floating(bounds: Interval | None) -> bool:
    return bounds is None or bounds.is_floating


def _may_be_infinite(bounds: Interval | None) -> bool:
    return bounds is not None and bounds.is_floating and bounds.may_be_infinite
