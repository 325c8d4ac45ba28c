"""Dependencies: which open operators come before an operator, over all applications of a problem."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

from dnnv.nn.operations import Input

from ranum_falsify.network import Graph
from ranum_falsify.properties.formula.circuit import Choice
from ranum_falsify.properties.formula.terms import NetworkCall, Output, Term
from ranum_falsify.properties.problem.problem import Problem

_MOST = 16
"""Number of names kept for an operator; in a network with everything open, each has all others before it."""


def find_before(
    problem: Problem,
    graphs: Mapping[int, Graph],
    failed: Mapping[int, Collection[int]],
    constants: Mapping[int, Sequence[str]],
) -> Mapping[int, Mapping[int, tuple[str, ...]]]:
    """Return, for each operator, the names of the first open ones that its operands depend on, in topological order.

    Applications and operators go by their `id`.  `failed` are the operators with open conditions; `constants` name
    those that make constants, on which all operators of the graph count as depending.  Arguments apply earlier
    applications.
    """
    names: list[str] = []
    several = len({call.network for call in problem.calls}) > 1
    # A set of operators is the bits of one number, because unions are taken at every operator.
    outputs: dict[int, int] = {}
    found: dict[int, dict[int, int]] = {}
    for call in problem.calls:
        graph, masks = graphs[id(call)], dict[int, int]()
        arguments = _arguments(call, graph, outputs)
        found[id(call)] = {}
        broken = 0
        for name in constants.get(id(call), ()):
            broken |= 1 << len(names)
            names.append(f"{call.network}: {name}" if several else name)
        for op in graph.order:
            mask = broken | (arguments[op.name] if isinstance(op, Input) else 0)
            for operand in graph.reads[id(op)]:
                mask |= masks[operand]
            found[id(call)][id(op)] = mask
            if id(op) in failed.get(id(call), ()):
                mask |= 1 << len(names)
                names.append(f"{call.network}: {op.name}" if several else op.name)
            masks[id(op)] = mask
        outputs[id(call)] = 0
        for op in graph.output_operations:
            outputs[id(call)] |= masks[id(op)]

    @cache
    def text(mask: int) -> tuple[str, ...]:
        return tuple(names[bit] for bit in islice(_bits(mask), _MOST))

    return {call: {op: text(mask) for op, mask in masks.items()} for call, masks in found.items()}


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _arguments(call: NetworkCall, graph: Graph, outputs: Mapping[int, int]) -> dict[str, int]:
    """Return, by name of the input, the open operators that its argument depends on."""
    result = dict.fromkeys(graph.input_names, 0)
    for name, argument in zip(call.graph.input_names, call.arguments, strict=True):
        for inner in find_applications(argument):
            if name in result:
                result[name] |= outputs.get(id(inner), 0)
    return result


def find_applications(term: Term) -> Iterator[NetworkCall]:
    """Yield the applications whose outputs a term reads, except those inside their arguments."""
    pending: list[Term] = [term]
    while pending:
        one = pending.pop()
        if isinstance(one, Output):
            yield one.call
        if one.applies_network:
            pending.extend(operand for operand in one.operands if not isinstance(one, Output))
            if isinstance(one, Choice):
                pending.extend(side for side in _sides(one))


def _sides(choice: Choice) -> Iterator[Term]:
    """Yield the terms that a choice's condition compares."""
    from ranum_falsify.properties.formula.formula import Comparison, Formula, Goal, Junction

    pending: list[Formula] = [choice.formula]
    while pending:
        formula = pending.pop()
        if isinstance(formula, Junction):
            pending.extend(formula.parts)
        elif isinstance(formula, Comparison):
            yield from (formula.left, formula.right)
        elif isinstance(formula, Goal):
            yield from (Output(formula.goal.call, 0),)
