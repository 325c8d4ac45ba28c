"""Pools: maxima, means and norms over sliding windows or over all positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import AveragePool, GlobalAveragePool, MaxPool
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.error_bounds import gamma, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine, Extremum, pooling, summation
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.matrix.bilinear import bound_weighted
from ranum_falsify.domain.rules.reduction import mean_of
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import SmallOperandError, UnsupportedAttributeError
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.families import opaque, rearranging, summing
from ranum_falsify.operators.support.functions import ints
from ranum_falsify.operators.support.windows import UNIFORM, Axis, axes_of, pad_spatial, spatial, view_windows
from ranum_falsify.validity import Condition, Operands

_MAX: dict[int, Callable[..., Any]] = {
    1: functional.max_pool1d,
    2: functional.max_pool2d,
    3: functional.max_pool3d,
}
_LARGEST_BASE = 1e60
"""Powers of larger numbers count as overflowing; their cubes would do so in float64."""
_AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def _axes(op: Operation, shape: Sequence[int]) -> list[Axis]:
    """Return the windows along each spatial axis, unless ONNX Runtime places them by rules of its own."""
    spatial(shape, op)
    axes = axes_of(op, shape, ints(op.kernel_shape) or [])
    is_same = (op.auto_pad or "").startswith("SAME")
    for axis in axes:
        if is_same and axis.left_over:
            raise UnsupportedAttributeError("auto_pad with strides beyond the kernel is refused by runtimes; give pads")
        if axis.size + axis.before + axis.after < axis.extent:
            raise SmallOperandError("its kernel is larger than the padded operand, and runtimes differ")
    return axes


def _fits_torch(axes: list[Axis]) -> bool:
    """Tell whether PyTorch's own padding serves: equal on both sides, at most half a window, nothing cut or added."""
    return all(a.before == a.after and 0 <= a.before <= a.kernel // 2 and a.count == a.full for a in axes)


# maxima ---------------------------------------------------------------------------------------------------------


def max_pool(op: Operation, x: Tensor) -> tuple[Tensor, ...]:
    """Return the maxima over windows, as a node's attributes say, and their positions if those are read."""
    wanted = len(op.output_names) > 1 and bool(op.output_names[1])
    y, found = _maxima(x, _axes(op, x.shape), bool(op.storage_order) if wanted else None)
    return (y,) * len(op.output_names) if found is None else (y, found)


def _maxima(x: Tensor, axes: list[Axis], column_major: bool | None) -> tuple[Tensor, Tensor | None]:
    """Return the maxima and, unless the order is None, where they were found."""
    # PyTorch has no maximum over windows of integers; 8 bits are exact as floats.
    values = x if x.is_floating_point() else x.to(torch.float32)
    padding, skipped = [axis.before for axis in axes], [0] * len(axes)
    if not _fits_torch(axes):
        values = pad_spatial(values, [(a.before, a.after + a.beyond) for a in axes], -math.inf)
        padding, skipped = skipped, padding
    kernel, strides, dilations = [a.kernel for a in axes], [a.stride for a in axes], [a.dilation for a in axes]
    wanted = column_major is not None
    result = _MAX[len(axes)](values, kernel, strides, padding, dilations, False, wanted)
    y, found = result if wanted else (result, None)
    counted = (..., *(slice(axis.count) for axis in axes))
    y = y[counted].to(x.dtype)
    if found is None:
        return y, None
    return y, _flatten_indices(found[counted], x, tuple(values.shape[2:]), skipped, bool(column_major))


def _flatten_indices(
    found: Tensor, x: Tensor, padded: tuple[int, ...], before: list[int], column_major: bool
) -> Tensor:
    """Return positions in the flattened operand from positions in each channel's padded map."""
    sizes = tuple(x.shape[2:])
    coordinates = []
    for size, skip in zip(reversed(padded), reversed(before), strict=True):
        coordinates.append(found % size - skip)
        found = found // size
    coordinates.reverse()
    order = range(len(sizes)) if column_major else reversed(range(len(sizes)))
    flat, step = torch.zeros_like(found), 1
    for i in order:
        flat = flat + coordinates[i] * step
        step *= sizes[i]
    maps = torch.arange(x.shape[0] * x.shape[1], device=x.device) * step
    return flat + maps.reshape(x.shape[0], x.shape[1], *[1] * len(sizes))


def _windows(op: Operation, places: Tensor) -> Tensor:
    """Return the windows of a pool as a last dimension, with -1 in the padding."""
    axes = _axes(op, places.shape)
    places = pad_spatial(places, [(a.before, a.after + a.beyond) for a in axes], -1)
    for i, axis in enumerate(axes):
        places = view_windows(places, 2 + i, axis)
    return places.flatten(2 + len(axes))


def _global_max_pool(op: Operation, x: Tensor) -> Tensor:
    return x.amax(dim=tuple(range(2, x.ndim)), keepdim=True)


# means ----------------------------------------------------------------------------------------------------------


def average_pool(op: Operation, x: Tensor) -> Tensor:
    """Return the means over windows, as a node's attributes say."""
    return _means(x, _axes(op, x.shape), bool(op.count_include_pad))


def _means(x: Tensor, axes: list[Axis], with_padding: bool) -> Tensor:
    if len(axes) == 3 and x.dtype is torch.float16:
        # PyTorch has no kernel for it on the CPU.
        return _means(x.float(), axes, with_padding).to(x.dtype)
    if _fits_torch(axes) and all(axis.dilation == 1 for axis in axes):
        kernel, strides = [a.kernel for a in axes], [a.stride for a in axes]
        direct: Tensor = _AVERAGE[len(axes)](x, kernel, strides, [a.before for a in axes], False, with_padding)
        return direct
    x = pad_spatial(x, [(a.before, a.after + a.beyond) for a in axes])
    for i, axis in enumerate(axes):
        sums = view_windows(x, 2 + i, axis).sum(-1)
        # The mean of no elements is 0 in ONNX Runtime.
        numbers = [max(count, 1) for count in _counts(axis, with_padding)]
        counts = torch.tensor(numbers, dtype=x.dtype, device=x.device)
        x = sums / counts.reshape(-1, *[1] * (len(axes) - 1 - i))
    return x


def _counts(axis: Axis, with_padding: bool) -> list[int]:
    """Return how many elements each window averages over."""
    first = -axis.before if with_padding else 0
    last = axis.size + (axis.after if with_padding else 0)
    reads = [range(start, start + axis.extent, axis.dilation) for start in axis.starts()]
    return [sum(first <= position < last for position in window) for window in reads]


# norms ----------------------------------------------------------------------------------------------------------


def _order_of(op: Operation) -> int:
    """Return the order of the norm, a positive number."""
    if op.p < 1:
        raise UnsupportedAttributeError(f"{type(op).__name__}: p {op.p} is not supported; take a positive number")
    return int(op.p)


def _lp_pool(op: Operation, x: Tensor) -> Tensor:
    axes = _axes(op, x.shape)
    x = pad_spatial(x, [(a.before, a.after + a.beyond) for a in axes])
    for i, axis in enumerate(axes):
        x = torch.linalg.vector_norm(view_windows(x, 2 + i, axis), _order_of(op), dim=-1)
    return x


def _global_lp_pool(op: Operation, x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, _order_of(op), dim=tuple(range(2, x.ndim)), keepdim=True)
    return norm


def _norm_above_zero(op: Operation, operands: Operands) -> Tensor:
    y = operands["output"]
    return torch.ones_like(y) if op.p == 1 else torch.where(y == 0, -torch.finfo(y.dtype).tiny, y)


# bounds ---------------------------------------------------------------------------------------------------------


def _find_merged(x: Interval, axes: list[Axis], *, reads_padding: bool) -> tuple[Interval, list[bool]]:
    """Return the operand and which of its spatial axes stay merged: where every window reads the same bounds."""
    zero = not reads_padding or bool(x.contains(0).all())
    merged = []
    for i, axis in enumerate(axes):
        after = axis.after + axis.beyond
        covered = axis.dilation == 1 and max(axis.before, after) < axis.kernel <= axis.size
        inside = axis.before <= 0 and after <= 0
        merged.append(x.lower.shape[2 + i] == 1 < axis.size and (inside or (covered and zero)))
    return x.split(*(2 + i for i, one in enumerate(merged) if not one)), merged


def _reduce(axes: list[Axis], merged: list[bool]) -> list[Axis]:
    return [UNIFORM if one else axis for one, axis in zip(merged, axes, strict=True)]


def _pooled_shape(x: Interval, axes: list[Axis]) -> tuple[int, ...]:
    return (*x.shape[:2], *(axis.count for axis in axes))


@infinity_aware
def max_pool_bounds(site: Site, x: Interval) -> tuple[Interval, ...]:
    """Bound `MaxPool`."""
    axes = _axes(site.op, x.shape)
    shape = _pooled_shape(x, axes)
    x, merged = _find_merged(x, axes, reads_padding=False)
    low, high = (_maxima(bound, _reduce(axes, merged), None)[0] for bound in (x.lower, x.upper))
    y = _not_below_all(Interval.of(low, high, shape))
    places = Interval.fill(0, max(math.prod(x.shape) - 1, 0), shape, torch.int64)
    if x.is_floating and x.extremes[0] == -math.inf:
        # In a window of nothing but -inf, PyTorch finds the maximum in the padding.
        places = Interval.top(shape, torch.int64)
    return (y, places)[: len(site.details)]


@infinity_aware
def _average_pool_bounds(site: Site, x: Interval) -> Interval:
    with_padding = bool(site.op.count_include_pad)
    axes = _axes(site.op, x.shape)
    shape = _pooled_shape(x, axes)
    x, merged = _find_merged(x, axes, reads_padding=with_padding)
    reduced = _reduce(axes, merged)
    terms = math.prod(axis.kernel for axis in axes)
    often = site.roundings_within(terms, x.dtype)
    return bound_weighted(
        lambda bound: _means(bound, reduced, with_padding), x, terms=terms, shape=shape, roundings=often
    )


@infinity_aware
def _global_average_pool_bounds(site: Site, x: Interval) -> Interval:
    dims = list(range(2, len(x.shape)))
    terms = math.prod(x.shape[2:])
    if often := site.roundings_within(terms, x.dtype):
        shape = (*x.shape[:2], *(1 for _ in dims))
        return bound_weighted(lambda bound: bound.mean(dims, True), x, terms=terms, shape=shape, roundings=often)
    y = mean_of(x, dims)
    return y if x.size or not y.size else replace(y, nan=True)


@infinity_aware
def _global_max_pool_bounds(site: Site, x: Interval) -> Interval:
    y = x.map(lambda bound: _global_max_pool(site.op, bound))
    return _not_below_all(replace(y, shape=(*x.shape[:2], *(1,) * (len(x.shape) - 2))))


def _not_below_all(y: Interval) -> Interval:
    """Return bounds that allow for ONNX Runtime: its maximum of nothing but -inf is the lowest finite number."""
    if not y.is_floating or not y.may_be_infinite:
        return y
    return replace(y, upper=y.upper.clamp(min=torch.finfo(y.dtype).min))


def _lp_pool_bounds(site: Site, x: Interval) -> Interval:
    axes = _axes(site.op, x.shape)
    shape = _pooled_shape(x, axes)
    x, merged = _find_merged(x, axes, reads_padding=True)
    times = math.prod(axis.kernel for one, axis in zip(merged, axes, strict=True) if one)
    reduced = _reduce(axes, merged)

    def total(powers: Tensor) -> Tensor:
        powers = pad_spatial(powers, [(a.before, a.after + a.beyond) for a in reduced])
        for i, axis in enumerate(reduced):
            powers = view_windows(powers, 2 + i, axis).sum(-1)
        return powers * times

    return _norm_bounds(site, x, total, math.prod(axis.kernel for axis in axes), shape)


def _global_lp_pool_bounds(site: Site, x: Interval) -> Interval:
    dims = tuple(range(2, len(x.shape)))
    terms = math.prod(x.shape[2:])
    times = terms // max(math.prod(x.lower.shape[2:]), 1)
    shape = (*x.shape[:2], *(1,) * len(dims))
    return _norm_bounds(site, x, lambda powers: powers.sum(dims, keepdim=True) * times, terms, shape)


def _norm_bounds(
    site: Site, x: Interval, total: Callable[[Tensor], Tensor], terms: int, shape: tuple[int, ...]
) -> Interval:
    """Return bounds on norms, given how to add up powers of absolute values; PyTorch takes one norm after another."""
    low, high = x.doubles()
    p, nested = _order_of(site.op), len(shape) - 2
    near = torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(low.abs(), high.abs()))
    far = torch.maximum(low.abs(), high.abs())
    work = torch.float64 if x.dtype is torch.float64 else torch.float32
    power = 0.0 if p in (1, 2) else 2 * site.own_envelope().relative
    error = nested * (power + gamma(terms + 8, work)) * 2
    lost = 4 * terms * tiny(work)
    least, greatest = (total(ends.clamp(max=_LARGEST_BASE).pow(p)) for ends in (near, far))
    least, greatest = (least * (1 - error) - lost).clamp(min=0), greatest * (1 + error) + lost
    overflows = (greatest >= torch.finfo(work).max) | (total((far >= _LARGEST_BASE).double()) > 0)
    # Not all kernels of PyTorch compute powers that overflow.
    least, greatest = torch.where(least.isinf(), 0.0, least).pow(1 / p), greatest.pow(1 / p)
    if x.dtype is not work:
        # PyTorch rounds the norm along each axis to half precision.
        error += 2 * nested * unit(x.dtype)
        lost = nested * tiny(x.dtype) * float(torch.finfo(x.dtype).eps)
        least, greatest = (least - lost).clamp(min=0), greatest + lost
    greatest = torch.where(overflows, math.inf, greatest * (1 + error))
    return round_outward(least * max(1 - error, 0.0), greatest, x.dtype, shape)


_SMOOTH = Condition(
    "norm of each window > 0",
    "derivative of the norm of zeros",
    _norm_above_zero,
    holds_of=lambda op, bounds: op.p == 1 or bool((bounds["output"].lower > 0).all()),
)


def _always_reads(op: Operation, shape: Sequence[int]) -> bool:
    return all(min(_counts(axis, False), default=1) for axis in _axes(op, shape))


_READS = Condition(
    "each window reads an element",
    "maximum of padding alone",
    margin_of=lambda op, operands: torch.full_like(
        operands["output"], 1.0 if _always_reads(op, operands["x"].shape) else -1.0, dtype=torch.float32
    ),
    holds_of=lambda op, bounds: not bounds["x"].is_floating or _always_reads(op, bounds["x"].shape),
    fails_of=lambda op, bounds: bounds["x"].is_floating and not _always_reads(op, bounds["x"].shape),
)

rearranging(
    torch=max_pool,
    interval=max_pool_bounds,
    linear=Extremum(windows=_windows),
    batch=batching.max_pooled,
    valid=[_READS],
)(MaxPool)
summing(
    torch=average_pool,
    interval=_average_pool_bounds,
    linear=Affine(terms=pooling),
    batch=batching.samplewise,
)(AveragePool)
summing(
    torch=lambda op, x: x.mean(dim=tuple(range(2, x.ndim)), keepdim=True),
    interval=_global_average_pool_bounds,
    linear=Affine(terms=summation),
    batch=batching.samplewise,
)(GlobalAveragePool)


@rearranging(
    torch=_global_max_pool,
    interval=_global_max_pool_bounds,
    linear=Extremum(windows=lambda op, x: x.reshape(*x.shape[:2], *[1] * (x.ndim - 2), -1)),
    batch=batching.samplewise,
)
class GlobalMaxPool(Operation):
    """https://onnx.ai/onnx/operators/onnx__GlobalMaxPool.html."""


@opaque(torch=_lp_pool, interval=_lp_pool_bounds, kernel="Pow", valid=(), gradient_valid=[_SMOOTH])
class LpPool(Operation):
    """https://onnx.ai/onnx/operators/onnx__LpPool.html."""


@opaque(torch=_global_lp_pool, interval=_global_lp_pool_bounds, kernel="Pow", valid=(), gradient_valid=[_SMOOTH])
class GlobalLpPool(Operation):
    """https://onnx.ai/onnx/operators/onnx__GlobalLpPool.html."""
