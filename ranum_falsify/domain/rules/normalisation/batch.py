"""Rules of `BatchNormalization`, by known statistics and by those of the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import STATISTICS_ROUNDINGS, accumulation, least_positive, sum_error, tiny, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import round_numbers_outward, round_outward
from ranum_falsify.domain.rules.normalisation.standardise import (
    Ends,
    channelwise,
    factor_overflows,
    finish,
    size_of,
)
from ranum_falsify.domain.rules.normalisation.statistics import (
    Moments,
    Standardised,
    moments,
    squares_overflow,
    standardise,
)
from ranum_falsify.domain.rules.support.sections import sections
from ranum_falsify.domain.site import Site


def batch_normalisation(
    site: Site, x: Interval, scale: Interval, bias: Interval, mean: Interval, variance: Interval
) -> Interval:
    """Bound (x - mean) * scale / sqrt(variance + epsilon) + bias, factored in any way or fused into a convolution."""
    if not site.op.epsilon >= 0:
        return replace(Interval.top(x.shape, x.dtype), nan=True)
    rank, parameters = len(x.shape), (scale, bias, mean, variance)
    gain, shift, centre, spread = (_numbers(values, rank) for values in parameters)
    # Where parameters are of a type with fewer digits, the factor is rounded to it.
    roundoff = max(unit(values.dtype) for values in (x, *parameters))
    spread = [end + site.op.epsilon for end in spread]
    errors = [2 * unit(variance.dtype) * (abs(end) + tiny(variance.dtype)) for end in spread]
    widest = spread[1] + errors[1]
    widest = np.where(widest < dtype_range(variance.dtype)[1], widest, np.inf)  # a sum that overflows divides, too
    roots = [1 / np.sqrt(np.maximum(end, least_positive(torch.float64))) for end in (widest, spread[0] - errors[0])]
    factors = [end * root for end in gain for root in roots]
    factor = reduce(np.minimum, factors), reduce(np.maximum, factors)
    if not x.is_scalar and roundoff == unit(x.dtype):
        known = [tuple(torch.as_tensor(end) for end in ends) for ends in (factor, shift, centre)]
        if (fast := _affine(x, *known)) is not None:
            return fast
    low, high = _numbers(x, None)
    points = [end * side for end in (low - centre[1], high - centre[0]) for side in factor]
    largest, *others = (np.maximum(abs(ends[0]), abs(ends[1])) for ends in (factor, (low, high), centre, shift))
    sizes = (others[0] + others[1]) * largest + others[2]
    error = 16 * roundoff * sizes + 4 * tiny(x.dtype) * (2 + largest)
    ends = reduce(np.minimum, points) + shift[0] - error, reduce(np.maximum, points) + shift[1] + error
    # Numbers that overflow float64 may become NaN.
    ends = np.where(np.isnan(ends[0]), -np.inf, ends[0]), np.where(np.isnan(ends[1]), np.inf, ends[1])
    limit = min(dtype_range(values.dtype)[1] for values in (x, *parameters))
    # Kernels compute the factor first, and may subtract its products with operand and mean from each other.
    overflows = not bool(((sizes < limit) & (largest < limit)).all())
    if np.ndim(ends[0]) == 0:
        return replace(round_numbers_outward(float(ends[0]), float(ends[1]), x.shape, x.dtype), overflows=overflows)
    low, high = (torch.from_numpy(end[(None,) * (rank - end.ndim)]) for end in ends)
    return replace(round_outward(low, high, x.dtype, x.shape), overflows=overflows)


def _numbers(values: Interval, rank: int | None) -> list[Any]:
    """Return bounds in float64; as numbers if only one is stored, because NumPy is faster than torch with few.

    Args:
        values: The bounds.
        rank: Rank of the tensor whose channels they belong to; None for a tensor of its own.
    """
    if values.is_scalar:
        return [np.float64(end) for end in values.extremes]
    return [end.numpy() for end in (values.doubles() if rank is None else channelwise(values, rank))]


def _affine(
    x: Interval, factor: Sequence[Tensor], shift: Sequence[Tensor], centre: Sequence[Tensor]
) -> Interval | None:
    """Return bounds in the operand's own type if all else is known and nothing overflows: the common, large case.

    x * f minus its error, which is in proportion to |x * f|, rises with x * f, so that the ends of x give the bounds.
    """
    known = all(
        bool((ends[1] - ends[0] <= 8 * unit(x.dtype) * ends[0].abs()).all()) for ends in (factor, shift, centre)
    )
    limits = torch.finfo(x.dtype)
    sizes = [float(size_of(ends).amax()) if ends[0].numel() else 0.0 for ends in (factor, shift, centre)]
    reach = (max(map(abs, x.extremes)) + sizes[2]) * max(sizes[0], 1.0) + sizes[1] if x.size else 0.0
    if x.dtype not in (torch.float32, torch.float64) or not known or not max(reach, sizes[0]) < limits.max / 8:
        return None
    error = 32 * unit(x.dtype)
    middle = factor[0]
    offset = shift[0] - centre[0] * middle
    spread = error * (shift[0].abs() + (centre[0] * middle).abs()) + 8 * limits.tiny * (2 + sizes[0])
    slope = middle.to(x.dtype)
    ends = (x.lower, x.upper)
    if bool((slope < 0).any()):
        ends = torch.where(slope >= 0, *ends), torch.where(slope >= 0, *ends[::-1])
    bounds = []
    for end, way in zip(ends, (-1, 1), strict=True):
        bound = torch.addcmul((offset + way * spread).to(x.dtype), end, slope)
        bound = torch.addcmul(bound, end.abs(), slope.abs(), value=way * error)
        # The spread has room for numbers that runtimes flush to 0.
        bounds.append(torch.nn.functional.hardshrink(bound, limits.tiny))
    return Interval.of(bounds[0], bounds[1], x.shape)


def trained_batch_normalisation(
    site: Site, x: Interval, scale: Interval, bias: Interval, mean: Interval, variance: Interval
) -> tuple[Interval, ...]:
    """Bound `BatchNormalization` that normalises by the batch and updates the running statistics."""
    rank = len(x.shape)
    rows = sections(x, (0, *range(2, rank)))
    gain, shift = (channelwise(values, rank) for values in (scale, bias))
    # Kernels use mean, variance and factor in the type of the running statistics.
    halves = accumulation(mean.dtype) is not mean.dtype
    known, wide = moments(rows, apart=halves), mean.dtype
    infinite = squares_overflow(rows) or bool((known.greatest_deviation**2 >= dtype_range(wide)[1] / 2).any())
    z = standardise(rows, site.op.epsilon, apart=halves)
    if infinite:
        z = Standardised(lower=z.lower.clamp(max=0), upper=z.upper.clamp(min=0), nan=True)
    # The factor's products with the operand and with the mean are subtracted from each other.
    reach = rows.restore(rows.magnitude).clamp(min=0.5) * 2
    y = finish(rows, z, gain, shift, x, reach)
    if factor_overflows(
        rows, site.op.epsilon, gain, min(x.dtype, mean.dtype, key=lambda dtype: torch.finfo(dtype).max), reach
    ):
        y = replace(y, nan=True, overflows=True)
    seen_mean = known.least_mean - known.drift, known.greatest_mean + known.drift
    seen_variance = _variance(known, sum_error(rows.size, x.dtype, STATISTICS_ROUNDINGS))
    if infinite:
        seen_variance = torch.zeros_like(known.drift), torch.full_like(known.drift, math.inf)
    kept = float(site.op.momentum)
    updated = (
        _mix(mean, tuple(end.reshape(-1) for end in seen_mean), kept, wide),
        _mix(variance, tuple(end.reshape(-1) for end in seen_variance), kept, wide),
    )
    return (y, *updated)[: len(site.op.output_names)]


def _variance(known: Moments, error: float) -> Ends:
    low = (known.least_deviation - 2 * known.drift).clamp(min=0)
    low = torch.where(known.least_deviation > 4 * known.drift, low, 0.0)
    return low.square() * (1 - error), (known.greatest_deviation + 1.25 * known.drift).square() * (1 + error)


def _mix(old: Interval, new: Sequence[Tensor], kept: float, dtype: torch.dtype) -> Interval:
    """Return the bounds of old * kept + new * (1 - kept)."""
    parts = []
    for (low, high), share in ((old.doubles(), kept), ((new[0], new[1]), 1 - kept)):
        ends = (low * share, high * share) if share >= 0 else (high * share, low * share)
        parts.append((ends[0].nan_to_num(nan=0.0), ends[1].nan_to_num(nan=0.0)))
    error = 8 * unit(dtype) * sum(size_of(part) for part in parts)
    low, high = parts[0][0] + parts[1][0] - error, parts[0][1] + parts[1][1] + error
    low, high = low.nan_to_num(nan=-math.inf, neginf=-math.inf), high.nan_to_num(nan=math.inf, posinf=math.inf)
    return round_outward(low, high, dtype, old.shape)
