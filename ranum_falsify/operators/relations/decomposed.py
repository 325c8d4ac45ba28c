"""Functions of rows that a graph spells out, as what they are together; what is added to a softmax's row cancels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from dnnv.nn import Operation

from ranum_falsify.config import Runtime
from ranum_falsify.domain.error_bounds import unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import envelope
from ranum_falsify.domain.linear.declarations import DecomposedRows, Quotient, RowDecomposition
from ranum_falsify.domain.linear.probabilities import softmax_rows
from ranum_falsify.domain.linear.rows import RowFunction
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import inherit_marks
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.operators.relations.fused import error_inside
from ranum_falsify.operators.relations.matching import (
    Field,
    behind,
    fields_of,
    find_reduction,
    is_a,
    is_same,
    reach_reduction,
    source,
)

_Rows = tuple[Field, Sequence[int]]
"""A tensor, and the dimensions of its rows."""

_Reduce = Callable[[Field, str], _Rows | None]
"""Returns what a field reduces by an operator."""


def quotient_or_rows(op: Operation) -> Quotient | DecomposedRows:
    """Return how a quotient depends on its operands: as a softmax, if it may be one."""
    match = _find_shares(op, _reach)
    operand = None if match is None else source(match[0])
    if not isinstance(operand, Operation):
        return Quotient()

    def rows_of(site: Site, *operands: object) -> RowDecomposition | None:
        known = _find_shares(op, partial(_find, site))
        return None if known is None else RowDecomposition(known[1], _shares)

    return DecomposedRows(operand=operand, rows=rows_of, otherwise=Quotient())


def _reach(field: Field, op_type: str) -> _Rows | None:
    """Return what a field may reduce, before shapes are known."""
    op = reach_reduction(field, op_type)
    return None if op is None else (source(fields_of(op)[0]), ())


def _find(site: Site, field: Field, op_type: str) -> _Rows | None:
    found = find_reduction(site, field, op_type)
    return None if found is None else (found.operand, tuple(found.dims))


def _find_shares(op: Operation, reduce: _Reduce) -> _Rows | None:
    """Return the operand of the softmax that exp(x - max(x)) divided by its sum is."""
    a, b = fields_of(op)
    difference, total = is_a(behind(a, "Exp"), "Sub"), reduce(b, "ReduceSum")
    if total is None or difference is None or not is_same(total[0], a):
        return None
    x, greatest = fields_of(difference)
    found = reduce(greatest, "ReduceMax")
    if found is None or not is_same(found[0], x) or found[1] != total[1]:
        return None
    return x, total[1]


def _shares(dtype: torch.dtype, runtimes: tuple[Runtime, ...], size: int) -> RowFunction:
    return softmax_rows(size, dtype, envelope("Exp", dtype, runtimes))


_ROUNDINGS = 8
"""Units of rounding of the summands by which the difference of two sums with one summand in common may be off."""


def invariant_under_shift(rule: IntervalRule, dims: Callable[[Operation, int], Sequence[int]]) -> IntervalRule:
    """Return a rule that bounds f(x + c) by f(x), too, where c is the same for all elements of a section.

    f normalises sections and does not change if a number is added to all of a section.
    """

    def shifted(site: Site, y: Interval) -> Interval:
        bounds = rule(site, y)
        assert isinstance(bounds, Interval)
        x = _undo_sum(site, y, dims(site.op, len(y.shape)))
        if x is None:
            return bounds
        found = rule(site, x)
        assert isinstance(found, Interval)
        return bounds.meet(found)

    return inherit_marks(shifted, rule)


def _undo_sum(site: Site, y: Interval, dims: Sequence[int]) -> Interval | None:
    """Return bounds of x with the error of the sum where a node reads x + c or x - c; None if it does not."""
    sum_ = is_a(fields_of(site.op)[0], "Add", "Sub")
    if sum_ is None or not y.is_floating or not y.size or y.may_be_infinite:
        return None
    first, second = fields_of(sum_)
    # ONNX Runtime may add up three summands in another order.
    if is_a(first, "Add") or is_a(second, "Add"):
        return None
    for inner, shift in ((first, second), (second, first))[: 1 if is_a(sum_, "Sub") else 2]:
        x, c = site.find_known(inner), site.find_known(shift)
        if x is None or c is None or x.shape != y.shape or x.may_be_infinite or c.may_be_infinite:
            continue
        if _is_shared(c, len(y.shape), dims):
            return _widen(site, x, c, (inner, shift))
    return None


def _is_shared(c: Interval, rank: int, dims: Sequence[int]) -> bool:
    """Tell whether a tensor has one element for all that lie along given dimensions of a tensor of a given rank."""
    shape = (1,) * (rank - len(c.shape)) + c.shape
    return all(shape[dim] == 1 for dim in dims)


def _widen(site: Site, x: Interval, c: Interval, fields: tuple[Field, Field]) -> Interval:
    """Return bounds of what is left of a computed sum of x and c if c itself is subtracted."""
    sizes = [max(map(abs, operand.extremes)) for operand in (x, c)]
    error = _ROUNDINGS * unit(x.dtype) * sum(sizes)
    error += sum(error_inside(site, beside, x.dtype) * size for size, beside in zip(sizes, fields[::-1], strict=True))
    low, high = x.lower.to(torch.float64) - error, x.upper.to(torch.float64) + error
    return round_outward(low, high, x.dtype, x.shape)
