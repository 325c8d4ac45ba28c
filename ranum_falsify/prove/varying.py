"""Shapes that vary over a box: what comes after such a tensor stays open, and users are told what varies, and where."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.blackbox import is_black_box
from ranum_falsify.network.order import topological_order
from ranum_falsify.properties.formula.applications import NetworkCall
from ranum_falsify.properties.problem.problem import InputVariable

__all__ = ["describe_varying", "find_varying"]

_MOST = 3
"""Number of operators, and of inputs, that are named."""


def find_varying(graph: Graph, analysed: Collection[int]) -> tuple[Operation, ...]:
    """Return the operators whose results have no shape of their own, without those that come after one.

    Args:
        graph: The graph.
        analysed: The operators that bounds are known of, by `id`.
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
    call: NetworkCall, graph: Graph, varying: Collection[Operation], box: Collection[InputVariable], *, several: bool
) -> Iterator[str]:
    """Yield what users should know of shapes that vary, a sentence for each operator that begins them.

    Args:
        call: The application.
        graph: The graph that runs for it.
        varying: Operators of that graph, from :func:`find_varying`.
        box: What the property's inputs range over.
        several: Whether the property has several networks.
    """
    fixed = {variable.name for variable in box if (variable.lower == variable.upper).all()}
    variables = dict(zip(call.graph.input_names, call.variables, strict=True))
    # Of what nothing is known, another notice speaks.
    known = [op for op in varying if not is_black_box(op)]
    for position, op in enumerate(known[:_MOST]):
        more = len(known) - _MOST if position == _MOST - 1 else 0
        yield _describe(op, _list_steering(graph, op, variables, fixed), call.network if several else "", max(more, 0))


def _list_steering(
    graph: Graph, op: Operation, variables: Mapping[str, str | None], fixed: Collection[str]
) -> list[str]:
    """Return the inputs that the shape of what an operator gives depends on; if some of them vary, only those."""
    spec = spec_of(op)
    named = zip((*spec.operands, *[""] * len(spec.operands_of(op))), spec.operands_of(op), strict=False)
    read = [(name in spec.static, field) for name, field in named if isinstance(field, Operation)]
    steering = [field for is_static, field in read if is_static] or [field for _, field in read]
    reached = {id(one) for one in topological_order(steering)}
    names = [one.name for one in graph.inputs if id(one) in reached]
    return [name for name in names if variables.get(name) not in fixed] or names


def _describe(op: Operation, inputs: list[str], network: str, more: int) -> str:
    """Return the sentence about one operator.

    Args:
        op: The operator.
        inputs: The inputs that steer it.
        network: The network to name; "" for none.
        more: How many operators there are that nothing is said of.
    """
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
