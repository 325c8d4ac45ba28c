"""Reductions along axes, in any order of evaluation: sums, means, norms, products, extremes, running ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.error_bounds import MEAN_SHARE, accumulation, growth, least_positive, sum_growth, tiny, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.order import make_ordered, restore
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.arithmetic.pairs import fit_type
from ranum_falsify.domain.rules.support.building import along_any_axis, infinity_aware
from ranum_falsify.domain.site import IntervalRule, Site

_EXACT_INTEGERS = 2.0**53
"""Sums of integers are exact in float64 up to this size."""

Bound = Callable[[Site, Interval, list[int]], Interval]
"""`bound(site, x, dims)`: bounds of a reduction along at least one dimension, with the dimensions kept."""


def multiplicity(x: Interval, dims: Sequence[int]) -> int:
    """Return for how many elements along the dimensions each stored number stands."""
    return math.prod(x.shape[dim] for dim in dims if x.lower.shape[dim] == 1)


def along(
    bound: Bound,
    dims_of: Callable[[Operation, int, np.ndarray | None], list[int]],
    *,
    of_one: bool = True,
) -> IntervalRule:
    """Return the rule of a reduction.

    Args:
        bound: Its bounds along at least one dimension.
        dims_of: `dims_of(op, rank, axes)`: the dimensions that a node reduces, not negative.
        of_one: Whether it changes a single element when no dimension is reduced.
    """

    def rule(site: Site, x: Interval, axes: np.ndarray | None) -> Interval:
        if not x.size and axes is not None and ((axes < 0) | (axes >= len(x.shape))).any():
            raise ValueError("nothing is reduced along axes that it does not have, which inputs may compute")
        dims = dims_of(site.op, len(x.shape), axes)
        if not dims:
            if not of_one:
                return x
            y = bound(site, Interval(x.lower[None], x.upper[None], (1, *x.shape)), [0])
            return replace(y, lower=y.lower[0], upper=y.upper[0], shape=x.shape)
        y = bound(site, x, dims)
        if site.op.keepdims:
            return y
        low, high = y.lower.squeeze(dims), y.upper.squeeze(dims)
        return replace(y, lower=low, upper=high, shape=tuple(n for i, n in enumerate(y.shape) if i not in dims))

    return infinity_aware(rule)


def keep_dims(x: Interval, dims: Sequence[int]) -> tuple[int, ...]:
    """Return the shape with dimensions reduced to size 1."""
    return tuple(1 if i in dims else n for i, n in enumerate(x.shape))


# sums -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Bounds of sums, float64, in the shape that is stored.

    Attributes:
        low: Least sum that a kernel computes.
        high: Greatest.
        size: No sum of magnitudes lies above it.
        nan: Whether opposite infinities may meet.
        overflows: Whether a part of a sum may overflow.
    """

    low: Tensor
    high: Tensor
    size: Tensor
    nan: bool = False
    overflows: bool = False


def sums(x: Interval, dims: Sequence[int], *, extra: int = 2) -> Sums:
    """Return bounds of the sums along dimensions, in any order of addition.

    Args:
        x: The numbers to add up.
        dims: The dimensions along which they are added.
        extra: Rounded operations besides the additions.
    """
    copies = multiplicity(x, dims)
    terms = copies * math.prod(x.lower.shape[dim] for dim in dims)
    low, low_size = _sum_and_size(x.lower, dims, x.extremes)
    high, high_size = (low, low_size) if x.upper is x.lower else _sum_and_size(x.upper, dims, x.extremes)
    sums_ = [part * copies if copies != 1 else part for part in (low, high, low_size, high_size)]
    found = _round_sums(x, *sums_, terms=terms + extra)
    return _include_infinities(x, dims, found) if x.may_be_infinite else found


def _include_infinities(x: Interval, dims: Sequence[int], found: Sums) -> Sums:
    """Return bounds of sums whose terms may be infinite; parts of finite sums may become infinite too."""
    copies, along, limit = multiplicity(x, dims), tuple(dims), torch.finfo(accumulation(x.dtype)).max
    limit /= sum_growth(copies * math.prod(x.lower.shape[dim] for dim in dims), x.dtype)
    low, high = x.doubles()
    falls = torch.where(low.isinf(), 0.0, low.clamp(max=0)).sum(along, keepdim=True) * copies < -limit
    rises = torch.where(high.isinf(), 0.0, high.clamp(min=0)).sum(along, keepdim=True) * copies > limit
    falls, rises = falls | (low == -math.inf).any(along, True), rises | (high == math.inf).any(along, True)
    least, greatest = (bound.nan_to_num(nan=end) for bound, end in ((found.low, -math.inf), (found.high, math.inf)))
    return replace(
        found,
        low=torch.where(falls, -math.inf, least),
        high=torch.where(rises, math.inf, greatest),
        nan=bool((falls & rises).any()),
    )


def _sum_and_size(bound: Tensor, dims: Sequence[int], extremes: tuple[float, float]) -> tuple[Tensor, Tensor]:
    value = torch.sum(bound, list(dims), keepdim=True, dtype=torch.float64)
    if extremes[0] >= 0 or extremes[1] <= 0:
        return value, value.abs()
    # The least integer has no magnitude in its own type.
    sizes = bound.abs() if bound.is_floating_point() else bound.double().abs()
    return value, torch.sum(sizes, list(dims), keepdim=True, dtype=torch.float64)


def _round_sums(x: Interval, low: Tensor, high: Tensor, low_size: Tensor, high_size: Tensor, *, terms: int) -> Sums:
    """Return bounds of computed sums around exact ones.

    Args:
        x: The numbers that are added up.
        low: Sums of the lower bounds.
        high: Sums of the upper bounds.
        low_size: Sums of the magnitudes of the lower bounds.
        high_size: Sums of the magnitudes of the upper bounds.
        terms: Rounded operations per sum.
    """
    size = low_size if high_size is low_size else low_size + high_size
    if not x.is_floating:
        return Sums(low=low, high=high, size=size)
    error = growth(terms, x.dtype) + growth(terms, torch.float64)
    # The least computed sum is that of the lower bounds, because x - error |x| rises with x if the error is below 1.
    sizes = (low_size, high_size) if error < 1 else (size, size)
    # Flushing to 0 takes away at most the smallest normal number, and at most all there is.
    flushes = terms * size.clamp(max=tiny(x.dtype))
    least, greatest = low - error * sizes[0] - flushes, high + error * sizes[1] + flushes
    if x.may_be_infinite or x.dtype is torch.float64:
        least, greatest = (
            torch.where(least.isnan(), -math.inf, least),
            torch.where(greatest.isnan(), math.inf, greatest),
        )
    # Sums of numbers of one sign keep it, however they are rounded.
    if x.extremes[0] >= 0:
        least = least.clamp(min=0)
    if x.extremes[1] <= 0:
        greatest = greatest.clamp(max=0)
    return Sums(low=least, high=greatest, size=size, overflows=_overflows(x, size, error))


def _overflows(x: Interval, size: Tensor, error: float) -> bool:
    """Tell whether part of a sum of finite numbers may overflow."""
    if x.may_be_infinite or not size.numel():
        return False
    limit = torch.finfo(accumulation(x.dtype)).max
    return bool((size * (1 + error) > limit).any())


def sum_of(x: Interval, dims: Sequence[int]) -> Interval:
    """Bound the sum along dimensions, which are kept."""
    found = sums(x, dims)
    shape = keep_dims(x, dims)
    if not x.is_floating:
        return truncate_to_integers(found, found.low, found.high, x.dtype, shape, error=0.0)
    return replace(round_outward(found.low, found.high, x.dtype, shape), nan=found.nan, overflows=found.overflows)


def total(site: Site, x: Interval, dims: list[int]) -> Interval:
    """Bound `ReduceSum`."""
    return sum_of(x, dims)


def total_of_sizes(site: Site, x: Interval, dims: list[int]) -> Interval:
    """Bound `ReduceL1`."""
    if not x.is_floating and x.size and x.extremes[0] == dtype_range(x.dtype)[0] < 0:
        return Interval.top(keep_dims(x, dims), x.dtype)
    return sum_of(_sizes(x), dims)


def _sizes(x: Interval) -> Interval:
    """Return bounds of the magnitudes; the least signed integer has none."""
    if dtype_range(x.dtype)[0] == 0:
        return x
    around = (x.lower <= 0) & (x.upper >= 0)
    size, other = x.lower.abs(), x.upper.abs()
    return Interval(
        torch.where(around, torch.zeros_like(size), torch.minimum(size, other)), torch.maximum(size, other), x.shape
    )


def mean_of(x: Interval, dims: Sequence[int]) -> Interval:
    """Bound the mean along dimensions, which are kept; the mean of no elements is 0, as in the row."""
    shape, count = keep_dims(x, dims), math.prod(x.shape[dim] for dim in dims)
    if not count:
        return Interval.fill(0, 0, shape, x.dtype)
    found = sums(x, dims, extra=4)
    low, high = found.low / count, found.high / count
    if not x.is_floating:
        return truncate_to_integers(found, low, high, x.dtype, shape)
    y = round_outward(low, high, x.dtype, shape, Envelope(4 * unit(x.dtype)))
    return replace(y, nan=found.nan, overflows=found.overflows)


def mean(site: Site, x: Interval, dims: list[int]) -> Interval:
    """Bound `ReduceMean`; the mean of no elements is 0 in ONNX Runtime, NaN in others."""
    y = mean_of(x, dims)
    empty = y.size > 0 and not x.size and x.is_floating
    return replace(y, nan=True) if empty and site.runtimes != ("onnxruntime",) else y


def truncate_to_integers(
    found: Sums, low: Tensor, high: Tensor, dtype: torch.dtype, shape: tuple[int, ...], *, error: float = MEAN_SHARE
) -> Interval:
    """Return bounds of integers: real results are truncated towards 0, and sums that may wrap may be anything.

    Args:
        found: Sums that must fit.
        low: Least real results.
        high: Greatest.
        dtype: Type of the results.
        shape: Their shape.
        error: Relative error of real results before they are truncated; sums themselves have none.
    """
    lowest, highest = dtype_range(dtype)
    cut_low, cut_high = (low - error * low.abs()).trunc(), (high + error * high.abs()).trunc()
    fits = (found.size < min(_EXACT_INTEGERS, float(highest))) & (found.low >= float(lowest))
    fits = fits & (cut_low >= float(lowest)) & (cut_high <= min(_EXACT_INTEGERS, float(highest)))
    return fit_type(torch.where(fits, cut_low, 0.0).long(), torch.where(fits, cut_high, 0.0).long(), fits, dtype, shape)


# squares, logarithms, exponentials ------------------------------------------------------------------------------


def squares(x: Interval) -> Interval:
    """Return bounds of the real squares, float64."""
    return Interval(*Enclosure(*x.doubles()).map_even(torch.square), x.shape)


def _square_sums(x: Interval, dims: Sequence[int]) -> Sums:
    squared = squares(x)
    terms = math.prod(x.shape[dim] for dim in dims) + 2
    copies = multiplicity(x, dims)
    low, high = (bound.sum(list(dims), keepdim=True) * copies for bound in (squared.lower, squared.upper))
    if not x.is_floating:
        return Sums(low=low, high=high, size=high)
    error = growth(terms, x.dtype) + growth(terms, torch.float64)
    flushes = torch.where(high == 0, 0.0, 2 * terms * tiny(x.dtype))
    high = high * (1 + error) + flushes
    # PyTorch rounds the sum to half precision before continuing.
    high = torch.where(high > torch.finfo(x.dtype).max, math.inf, high)
    over = not x.may_be_infinite and bool(high.isinf().any())
    return Sums(low=(low * (1 - error) - flushes).clamp(min=0), high=high, size=high, overflows=over)


def sum_of_squares(site: Site, x: Interval, dims: list[int]) -> Interval:
    """Bound `ReduceSumSquare`."""
    found, shape = _square_sums(x, dims), keep_dims(x, dims)
    if not x.is_floating:
        return truncate_to_integers(found, found.low, found.high, x.dtype, shape)
    return replace(round_outward(found.low, found.high, x.dtype, shape), overflows=found.overflows)


def euclidean(site: Site, x: Interval, dims: list[int]) -> Interval:
    """Bound `ReduceL2`, which overflows with the sum of squares."""
    found, shape = _square_sums(x, dims), keep_dims(x, dims)
    low, high = found.low.sqrt(), found.high.sqrt()
    if not x.is_floating:
        return truncate_to_integers(found, low, high, x.dtype, shape)
    y = round_outward(low, high, x.dtype, shape, Envelope(4 * unit(x.dtype)))
    if math.prod(x.shape[dim] for dim in dims) == 1:
        # For one number some runtimes compute its size, others its square, which may vanish or overflow.
        y = y.hull(_sizes(x))
    return replace(y, overflows=found.overflows)


def log_of_sum(site: Site, x: Interval, dims: list[int]) -> Interval:
    """Bound `ReduceLogSum` where the sum is positive."""
    found, shape = sums(x, dims), keep_dims(x, dims)
    if not x.is_floating:
        low, high = (part.clamp(min=1).log() for part in (found.low, found.high))
        return truncate_to_integers(found, low, high, x.dtype, shape)
    low, high = (part.clamp(min=least_positive(x.dtype)).log() for part in (found.low, found.high))
    y = round_outward(low, high, x.dtype, shape, site.envelope("Log"))
    # The logarithm of 0 is infinite.
    # In half precision the sum may overflow, because PyTorch rounds it before continuing.
    beyond = found.high > torch.finfo(x.dtype).max
    y = replace(y, upper=torch.where(beyond, math.inf, y.upper).to(x.dtype))
    return replace(y, nan=found.nan, overflows=found.overflows or bool((beyond | (found.low <= 0)).any()))


def log_of_sum_of_exponentials(site: Site, x: Interval, dims: list[int]) -> Interval:
    """Bound `ReduceLogSumExp`, which every runtime computes as m + log(sum(exp(x - m))) with m the largest element."""
    shape, count = keep_dims(x, dims), math.prod(x.shape[dim] for dim in dims)
    copies = multiplicity(x, dims)
    low, high = (torch.logsumexp(bound, list(dims), keepdim=True) for bound in x.doubles())
    if copies != 1:
        low, high = (bound + (math.log(copies) if copies else -math.inf) for bound in (low, high))
    if not x.is_floating:
        if count:
            # The exponentials of integers are truncated too; all but that of the largest become 0.
            low = x.doubles()[0].amax(list(dims), keepdim=True)
        size = torch.maximum(low.abs(), high.abs())
        found = Sums(low=low, high=high, size=size)
        return truncate_to_integers(found, low - MEAN_SHARE, high + MEAN_SHARE, x.dtype, shape)
    exponential, logarithm, u = site.envelope("Exp"), site.envelope("Log"), unit(x.dtype)
    # Errors of the terms relative to their sum, which lies in [1, n]: exponentials, additions, and x - m, whose
    # error u |x - m| weighs exp(x - m) at most log(n) on average.  The logarithm makes them absolute.
    terms = exponential.relative + count * exponential.absolute + growth(count + 4, x.dtype)
    spread = math.log(max(count, 1))
    absolute = 2 * (terms + u * (2 + spread)) + (logarithm.relative + 2 * u) * (spread + 1) + logarithm.absolute
    y = round_outward(low, high, x.dtype, shape, Envelope(4 * u, absolute, keeps_sign=False))
    y = _widen_without_reference(x, y, dims) if x.may_be_infinite else y
    # In half precision, results that are not rounded may lie beyond the largest number.
    return y if x.may_be_infinite or not count or x.dtype is torch.float16 else y.keep_finite()


def _widen_without_reference(x: Interval, y: Interval, dims: Sequence[int]) -> Interval:
    """Widen bounds of log(sum(exp(x))) by ONNX Runtime's results if the first number of a sum is infinite.

    It then subtracts 0 instead of the largest number if that is negative: all exponentials may vanish.
    """
    low, high = x.doubles()
    infinite = ((low == -math.inf) | (high == math.inf)).any(tuple(dims), True)
    vanishing = math.log(torch.finfo(accumulation(x.dtype)).tiny) + 1
    lower = torch.where(infinite & (y.lower < vanishing), -math.inf, y.lower)
    # Denormal exponentials are rounded coarsely.
    upper = torch.where(infinite, y.upper.clamp(min=vanishing), y.upper)
    return replace(y, lower=lower, upper=upper)


# running sums ---------------------------------------------------------------------------------------------------


def running_sum(function: Callable[..., Tensor]) -> IntervalRule:
    """Return the rule of a running sum; `function(op, x, axis)` is the row's."""

    def rule(site: Site, x: Interval, axis: np.ndarray) -> Interval:
        dim = int(np.asarray(axis).reshape(-1)[0]) % len(x.shape)
        wide = x.split(dim)

        def run(bound: Tensor) -> Tensor:
            return function(site.op, bound.double(), axis)

        low, high = run(wide.lower), run(wide.upper)
        sizes = run(wide.lower.abs() if x.is_floating else wide.lower.double().abs()), run(wide.upper.double().abs())
        found = _round_sums(x, low, high, *sizes, terms=x.shape[dim] + 2)
        if not x.is_floating:
            return truncate_to_integers(found, found.low, found.high, x.dtype, x.shape, error=0.0)
        if x.may_be_infinite:
            found = _include_infinities(x, [dim], found)
        return replace(round_outward(found.low, found.high, x.dtype, x.shape), nan=found.nan, overflows=found.overflows)

    return along_any_axis(infinity_aware(rule))


def product(site: Site, x: Interval, dims: list[int]) -> Interval:
    """Bound `ReduceProd`, in any order of multiplication; parts of a product may underflow or overflow."""
    shape, count = keep_dims(x, dims), math.prod(x.shape[dim] for dim in dims)
    copies = multiplicity(x, dims)
    low, high = _powers(*x.doubles(), copies)
    rest = [dim for dim in range(low.ndim) if dim not in dims]
    stored = [1 if dim in dims else low.shape[dim] for dim in range(low.ndim)]
    low, high = (bound.permute(*rest, *dims).flatten(len(rest)) for bound in (low, high))
    # ONNX Runtime makes another number of parts that do not fit, even where a 0 follows.
    parts_size = torch.maximum(low.abs(), high.abs()).clamp(min=1).prod(-1).reshape(stored)
    while low.shape[-1] > 1:
        half = low.shape[-1] // 2
        tail = [bound[..., 2 * half :] for bound in (low, high)]
        parts = [
            a * b
            for a in (low[..., :half], high[..., :half])
            for b in (low[..., half : 2 * half], high[..., half : 2 * half])
        ]
        stacked = torch.stack(parts).nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
        low, high = (
            torch.cat([part, end], -1) for part, end in zip((stacked.amin(0), stacked.amax(0)), tail, strict=True)
        )
    if not low.shape[-1]:
        low = high = torch.ones((*low.shape[:-1], 1), dtype=torch.float64)
    low, high = low.reshape(stored), high.reshape(stored)
    if not x.is_floating:
        return truncate_to_integers(Sums(low=low, high=high, size=parts_size), low, high, x.dtype, shape)
    return _round_stepwise(x, low, high, growth(count, x.dtype, stepwise=True), _parts(x, dims, copies), shape)


def _powers(low: Tensor, high: Tensor, copies: int) -> tuple[Tensor, Tensor]:
    """Return bounds of the product of several numbers within the same bounds."""
    if copies == 1:
        return low, high
    ends = torch.stack([low**copies, high**copies])
    size = ends.abs().amax(0)
    mixed = (low < 0) & (high > 0)
    return torch.where(mixed, -size, ends.amin(0)), torch.where(mixed, size, ends.amax(0))


def _parts(x: Interval, dims: Sequence[int], copies: int) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest magnitude that a part of a product may have."""
    smallest, greatest = Enclosure(*x.doubles()).map_even(torch.abs)
    # In logarithms, so that no part leaves the range of float64.
    small, large = smallest.clamp(max=1).log() * copies, greatest.clamp(min=1).log() * copies
    return small.sum(list(dims), keepdim=True), large.sum(list(dims), keepdim=True)


def _round_stepwise(
    x: Interval, low: Tensor, high: Tensor, error: float, parts: tuple[Tensor, Tensor], shape: tuple[int, ...]
) -> Interval:
    """Return bounds of products that are rounded at each step.

    A part below the smallest normal number may become 0, or at most that number; later factors then count in full.
    """
    small, large = parts
    limits = torch.finfo(x.dtype)
    sinks = small <= math.log(limits.tiny) + error
    reach = (large + math.log(limits.tiny)).exp() * (1 + error)
    low, high = (
        torch.where(sinks, torch.minimum(low, -reach), low),
        torch.where(sinks, torch.maximum(high, reach), high),
    )
    if x.extremes[0] >= 0:
        low = low.clamp(min=0)
    overflows = not x.may_be_infinite and bool((large + error > math.log(limits.max)).any())
    y = round_outward(low, high, x.dtype, shape, Envelope(error))
    if not x.may_be_infinite:
        return replace(y, overflows=overflows)
    # An infinity and a 0, even one from underflow, make NaN.
    top = torch.full_like(y.lower, math.inf)
    return Interval(-top, top, shape, nan=True)


def running_product(function: Callable[..., Tensor]) -> IntervalRule:
    """Return the rule of a running product; `function(op, x, axis)` is the row's."""

    def rule(site: Site, x: Interval, axis: np.ndarray) -> Interval:
        dim = int(np.asarray(axis).reshape(-1)[0]) % len(x.shape)
        low, high = x.split(dim).doubles()
        products = function(site.op, low, axis), function(site.op, high, axis)
        sizes = function(site.op, torch.maximum(low.abs(), high.abs()), axis)
        if x.extremes[0] >= 0:
            low, high = products
        elif x.is_point:
            low, high = torch.minimum(*products), torch.maximum(*products)
        else:
            low, high = -sizes, sizes
        if not x.is_floating:
            return truncate_to_integers(Sums(low=low, high=high, size=sizes), low, high, x.dtype, x.shape)
        small, large = _parts(x, [dim], multiplicity(x, [dim]))
        return _round_stepwise(x, low, high, growth(x.shape[dim], x.dtype), (small, large), x.shape)

    return along_any_axis(rule)


def extreme(function: Callable[[Tensor, list[int], bool], Tensor]) -> Bound:
    """Return the bounds of a reduction to the largest or smallest element.

    Args:
        function: The row's reduction, which returns the worst value if there are no elements.
    """

    def bound(site: Site, x: Interval, dims: list[int]) -> Interval:
        shape = keep_dims(x, dims)
        if not all(x.shape[dim] for dim in dims):
            value = function(x.lower.expand(x.shape), dims, True)
            return Interval.of(value, value, shape)

        def reduced(values: Tensor) -> Tensor:
            return restore(function(make_ordered(values), dims, True), x.dtype)

        low = reduced(x.lower)
        high = low if x.upper is x.lower else reduced(x.upper)
        return Interval(low, high, shape, gap=x.gap)

    return bound


def position(*, largest: bool) -> IntervalRule:
    """Return the rule of `ArgMax` or `ArgMin`: between the first and the last element that may be the extreme."""

    def rule(site: Site, x: Interval) -> Interval:
        if not x.shape:
            return Interval.fill(0, 0, (), torch.int64)
        dim = site.op.axis % len(x.shape)
        shape = keep_dims(x, [dim])
        count = x.shape[dim]
        if x.lower.shape[dim] == 1:
            y = Interval.fill(0, max(count - 1, 0), shape, torch.int64)
        else:
            low, high = make_ordered(x.lower), make_ordered(x.upper)
            possible = high >= low.amax(dim, True) if largest else low <= high.amin(dim, True)
            first = possible.byte().argmax(dim, True)
            last = count - 1 - possible.flip(dim).byte().argmax(dim, True)
            y = Interval(first, last, shape)
        if site.op.keepdims:
            return y
        return Interval(y.lower.squeeze(dim), y.upper.squeeze(dim), (*shape[:dim], *shape[dim + 1 :]))

    return infinity_aware(rule)


@infinity_aware
def top(site: Site, x: Interval, k: np.ndarray) -> tuple[Interval, Interval]:
    """Bound `TopK`: the k-th largest element lies between the k-th largest lower and upper bounds."""
    dim = site.op.axis % len(x.shape)
    # Runtimes refuse other counts; bounds must only be there.
    count = min(max(int(np.asarray(k).reshape(-1)[0]), 0), x.shape[dim])
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    positions = Interval.fill(0, max(x.shape[dim] - 1, 0), shape, torch.int64)
    if x.lower.shape[dim] == 1 or not count:
        low, high = (bound.narrow(dim, 0, min(count, 1)) for bound in (x.lower, x.upper))
        return Interval(low, high, shape, gap=x.gap), positions
    descending = True if site.op.largest is None else bool(site.op.largest)
    low, high = (
        bound.sort(dim=dim, descending=descending).values for bound in (make_ordered(x.lower), make_ordered(x.upper))
    )
    low, high = low.narrow(dim, 0, count), high.narrow(dim, 0, count)
    if site.op.sorted == 0:
        low, high = low.amin(dim, True), high.amax(dim, True)
    return Interval(restore(low, x.dtype), restore(high, x.dtype), shape, gap=x.gap), positions
