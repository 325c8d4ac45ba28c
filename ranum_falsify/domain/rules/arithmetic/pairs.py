"""Sums, products, quotients, remainders and extremes of a few operands; integers wrap, infinities may cancel.

IEEE sums, products and quotients are rounded correctly on every runtime, and rounding is monotone: the rounded corners
of a box bound the rounded results.  Types of 16 bits are the exception, as ONNX Runtime computes chains of them in
float32 without rounding in between; their bounds enclose the exact results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product

import torch
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.error_bounds import least_positive, tiny
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.order import SIGNED, greatest, least
from ranum_falsify.domain.rounding import flush, round_bounds, round_outward
from ranum_falsify.domain.rules.support.building import (
    infinity_aware,
    keeping_infinity,
    part_by_part,
    result_shape,
)
from ranum_falsify.domain.site import Site

_HALF = (torch.float16, torch.bfloat16)

_SAFE_BITS = 62
"""64-bit integers are bounded exactly while results stay below this power of 2, which float64 can distinguish."""

Pair = tuple[Tensor, Tensor]


def ends(x: Interval) -> Enclosure:
    """Return both bounds in a type in which sums and products of them are at least as exact as in their own."""
    if x.dtype in _HALF:
        return Enclosure(*x.doubles())
    return Enclosure(x.lower, x.upper)


def _result(bounds: Enclosure, a: Interval, shape: tuple[int, ...]) -> Interval:
    low, high = bounds
    if low.dtype is a.dtype:
        return flush(Interval.of(low, high, shape))
    return round_bounds(low, high, a.dtype, shape)


# sums and differences -------------------------------------------------------------------------------------------


@keeping_infinity
def add(site: Site, a: Interval, b: Interval) -> Interval:
    """Bound a + b; NaN where opposite infinities may meet."""
    if not a.is_floating:
        return _integers(torch.add, a, b)
    x, y = ends(a), ends(b)
    nan = _may_meet((a, b), (x.low, y.high), (x.high, y.low))
    return _sum(a, b, x.add(y), nan=nan)


@keeping_infinity
def subtract(site: Site, a: Interval, b: Interval) -> Interval:
    """Bound a - b; NaN where equal infinities may meet."""
    if not a.is_floating:
        return _integers(torch.sub, a, b)
    x, y = ends(a), ends(b)
    nan = _may_meet((a, b), (x.low, -y.low), (x.high, -y.high)) if _infinite(a, b) else False
    return _sum(a, b, x.subtract(y), nan=nan)


def _sum(a: Interval, b: Interval, bounds: Enclosure, *, nan: bool) -> Interval:
    if nan:
        low, high = bounds
        bounds = Enclosure(torch.where(low.isnan(), -math.inf, low), torch.where(high.isnan(), math.inf, high))
    return replace(_result(bounds, a, result_shape(a, b)), nan=nan)


def _infinite(*operands: Interval) -> bool:
    return any(x.may_be_infinite for x in operands)


def _may_meet(operands: Sequence[Interval], lows: Pair, highs: Pair) -> bool:
    """Tell whether -inf and inf may meet: at the first's lower end, or at its upper one."""
    if not _infinite(*operands):
        return False
    below = (lows[0] == -math.inf) & (lows[1] == math.inf)
    above = (highs[0] == math.inf) & (highs[1] == -math.inf)
    return bool(below.any()) or bool(above.any())


# products -------------------------------------------------------------------------------------------------------


@keeping_infinity
def multiply(site: Site, a: Interval, b: Interval) -> Interval:
    """Bound a * b; NaN where 0 and an infinity may meet."""
    if not a.is_floating:
        return _integers(torch.mul, a, b)
    bounds = _bound_by_corners(torch.mul, a, b)
    if not _infinite(a, b):
        y = _result(bounds, a, result_shape(a, b))
        return _find_gap(y, a.distance * b.distance) if a.gap or b.gap else y
    zero_times = (a.contains(0) & _is_unbounded(b)) | (_is_unbounded(a) & b.contains(0))
    return replace(_result(bounds, a, result_shape(a, b)), nan=bool(zero_times.any()))


def square(x: Interval) -> Interval:
    """Bound x * x with both factors the same number."""
    low, high = ends(x)
    size, others = low.abs(), high.abs()
    least_size = torch.where((low <= 0) & (high >= 0), x.gap, torch.minimum(size, others))
    size = torch.maximum(size, others)
    return _result(Enclosure(least_size * least_size, size * size), x, x.shape)


def _is_unbounded(x: Interval) -> Tensor:
    return x.lower.isinf() | x.upper.isinf()


def _find_gap(y: Interval, distance: float) -> Interval:
    """Set how far results are from 0, if the operands tell and rounding cannot undo it."""
    if not 0 < distance < math.inf:
        return y
    distance *= 1 - 4 * float(torch.finfo(y.dtype).eps)
    return replace(y, gap=distance) if distance >= tiny(y.dtype) else y


def _bound_by_corners(function: Callable[[Tensor, Tensor], Tensor], a: Interval, b: Interval) -> Enclosure:
    """Return the extremes of a function that is monotone in each operand, at the corners of both."""
    points = ends(a).corners(function, ends(b))
    if _infinite(a, b):
        # 0 * inf and inf / inf: the limits of valid results are among the other corners, or 0.
        points = [torch.where(point.isnan(), 0.0, point) for point in points]
    return Enclosure.hull_of(points)


# quotients ------------------------------------------------------------------------------------------------------


@partial(keeping_infinity, operands=(0,))
def divide(site: Site, a: Interval, b: Interval) -> Interval:
    """Bound a / b without divisors of 0; NaN where infinities may meet."""
    if not a.is_floating:
        return _integers(_truncate, a, b, divisors=True)
    shape = result_shape(a, b)
    around = bool(((b.lower <= 0) & (b.upper >= 0)).any())
    parts = _split_at_zero(b) if around else ((b, None),)
    bounds = _hull([(_bound_by_corners(torch.div, a, part), has) for part, has in parts])
    # A division by 0 is infinite, or NaN, however small the dividends and however far the other divisors.
    y = replace(_result(bounds, a, shape), overflows=around and bool(b.contains(0).any()))
    if _infinite(a, b):
        # Of an infinity divided by 0, the sign of the 0 decides; that is not invalid.
        either = _is_unbounded(a) & b.contains(0)
        low, high = torch.where(either, -math.inf, y.lower), torch.where(either, math.inf, y.upper)
        nan = bool((_is_unbounded(a) & _is_unbounded(b)).any())
        return replace(Interval.of(low, high, shape), nan=nan, overflows=y.overflows)
    reach = max(abs(end) for end in b.extremes) if (a.gap or b.gap) and b.size else 0.0
    return _find_gap(y, a.distance / reach) if reach else y


def _split_at_zero(b: Interval) -> tuple[tuple[Interval, Tensor | None], ...]:
    """Return the positive and the negative part of a divisor, and where it has each; a divisor of 0 has both."""
    smallest = max(b.gap, least_positive(b.dtype))
    low, high = ends(b)
    nothing = (low == 0) & (high == 0)
    positive = Interval(low.clamp(min=smallest), high.clamp(min=smallest), b.shape)
    negative = Interval(low.clamp(max=-smallest), high.clamp(max=-smallest), b.shape)
    return (positive, (high > 0) | nothing), (negative, (low < 0) | nothing)


def _hull(parts: Sequence[tuple[Enclosure, Tensor | None]]) -> Enclosure:
    known = [
        x if has is None else Enclosure(torch.where(has, x.low, math.inf), torch.where(has, x.high, -math.inf))
        for x, has in parts
    ]
    return reduce(Enclosure.hull, known)


@part_by_part
def reciprocal(site: Site, x: Interval) -> Interval:
    """Bound 1 / x without 0; kernels approximate it."""
    smallest = least_positive(x.dtype)
    parts = _split_at_zero(Interval(*x.doubles(), x.shape, gap=max(x.gap, smallest)))
    low, high = _hull([(ends(part).map_falling(lambda end: 1 / end), has) for part, has in parts])
    return round_outward(low, high, x.dtype, x.shape, site.own_envelope())


# remainders -----------------------------------------------------------------------------------------------------


def remainder(site: Site, a: Interval, b: Interval) -> Interval:
    """Bound the remainder of a division, with the dividend's sign (`fmod`) or the divisor's."""
    shape, dtype = result_shape(a, b), a.dtype
    if not a.is_floating and not _are_small(a, b):
        return Interval.top(shape, dtype)
    (a_low, a_high), (b_low, b_high) = _widen(a), _widen(b)
    step = 0 if a.is_floating else 1
    size = torch.maximum(b_low.abs(), b_high.abs()) - step
    size = size.clamp(min=0)
    zero = torch.zeros((), dtype=a_low.dtype)
    if site.op.fmod:
        low = torch.where(a_low < 0, torch.maximum(-size, a_low), zero)
        high = torch.where(a_high > 0, torch.minimum(size, a_high), zero)
        same = torch.ones((), dtype=torch.bool)
    else:
        low = torch.where(b_low < 0, -size, zero)
        high = torch.where(b_high > 0, size, zero)
        same = ((a_low >= 0) & (b_low > 0)) | ((a_high <= 0) & (b_high < 0))
    closest = torch.where((b_low <= 0) & (b_high >= 0), zero, torch.minimum(b_low.abs(), b_high.abs()))
    same = same & (torch.maximum(a_low.abs(), a_high.abs()) < closest)
    low, high = torch.where(same, a_low, low), torch.where(same, a_high, high)
    y = flush(Interval.of(low.to(dtype), high.to(dtype), shape))
    return replace(y, nan=True) if a.is_floating and _may_overflow_divided(site, a, closest) else y


def _may_overflow_divided(site: Site, a: Interval, closest: Tensor) -> bool:
    """Tell whether PyTorch's vectorised kernels, which divide on the way to a remainder, may return NaN."""
    largest = torch.maximum(a.lower.double().abs(), a.upper.double().abs())
    limit = float(dtype_range(a.dtype)[1])
    return "torch" in site.runtimes and bool((largest / 2 >= closest * (limit / 2)).any())


def _widen(x: Interval) -> Pair:
    return x.doubles() if x.is_floating else (x.lower.long(), x.upper.long())


# integers -------------------------------------------------------------------------------------------------------


def _truncate(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def _are_small(*operands: Interval) -> bool:
    return all(-(2.0**_SAFE_BITS) < end < 2.0**_SAFE_BITS for x in operands for end in x.extremes if x.size)


def _integers(
    function: Callable[[Tensor, Tensor], Tensor], a: Interval, b: Interval, *, divisors: bool = False
) -> Interval:
    """Bound a function of integers at the corners; the whole range of the type where it may wrap."""
    shape, dtype = result_shape(a, b), a.dtype
    if a.lower is a.upper and b.lower is b.upper and not divisors:
        kind = SIGNED.get(dtype, dtype)
        value = function(a.lower.view(kind), b.lower.view(kind)).view(dtype)
        return Interval.of(value, value, shape)
    if not _are_small(a, b):
        return Interval.top(shape, dtype)
    seconds = [x.long() for x in (b.lower, b.upper)]
    if divisors:
        low, high = seconds
        # There are a positive and a negative divisor, or one is made up for 0 alone, which the condition reports.
        seconds = [
            torch.where(low == 0, torch.where(high == 0, -1, 1), low),
            torch.where(high == 0, torch.where(low == 0, 1, -1), high),
            torch.where((low <= 0) & (high > 0), 1, torch.where(low == 0, -1, low)),
            torch.where((low < 0) & (high >= 0), -1, torch.where(high == 0, 1, high)),
        ]
    pairs = list(product((a.lower.long(), a.upper.long()), seconds))
    exact = [function(p, q) for p, q in pairs]
    low, high = reduce(torch.minimum, exact), reduce(torch.maximum, exact)
    least_value, greatest_value = (min(int(end), dtype_range(torch.int64)[1]) for end in dtype_range(dtype))
    # In float64, products show whether they wrap in int64; what does not is compared as it is.
    sizes = [function(p.double(), q.double()).abs() for p, q in pairs]
    fits = (reduce(torch.maximum, sizes) <= 2.0**_SAFE_BITS) & (low >= least_value) & (high <= greatest_value)
    return fit_type(low, high, fits, dtype, shape)


def fit_type(low: Tensor, high: Tensor, fits: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Interval:
    """Return bounds in int64 as bounds of an integer type: its whole range where they do not fit, because they wrap."""
    lowest, highest = dtype_range(dtype)
    low = torch.where(fits, low, int(lowest))
    # The greatest uint64 has the bits of -1.
    high = torch.where(fits, high, -1 if dtype is torch.uint64 else int(highest))
    return Interval.of(low.to(dtype), high.to(dtype), shape)


# signs and extremes ---------------------------------------------------------------------------------------------


@keeping_infinity
def absolute(site: Site, x: Interval) -> Interval:
    """Bound |x|; the least signed integer has no absolute value and stays."""
    if x.dtype in SIGNED or x.dtype is torch.uint8:
        return x
    low, high = x.lower, x.upper
    size, other = low.abs(), high.abs()
    least_size = torch.where((low <= 0) & (high >= 0), torch.zeros_like(low), torch.minimum(size, other))
    if x.gap:
        least_size = least_size.clamp(min=x.gap if x.is_floating else math.ceil(x.gap))
    return _guard_least(x, Interval(least_size, torch.maximum(torch.maximum(size, other), least_size), x.shape))


@keeping_infinity
def negate(site: Site, x: Interval) -> Interval:
    """Bound -x; the least signed integer stays."""
    return _guard_least(x, Interval(-x.upper, -x.lower, x.shape, gap=x.gap))


def _guard_least(x: Interval, y: Interval) -> Interval:
    """Return y, or the type's range where x may be the least integer, whose opposite wraps."""
    if x.is_floating:
        return y
    lowest, highest = dtype_range(x.dtype)
    wraps = x.lower == lowest
    if not bool(wraps.any()):
        return y
    return Interval(torch.where(wraps, lowest, y.lower), torch.where(wraps, highest, y.upper), x.shape)


@infinity_aware
def sign(site: Site, x: Interval) -> Interval:
    """Bound the sign of x."""
    if x.dtype in SIGNED:
        low, high = (bound.double().sign().to(x.dtype) for bound in (x.lower, x.upper))
    else:
        low, high = x.lower.sign(), x.upper.sign()
    return Interval(low, high, x.shape, gap=1.0 if x.gap else 0.0)


@infinity_aware
def least_of(site: Site, *data: Interval) -> Interval:
    """Bound the elementwise minimum of any number of operands."""
    return _fold(least, data)


@infinity_aware
def greatest_of(site: Site, *data: Interval) -> Interval:
    """Bound the elementwise maximum of any number of operands."""
    return _fold(greatest, data)


def _fold(function: Callable[[Tensor, Tensor], Tensor], data: Sequence[Interval]) -> Interval:
    low, high = reduce(function, [x.lower for x in data]), reduce(function, [x.upper for x in data])
    gap = min(x.distance for x in data) if any(x.gap for x in data) else 0.0
    return replace(Interval.of(low, high, result_shape(*data)), gap=gap)
