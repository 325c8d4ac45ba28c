"""Writing elements at positions: bounds of the results of scatter operators, in whatever order they write."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import gamma, tiny
from ranum_falsify.domain.interval import Interval, dtype_range, find_shared_gap
from ranum_falsify.domain.order import greatest, least, make_ordered, restore
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.shape import collapse
from ranum_falsify.domain.site import Site

_EXACT = 2.0**53
"""Integers up to this size are exact in float64."""


def scatter(
    x: Interval,
    index: Tensor,
    updates: Interval,
    reduction: str | None,
    *,
    may_lose: bool = False,
    flushes: bool = False,
) -> Interval:
    """Return bounds of a tensor after writes at known positions of its first dimension.

    Args:
        x: Bounds, of two or more dimensions.
        index: Position along the first dimension of each update, int64, of the updates' shape, whose other
            dimensions are not larger than those of `x`.
        updates: Bounds of the values to write.
        reduction: None, "none", "add", "mul", "max" or "min".
        may_lose: Whether all but one of several updates of one element may be lost, as where they run in parallel.
        flushes: Whether sums may take denormal numbers for 0.
    """
    x, updates = _split(x), _split(updates)
    if reduction in (None, "none"):
        # Of several updates of one element, any may be the last.
        low = _reduce(x.lower, index, updates.lower, "amin", own=False)
        high = _reduce(x.upper, index, updates.upper, "amax", own=False)
        return Interval(low, high, x.shape, gap=find_shared_gap(x, updates))
    if reduction in ("max", "min"):
        ends = ((x.lower, updates.lower), (x.upper, updates.upper))
        low, high = (_reduce(a, index, b, f"a{reduction}", own=True) for a, b in ends)
        if may_lose and reduction == "max":
            low = greatest(x.lower, _reduce(x.lower, index, updates.lower, "amin", own=False))
        elif may_lose:
            high = least(x.upper, _reduce(x.upper, index, updates.upper, "amax", own=False))
        return Interval(low, high, x.shape)
    count = torch.zeros(x.shape, dtype=torch.float64).scatter_add(
        0, index, torch.ones(index.shape, dtype=torch.float64)
    )
    touched = count > 0
    if reduction == "add":
        result = _sum(x, index, updates, count, may_lose=may_lose, flushes=flushes)
    elif may_lose and bool((count > 1).any()):
        result = scatter_anywhere(x, updates, reduction, int(count.max()))
    else:
        result = _multiply(x, index, updates, count)
    low = torch.where(touched, result.lower, x.lower)
    return replace(result, lower=low, upper=torch.where(touched, result.upper, x.upper))


def scatter_anywhere(
    x: Interval, updates: Interval, reduction: str | None, most: int, *, flushes: bool = False
) -> Interval:
    """Return bounds of a tensor after writes at positions that depend on the input.

    Args:
        x: Bounds.
        updates: Bounds of the values to write.
        reduction: See :func:`scatter`.
        most: How many updates one element may receive.
        flushes: See :func:`scatter`.
    """
    if not updates.size:
        return x
    update = collapse(updates, *range(len(updates.shape)))
    one = Interval(update.lower.reshape((1,) * len(x.shape)), update.upper.reshape((1,) * len(x.shape)), x.shape)
    if reduction in (None, "none"):
        return x.hull(one)
    if reduction == "max":
        return Interval.of(x.lower, x.hull(one).upper, x.shape)
    if reduction == "min":
        return Interval.of(x.hull(one).lower, x.upper, x.shape)
    (low, high), (least, greatest) = x.doubles(), one.doubles()
    if reduction == "add":
        size = torch.maximum(low.abs(), high.abs()) + most * torch.maximum(least.abs(), greatest.abs())
        low, high = low + most * least.clamp(max=0), high + most * greatest.clamp(min=0)
        return _enclose(low, high, size, most, x, flushes=flushes)
    factor = torch.maximum(least.abs(), greatest.abs()).clamp(min=1) ** most
    # Updates may overflow among themselves, whatever the element is.
    size = (torch.maximum(low.abs(), high.abs()) * factor).nan_to_num(nan=math.inf)
    parts = torch.maximum(size, factor)  # a small element may be rounded before large updates
    return _product(-size, size, parts, most, x, zero=bool((one.contains(0) | x.contains(0)).any()))


def scatter_partly(
    x: Interval, index: Tensor, known: Tensor, updates: Interval, reduction: str | None, *, flushes: bool = False
) -> Interval:
    """Return bounds of a tensor after writes at positions of its first dimension, some of which are not known.

    Args:
        x: See :func:`scatter`.
        index: See :func:`scatter`; any number where the position is not known.
        known: Whether the position of each update is known.
        updates: See :func:`scatter`.
        reduction: None, "none", "add", "max" or "min".
        flushes: See :func:`scatter`.
    """
    x, updates = _split(x), _split(updates)
    if reduction == "add":
        return _sum_partly(x, index.where(known, 0), known, updates, flushes=flushes)
    # What is not known where to write goes to a row of its own at first.
    longer = x.move(lambda bound: torch.cat([bound, bound.new_zeros(1, *bound.shape[1:])]))
    written = scatter(longer, index.where(known, x.shape[0]), updates, reduction)
    return scatter_anywhere(written.move(lambda bound: bound[:-1]), updates, reduction, 1, flushes=flushes)


def _sum_partly(x: Interval, index: Tensor, known: Tensor, updates: Interval, *, flushes: bool) -> Interval:
    (low, high), (fewest, most) = x.doubles(), updates.doubles()
    place = tuple(slice(n) for n in (None, *index.shape[1:]))

    def add(whole: Tensor, sure: Tensor, possible: Tensor) -> Tensor:
        whole = whole.scatter_add(0, index, sure.where(known, 0))
        whole[place] += possible.where(~known, 0).sum(0, keepdim=True)
        return whole

    sizes = torch.maximum(fewest.abs(), most.abs())
    count = add(torch.zeros_like(low), torch.ones_like(sizes), torch.ones_like(sizes))
    size = add(torch.maximum(low.abs(), high.abs()), sizes, sizes)
    ends = add(low, fewest, fewest.clamp(max=0)), add(high, most, most.clamp(min=0))
    y, touched = _enclose(*ends, size, int(count.max()), x, flushes=flushes), count > 0
    return replace(y, lower=torch.where(touched, y.lower, x.lower), upper=torch.where(touched, y.upper, x.upper))


def _split(x: Interval) -> Interval:
    return x.split(*range(len(x.shape)))


def _reduce(x: Tensor, index: Tensor, updates: Tensor, how: str, *, own: bool) -> Tensor:
    kind = x.dtype
    # torch has no such kernels for booleans.
    a, b = (t.to(torch.uint8) if kind is torch.bool else make_ordered(t) for t in (x, updates))
    result = a.scatter_reduce(0, index, b, how, include_self=own)
    return result.bool() if kind is torch.bool else restore(result, kind)


def _sum(x: Interval, index: Tensor, updates: Interval, count: Tensor, *, may_lose: bool, flushes: bool) -> Interval:
    (low, high), (fewest, most) = x.doubles(), updates.doubles()
    size = torch.maximum(low.abs(), high.abs())
    size = size.scatter_add(0, index, torch.maximum(fewest.abs(), most.abs()))
    if may_lose:
        low, high = low + _least_sum(index, fewest, low), high - _least_sum(index, -most, high)
    else:
        low, high = low.scatter_add(0, index, fewest), high.scatter_add(0, index, most)
    return _enclose(low, high, size, int(count.max()) if count.numel() else 0, x, flushes=flushes)


def _least_sum(index: Tensor, updates: Tensor, like: Tensor) -> Tensor:
    """Return the least sum of one or more of the updates of each element; 0 where there are none."""
    zeros = torch.zeros_like(like)
    falling = zeros.scatter_add(0, index, updates.clamp(max=0))
    return falling + zeros.scatter_reduce(0, index, updates, "amin", include_self=False).clamp(min=0)


def _enclose(low: Tensor, high: Tensor, size: Tensor, terms: int, x: Interval, *, flushes: bool) -> Interval:
    """Return bounds of sums of `terms` updates and an element, whose magnitudes add up to `size`."""
    if not x.is_floating:
        return _truncate(low, high, size, x)
    # One addition is rounded correctly; float64 has to account for its own rounding.
    error = size * ((gamma(terms, x.dtype) if terms > 1 else 0.0) + gamma(terms + 1, torch.float64))
    # Either operand of an addition, and its result.
    error = error.nan_to_num(nan=math.inf) + (3 * terms * tiny(x.dtype) if flushes else 0.0)
    lower, upper = low - error, high + error
    lower, upper = torch.where(low >= 0, lower.clamp(min=0), lower), torch.where(high <= 0, upper.clamp(max=0), upper)
    y = round_outward(lower, upper, x.dtype, x.shape)
    # A partial sum may overflow though the whole does not.
    return replace(y, overflows=bool((size > dtype_range(x.dtype)[1]).any()))


def _truncate(low: Tensor, high: Tensor, size: Tensor, x: Interval) -> Interval:
    """Return bounds of integers known in float64: the whole type where they may wrap or be inexact."""
    lowest, highest = dtype_range(x.dtype)
    fits = (size < _EXACT) & (low >= lowest) & (high <= highest)
    if bool(fits.all()):
        return Interval(low.to(torch.int64).to(x.dtype), high.to(torch.int64).to(x.dtype), x.shape)
    return Interval.top(x.shape, x.dtype).split(*(d for d, n in enumerate(low.shape) if n > 1))


def _multiply(x: Interval, index: Tensor, updates: Interval, count: Tensor) -> Interval:
    (low, high), (least, greatest) = ends = x.doubles(), updates.doubles()
    sizes = torch.maximum(low.abs(), high.abs()), torch.maximum(least.abs(), greatest.abs())
    # Partial products count too: they may overflow although a small factor comes later.
    size = sizes[0].clamp(min=1).scatter_reduce(0, index, sizes[1].clamp(min=1), "prod")
    nearest = [torch.where((a <= 0) & (b >= 0), 0.0, torch.minimum(a.abs(), b.abs())).clamp(max=1) for a, b in ends]
    small = nearest[0].scatter_reduce(0, index, nearest[1], "prod") < (4 * tiny(x.dtype) if x.is_floating else 0)
    zero = bool(x.contains(0).any() or updates.contains(0).any())
    if bool((low >= 0).all() and (least >= 0).all()):
        products = (a.scatter_reduce(0, index, b, "prod") for a, b in ((low, least), (high, greatest)))
        lower, upper = (p.nan_to_num(nan=math.inf) for p in products)
        if x.is_floating:
            # Likewise they may underflow before a large factor.
            lower = torch.where(small, 0.0, lower)
            upper = torch.where(size > dtype_range(x.dtype)[1], math.inf, upper)
        return _product(lower, upper, size, int(count.max()), x, zero=zero, small=small)
    whole = sizes[0].scatter_reduce(0, index, sizes[1], "prod").nan_to_num(nan=math.inf)
    if x.is_floating:
        whole = torch.where(size > dtype_range(x.dtype)[1], math.inf, whole)
    return _product(-whole, whole, size, int(count.max()), x, zero=zero, small=small)


def _product(
    low: Tensor, high: Tensor, size: Tensor, factors: int, x: Interval, *, zero: bool, small: Tensor | bool = True
) -> Interval:
    """Return bounds of products of an element and `factors` updates, partial products being at most `size`.

    Where partial products may be `small`, they are rounded to denormal numbers, and a large factor follows.
    """
    if not x.is_floating:
        return _truncate(low, high, size, x)
    share = gamma(factors, x.dtype) + gamma(factors + 1, torch.float64)
    lost = torch.where(torch.as_tensor(small), factors * torch.finfo(x.dtype).smallest_normal * size, 0.0)
    lost = lost * torch.finfo(x.dtype).eps
    lower, upper = (
        torch.where(bound.isinf() | (bound == 0), bound, bound + towards * (bound.abs() * share + lost))
        for bound, towards in ((low, -1.0), (high, 1.0))
    )
    lower = torch.where(low >= 0, lower.clamp(min=0), lower)
    overflows = bool((size > dtype_range(x.dtype)[1]).any())
    return replace(round_outward(lower, upper, x.dtype, x.shape), nan=overflows and zero, overflows=overflows)


def find_nonzero(x: Interval) -> tuple[Tensor, int]:
    """Return the places, in order, of what may differ from 0, and how many elements do in any case."""
    lower, upper = (bound.reshape(-1) for bound in x.expand())
    if x.is_floating:  # some processors take denormal numbers for 0
        least = torch.finfo(x.dtype).smallest_normal
        surely = (lower >= least) | (upper <= -least)
    else:
        surely = (lower > 0) | (upper < 0)
    maybe = torch.ones_like(surely) if x.nan else (lower != 0) | (upper != 0)
    return maybe.nonzero().reshape(-1), int(surely.sum())


def count_nonzero(x: Interval) -> tuple[int, int]:
    """Return how many elements differ from 0, at least and at most."""
    places, surely = find_nonzero(x)
    return surely, len(places)


def unbounded(site: Site) -> Interval:
    """Return what is known about a sum or product of possibly infinite operands: nothing, and it may be NaN."""
    bound = torch.full((1,) * len(site.shape), math.inf, dtype=site.dtype)
    return Interval(-bound, bound, site.shape, nan=True)
