"""Tighter bounds of quotients whose divisor is a sum, a norm or a deviation of the dividend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from dnnv.nn import Operation

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
from ranum_falsify.domain.rules.arithmetic.pairs import divide, multiply
from ranum_falsify.domain.rules.normalisation.standardise import scale_and_shift
from ranum_falsify.domain.rules.normalisation.statistics import (
    Standardised,
    divide_by_root_mean_square,
    moments,
    standardise,
)
from ranum_falsify.domain.rules.softmax import softmax
from ranum_falsify.domain.rules.support.building import keeping_infinity
from ranum_falsify.domain.rules.support.sections import Sections, sections
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.matching import (
    Field,
    Reduced,
    behind,
    constant,
    fields_of,
    find_difference,
    find_reduction,
    is_a,
    is_same,
    pairs,
    rounds_apart,
    source,
    square_of,
    undo_widening,
)
from ranum_falsify.operators.relations.path_conditions import add_flag
from ranum_falsify.operators.relations.patterns import Pattern, are_floats, undo_shift


def quotient_by_itself(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x / x, which is 1."""
    if a.may_be_infinite or not is_same(site.op.a, site.op.b):
        return None
    return Interval.fill(1, 1, a.shape, a.dtype)


@keeping_infinity
def product_or_quotient(site: Site, a: Interval, b: Interval) -> Interval:
    """Bound a * b; where a factor is 1 / x, bound also the quotient by which ONNX Runtime replaces the product."""
    y = multiply(site, a, b)
    for (_, factor), bounds in zip(pairs(site.op), (a, b), strict=True):
        divisor = site.find_known(_find_inverse(factor)) if is_a(factor, "Div") else None
        if divisor is not None and y.is_floating:
            hull = y.hull(divide(site, bounds, divisor))
            y = replace(y, lower=hull.lower, upper=hull.upper, gap=0.0)
    return y


def over_reciprocal(*patterns: Pattern) -> Pattern:
    """Return the pattern of a product with a reciprocal: those of the quotient that it equals but for rounding."""

    def pattern(site: Site, a: Interval, b: Interval) -> Interval | None:
        for (x, factor), bounds in zip(pairs(site.op), (a, b), strict=True):
            divisor = _find_inverse(factor)
            known = site.find_known(divisor)
            if known is None or not bounds.is_floating:
                continue
            inner = replace(site, op=_Quotient(x, divisor))
            error = 4 * unit(a.dtype) + 2 * site.envelope("Reciprocal").relative
            for found in (refine(inner, bounds, known) for refine in patterns):
                if found is not None:
                    low, high = found.doubles()
                    return round_outward(low - error * low.abs(), high + error * high.abs(), a.dtype, found.shape)
        return None

    return pattern


def over_choice(*patterns: Pattern) -> Pattern:
    """Return the pattern of x / Where(s == 0, 1, s), or x / (s + (s == 0)): those of x / s, or x over the other number.

    Which of both is chosen does not matter: where s is 0 and chosen nevertheless, the division is invalid.
    """

    def pattern(site: Site, a: Interval, b: Interval) -> Interval | None:
        if not are_floats(a, b):
            return None
        for chosen, other in _list_choices(site, site.op.b):
            known = site.find_known(chosen)
            inner = replace(site, op=_Quotient(site.op.a, chosen))
            for refine in patterns if known is not None else ():
                found = refine(inner, a, known)
                if found is not None:
                    return found.hull(divide(site, a, other))
        return None

    return pattern


def _list_choices(site: Site, field: Field) -> Iterator[tuple[Field, Interval]]:
    """Yield what a divisor may be, and bounds of what it is otherwise."""
    chosen, summed = is_a(field, "Where"), is_a(field, "Add")
    if chosen is not None:
        _, first, second = fields_of(chosen)
        for one, other in ((first, second), (second, first)):
            known = site.find_known(other)
            if known is not None:
                yield one, known
    for one, flag in pairs(summed) if summed is not None else ():
        known = site.find_known(one)
        found = None if known is None else add_flag(site, flag, one, known)
        if found is not None:
            yield one, found[0]


class _Quotient:
    """A division that the graph does not write as one."""

    def __init__(self, a: Field, b: Field) -> None:
        self.a, self.b = a, b


def _find_inverse(field: Field) -> Field:
    """Return x where a field is 1 / x, else None."""
    op = is_a(field, "Reciprocal", "Div")
    if op is None:
        return None
    first, *rest = fields_of(op)
    if not rest:
        return source(first)
    return source(rest[0]) if constant(first) == 1 else None


def standard_score(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound (x - mean(x)) / sqrt(variance + epsilon), or with epsilon added to the root."""
    difference = is_a(site.op.a, "Sub")
    root = _root_of(site.op.b) if difference is not None and are_floats(a) else None
    if difference is None or root is None:
        return None
    inner, epsilon, added = root
    variance = _find_uncorrected(inner)
    squares = find_reduction(site, variance, "ReduceMean", shown_by=inner)
    centre = _find_centre(site, difference)
    beside = None if squares is None else is_a(square_of(squares.operand), "Sub")
    if squares is None or centre is None or beside is None or squares.dims != centre.dims:
        return None
    rows = sections(centre.x, centre.dims)
    if beside is difference and variance is inner:
        found = _score(rows, standardise(rows, epsilon, added=added, apart=True), a)
        return _bound_score(rows, max(math.sqrt(epsilon), added), a) if found is None else found
    other = _find_centre(site, beside)
    if other is None or not is_same(other.operand, centre.operand) or other.dims != centre.dims:
        return None
    return _bound_score(rows, max(math.sqrt(epsilon), added), a)


def _find_centre(site: Site, difference: Operation) -> Reduced | None:
    """Return the mean of x where a node computes x - mean(x) of finite numbers."""
    centre = find_difference(site, difference, "ReduceMean")
    return None if centre is None or centre.x.may_be_infinite else centre


def _find_uncorrected(field: Field) -> Field:
    """Return x where a field is x n / m with n / m of at least 1, such as an unbiased variance; else the field."""
    moved = is_a(field, "Reshape", "Unsqueeze")
    quotient = is_a(field if moved is None else fields_of(moved)[0], "Div")
    product = is_a(behind(quotient, "Div"), "Mul")
    if quotient is None or product is None:
        return field
    divisor = constant(fields_of(quotient)[1])
    for x, factor in pairs(product):
        number = constant(factor)
        if number is not None and divisor is not None and number >= divisor > 0:
            return x
    return field


def _bound_score(rows: Sections, floor: float, like: Interval) -> Interval | None:
    """Bound (x - m) / s for means m and deviations s from another computed mean, s no less than a floor.

    Each difference to the other mean is at most sqrt(n) s, whatever that mean is, and both means are within the drift.
    Squares below the smallest normal number may be lost.
    """
    largest = float(rows.magnitude.max())
    if not floor > 0 or largest >= min(LARGEST_SQUARED, torch.finfo(accumulation(rows.dtype)).max / (4 * rows.size)):
        return None
    drift = float(moments(rows, apart=True).drift.max())
    error = sum_error(rows.size, rows.dtype, 2 * ELEMENTWISE_ROUNDINGS)
    lost = 2 * math.sqrt(rows.size * tiny(rows.dtype))
    limit = (math.sqrt(rows.size) + (2 * drift + lost) / floor) * (1 + 2 * error)
    return Interval.fill(-limit, limit, like.shape, like.dtype) if limit < torch.finfo(like.dtype).max else None


def over_norm(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x / sqrt(sum(x^2) + epsilon), the same with the mean for the sum, and x / max(norm(x), epsilon)."""
    if not are_floats(a) or a.may_be_infinite:
        return None
    least, field = find_lower_limit(site.op.b)
    unless_zero = _unless_zero(site, field)
    norm = None if unless_zero is None else find_reduction(site, unless_zero, "ReduceL2")
    if norm is not None and _holds_elements(norm, site.op.a, a):
        return _over_own_norm(site, a, norm.count)
    norm = find_reduction(site, field, "ReduceL2")
    if norm is None:
        root = find_root_of_squares(site, field, site.op.a)
        if root is None:
            return None
        norm, epsilon, added = root
        if epsilon > 0:
            rows = sections(a, norm.dims)
            share = 1 / rows.size if is_a(norm.op, "ReduceMean") else 1.0
            return _score(rows, divide_by_root_mean_square(rows, epsilon, share), a)
        least = max(least, added)
    elif not is_same(norm.operand, site.op.a):
        return None
    # Squares below the smallest normal number get lost, but the divisor exceeds such numbers.
    if is_a(norm.op, "ReduceMean") or least < 128 * math.sqrt(tiny(a.dtype)):
        return None
    limit = 1 + sum_error(norm.count, a.dtype, ELEMENTWISE_ROUNDINGS)
    return Interval.fill(-limit, limit, a.shape, a.dtype)


def _unless_zero(site: Site, field: Field) -> Field:
    """Return x where a field is 1 where x = 0 and else x."""
    choice = is_a(field, "Where")
    if choice is None:
        return None
    condition, one, x = fields_of(choice)
    test = is_a(condition, "Equal")
    if test is None or constant(one) != 1:
        return None
    tested = (a for a, b in pairs(test) if constant(b) == 0)
    return source(x) if any(is_same(a, x) or is_same(undo_widening(site, a), x) for a in tested) else None


def _holds_elements(norm: Reduced, field: Field, x: Interval) -> bool:
    """Tell whether each element of a tensor is among those that the norm for its place is of."""
    if is_same(norm.operand, field):
        return True
    flat = is_a(norm.operand, "Reshape", "Flatten")
    return flat is not None and is_same(fields_of(flat)[0], field) and norm.count == x.size


def _over_own_norm(site: Site, x: Interval, count: int) -> Interval | None:
    """Bound x / norm(x) where the norm, as it was computed, is not 0, and x where it is.

    The norm is not 0, so a square was not lost: none that was lost is larger than it, but for the rounding of denormal
    numbers, which makes 1.5 times the smallest number the smallest one.
    """
    if rounds_apart(site, x):
        return None
    limit = math.sqrt(1.5) * (1 + sum_error(count, x.dtype, ELEMENTWISE_ROUNDINGS))
    return Interval.fill(-limit, limit, x.shape, x.dtype)


def find_lower_limit(field: Field) -> tuple[float, Field]:
    """Return the number that bounds a field from below or is added to it, and the field without it."""
    if is_a(field, "Expand"):
        return find_lower_limit(behind(field, "Expand"))
    op = is_a(field, "Clip", "Max", "Add")
    if op is None:
        return 0.0, source(field)
    inner, *rest = fields_of(op)
    if is_a(op, "Clip"):
        number, *limits = (constant(rest[0]) if rest else None), *rest[1:]
        # An upper limit could undo what the divisor needs.
        unlimited = all(limit is None for limit in limits)
        return (number, source(inner)) if number is not None and unlimited else (0.0, op)
    if len(rest) != 1:
        return 0.0, op
    for x, bound in ((inner, rest[0]), (rest[0], inner)):
        number = constant(bound)
        if number is not None and number >= 0:
            return number, source(x)
    return 0.0, op


def _root_of(field: Field) -> tuple[Field, float, float] | None:
    """Return x, e and f where a field is sqrt(x + e) + f."""
    added = 0.0
    if is_a(field, "Add"):
        added, field = find_lower_limit(field)
    root = is_a(field, "Sqrt", "Pow")
    if root is None:
        return None
    inner, *exponent = fields_of(root)
    if exponent and constant(exponent[0]) != 0.5:
        return None
    epsilon, x = find_lower_limit(inner) if is_a(inner, "Add") else (0.0, source(inner))
    return x, epsilon, added


def find_root_of_squares(site: Site, field: Field, x: Field) -> tuple[Reduced, float, float] | None:
    """Return the sum or mean s of the squares of x, e and f where a field is sqrt(s + e) + f."""
    root = _root_of(field)
    norm = None if root is None else find_reduction(site, root[0], "ReduceSum", "ReduceMean", "ReduceSumSquare")
    if root is None or norm is None:
        return None
    squared = norm.operand if is_a(norm.op, "ReduceSumSquare") else square_of(norm.operand)
    return (norm, *root[1:]) if is_same(squared, x) else None


def _score(rows: Sections, z: Standardised, like: Interval) -> Interval | None:
    if z.nan:
        return None
    return scale_and_shift((rows.restore(z.lower), rows.restore(z.upper)), None, None, like.dtype, like.shape)


def share_of_sum(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x / (sum(x) + epsilon) for x >= 0 by 1, and as a softmax where x is an exponential.

    A sum of numbers that are not negative is never below one of them, however it is rounded.
    """
    if not are_floats(a):
        return None
    _, field = find_lower_limit(site.op.b)
    found = find_reduction(site, field, "ReduceSum", "ReduceL1", "ReduceMax")
    if found is None or not is_same(found.operand, site.op.a):
        return None
    # The node that limits the sum may round it.
    most = 1 + 2 * unit(a.dtype) if rounds_apart(site, a) and not is_same(field, site.op.b) else 1.0
    y = Interval.fill(-most, most, a.shape, a.dtype)
    if a.extremes[0] >= 0 or is_a(found.op, "ReduceL1"):
        y = y.clamp(0, most) if a.extremes[0] >= 0 else y
    else:
        return None
    exponential = is_a(site.op.a, "Exp")
    if exponential is None or not is_a(found.op, "ReduceSum") or not is_same(field, site.op.b):
        return y
    inner = fields_of(exponential)[0]
    x = undo_shift(site, source(inner), found.dims)
    if x is None:
        x = site.find_known(inner)
        # Exponentials that are not shifted may underflow, all of a section together.
        if x is None or x.extremes[0] < 0.99 * math.log(tiny(a.dtype)):
            return y
    if x.may_be_infinite:
        return y
    probability = softmax(lambda op, rank: found.dims)(site, x)
    assert isinstance(probability, Interval)
    return y.meet(probability)
