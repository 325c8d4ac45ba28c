"""Rules of normalisations: a standardised operand, scaled and shifted; norms; division by neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import STATISTICS_ROUNDINGS, accumulation, sum_error, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels import updates_statistics
from ranum_falsify.domain.rounding import round_bounds, round_outward
from ranum_falsify.domain.rules.normalisation.statistics import (
    Standardised,
    cancellation,
    divide_by_root_mean_square,
    moments,
    squares_overflow,
    standardise,
    sums_overflow,
)
from ranum_falsify.domain.rules.support.sections import Sections, sections
from ranum_falsify.domain.site import IntervalRule, Site

Ends = tuple[Tensor, Tensor]
"""Least and greatest values in float64, of a shape that broadcasts with a tensor's stored bounds."""

Dims = Callable[[Operation, int], Sequence[int]]
"""`dims(op, rank)`: the dimensions over which an operator normalises."""

STATISTICS = torch.float32
"""Type of the mean and the inverse deviation that ONNX Runtime returns; it runs no `stash_type` that asks otherwise."""

_HUGE = 1e300


def scale_and_shift(
    z: Ends,
    scale: Ends | None,
    bias: Ends | None,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    most: Tensor | float = 0,
    *,
    stash: torch.dtype | None = None,
) -> Interval:
    """Return bounds of z * scale + bias, with each result rounded a few times to the dtype.

    Kernels may divide the scale by the deviation before they multiply it by a number of at most `most`; they compute
    z in the type `stash`, if that is another.
    """
    low, high = (end.clamp(-_HUGE, _HUGE) for end in z)
    lost: Tensor | float = 2 * tiny(dtype)
    if scale is not None:
        points = [end * factor for end in (low, high) for factor in scale]
        low, high = _least(points), _greatest(points)
        # Either factor may have underflowed.
        limits = torch.finfo(dtype)
        lost = lost + max(tiny(accumulation(stash or dtype)), limits.tiny * limits.eps) * (size_of(scale) + most)
    size = torch.maximum(low.abs(), high.abs())
    error = 6 * unit(dtype) * size + lost * (size > 0)
    if bias is not None:
        low, high = low + bias[0], high + bias[1]
        error = error + 4 * unit(dtype) * torch.maximum(bias[0].abs(), bias[1].abs())
    low, high = (end.nan_to_num(nan=away) for end, away in ((low - error, -math.inf), (high + error, math.inf)))
    low, high = torch.broadcast_tensors(low, high)
    return round_outward(low, high, dtype, shape)


def channelwise(values: Interval, rank: int) -> Ends:
    """Return bounds of shape `(channels,)` so that they broadcast with `(batch, channels, ...)`."""
    low, high = (end.reshape(-1, *[1] * (rank - 2)) for end in values.doubles())
    return low, high


# by statistics of the operand -----------------------------------------------------------------------------------


def layer_normalisation(dims: Dims) -> IntervalRule:
    """Return the rule of `LayerNormalization`, with the mean and the inverse deviation as additional outputs."""

    def rule(site: Site, x: Interval, scale: Interval, bias: Interval | None) -> tuple[Interval, ...]:
        if not x.size:
            return _of_nothing(site, x, dims(site.op, len(x.shape)))
        rows = sections(x, dims(site.op, len(x.shape)))
        normal = standardise(rows, site.op.epsilon, updates=updates_statistics(site.runtimes))
        cancels = torch.float64 if in_one_pass(rows.size, *_shapes(scale, bias)) else None
        if cancels is not None:
            normal = normal.hull(standardise(rows, site.op.epsilon, cancels=cancels))
        y = finish(rows, normal, _ends(scale), _ends(bias), x)
        if len(site.op.output_names) == 1:
            return (y,)
        return (y, *bound_statistics(rows, site.op.epsilon, x, cancels))[: len(site.op.output_names)]

    return rule


def in_one_pass(size: int, *shapes: Sequence[int] | None) -> bool:
    """Tell whether ONNX Runtime computes the variance as mean(x^2) - mean(x)^2, in float64.

    `LayerNormalization` does so beside a scale or a bias that broadcasts, and is infinite or NaN where rounding makes
    that negative.

    Args:
        size: How many numbers are normalised together.
        shapes: Shapes of the scale and of the bias, as far as they are given.
    """
    return any(shape is not None and math.prod(shape) != size for shape in shapes)


def _shapes(*factors: Interval | None) -> list[Sequence[int]]:
    return [one.shape for one in factors if one is not None]


def _of_nothing(site: Site, x: Interval, dims: Sequence[int]) -> tuple[Interval, ...]:
    """Return the bounds of a `LayerNormalization` without elements; statistics of empty rows are NaN."""
    kept = tuple(1 if dim in dims else size for dim, size in enumerate(x.shape))
    statistics = replace(Interval.top(kept, STATISTICS), nan=math.prod(kept) > 0)
    return (Interval.fill(0, 0, x.shape, x.dtype), statistics, statistics)[: len(site.op.output_names)]


def standardisation(dims: Dims) -> IntervalRule:
    """Return the rule of `InstanceNormalization`: over each sample's channels, scaled and shifted by channel."""

    def rule(site: Site, x: Interval, scale: Interval, bias: Interval) -> Interval:
        if not x.size:
            return Interval.fill(0, 0, x.shape, x.dtype)
        rows = sections(x, dims(site.op, len(x.shape)))
        gain, shift = (channelwise(values, len(x.shape)) for values in (scale, bias))
        # The factor's products with the operand and with the mean are subtracted from each other.
        reach = rows.restore(rows.magnitude).clamp(min=0.5) * 2
        y = finish(rows, standardise(rows, site.op.epsilon), gain, shift, x, reach)
        overflows = factor_overflows(rows, site.op.epsilon, gain, accumulation(x.dtype), reach)
        return replace(y, nan=True, overflows=True) if overflows else y

    return rule


def unscaled(dims: Dims, *, added: float) -> IntervalRule:
    """Return the rule of `MeanVarianceNormalization`: no epsilon, and no scale.

    Args:
        dims: The dimensions over which it normalises.
        added: Number that some runtimes add to the deviation.
    """

    def rule(site: Site, x: Interval) -> Interval:
        if not x.size:
            return Interval.fill(0, 0, x.shape, x.dtype)
        rows = sections(x, dims(site.op, len(x.shape)))
        return finish(rows, standardise(rows, 0.0, added=added), None, None, x)

    return rule


def rms_normalisation(dims: Dims) -> IntervalRule:
    """Return the rule of `RMSNormalization`."""

    def rule(site: Site, x: Interval, scale: Interval) -> Interval:
        if not x.size:
            return Interval.fill(0, 0, x.shape, x.dtype)
        rows = sections(x, dims(site.op, len(x.shape)))
        return finish(rows, divide_by_root_mean_square(rows, site.op.epsilon, 1 / rows.size), _ends(scale), None, x)

    return rule


def group_normalisation(site: Site, x: Interval, scale: Interval, bias: Interval) -> Interval:
    """Bound `GroupNormalization`, by channel from opset 21 on and by group before."""
    if not x.size:
        return Interval.fill(0, 0, x.shape, x.dtype)
    groups = site.op.num_groups
    apart = group(x, groups)
    rows = _group_rows(site.op, apart)
    by_channel = site.op.version >= 21
    tail = [1] * (len(x.shape) - 2)

    def ends(values: Interval) -> Ends:
        merged = values.is_scalar
        sizes = (1, 1) if merged else (groups, -1 if by_channel else 1)
        low, high = (end.reshape(*sizes, *tail) for end in values.doubles())
        return low, high

    y = finish(rows, standardise(rows, site.op.epsilon, cancels=rows.dtype), ends(scale), ends(bias), apart)
    if y.lower.shape[1:3] != (1, 1):
        y = y.split(1, 2)
    sizes = (y.lower.shape[0], y.lower.shape[1] * y.lower.shape[2], *y.lower.shape[3:])
    return replace(y, lower=y.lower.reshape(sizes), upper=y.upper.reshape(sizes), shape=x.shape)


def _group_rows(op: Operation, apart: Interval) -> Sections:
    """Return the groups, in float32 if a runtime computes them so, as the standard says, whatever their type is."""
    if apart.dtype is torch.float64 and is_stashed_single(op):
        # In real numbers and rounded, which loses what float32 is too coarse or too small for.
        apart = round_bounds(*apart.doubles(), torch.float32, apart.shape)
    return sections(apart, range(2, len(apart.shape)))


def group(x: Interval, groups: int) -> Interval:
    """Return `(batch, channels, ...)` as `(batch, groups, channels of a group, ...)`."""
    count = groups if x.lower.shape[1] > 1 else 1

    def apart(bound: Tensor) -> Tensor:
        return bound.reshape(bound.shape[0], count, -1, *bound.shape[2:])

    return Interval(apart(x.lower), apart(x.upper), (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))


def _ends(values: Interval | None) -> Ends | None:
    return None if values is None else values.doubles()


def finish(
    rows: Sections, z: Standardised, scale: Ends | None, bias: Ends | None, x: Interval, reach: Tensor | float = 0
) -> Interval:
    """Return the bounds of standardised rows, scaled and shifted, in the shape of the operand."""
    ends = rows.restore(z.lower), rows.restore(z.upper)
    y = scale_and_shift(ends, scale, bias, x.dtype, x.shape, reach, stash=rows.dtype)
    return replace(y, nan=True) if z.nan else y


def factor_overflows(
    rows: Sections, epsilon: float, scale: Ends, dtype: torch.dtype, reach: Tensor | float = 1.0
) -> bool:
    """Tell whether scale / sqrt(variance + epsilon), which some kernels compute first, may overflow.

    Args:
        rows: The numbers that are normalised.
        epsilon: Number that is added to the variance.
        scale: Bounds of the scale; they broadcast with the tensor.
        dtype: Type in which kernels compute the factor.
        reach: Greatest number by which the factor is multiplied, if that is more than 1.
    """
    size, limit = size_of(scale) * reach, torch.finfo(dtype).max / 2
    if bool((size < limit * math.sqrt(max(epsilon, 0.0))).all()):
        return False
    root = rows.restore(moments(rows).least_root(epsilon, rows.dtype))
    return not bool((size < limit * root).all())


def is_stashed_single(op: Operation) -> bool:
    """Tell whether a normalisation returns its statistics in float32, and computes them in float32 at least."""
    return getattr(op, "stash_type", 1) in (1, None)


def bound_statistics(
    rows: Sections, epsilon: float, x: Interval, cancels: torch.dtype | None = None
) -> tuple[Interval, Interval]:
    """Return the mean and the inverse of the deviation as outputs of `LayerNormalization`.

    Args:
        rows: The numbers.
        epsilon: The number that is added to the variance.
        x: The tensor that they are sections of.
        cancels: See :func:`standardise`.
    """
    known, wide = moments(rows), STATISTICS
    kept = tuple(1 if dim in rows.dims else size for dim, size in enumerate(x.shape))
    if sums_overflow(rows):
        anything = replace(Interval.fill(-math.inf, math.inf, kept, wide), nan=True, overflows=True)
        return anything, anything
    low, high = known.least_mean - known.drift, known.greatest_mean + known.drift
    mean = round_outward(rows.restore(low), rows.restore(high), wide, kept)
    if not epsilon >= 0:
        return mean, replace(Interval.top(kept, wide), nan=True)
    root = known.least_root(epsilon, x.dtype)
    # An epsilon of -0 would turn the infinity of rows without deviation around.
    least = torch.where(root > 4 * known.drift, root - 2 * known.drift, math.sqrt(abs(epsilon)))
    most = ((known.greatest_deviation + 1.25 * known.drift).square() + epsilon).sqrt()
    error = sum_error(rows.size, x.dtype, STATISTICS_ROUNDINGS)
    if cancels is not None:
        lost = cancellation(replace(rows, dtype=cancels))
        least, most = (least.square() - lost).clamp(min=0).sqrt(), (most.square() + lost).sqrt()
    if squares_overflow(rows):
        most = torch.full_like(most, math.inf)
    inverse = round_outward(
        rows.restore((1 - error) / most).clamp(min=0), rows.restore((1 + error) / least), wide, kept
    )
    return mean, inverse


def variance_stays_positive(
    dims: Dims, name: str = "x", epsilon: Callable[[Operation], float] | None = None, *, scaled: bool = False
) -> Callable[[Operation, Mapping[str, Interval]], bool]:
    """Return the proof that the variance of each section of an operand, plus epsilon, is above 0.

    Args:
        dims: The dimensions of a section.
        name: The operand.
        epsilon: The epsilon of a node; its attribute by default.
        scaled: Whether the way of computing it depends on a scale and a bias; see :func:`in_one_pass`.
    """

    def holds(op: Operation, operands: Mapping[str, Interval]) -> bool:
        x = operands[name]
        if not x.size or x.may_be_infinite:
            return not x.size
        rows = sections(x, dims(op, len(x.shape)))
        number = epsilon(op) if epsilon else float(op.epsilon)
        if scaled and in_one_pass(rows.size, *_shapes(operands["scale"], operands.get("b"))):
            return _stays_positive(replace(rows, dtype=torch.float64), number)
        return moments(rows).stays_positive(number, x.dtype)

    return holds


def groups_stay_positive(op: Operation, operands: Mapping[str, Interval]) -> bool:
    """Prove that mean(x^2) - mean(x)^2 + epsilon is above 0 for each group, although it cancels."""
    x = operands["x"]
    if not x.size or x.may_be_infinite:
        return not x.size
    return _stays_positive(_group_rows(op, group(x, op.num_groups)), float(op.epsilon))


def _stays_positive(rows: Sections, epsilon: float) -> bool:
    """Prove that mean(x^2) - mean(x)^2 + epsilon is above 0 for each section, although it cancels."""
    if not epsilon >= 0:
        return False
    root: Tensor = moments(rows).least_root(epsilon, rows.dtype)
    return bool((root.square() > cancellation(rows)).all())


def squares_stay_positive(dims: Dims) -> Callable[[Operation, Mapping[str, Interval]], bool]:
    """Return the proof that the mean square of each section of `x`, plus epsilon, is above 0."""

    def holds(op: Operation, operands: Mapping[str, Interval]) -> bool:
        x = operands["x"]
        if not x.size or x.may_be_infinite:
            return not x.size
        smallest = tiny(accumulation(x.dtype))
        if not 0 <= op.epsilon < smallest:
            return bool(op.epsilon >= smallest)
        rows = sections(x, dims(op, len(x.shape)))
        away = torch.where((rows.lower <= 0) & (rows.upper >= 0), 0.0, torch.minimum(rows.lower**2, rows.upper**2))
        return bool((rows.total(away) > 4 * rows.size * smallest).all())

    return holds


def size_of(ends: Sequence[Tensor]) -> Tensor:
    """Return the greatest magnitude between two ends."""
    return torch.maximum(ends[0].abs(), ends[1].abs())


def _least(points: Sequence[Tensor]) -> Tensor:
    least = points[0]
    for point in points[1:]:
        least = torch.minimum(least, point)
    return least


def _greatest(points: Sequence[Tensor]) -> Tensor:
    greatest = points[0]
    for point in points[1:]:
        greatest = torch.maximum(greatest, point)
    return greatest
