"""Shapes that vary over a box: what comes after such a tensor stays open, and users are told what varies, and where."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.blackbox import BlackBox
from ranum_falsify.network.order import topological_order
from ranum_falsify.network.subgraphs import hands_on_condition
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import InputVariable, Problem

_MOST = 3
"""Number of operators, and of inputs, that are named."""


def find_varying(graph: Graph, analysed: Collection[int]) -> tuple[Operation, ...]:
    """Return the operators whose results have no shape of their own, without those that come after one.

    `analysed` are the operators that bounds are known of, by `id`.
    """
    blocked, found = set[int](), list[Operation]()
    for op in graph.order:
        if isinstance(op, Input) or id(op) in analysed:
            continue
        is_after = any(read in blocked for read in graph.reads[id(op)])
        if is_after or not isinstance(op, OutputSelect):
            blocked.add(id(op))
        if not is_after and not isinstance(op, OutputSelect):
            found.append(op)
    return tuple(found)


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
