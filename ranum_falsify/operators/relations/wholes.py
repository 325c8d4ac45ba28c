"""Differences and shares of tensors of which one is never more than the other."""

from __future__ import annotations

import math

import torch
from dnnv.nn import Operation

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import tiny, unit
from ranum_falsify.operators.relations.matching import fields_of, source
from ranum_falsify.operators.relations.orders import ROUNDINGS, find_excess, find_sets, is_fit
from ranum_falsify.operators.relations.views import View, lower_end, view_of

__all__ = ["difference_of_ordered", "part_of_whole"]


def difference_of_ordered(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound a - b from below where b is never more than a: a range, a union without what both parts have."""
    if not is_fit(a, b) or not _are_computed(site) or a.extremes[0] >= b.extremes[1]:
        return None
    whole, part = (view_of(site, field, site.shape) for field in fields_of(site.op))
    if whole is None or part is None:
        return None
    low = _bound_union(site, whole, part, a.dtype)
    if low is None:
        found = find_excess(site, part, whole)
        if found is None:
            return None
        low = 0.0 if found.is_none else -found.relative * a.extremes[1] - found.absolute
    bound = torch.full((1,) * len(site.shape), low, dtype=torch.float64)
    return round_outward(bound, torch.full_like(bound, math.inf), a.dtype, site.shape)


def part_of_whole(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound a / b from above by 1, but for rounding, where a is never more than b, and neither is negative."""
    if not is_fit(a, b) or not _are_computed(site) or a.extremes[0] < 0 or b.extremes[0] <= 0:
        return None
    if a.extremes[1] <= b.extremes[0]:
        return None
    part, whole = (view_of(site, field, site.shape) for field in fields_of(site.op))
    found = None if part is None or whole is None else find_excess(site, part, whole)
    if found is None:
        return None
    most = 1 + found.relative + found.absolute / b.extremes[0]
    most = 1.0 if found.is_none else most * (1 + 2 * unit(a.dtype))
    return Interval.fill(0, most, site.shape, a.dtype) if most < torch.finfo(a.dtype).max else None


def _are_computed(site: Site) -> bool:
    return all(isinstance(source(field), Operation) for field in fields_of(site.op))


def _bound_union(site: Site, whole: View, part: View, dtype: torch.dtype) -> float | None:
    """Return a lower bound of a + b - c: that of the larger one of a and b where c is at most each of them."""
    sets = find_sets(site, whole, part)
    if sets is None:
        return None
    first, second, excess = sets
    low = max(lower_end(site, first), lower_end(site, second))
    return low * (1 - excess.relative - ROUNDINGS * unit(dtype)) - excess.absolute - 4 * tiny(dtype)
