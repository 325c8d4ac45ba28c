"""Writing: maxima back to where they were found, updates into a cache.

ONNX Runtime refuses a position outside the result; what is computed here takes it modulo the size, as in
`ranum_falsify.operators.rows.indexing`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.indexing import scatter
from ranum_falsify.domain.rules.shape import collapse, reshape
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.support.conditions import Limits, WithinLimits
from ranum_falsify.operators.support.families import rearranging
from ranum_falsify.operators.support.functions import ints, moves_unsigned


def _unpooled_shape(op: Operation, shape: Sequence[int]) -> tuple[int, ...]:
    kernel = ints(op.kernel_shape) or []
    strides, pads = ints(op.strides) or [1] * len(kernel), ints(op.pads) or [0] * (2 * len(kernel))
    sizes = ((shape[2 + i] - 1) * strides[i] - pads[i] - pads[len(kernel) + i] + size for i, size in enumerate(kernel))
    return (*shape[:2], *sizes)


def _fit_shape(y: Tensor, shape: np.ndarray | None) -> Tensor:
    """Return a tensor with zeros after it, up to a larger shape."""
    if shape is None:
        return y
    wider = [int(size) - own for size, own in zip(ints(shape) or [], y.shape, strict=True)]
    return torch.nn.functional.pad(y, [width for size in reversed(wider) for width in (0, size)])


def _max_unpool(op: Operation, x: Tensor, indices: Tensor, output_shape: np.ndarray | None) -> Tensor:
    shape = _unpooled_shape(op, x.shape)
    flat = torch.remainder(indices, max(math.prod(shape), 1)).reshape(-1)
    y = torch.scatter(x.new_zeros(math.prod(shape)), 0, flat, x.reshape(-1)).reshape(shape)
    return _fit_shape(y, output_shape)


def _max_unpool_bounds(site: Site, x: Interval, indices: Interval, output_shape: np.ndarray | None) -> Interval:
    shape = _unpooled_shape(site.op, x.shape)
    if output_shape is not None or not indices.is_point or not x.size:
        # Runtimes count positions in the larger shape, or in that of the windows.
        whole = shape if output_shape is None else tuple(ints(output_shape) or ())
        return Interval.fill(0, 0, whole, x.dtype).hull(_any_of(x, len(whole)))
    flat = torch.remainder(indices.expand()[0], math.prod(shape)).reshape(-1, 1)
    zeros = Interval.fill(0, 0, (math.prod(shape), 1), x.dtype)
    return reshape(scatter(zeros, flat, reshape(x, (x.size, 1)), None), shape)


def _any_of(x: Interval, rank: int) -> Interval:
    """Return bounds on any element of a tensor, as one of another number of dimensions."""
    if not x.size:
        return Interval.fill(0, 0, (1,) * rank, x.dtype)
    whole = collapse(x, *range(len(x.shape)))
    return Interval(whole.lower.reshape((1,) * rank), whole.upper.reshape((1,) * rank), (1,) * rank)


def _places_unpooled(op: Operation, operands: Mapping[str, Any]) -> Limits:
    shape = operands["output"].shape if "output" in operands else _unpooled_shape(op, operands["x"].shape)
    return 0, math.prod(shape) - 1


@rearranging(
    torch=_max_unpool,
    interval=infinity_aware(_max_unpool_bounds),
    linear=None,
    batch="vmap",
    valid=[WithinLimits("indices", "0 <= indices < n, the number of elements of the output", _places_unpooled)],
    operands=("x", "indices", "output_shape"),
    renamed={"X": "x", "I": "indices"},
    static=("output_shape",),
)
class MaxUnpool(Operation):
    """https://onnx.ai/onnx/operators/onnx__MaxUnpool.html."""


def _cache_places(op: Operation, cache: Sequence[int], count: int, starts: Tensor) -> tuple[int, Tensor]:
    """Return the axis along which a cache is written, and the position of each update, `(batch, updates)`."""
    axis = op.axis % len(cache)
    size = max(cache[axis], 1)
    places = torch.remainder(starts.reshape(-1, 1), size) + torch.arange(count, device=starts.device)
    return axis, torch.remainder(places, size)


@moves_unsigned
def _tensor_scatter(op: Operation, past_cache: Tensor, update: Tensor, write_indices: Tensor | None) -> Tensor:
    starts = update.new_zeros(update.shape[0], dtype=torch.int64) if write_indices is None else write_indices
    axis, places = _cache_places(op, past_cache.shape, update.shape[op.axis], starts)
    form = [-1 if dim == axis else size if dim == 0 else 1 for dim, size in enumerate(update.shape)]
    return torch.scatter(past_cache, axis, places.reshape(form).expand(update.shape), update)


def _tensor_scatter_bounds(
    site: Site, past_cache: Interval, update: Interval, write_indices: Interval | None
) -> Interval:
    if not update.size:
        return past_cache
    if write_indices is not None and not write_indices.is_point:
        anywhere = collapse(update, site.op.axis % len(update.shape))
        return past_cache.hull(replace(anywhere, shape=past_cache.shape))
    count = update.shape[0]
    starts = torch.zeros(count, dtype=torch.int64) if write_indices is None else write_indices.expand()[0]
    axis, places = _cache_places(site.op, past_cache.shape, update.shape[site.op.axis], starts)
    form = [-1 if dim == axis else size if dim == 0 else 1 for dim, size in enumerate(update.shape)]
    index = places.reshape(form).expand(update.shape).movedim(axis, 0)
    rows, written = (operand.move(lambda bound: bound.movedim(axis, 0)) for operand in (past_cache, update))
    return scatter(rows, index, written, None).move(lambda bound: bound.movedim(0, axis))


def _starts(op: Operation, operands: Mapping[str, Any]) -> Limits:
    """Return where updates may start; those of a circular cache go on at its beginning."""
    size, count = (int(operands[name].shape[op.axis]) for name in ("past_cache", "update"))
    return 0, 2**63 - 1 if op.mode == "circular" else size - count


@rearranging(
    torch=_tensor_scatter,
    interval=infinity_aware(_tensor_scatter_bounds),
    linear=None,
    batch="vmap",
    valid=[WithinLimits("write_indices", "0 <= write_indices, and the updates fit the cache", _starts)],
)
class TensorScatter(Operation):
    """https://onnx.ai/onnx/operators/onnx__TensorScatter.html."""
