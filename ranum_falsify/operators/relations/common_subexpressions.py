"""Expressions that a branch computes again: the same operators on the same tensors from around it.

What a condition says about an expression outside holds inside, too, if both give the same numbers.  Operators that move
numbers, or round once, do so on the same numbers.  Those that add up give them on the same tensor alone: ONNX Runtime's
sums start where memory is aligned, so that copies of a tensor may be added up in another order.  Operators are compared
as the graph that runs has them, after it was optimised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dnnv.nn import Operation

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.site import Site
from ranum_falsify.network.order import operands_in
from ranum_falsify.operators.relations.matching import Field, fields_of, is_same_constant, kind, rounds_apart, source
from ranum_falsify.operators.relations.path_conditions import find_facts
from ranum_falsify.operators.relations.rewrites import have_same_attributes

_NEAR = 32
"""How many nodes before a condition are looked at."""

_EXACT = frozenset(
    "ArgMax ArgMin Concat Expand Flatten Gather Reshape Slice Squeeze Transpose Unsqueeze ReduceMax ReduceMin "
    "Abs Add And Cast Ceil Clip Div Equal Floor Greater GreaterOrEqual Less LessOrEqual Max Min Mul Neg Not Or Relu "
    "Round Sign Sub Where Xor".split()
)
"""Operators that move and choose numbers, or round once: all that one element is depends on its operands alone."""


def narrow_repeated(
    site: Site, condition: Field, branch: IntervalAnalysis, captured: Sequence[Field], *, truth: bool
) -> dict[int, Interval]:
    """Return bounds of operations of a branch that its condition, which is one number, bounds outside, by their id.

    The inputs of the branch stand for the captured tensors; `truth` is what the condition is there.
    """
    known = site.find_known(condition)
    if known is None or known.size != 1:
        return {}
    facts = list(find_facts(site, condition, truth))
    repeated = _find_repeated(site, branch, captured, [cause for cause, _ in facts]) if facts else {}
    found: dict[int, Interval] = {}
    for op, outer in repeated.items():
        for cause, assumed in facts:
            if cause is outer:
                found[op] = found[op].meet(assumed) if op in found else assumed
    return found


def _find_repeated(
    site: Site, branch: IntervalAnalysis, captured: Sequence[Field], causes: Iterable[Operation]
) -> dict[int, Operation]:
    """Return the operations outside that operations of a branch repeat, by the id of the latter.

    Those are among the causes, and what these depend on.
    """
    outer = [op for op in _list_before(causes) if _is_repeatable(op)]
    handed = {id(op): f for op, f in zip(branch.graph.inputs, captured, strict=True)}
    twins = {op: source(f) for op, f in handed.items()}
    found: dict[int, Operation] = {}
    for op in branch.graph.order:
        if id(op) in twins or not _is_repeatable(op) or not branch.has_exact_constants(op):
            continue
        other = next((other for other in outer if _computes_same(site, op, other, twins, handed)), None)
        if other is not None:
            twins[id(op)] = found[id(op)] = other
    return found


def _list_before(causes: Iterable[Operation]) -> Iterator[Operation]:
    waiting = list(causes)
    seen = {id(op) for op in waiting}
    while waiting:
        op = waiting.pop(0)
        yield op
        if len(seen) > _NEAR:
            continue
        for operand in operands_in(op):
            if id(operand) not in seen:
                seen.add(id(operand))
                waiting.append(operand)


def _is_repeatable(op: Operation) -> bool:
    """Tell whether a node has one output, which its kernel computes from the operands alone and always in one order.

    How products of matrices are added up may depend on whether weights were packed beforehand, as those that a branch
    reads may not be.
    """
    return (kind(op) in _EXACT or kind(op).startswith("Reduce")) and len(op.output_names) == 1


def _computes_same(
    site: Site, op: Operation, other: Operation, twins: dict[int, Field], handed: dict[int, Field]
) -> bool:
    known = site.find_known(other)
    if known is None or rounds_apart(site, known):
        return False
    if type(op) is not type(other) or not have_same_attributes(op, other):
        return False
    inner, outer = fields_of(op), fields_of(other)
    if kind(op) not in _EXACT and known.is_floating and handed.get(id(inner[0])) is not outer[0]:
        return False
    return len(inner) == len(outer) and all(_holds_same(site, a, b, twins) for a, b in zip(inner, outer, strict=True))


def _holds_same(site: Site, field: Field, other: Field, twins: dict[int, Field]) -> bool:
    field, other = source(field), source(other)
    if field is None or other is None:
        return field is other
    known = site.find_known(other)
    if known is None or rounds_apart(site, known):
        return False
    if isinstance(field, Operation):
        return twins.get(id(field)) is other
    if isinstance(other, Operation) or not known.is_point:
        return False
    return is_same_constant(field, other)
