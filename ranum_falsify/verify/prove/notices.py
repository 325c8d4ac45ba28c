"""What users are told about a proof beyond its operators.

Shapes may vary over a box: what comes after such a tensor stays open.  Outputs may not be finite although no operator
caused it (stored constants), and neither may derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from dnnv.nn import Operation

from ranum_falsify.domain import Interval
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.blackbox import BlackBox
from ranum_falsify.network.order import topological_order
from ranum_falsify.network.subgraphs import hands_on_condition
from ranum_falsify.properties.formula.terms import NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.verify.prove.applications import select_operators
from ranum_falsify.verify.prove.checked import reach_of_nan

_MOST = 3
"""Number of operators, and of inputs, that are named."""


def describe_varying(
    problem: Problem, call: NetworkCall, graph: Graph, varying: Collection[Operation], box: Collection[InputVariable]
) -> Iterator[str]:
    """Yield what users should know of shapes that vary on a box, a sentence for each operator that begins them."""
    if not varying:
        return
    several = len({other.network for other in problem.calls}) > 1
    fixed = {variable.name for variable in box if (variable.lower == variable.upper).all()}
    variables = dict(zip(call.graph.input_names, call.variables, strict=True))
    # Of what nothing is known, another notice speaks.
    known = [op for op in varying if not (isinstance(op, BlackBox) and op.body is None)]
    steered = [(op, steering) for op in known if (steering := _list_steering(graph, op, variables, fixed)) is not None]
    for position, (op, steering) in enumerate(steered[:_MOST]):
        more = len(steered) - _MOST if position == _MOST - 1 else 0
        yield _describe(op, steering, call.network if several else "", max(more, 0))


def _list_steering(
    graph: Graph, op: Operation, variables: Mapping[str, str | None], fixed: Collection[str]
) -> list[str] | None:
    """Return the inputs that vary and that the shape of what an operator gives depends on.

    None where all those that it depends on have one value, of which it then has one shape.
    """
    reached = {id(one) for one in topological_order(_steering_operands(op))}
    names = [one.name for one in graph.inputs if id(one) in reached]
    vary = [name for name in names if variables.get(name) not in fixed]
    return None if names and not vary else vary


def _steering_operands(op: Operation) -> list[Operation]:
    """Return those operands of an operator that decide the shape of what it gives; all of them if that is not known."""
    spec = spec_of(op)
    fields = spec.operands_of(op)
    read = [field for field in fields if isinstance(field, Operation)]
    if isinstance(op, BlackBox):
        # Of a loop, the trip count, and the condition to begin with.
        steering = fields[:2] if op.body is not None and hands_on_condition(op.body) else ()
    else:
        steering = tuple(field for name, field in zip(spec.operands, fields, strict=False) if name in spec.static)
    return [field for field in steering if isinstance(field, Operation)] or read


def _describe(op: Operation, inputs: list[str], network: str, more: int) -> str:
    """Return the sentence about one operator, the inputs that steer it, and how many more operators there are."""
    title = f"{network}: {op.name}" if network else op.name
    others = f" (and so for {more} other operators)" if more else ""
    whole = f"the shape of what {title} ({spec_of(op).op_type}) gives is not the same for all inputs{others}"
    after = "nothing that comes after it is proved"
    if not inputs:
        return f"{whole}: {after}"
    listed = ", ".join(map(repr, inputs[:_MOST])) + (", ..." if len(inputs) > _MOST else "")
    return (
        f"{whole}, it varies with {listed}: {after}; ask about one shape in a run, by a box that gives {listed} one "
        f"value (--box {inputs[0]}=VALUE, or box={{{inputs[0]!r}: VALUE}})"
    )


_MOST_NAMED = 4
"""Number of constants that are named."""


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
        yield (
            f"whatever the inputs are, {name_some(infinite, _MOST_NAMED)} gives infinity: that is no violation, "
            "as it may be meant as a mask, and no proof either; store the infinity itself if it is"
        )


def describe_outputs(network: str, graph: Graph, bounds: Sequence[Sequence[Interval | None]]) -> Iterator[str]:
    """Yield which outputs may be NaN or infinite although all operators are valid, given their bounds on each box."""
    carriers = reach_of_nan(graph).carriers
    columns = zip(*bounds, strict=True)
    for name, end, several in zip(graph.output_names, graph.output_operations, columns, strict=bool(bounds)):
        floating = [y for y in several if y is None or y.is_floating]
        kind = ""
        if id(end) in carriers and floating:
            kind = "NaN"
        elif any(y is not None and y.may_be_infinite for y in floating):
            kind = "infinite"
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


def name_some(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
