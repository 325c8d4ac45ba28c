"""Pools: maxima, means and norms over sliding windows or over all positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import AveragePool, GlobalAveragePool, MaxPool
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.linear_forms import Affine, pooling, summation
from ranum_falsify.network.registry import operator
from ranum_falsify.operators.functions import ints
from ranum_falsify.operators.windows import Axis, axes_of, pad_spatial, spatial, windowed
from ranum_falsify.validity import Condition, Operands

__all__ = ["GlobalLpPool", "GlobalMaxPool", "LpPool"]

_MAX: dict[int, Callable[..., Any]] = {
    1: functional.max_pool1d,
    2: functional.max_pool2d,
    3: functional.max_pool3d,
}
_AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def _axes(op: Operation, shape: Sequence[int]) -> list[Axis]:
    spatial(shape, op)
    return axes_of(op, shape, ints(op.kernel_shape) or [])


def _fits_torch(axes: list[Axis]) -> bool:
    """Tell whether PyTorch's own padding does: alike on both sides, at most half a window, nothing cut or added."""
    return all(a.before == a.after and 0 <= a.before <= a.kernel // 2 and a.count == a.full for a in axes)


# maxima ---------------------------------------------------------------------------------------------------------


def _max_pool(op: Operation, x: Tensor) -> tuple[Tensor, ...]:
    axes = _axes(op, x.shape)
    # PyTorch has no maximum over windows of integers; 8 bits are exact as floats.
    values = x if x.is_floating_point() else x.to(torch.float32)
    padding, skipped = [axis.before for axis in axes], [0] * len(axes)
    if not _fits_torch(axes):
        values = pad_spatial(values, [(a.before, a.after + a.beyond) for a in axes], -math.inf)
        padding, skipped = skipped, padding
    kernel, strides, dilations = [a.kernel for a in axes], [a.stride for a in axes], [a.dilation for a in axes]
    wanted = len(op.output_names) > 1 and bool(op.output_names[1])
    result = _MAX[len(axes)](values, kernel, strides, padding, dilations, False, wanted)
    y, found = result if wanted else (result, None)
    counted = (..., *(slice(axis.count) for axis in axes))
    y = y[counted].to(x.dtype)
    if found is None:
        return (y,) * len(op.output_names)
    return y, _flat_indices(found[counted], x, tuple(values.shape[2:]), skipped, bool(op.storage_order))


def _flat_indices(found: Tensor, x: Tensor, padded: tuple[int, ...], before: list[int], column_major: bool) -> Tensor:
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


def _global_max_pool(op: Operation, x: Tensor) -> Tensor:
    return x.amax(dim=tuple(range(2, x.ndim)), keepdim=True)


# means ----------------------------------------------------------------------------------------------------------


def _average_pool(op: Operation, x: Tensor) -> Tensor:
    axes = _axes(op, x.shape)
    with_padding = bool(op.count_include_pad)
    if _fits_torch(axes) and all(axis.dilation == 1 for axis in axes):
        kernel, strides = [a.kernel for a in axes], [a.stride for a in axes]
        direct: Tensor = _AVERAGE[len(axes)](x, kernel, strides, [a.before for a in axes], False, with_padding)
        return direct
    x = pad_spatial(x, [(a.before, a.after + a.beyond) for a in axes])
    for i, axis in enumerate(axes):
        sums = windowed(x, 2 + i, axis).sum(-1)
        counts = torch.tensor(_counts(axis, with_padding), dtype=x.dtype, device=x.device)
        x = sums / counts.reshape(-1, *[1] * (len(axes) - 1 - i))
    return x


def _counts(axis: Axis, with_padding: bool) -> list[int]:
    """Return how many elements each window averages over."""
    first = -axis.before if with_padding else 0
    last = axis.size + (axis.after if with_padding else 0)
    reads = [range(start, start + axis.extent, axis.dilation) for start in axis.starts()]
    return [sum(first <= position < last for position in window) for window in reads]


def _global_average_pool(op: Operation, x: Tensor) -> Tensor:
    return x.mean(dim=tuple(range(2, x.ndim)), keepdim=True)


# norms ----------------------------------------------------------------------------------------------------------


def _lp_pool(op: Operation, x: Tensor) -> Tensor:
    axes = _axes(op, x.shape)
    x = pad_spatial(x, [(a.before, a.after + a.beyond) for a in axes])
    for i, axis in enumerate(axes):
        x = torch.linalg.vector_norm(windowed(x, 2 + i, axis), op.p, dim=-1)
    return x


def _global_lp_pool(op: Operation, x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, op.p, dim=tuple(range(2, x.ndim)), keepdim=True)
    return norm


def _norm_above_zero(op: Operation, operands: Operands) -> Tensor:
    y = operands["output"]
    return torch.ones_like(y) if op.p == 1 else torch.where(y == 0, -torch.finfo(y.dtype).tiny, y)


_SMOOTH = Condition("norm of each window > 0", "derivative of the norm of zeros", _norm_above_zero)

operator(torch=_max_pool, overflow=False)(MaxPool)
operator(torch=_average_pool, linear=Affine(terms=pooling))(AveragePool)
operator(torch=_global_average_pool, linear=Affine(terms=summation))(GlobalAveragePool)


@operator(torch=_global_max_pool, overflow=False)
class GlobalMaxPool(Operation):
    """https://onnx.ai/onnx/operators/onnx__GlobalMaxPool.html."""


@operator(torch=_lp_pool, gradient_valid=[_SMOOTH])
class LpPool(Operation):
    """https://onnx.ai/onnx/operators/onnx__LpPool.html."""


@operator(torch=_global_lp_pool, gradient_valid=[_SMOOTH])
class GlobalLpPool(Operation):
    """https://onnx.ai/onnx/operators/onnx__GlobalLpPool.html."""
