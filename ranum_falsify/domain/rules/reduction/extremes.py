"""The largest and the smallest of many: their values, their positions, and the k largest in order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.order import make_ordered, restore
from ranum_falsify.domain.rules.reduction.sums import Bound, keep_dims
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import IntervalRule, Site

__all__ = ["extreme", "position", "top"]


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
