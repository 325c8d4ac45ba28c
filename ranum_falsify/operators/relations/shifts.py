"""Tighter bounds of a softmax whose operand is a sum: what is added to all elements of a section cancels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from dnnv.nn import Operation

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import inherit_marks
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.domain.slack import unit
from ranum_falsify.operators.relations.fused import error_inside
from ranum_falsify.operators.relations.matching import Field, fields_of, is_a

__all__ = ["invariant_under_shift"]

_ROUNDINGS = 8
"""Units of rounding of the summands by which the difference of two sums with one summand in common may be off."""


def invariant_under_shift(rule: IntervalRule, dims: Callable[[Operation, int], Sequence[int]]) -> IntervalRule:
    """Return a rule that bounds f(x + c) by f(x), too, where c is the same for all elements of a section.

    Args:
        rule: Rule of f, which normalises sections and does not change if a number is added to all of a section.
        dims: The dimensions of a section.
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
