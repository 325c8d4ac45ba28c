"""Indexing: reading and writing elements at positions that are tensors themselves.

ONNX Runtime refuses an index out of range, which is a violation of a condition of the row.  What is computed here takes
such an index modulo the size, so that one bad sample cannot stop a batch (or, on CUDA, the process).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Gather
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.domain.rules.indexing import (
    count_nonzero,
    find_nonzero,
    scatter,
    scatter_anywhere,
    scatter_partly,
    unbounded,
)
from ranum_falsify.domain.rules.shape import choose, collapse, cut, evaluate, narrow, rearrange, reshape, take
from ranum_falsify.domain.rules.support.building import infinity_aware, keeping_infinity
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network.registry import ChosenSize
from ranum_falsify.network.tensorise import Surroundings, lowering, refuse
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.operators.relations.patterns import refined
from ranum_falsify.operators.relations.scatter_gather import what_was_written
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.conditions import ADDRESSES, Limits, WithinLimits, count_bytes, indices_of
from ranum_falsify.operators.support.families import making, plain, rearranging
from ranum_falsify.operators.support.functions import moves_unsigned

_REDUCTIONS = {"mul": "prod", "max": "amax", "min": "amin"}


def _wrap(indices: Tensor, size: int) -> Tensor:
    """Return indices counted from the front: negative ones count from the end."""
    return torch.remainder(indices, max(size, 1))


@moves_unsigned
def _gather(op: Operation, x: Tensor, indices: Tensor) -> Tensor:
    axis = op.axis % x.ndim
    shape = x.shape[:axis] + indices.shape + x.shape[axis + 1 :]
    if not x.shape[axis]:
        return x.new_zeros(shape)
    positions = _wrap(indices, x.shape[axis])
    return x.index_select(axis, positions.reshape(-1)).reshape(shape)


@moves_unsigned
def _gather_elements(op: Operation, x: Tensor, indices: Tensor) -> Tensor:
    return torch.gather(x, op.axis, _wrap(indices, x.shape[op.axis]).long())


def _flatten_index(indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the row-major position of each index vector (last dimension) in a box of these sizes."""
    flat = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=indices.device)
    for position, size in enumerate(sizes):
        flat = flat * size + _wrap(indices[..., position], size)
    return flat


@moves_unsigned
def _gather_nd(op: Operation, x: Tensor, indices: Tensor) -> Tensor:
    batch_dims, depth = op.batch_dims or 0, indices.shape[-1]
    batch, sizes = x.shape[:batch_dims], x.shape[batch_dims : batch_dims + depth]
    if not 0 <= batch_dims < indices.ndim or indices.shape[:batch_dims] != batch:
        # ONNX Runtime reads indices of another batch as they are stored.
        raise UnsupportedAttributeError(f"batch_dims {batch_dims}, which x and indices do not share")
    rest = x.shape[batch_dims + depth :]
    flat, cells = _flatten_index(indices, sizes), math.prod(sizes)
    if batch_dims:
        offset = torch.arange(math.prod(batch), device=x.device) * cells
        flat = flat + offset.reshape(tuple(batch) + (1,) * (flat.ndim - batch_dims))
    rows = x.reshape(math.prod(batch) * cells, math.prod(rest))
    return rows.index_select(0, flat.reshape(-1)).reshape(tuple(flat.shape) + tuple(rest))


def _scatter(x: Tensor, axis: int, indices: Tensor, updates: Tensor, reduction: str | None) -> Tensor:
    if reduction in (None, "none"):
        return torch.scatter(x, axis, indices, updates)
    if reduction == "add":
        return torch.scatter_add(x, axis, indices, updates)
    if reduction not in _REDUCTIONS:
        raise UnsupportedAttributeError(f"reduction {reduction!r} is not supported; use none, add, mul, max or min")
    return torch.scatter_reduce(x, axis, indices, updates, _REDUCTIONS[reduction], include_self=True)


@moves_unsigned
def _scatter_elements(op: Operation, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    positions = _wrap(indices, x.shape[op.axis]).long()
    return _scatter(x, op.axis, positions, updates, getattr(op, "reduction", None))


@moves_unsigned
def _scatter_nd(op: Operation, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    depth = indices.shape[-1]
    sizes, rest = x.shape[:depth], math.prod(x.shape[depth:])
    rows = x.reshape(math.prod(sizes), rest)
    flat = _flatten_index(indices, sizes).reshape(-1, 1).expand(-1, rest)
    return _scatter(rows, 0, flat, updates.reshape(flat.shape), op.reduction).reshape(x.shape)


# bounds ---------------------------------------------------------------------------------------------------------


def _window(indices: Interval, size: int) -> range:
    """Return the positions of an axis that indices may choose; all of them where some are out of range."""
    low, high = indices.extremes
    if -size <= low and high < 0:
        low, high = low + size, high + size
    return range(int(low), int(high) + 1) if 0 <= low and high < size else range(size)


def _choose_any(x: Interval, axis: int, indices: Interval) -> Interval:
    """Return bounds on the elements that indices may choose along an axis, merged along it."""
    window = _window(indices, x.shape[axis])
    return collapse(narrow(x, axis, window.start, len(window)), axis)


def _gather_bounds(site: Site, x: Interval, indices: Interval) -> Interval:
    axis = site.op.axis % len(x.shape)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    if not x.shape[axis] or not math.prod(shape):
        return Interval.top(shape, x.dtype)
    if indices.is_point:
        return replace(take(x, axis, _wrap(indices.lower, x.shape[axis]).long()), shape=shape)
    stored = list(x.lower.shape)
    stored[axis : axis + 1] = [1] * len(indices.shape)
    return rearrange(_choose_any(x, axis, indices), lambda bound: bound.reshape(stored), shape)


def _gather_elements_bounds(site: Site, x: Interval, indices: Interval) -> Interval:
    axis, shape = site.op.axis % len(x.shape), indices.shape
    if not math.prod(shape):
        return Interval.top(shape, x.dtype)
    x = cut(x, [range(n if dim == axis else shape[dim]) for dim, n in enumerate(x.shape)])
    if x.lower.shape[axis] == 1 or not indices.is_point:
        return replace(_choose_any(x, axis, indices), shape=shape)
    positions = _wrap(indices.expand()[0], x.shape[axis]).long()
    return rearrange(x.split(*range(len(shape))), lambda bound: torch.gather(bound, axis, positions), shape)


def _gather_nd_bounds(site: Site, x: Interval, indices: Interval) -> Interval:
    first, depth = site.op.batch_dims or 0, indices.shape[-1]
    dims = range(first, first + depth)
    shape = (*indices.shape[:-1], *x.shape[dims.stop :])
    if not math.prod(shape) or not x.size:
        return Interval.top(shape, x.dtype)
    if indices.is_point:
        known = indices.expand()[0]
        return rearrange(x.split(*range(dims.stop)), lambda bound: _gather_nd(site.op, bound, known), shape)
    whole = collapse(x, *dims)
    sizes = whole.lower.shape
    stored = (*sizes[:first], *[1] * (len(indices.shape) - 1 - first), *sizes[dims.stop :])
    return rearrange(whole, lambda bound: bound.reshape(stored), shape)


def _cancels(x: Interval, updates: Interval, reduction: str | None) -> bool:
    """Tell whether infinities may meet in sums or products."""
    return reduction in ("add", "mul") and (x.may_be_infinite or updates.may_be_infinite)


def _scatter_elements_bounds(site: Site, x: Interval, indices: Interval, updates: Interval) -> Interval:
    axis, reduction = site.op.axis % len(x.shape), getattr(site.op, "reduction", None)
    if not updates.size:
        return x
    if _cancels(x, updates, reduction):
        return unbounded(site)
    (least, greatest), size = indices.expand(), x.shape[axis]
    known = (least == greatest) & (least >= -size) & (least < size)
    if not known.any() or (reduction == "mul" and not known.all()):
        return scatter_anywhere(x, updates, reduction, indices.shape[axis], flushes=site.flushes)
    positions = _wrap(least, size).long().movedim(axis, 0)
    rows, written = (operand.move(lambda bound: bound.movedim(axis, 0)) for operand in (x, updates))
    if known.all():
        y = scatter(rows, positions, written, reduction, flushes=site.flushes)
    else:
        y = scatter_partly(rows, positions, known.movedim(axis, 0), written, reduction, flushes=site.flushes)
    return replace(y.move(lambda bound: bound.movedim(0, axis)), nan=y.nan, overflows=y.overflows)


def _scatter_nd_bounds(site: Site, x: Interval, indices: Interval, updates: Interval) -> Interval:
    depth, reduction = indices.shape[-1], site.op.reduction
    if not updates.size:
        return x
    if _cancels(x, updates, reduction):
        return unbounded(site)
    count = math.prod(indices.shape[:-1])
    if not indices.is_point:
        return scatter_anywhere(x, updates, reduction, count, flushes=site.flushes)
    sizes, rest = x.shape[:depth], math.prod(x.shape[depth:])
    flat = _flatten_index(indices.expand()[0], sizes).reshape(-1, 1).expand(-1, rest)
    rows, written = reshape(x, (math.prod(sizes), rest)), reshape(updates, (count, rest))
    # Threads of ONNX Runtime read and write an element at once: of 1,000 updates of one, as few as half arrive.
    lossy = "onnxruntime" in site.runtimes
    y = scatter(rows, flat, written, reduction, may_lose=lossy, flushes=site.flushes)
    return replace(reshape(y, x.shape), nan=y.nan, overflows=y.overflows)


# conditions -----------------------------------------------------------------------------------------------------


def _along_axis(operand: str) -> WithinLimits:
    return indices_of(operand, "x", lambda op: op.axis)


def _cells(op: Operation, operands: Mapping[str, Any]) -> Limits:
    """Return the limits of each element of an index vector."""
    first, depth = getattr(op, "batch_dims", None) or 0, operands["indices"].shape[-1]
    sizes = torch.tensor([int(size) for size in operands["x"].shape[first : first + depth]])
    return -sizes, sizes - 1


_IN_CELLS = WithinLimits("indices", "-n <= indices < n, the sizes of the dimensions of x", _cells)


rearranging(
    torch=_gather,
    interval=refined(keeping_infinity(_gather_bounds), what_was_written),
    linear=Affine(operands=("x",)),
    batch=batching.along_axis,
    valid=[_along_axis("indices")],
    operands=("x", "indices"),
)(Gather)


@rearranging(
    torch=_gather_elements,
    interval=refined(keeping_infinity(_gather_elements_bounds), what_was_written),
    linear=Affine(operands=("x",)),
    batch="vmap",
    valid=[_along_axis("indices")],
    operands=("x", "indices"),
)
class GatherElements(Operation):
    """https://onnx.ai/onnx/operators/onnx__GatherElements.html."""


@rearranging(
    torch=_gather_nd,
    interval=refined(keeping_infinity(_gather_nd_bounds), what_was_written),
    linear=Affine(operands=("x",)),
    batch="vmap",
    valid=[_IN_CELLS],
    operands=("x", "indices"),
)
class GatherND(Operation):
    """https://onnx.ai/onnx/operators/onnx__GatherND.html."""


@making(
    torch=_scatter_elements,
    interval=infinity_aware(_scatter_elements_bounds),
    valid=[_along_axis("indices")],
    operands=("x", "indices", "updates"),
)
class Scatter(Operation):
    """https://onnx.ai/onnx/operators/onnx__Scatter.html."""


@plain(
    torch=_scatter_elements,
    interval=infinity_aware(_scatter_elements_bounds),
    valid=[_along_axis("indices")],
    operands=("x", "indices", "updates"),
)
class ScatterElements(Operation):
    """https://onnx.ai/onnx/operators/onnx__ScatterElements.html."""


@plain(
    torch=_scatter_nd,
    interval=infinity_aware(_scatter_nd_bounds),
    valid=[_IN_CELLS],
    operands=("x", "indices", "updates"),
)
class ScatterND(Operation):
    """https://onnx.ai/onnx/operators/onnx__ScatterND.html."""


def _read_depth(depth: np.ndarray) -> int:
    """Return a depth, which may be a float beyond all integers."""
    most = torch.iinfo(torch.int64).max
    return int(max(-most, min(depth.reshape(-1)[0].item(), most)))


def _one_hot(op: Operation, indices: Tensor, depth: np.ndarray, values: Tensor) -> Tensor:
    count = _read_depth(depth)
    rank = indices.ndim + 1
    axis = op.axis % rank
    classes = torch.arange(count, device=indices.device).reshape([-1 if d == axis else 1 for d in range(rank)])
    hot = indices.long().unsqueeze(axis)
    hot = torch.where(hot < 0, hot + count, hot)
    return torch.where(hot == classes, values[1], values[0])


def _one_hot_bounds(site: Site, indices: Interval, depth: np.ndarray, values: Interval) -> Interval:
    count, rank = _read_depth(depth), len(indices.shape) + 1
    axis = site.op.axis % rank
    classes = torch.arange(count, dtype=torch.float64).reshape([-1 if d == axis else 1 for d in range(rank)])
    low, high = (bound.unsqueeze(axis) for bound in indices.doubles())
    # Some kernels truncate fractions before they count negative indices from the end, others after it.
    ends = [(low, high), (low + count, high + count), (low.trunc() + count, high.trunc() + count)]
    hits = ((start.trunc() <= classes) & (end.trunc() >= classes) for start, end in ends)
    maybe = reduce(torch.logical_or, hits)
    shape = (*indices.shape[:axis], count, *indices.shape[axis:])
    off, on = (Interval(lower, upper, ()) for lower, upper in zip(*values.expand(), strict=True))
    return choose(Interval.of(maybe & (low == high) & (low == low.trunc()), maybe, shape), on, off)


def _depths(op: Operation, operands: Mapping[str, Any]) -> Limits:
    """Return the limits of the depth, up to that of the largest output that a process can address."""
    row = count_bytes(operands["indices"].shape, operands["values"].dtype.itemsize)
    return 1, (ADDRESSES - 1) // row


_DEPTH = WithinLimits(
    "depth",
    "depth >= 1, and the output has fewer than 2**47 bytes",
    _depths,
    reason="ONNX Runtime refuses other depths",
    decided_by=("depth",),
)


@making(torch=_one_hot, interval=infinity_aware(_one_hot_bounds), valid=[_DEPTH], static=("depth",))
class OneHot(Operation):
    """https://onnx.ai/onnx/operators/onnx__OneHot.html."""


def _non_zero(op: Operation, x: Tensor) -> Tensor:
    # A number has one axis in ONNX Runtime.
    return torch.nonzero(x if x.ndim else x.reshape(1)).T


def _non_zero_bounds(site: Site, x: Interval) -> Interval | tuple[Interval, ...]:
    """Bound positions where their number is known: that of the j-th of k lies between the j-th and the k-th last."""
    places, count = find_nonzero(x)[0], site.shape[1]
    if x.is_point or len(places) < count:
        return evaluate(site, x)
    sizes = x.shape or (1,)
    row = math.prod(sizes[1:])
    lower, upper = (torch.zeros(len(sizes), count, dtype=torch.int64) for _ in range(2))
    upper += torch.tensor([[size - 1] for size in sizes])
    lower[0], upper[0] = places[:count] // max(row, 1), places[len(places) - count :] // max(row, 1)
    return Interval.of(lower, upper, (len(sizes), count))


@making(
    torch=_non_zero,
    interval=infinity_aware(_non_zero_bounds),
    dynamic_shape=True,
    chosen=ChosenSize(axis=lambda op: 1, limits=lambda op, x: count_nonzero(x)),
)
class NonZero(Operation):
    """https://onnx.ai/onnx/operators/onnx__NonZero.html."""


def unique(op: Operation, x: Tensor) -> tuple[Tensor, ...]:
    """Return each element or slice once, where it comes first, which one each is, and how often it comes."""
    axis = op.axis
    if axis is None:
        x, axis = x.reshape(-1), 0
    _, first, inverse, counts = np.unique(
        to_numpy(x), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not op.sorted:
        order = np.argsort(first)
        rank = np.argsort(order)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    index, back, count = (torch.from_numpy(a.astype(np.int64)).to(x.device) for a in (first, inverse, counts))
    return x.index_select(axis, index), index, back, count


@lowering("Unique", when=lambda node: False)
def _keep_texts(around: Surroundings, node: onnx.NodeProto) -> None:
    """Refuse strings whose codes are in another order, or stand for several strings."""
    is_sorted = all(attribute.i for attribute in node.attribute if attribute.name == "sorted")
    if around.resolve(node.input[0]) in around.texts and (around.is_open or is_sorted):
        raise refuse(node, "it sorts strings, or tells those of inputs from each other")


@making(torch=unique, interval=evaluate, dynamic_shape=True)
class Unique(Operation):
    """https://onnx.ai/onnx/operators/onnx__Unique.html."""
