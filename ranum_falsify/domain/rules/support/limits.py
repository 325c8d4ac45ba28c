"""Monotone functions: how close numbers come to points of infinity, and on which side of a value they stay."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import infinity_aware, monotone
from ranum_falsify.domain.site import IntervalRule, Site

__all__ = ["exponential", "find_computed_type", "just_below_one", "monotone_inside"]

Limit = Callable[[torch.dtype], float]
"""A number that depends on the dtype."""


def find_computed_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type of numbers that an operand may hold: ONNX Runtime keeps results of 16-bit chains in float32."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def just_below_one(dtype: torch.dtype) -> float:
    """Return the largest number below 1 that an operand may hold."""
    return 1 - float(torch.finfo(find_computed_type(dtype)).eps) / 2


def monotone_inside(
    function: Callable[[Tensor], Tensor], *, least: Limit, greatest: Limit | None = None
) -> IntervalRule:
    """Return the rule of a rising function between two limits; operands beyond a limit count as the limit.

    Args:
        function: The function, on float64.
        least: Where the valid part begins.
        greatest: Where it ends, if it does.
    """

    def rule(site: Site, x: Interval) -> Interval:
        limits = least(x.dtype), None if greatest is None else greatest(x.dtype)
        low, high = (function(bound.clamp(*limits)) for bound in x.doubles())
        return round_outward(low, high, site.dtype, x.shape, site.own_envelope())

    return infinity_aware(rule)


_exponential = monotone(torch.exp)


@infinity_aware
def exponential(site: Site, x: Interval) -> Interval:
    """Bound exp(x), which no kernel puts on the wrong side of 1."""
    y = _exponential(site, x)
    assert isinstance(y, Interval)
    lower = torch.where(x.lower >= 0, y.lower.clamp(min=1), y.lower)
    return Interval(lower, torch.where(x.upper <= 0, y.upper.clamp(max=1), y.upper), y.shape)
