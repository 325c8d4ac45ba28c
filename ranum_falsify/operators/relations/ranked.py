"""The elements of a row in order where the largest of them was subtracted from all: the first one is 0.

Sparsemax and entmax count how many of them lie above a threshold, and divide by that number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.support.building import inherit_marks
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.operators.relations.matching import (
    Field,
    constant,
    fields_of,
    find_reduction,
    is_a,
    is_same,
    may_be_rounded_apart,
    source,
)

__all__ = ["first_is_largest"]


def first_is_largest(rule: IntervalRule) -> IntervalRule:
    """Return the rule of `TopK`, which also knows the first element where all were shifted by the largest."""

    def ranked(site: Site, x: Interval, k: np.ndarray) -> tuple[Interval, Interval]:
        values, positions = cast(tuple[Interval, Interval], rule(site, x, k))
        rank = len(x.shape)
        dim = site.op.axis % rank
        descending = site.op.largest in (None, 1) and site.op.sorted != 0
        if not descending or not values.size or not _has_largest_zero(site, fields_of(site.op)[0], x, dim):
            return values, positions
        low, high = (_start_with_zero(bound, dim, values.shape[dim]) for bound in (values.lower, values.upper))
        return replace(values, lower=low, upper=high, gap=0.0), positions

    return inherit_marks(ranked, rule)


def _start_with_zero(bound: torch.Tensor, dim: int, count: int) -> torch.Tensor:
    """Return a bound that is 0 for the first element along a dimension."""
    sizes = [count if i == dim else n for i, n in enumerate(bound.shape)]
    whole = bound.expand(sizes)
    return torch.cat([torch.zeros_like(whole.narrow(dim, 0, 1)), whole.narrow(dim, 1, count - 1)], dim)


def _has_largest_zero(site: Site, field: Field, x: Interval, dim: int) -> bool:
    """Tell whether the largest element of each row along a dimension is 0."""
    if not x.is_floating or x.may_be_infinite or may_be_rounded_apart(site, x):
        return False
    while (scaled := is_a(field, "Mul", "Div")) is not None:
        first, second = fields_of(scaled)
        if is_a(scaled, "Mul") and constant(first) is not None:
            first, second = second, first
        factor, inner = constant(second), site.find_known(first)
        # A factor of more dimensions would move that which rows lie along.
        if factor is None or not 0 < factor < float("inf") or inner is None or inner.shape != x.shape:
            return False
        field = first
    difference = is_a(field, "Sub")
    if difference is None:
        return False
    minuend, maximum = fields_of(difference)
    found = find_reduction(site, maximum, "ReduceMax")
    if found is None or found.x.shape != x.shape or found.x.may_be_infinite:
        return False
    return is_same(source(minuend), found.operand) and found.dims == [dim]
