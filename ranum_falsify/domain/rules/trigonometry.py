"""Sine, cosine and tangent: extremes and poles within the bounds, whatever their period."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import PERIOD_SHARE
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import IntervalRule, Site


def wave(function: Callable[[Tensor], Tensor], *, crest: float) -> IntervalRule:
    """Return the rule of a function of period 2 pi between -1 and 1.

    Args:
        function: The function, on float64.
        crest: Where it is 1; half a period further it is -1.
    """

    def rule(site: Site, x: Interval) -> Interval:
        low, high = x.keep_finite().doubles()
        at_low, at_high = function(low), function(high)
        least = torch.where(_passes(low, high, crest + math.pi, 2 * math.pi), -1.0, torch.minimum(at_low, at_high))
        greatest = torch.where(_passes(low, high, crest, 2 * math.pi), 1.0, torch.maximum(at_low, at_high))
        return round_outward(least, greatest, site.dtype, x.shape, site.own_envelope())

    return infinity_aware(rule)


@infinity_aware
def tangent(site: Site, x: Interval) -> Interval:
    """Bound the tangent; around a pole by all finite numbers, in half precision by infinity too.

    No number of float32 is close enough to a pole for its tangent to overflow; 177.5 is in float16, and so are those
    that ONNX Runtime, which computes it in float32, takes without rounding them first.
    """
    low, high = x.keep_finite().doubles()
    pole = _passes(low, high, math.pi / 2, math.pi)
    least, greatest = (-math.inf, math.inf) if site.dtype is torch.float16 else dtype_range(site.dtype)
    bounds = round_outward(torch.tan(low), torch.tan(high), site.dtype, x.shape, site.own_envelope())
    return Interval.of(bounds.lower.masked_fill(pole, least), bounds.upper.masked_fill(pole, greatest), x.shape)


def _passes(low: Tensor, high: Tensor, first: float, period: float) -> Tensor:
    """Tell where a range reaches a point first + k period, or may by rounding; a single point reaches none."""
    slack = PERIOD_SHARE * (torch.maximum(low.abs(), high.abs()) + abs(first))
    nearest = first + period * torch.ceil((low - slack - first) / period)
    return (nearest <= high + slack) & (low < high)
