"""Tighter bounds where the operands of a node are related: differences to an extreme or a mean, shares of a sum.

A pattern is a function like a rule, `pattern(site, *operands)`, that returns None where the node does not match.  It
relies on tensors that are computed once and read twice, never on values that happen to be equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import (
    ELEMENTWISE_ROUNDINGS,
    LARGEST_SQUARED,
    accumulation,
    sum_error,
    tiny,
    unit,
)
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.arithmetic.pairs import square
from ranum_falsify.domain.rules.normalisation.statistics import cancellation, moments
from ranum_falsify.domain.rules.softmax import log_softmax_along
from ranum_falsify.domain.rules.support.building import inherit_marks
from ranum_falsify.domain.rules.support.sections import Sections, sections
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.operators.relations.matching import (
    Field,
    behind,
    fields_of,
    find_difference,
    find_reduction,
    is_a,
    is_same,
    may_be_rounded_apart,
    reduced_dims,
    source,
    square_of,
    undo_transposes,
)

Pattern = Callable[..., Interval | None]


def refined(rule: IntervalRule, *patterns: Pattern) -> IntervalRule:
    """Return a rule that intersects its bounds with those of the patterns that a node matches."""

    def refined_rule(site: Site, *operands: Interval) -> Interval:
        y = rule(site, *operands)
        assert isinstance(y, Interval)
        for pattern in () if may_be_rounded_apart(site, operands[0]) else patterns:
            found = pattern(site, *operands)
            if found is not None and found.shape == y.shape:
                y = y.meet(found)
        return y

    return inherit_marks(refined_rule, rule)


def are_floats(*operands: Interval) -> bool:
    """Tell whether operands are of a floating type and have elements."""
    return all(x.is_floating and x.size for x in operands)


def _has_squares(x: Interval) -> bool:
    return all(abs(end) < LARGEST_SQUARED for end in x.extremes)


# a number and itself --------------------------------------------------------------------------------------------


def product_with_itself(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x * x from below by 0."""
    if not are_floats(a) or not is_same(site.op.a, site.op.b):
        return None
    return square(a)


def difference_to_itself(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x - x, which is 0."""
    if a.may_be_infinite or not is_same(site.op.a, site.op.b):
        return None
    return Interval.fill(0, 0, a.shape, a.dtype)


# differences ----------------------------------------------------------------------------------------------------


def difference_to_extreme(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x - max(x) from above by 0, x - min(x) from below, and their opposites."""
    if not are_floats(a, b):
        return None
    for (x, field), extreme, opposite in (((site.op.a, site.op.b), b, 1), ((site.op.b, site.op.a), a, -1)):
        found = find_reduction(site, field, "ReduceMax", "ReduceMin")
        if found is not None and is_same(x, found.operand) and not extreme.may_be_infinite:
            below = (1 if is_a(found.op, "ReduceMax") else -1) * opposite > 0
            low, high = (-math.inf, 0.0) if below else (0.0, math.inf)
            return Interval.fill(low, high, found.x.shape, a.dtype)
    return None


def difference_to_mean(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x - mean(x), which is (n - 1) / n of the difference between x and the mean of the others."""
    found = find_reduction(site, site.op.b, "ReduceMean") if are_floats(a, b) else None
    if found is None or not is_same(site.op.a, found.operand) or not _has_squares(a):
        return None
    rows, n = sections(a, found.dims), found.count
    drift = moments(rows).drift + 4 * unit(a.dtype) * rows.magnitude + tiny(a.dtype)
    low = rows.lower - (rows.total(rows.upper) - rows.upper + rows.lower) / n - drift
    high = rows.upper - (rows.total(rows.lower) - rows.lower + rows.upper) / n + drift
    return round_outward(rows.restore(low), rows.restore(high), a.dtype, a.shape)


def variance_by_moments(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound mean(x^2) - mean(x)^2: the variance, except for cancellation, by which it may be below 0."""
    squares = find_reduction(site, site.op.a, "ReduceMean") if are_floats(a, b) else None
    mean = find_reduction(site, square_of(site.op.b), "ReduceMean")
    if squares is None or mean is None or mean.dims != squares.dims or not _has_squares(mean.x):
        return None
    if not is_same(square_of(squares.operand), mean.operand) or a.shape != b.shape:
        return None
    rows = sections(mean.x, mean.dims)
    lost = 2 * cancellation(rows)
    if accumulation(rows.dtype) is not rows.dtype:
        size = torch.maximum(rows.lower.square(), rows.upper.square())
        lost = lost + 8 * unit(rows.dtype) * rows.total(size) / rows.size + tiny(rows.dtype)
    low, high = _variance(rows)
    bounds = [rows.restore(bound) for bound in (low - lost, high + lost)]
    if a.size == 1:
        bounds = [bound.reshape((1,) * len(a.shape)) for bound in bounds]
    return round_outward(bounds[0], bounds[1], a.dtype, a.shape)


def _variance(rows: Sections) -> tuple[Tensor, Tensor]:
    """Return bounds of the mean of squared differences to the mean, as two passes compute it."""
    known = moments(rows, apart=True)
    error = sum_error(rows.size, rows.dtype, ELEMENTWISE_ROUNDINGS)
    low = torch.where(known.least_deviation > 4 * known.drift, known.least_deviation - 2 * known.drift, 0.0)
    high = known.greatest_deviation + 1.25 * known.drift
    smallest = 4 * tiny(rows.dtype)
    return (low.square() * (1 - error) - smallest).clamp(min=0), high.square() * (1 + error) + smallest


def difference_to_log_sum(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x - log(sum(exp(x))) from above by 0, but for rounding: the sum is at least each of its terms."""
    found = find_reduction(site, site.op.b, "ReduceLogSumExp") if are_floats(a, b) else None
    if found is None or not is_same(site.op.a, found.operand) or a.may_be_infinite or b.may_be_infinite:
        return None
    kernels, size = (site.envelope("Exp"), site.envelope("Log")), max(map(abs, (*a.extremes, *b.extremes)))
    # The sum of the shifted exponentials, which has 1 among its terms, strays by some, and so does its logarithm.
    error = 4 * sum(kernel.relative + kernel.absolute + 2 * unit(a.dtype) for kernel in kernels)
    return Interval.fill(-math.inf, error + 4 * unit(a.dtype) * size, a.shape, a.dtype)


def logarithm_of_share(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound z - log(sum(exp(z))) with z = x - max(x), a logarithm of a softmax."""
    summed = find_reduction(site, behind(site.op.b, "Log"), "ReduceSum") if are_floats(a) else None
    if summed is None or not is_same(behind(summed.operand, "Exp"), site.op.a):
        return None
    x = undo_shift(site, source(site.op.a), summed.dims)
    return None if x is None else replace(log_softmax_along(site, x, summed.dims), nan=False)


def undo_shift(site: Site, field: Field, dims: list[int]) -> Interval | None:
    """Return the bounds of x where a field is x - max(x) with one maximum, at most, for each section."""
    found = find_difference(site, field, "ReduceMax")
    return found.x if found is not None and found.dims == dims else None


# sums and means -------------------------------------------------------------------------------------------------


def sum_of_exponentials(site: Site, x: Interval, axes: np.ndarray | None) -> Interval | None:
    """Bound sum(exp(x - max(x))) from below by the exponential of 0, which is among the terms."""
    exponential = is_a(site.op.data, "Exp")
    if exponential is None or not are_floats(x):
        return None
    field, dims = undo_transposes(site, fields_of(exponential)[0], reduced_dims(site.op, len(x.shape), axes))
    found = find_difference(site, field, "ReduceMax")
    if found is None or not set(found.dims) <= set(dims):
        return None
    kernel = site.envelope("Exp")
    least = 1 - 2 * (kernel.relative + kernel.absolute) - 2 * unit(x.dtype)
    return Interval.fill(least, math.inf, site.shape, x.dtype)


def sum_of_shares(site: Site, x: Interval, axes: np.ndarray | None) -> Interval | None:
    """Bound the sum of a softmax, or of quotients of numbers by their own sum: it is 1, except for rounding."""
    if not are_floats(x):
        return None
    rank, field = len(x.shape), source(site.op.data)
    dims = reduced_dims(site.op, rank, axes)
    op = is_a(field, "Softmax", "Div")
    if op is None or not dims:
        return None
    if is_a(op, "Softmax"):
        along = op.axis % rank
        if dims != [along] or (op.version < 13 and along != rank - 1):
            return None
    else:
        part, whole = fields_of(op)
        found = find_reduction(site, whole, "ReduceSum")
        if found is None or not is_same(part, found.operand) or found.dims != dims or x.extremes[0] < 0:
            return None
    count, kernel = math.prod(x.shape[dim] for dim in dims), site.envelope("Exp")
    error = (
        2 * sum_error(count, x.dtype, ELEMENTWISE_ROUNDINGS) + 4 * unit(x.dtype) * math.log(count) + 4 * kernel.relative
    )
    error += count * (tiny(x.dtype) + kernel.absolute)
    if found_by_hand := is_a(op, "Div"):
        divisor = site.find_known(fields_of(found_by_hand)[1])
        # If the sum is near 0, its terms may have been flushed to 0.
        if divisor is None or divisor.extremes[0] < count * 2.0**30 * tiny(x.dtype):
            return None
    return Interval.fill(1 - error, 1 + error, site.shape, x.dtype)


def mean_of_squared_differences(site: Site, x: Interval, axes: np.ndarray | None) -> Interval | None:
    """Bound mean((x - mean(x))^2) by the variance of numbers within bounds, and the sum likewise."""
    dims = reduced_dims(site.op, len(x.shape), axes)
    found = find_difference(site, square_of(site.op.data), "ReduceMean") if are_floats(x) else None
    if found is None or found.dims != dims or not _has_squares(found.x):
        return None
    rows = sections(found.x, dims)
    count = found.count if is_a(site.op, "ReduceSum") else 1
    low, high = (rows.restore(bound) * count for bound in _variance(rows))
    if not site.op.keepdims:
        low, high = low.squeeze(dims), high.squeeze(dims)
    return round_outward(low, high, x.dtype, site.shape)
