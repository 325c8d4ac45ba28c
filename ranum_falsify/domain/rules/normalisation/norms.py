"""Division by a norm, and by a power of the squares of neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.error_bounds import LARGEST_SQUARED, POWER_ROUNDINGS, gamma, sum_error, sum_growth, tiny, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.normalisation.statistics import divide_by_root_mean_square
from ranum_falsify.domain.rules.support.sections import Sections, sections
from ranum_falsify.domain.site import Site

_BEYOND = 1.25
"""Largest size of a component whose square underflows: x^2 may round down by a third, to the least denormal."""

_SAFE = 2.0**30
"""In sums of this many smallest normal numbers or more, the share of flushed terms is negligible."""


# norms ----------------------------------------------------------------------------------------------------------


def norm_normalisation(site: Site, x: Interval) -> Interval:
    """Bound `LpNormalization`: x over its norm along an axis, 0 where that is 0."""
    if not x.size:
        return Interval.fill(0, 0, x.shape, x.dtype)
    rows = sections(x, [site.op.axis])
    low, high = _bound_by_sum(rows) if site.op.p == 1 else _bound_by_root(rows)
    least, overflows = _norm_ends(rows, site.op.p)
    away = least > rows.size * _SAFE * tiny(x.dtype)
    size = torch.where(away, 1 + sum_error(rows.size, x.dtype, 8), _BEYOND)
    low = torch.where(rows.lower >= 0, low.clamp(min=0), torch.maximum(low, -size))
    high = torch.where(rows.upper <= 0, high.clamp(max=0), torch.minimum(high, size))
    zero = ~away | overflows
    low, high = torch.where(zero, low.clamp(max=0), low), torch.where(zero, high.clamp(min=0), high)
    return round_outward(rows.restore(low), rows.restore(high), x.dtype, x.shape)


def norm_stays_positive(op: Operation, operands: Mapping[str, Interval]) -> bool:
    """Prove that the norm along the axis is above 0."""
    x = operands["input"]
    if not x.size:
        return True
    least, _ = _norm_ends(sections(x, [op.axis]), op.p)
    return bool((least > _SAFE * x.size * tiny(x.dtype)).all())


def _find_nearest(rows: Sections) -> Tensor:
    """Return the least absolute values."""
    apart = torch.minimum(rows.lower.abs(), rows.upper.abs())
    return torch.where((rows.lower <= 0) & (rows.upper >= 0), 0.0, apart)


def _norm_ends(rows: Sections, p: int) -> tuple[Tensor, Tensor]:
    """Return the least sum of absolute values, or of squares, and whether the sum may overflow."""
    furthest = rows.magnitude if p == 1 else rows.magnitude.clamp(max=LARGEST_SQUARED).square()
    overflows = sum_growth(rows.size, rows.dtype) * rows.size * furthest >= dtype_range(rows.dtype)[1]
    near = _find_nearest(rows).clamp(max=LARGEST_SQUARED)
    return rows.total(near if p == 1 else near.square()), overflows | (rows.magnitude >= LARGEST_SQUARED)


def _bound_by_root(rows: Sections) -> tuple[Tensor, Tensor]:
    z = divide_by_root_mean_square(rows, 0.0)
    return z.lower, z.upper


def _bound_by_sum(rows: Sections) -> tuple[Tensor, Tensor]:
    near, far = _find_nearest(rows), torch.maximum(rows.lower.abs(), rows.upper.abs())
    slack = 8 * gamma(rows.lower.shape[-1] + 8, torch.float64)
    others = (rows.total(near) * (1 - slack) - near).clamp(min=0), rows.total(far) * (1 + slack) - far
    relative = sum_error(rows.size, rows.dtype, 8)

    def greatest(x: Tensor) -> Tensor:
        size = x.abs() + torch.where(x >= 0, *others)
        z = torch.where(x == 0, 0.0, x / size)
        return (z + z.abs() * relative).nan_to_num(nan=_BEYOND)

    return -greatest(-rows.lower), greatest(rows.upper)


# neighbouring channels ------------------------------------------------------------------------------------------


def local_response_normalisation(site: Site, x: Interval) -> Interval:
    """Bound `LRN`: x / (bias + alpha / size * sum of neighbouring squares)^beta, x itself among them."""
    op = site.op
    if not x.size:
        return Interval.fill(0, 0, x.shape, x.dtype)
    most = max(map(abs, x.extremes))
    if most * most * op.size * max(1.0, abs(op.alpha)) >= dtype_range(x.dtype)[1] / 8:
        return replace(Interval.top(x.shape, x.dtype), nan=True)
    low, high, error = _divisor(op, x)
    beta = float(op.beta)
    lost = (1 - error / low) ** -abs(beta) - 1 + POWER_ROUNDINGS * unit(x.dtype)
    powers = Enclosure.hull_of([(low - error) ** -beta, (high + error) ** -beta])
    small = 4 * tiny(x.dtype)
    # ONNX Runtime multiplies by a power, PyTorch divides by one: neither may be infinite or 0 beside an x of 0.
    if not bool(((low > error) & (lost < 1) & (powers.high < 1 / small)).all()):
        return replace(Interval.top(x.shape, x.dtype), nan=True)
    least, greatest = _quotients(op, x, low, high) if op.alpha > 0 and beta > 0 else _corners(x, low, high, beta)
    y = Enclosure(least - least.abs() * lost, greatest + greatest.abs() * lost)
    # A power that is denormal may be 0, and so is that of a sum that overflows.
    vanishing = (powers.low < small) | (high + error >= dtype_range(x.dtype)[1])
    least, greatest = x.doubles()
    near_zero = Enclosure(least.clamp(max=0) * 4 * small, greatest.clamp(min=0) * 4 * small)
    y = y.hull(near_zero).where(vanishing, y)
    low, high = torch.broadcast_tensors(*y)
    return round_outward(low, high, x.dtype, x.shape)


def divisor_stays_valid(op: Operation, operands: Mapping[str, Interval]) -> bool:
    """Prove that the number that `LRN` raises to `beta` is above 0; for an integer `beta`, that it is not 0."""
    x = operands["x"]
    if not x.size or x.may_be_infinite or max(map(abs, x.extremes)) >= LARGEST_SQUARED:
        return not x.size
    low, high, error = _divisor(op, x)
    valid = low > error
    if float(op.beta).is_integer():
        valid = valid | (high < -error)
    return bool(valid.all())


def _squares(x: Interval) -> Enclosure:
    return Enclosure(*x.doubles()).map_even(torch.square)


def _window_sums(op: Operation, squares: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    """Return least and greatest sums over the windows of channels; one of each for merged channels."""
    before = (op.size - 1) // 2
    merged = squares.shape[1] == 1
    terms = torch.ones(1, channels, dtype=squares.dtype) if merged else squares
    tail = (0, 0) * (terms.ndim - 2)
    sums = functional.pad(terms, (*tail, before, op.size - 1 - before)).unfold(1, op.size, 1).sum(-1)
    return (squares * sums.min(), squares * sums.max()) if merged else (sums, sums)


def _divisor(op: Operation, x: Interval) -> tuple[Tensor, Tensor, Tensor]:
    """Return least and greatest divisors in real numbers, and the most by which kernels stray from them.

    ONNX Runtime slides the window: each channel's sum is the previous one plus one square and minus another, so that
    errors of the largest sum persist in all later ones.
    """
    share = float(op.alpha) / op.size
    fewest, most = (_window_sums(op, squares, x.shape[1])[i] for i, squares in enumerate(_squares(x)))
    low, high = (share * end + float(op.bias) for end in ((fewest, most) if share >= 0 else (most, fewest)))
    reach = 4 * gamma(2 * x.shape[1] + op.size + 24, x.dtype)
    most = most.amax(1, keepdim=True)
    # Squares and the share may be denormal, and are multiplied with each other.
    flushed = tiny(x.dtype) * (4 * op.size * max(1.0, abs(share)) + most)
    return low, high, reach * (abs(share) * most + abs(float(op.bias))) + flushed


def _quotients(op: Operation, x: Interval, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ends of x / (rest + share x^2)^beta, which rises up to one point and may fall from there."""
    share, beta = float(op.alpha) / op.size, float(op.beta)
    near, far = (share * squares for squares in _squares(x))
    rests = low - near, high - far
    turn = (rests[0] / (share * (2 * beta - 1))).clamp(min=0).sqrt() if 2 * beta > 1 else torch.full_like(low, math.inf)

    def value(at: Tensor, rest: Tensor) -> Tensor:
        return at / torch.pow(rest + share * at.square(), beta)

    def greatest(least: Tensor, most: Tensor) -> Tensor:
        top = torch.minimum(torch.maximum(turn, least.clamp(min=0)), most.clamp(min=0))
        negative = torch.maximum(value(least, rests[1]), value(most, rests[1]))
        return torch.where(most > 0, value(top, rests[0]), negative)

    ends = x.doubles()
    return -greatest(-ends[1], -ends[0]), greatest(*ends)


def _corners(x: Interval, low: Tensor, high: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    points = torch.stack(torch.broadcast_tensors(*(a * d**-beta for a in x.doubles() for d in (low, high))))
    return points.amin(0), points.amax(0)
