"""Bounds of comparisons, of logic on booleans and of logic on the bits of integers.  Bounds never contain NaN."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.order import make_ordered
from ranum_falsify.domain.rules.support.building import infinity_aware, result_shape
from ranum_falsify.domain.site import IntervalRule, Site


def compared(function: Callable[[Tensor, Tensor], Tensor]) -> IntervalRule:
    """Return the rule of a comparison by order: `function` is `torch.lt`, `le`, `gt` or `ge`."""
    descending = function in (torch.gt, torch.ge)

    def rule(site: Site, a: Interval, b: Interval) -> Interval:
        (a_low, a_high), (b_low, b_high) = ((make_ordered(x.lower), make_ordered(x.upper)) for x in (a, b))
        surely, maybe = function(a_low, b_high), function(a_high, b_low)
        if not descending:
            surely, maybe = function(a_high, b_low), function(a_low, b_high)
        return Interval.of(surely, maybe, result_shape(a, b))

    return infinity_aware(rule)


def equal(site: Site, a: Interval, b: Interval) -> Interval:
    """Return where two operands are certainly equal, and where they may be; a rule."""
    (a_low, a_high), (b_low, b_high) = ((make_ordered(x.lower), make_ordered(x.upper)) for x in (a, b))
    apart = (a_high < b_low) | (b_high < a_low)
    if max(a.gap, b.gap):
        # Values that a gap keeps away from 0 equal no number within it.
        for x, y in ((a, b), (b, a)):
            low, high = y.doubles()
            apart = apart | ((low.abs() < x.gap) & (high.abs() < x.gap))
    surely = (a_low == a_high) & (b_low == b_high) & (a_low == b_low)
    return Interval.of(surely, ~apart, result_shape(a, b))


infinity_aware(equal)


def logical(function: Callable[[Tensor, Tensor], Tensor]) -> IntervalRule:
    """Return the rule of a function of two booleans."""

    def rule(site: Site, a: Interval, b: Interval) -> Interval:
        values = [function(p, q) for p in (a.lower, a.upper) for q in (b.lower, b.upper)]
        surely = values[0] & values[1] & values[2] & values[3]
        return Interval.of(surely, values[0] | values[1] | values[2] | values[3], result_shape(a, b))

    return infinity_aware(rule)


def negate(site: Site, x: Interval) -> Interval:
    """Return the bounds of the negation of a boolean; a rule."""
    return Interval(~x.upper, ~x.lower, x.shape)


infinity_aware(negate)


# bits -----------------------------------------------------------------------------------------------------------


def _words(x: Interval) -> tuple[Tensor, Tensor]:
    """Return bounds in int64, with the upper half of uint64 as the negative numbers of the same bits."""
    return x.lower.to(torch.int64), x.upper.to(torch.int64)


def _where(right: Tensor, low: Tensor, high: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return bounds of a type; its whole range where they are not correct."""
    least, greatest = (torch.full((), end, dtype=dtype) for end in dtype_range(dtype))
    return torch.where(right, low.to(dtype), least), torch.where(right, high.to(dtype), greatest)


def _bitwise(
    bound: Callable[..., tuple[Tensor, Tensor, Tensor]], function: Callable[[Tensor, Tensor], Tensor]
) -> IntervalRule:
    """Return the rule of a function of bits.

    Args:
        bound: Bounds for ranges of int64 (lower and upper of each operand), and where they are correct.
        function: The function, on int64; exact where both operands are known.
    """

    def rule(site: Site, a: Interval, b: Interval) -> Interval:
        shape, dtype = result_shape(a, b), a.dtype
        (a_low, a_high), (b_low, b_high) = _words(a), _words(b)
        if a.is_point and b.is_point:
            value = function(a_low, b_low).to(dtype)
            return Interval.of(value, value, shape)
        # In int64, a uint64 range across the middle has crossed bounds.
        sane = (a_low <= a_high) & (b_low <= b_high)
        low, high, right = bound(a_low, a_high, b_low, b_high)
        known = (a_low == a_high) & (b_low == b_high)
        value = function(a_low, b_low)
        low, high = torch.where(known, value, low), torch.where(known, value, high)
        right = known | (right & sane)
        return Interval.of(*_where(right, low, high, dtype), shape)

    return rule


def _ones_above(x: Tensor) -> Tensor:
    """Return the least 2^k - 1 that is not below numbers of int64 that are not negative."""
    for shift in (1, 2, 4, 8, 16, 32):
        x = x | (x >> shift)
    return x


def _and(a_low: Tensor, a_high: Tensor, b_low: Tensor, b_high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # A number that is not negative keeps some of its bits, whatever the other number is.
    high = torch.where(a_low < 0, b_high, torch.where(b_low < 0, a_high, torch.minimum(a_high, b_high)))
    return torch.zeros_like(high), high, (a_low >= 0) | (b_low >= 0)


def _or(a_low: Tensor, a_high: Tensor, b_low: Tensor, b_high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    high = _ones_above(torch.maximum(a_high, b_high).clamp(min=0))
    return torch.maximum(a_low, b_low), high, (a_low >= 0) & (b_low >= 0)


def _xor(a_low: Tensor, a_high: Tensor, b_low: Tensor, b_high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high, right = _or(a_low, a_high, b_low, b_high)
    return torch.zeros_like(low), high, right


bitwise_and = _bitwise(_and, torch.bitwise_and)
bitwise_or = _bitwise(_or, torch.bitwise_or)
bitwise_xor = _bitwise(_xor, torch.bitwise_xor)


def bitwise_not(site: Site, x: Interval) -> Interval:
    """Return the bounds of the complement, which falls: -1 - x, or the greatest number minus x; a rule."""
    low, high = ((~bound.to(torch.int64)).to(x.dtype) for bound in (x.upper, x.lower))
    return Interval(low, high, x.shape)


def shift_bits(site: Site, x: Interval, y: Interval) -> Interval:
    """Return the bounds of unsigned integers moved by bits, `direction` "LEFT" or "RIGHT"; a rule."""
    shape, dtype = result_shape(x, y), x.dtype
    (x_low, x_high), (y_low, y_high) = _words(x), _words(y)
    largest = int(dtype_range(dtype)[1])
    bits = largest.bit_length()
    # Kernels differ in their results for a shift by all bits or more.
    right = (x_low >= 0) & (x_high >= 0) & (y_low >= 0) & (y_high >= 0) & (y_high < bits)
    y_low, y_high = y_low.clamp(0, bits - 1), y_high.clamp(0, bits - 1)
    if site.op.direction == "LEFT":
        low, high = x_low << y_low, x_high << y_high
        right = right & (x_high <= (min(largest, torch.iinfo(torch.int64).max) >> y_high))
    else:
        low, high = x_low >> y_high, x_high >> y_low
    return Interval.of(*_where(right, low, high, dtype), shape)
