"""Products of many factors, in any order of multiplication: along dimensions, and running ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.reduction.sums import Sums, keep_dims, multiplicity, truncate_to_integers
from ranum_falsify.domain.rules.support.building import along_any_axis
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.domain.slack import growth

__all__ = ["product", "running_product"]


def product(site: Site, x: Interval, dims: list[int]) -> Interval:
    """Bound `ReduceProd`, in any order of multiplication; parts of a product may underflow or overflow."""
    shape, count = keep_dims(x, dims), math.prod(x.shape[dim] for dim in dims)
    copies = multiplicity(x, dims)
    low, high = _powers(*x.doubles(), copies)
    rest = [dim for dim in range(low.ndim) if dim not in dims]
    stored = [1 if dim in dims else low.shape[dim] for dim in range(low.ndim)]
    low, high = (bound.permute(*rest, *dims).flatten(len(rest)) for bound in (low, high))
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
        size = torch.maximum(low.abs(), high.abs())
        return truncate_to_integers(Sums(low=low, high=high, size=size), low, high, x.dtype, shape)
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
