"""Indexing: reading and writing elements at positions that are tensors themselves.

ONNX Runtime refuses an index out of range.  Here such an index is taken modulo the size, so that one bad sample
cannot stop a batch (or, on CUDA, the process); a candidate with such an index fails its replay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Gather
from torch import Tensor

from ranum_falsify.domain.linear_forms import Affine
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network.registry import operator
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.operators.unsigned import moves_unsigned

__all__ = ["GatherElements", "GatherND", "NonZero", "OneHot", "Scatter", "ScatterElements", "ScatterND", "Unique"]

_REDUCTIONS = {"mul": "prod", "max": "amax", "min": "amin"}


def _wrapped(indices: Tensor, size: int) -> Tensor:
    """Return indices counted from the front: negative ones count from the end."""
    return torch.remainder(indices, max(size, 1))


@moves_unsigned
def _gather(op: Operation, x: Tensor, indices: Tensor) -> Tensor:
    axis = op.axis % x.ndim
    positions = _wrapped(indices, x.shape[axis])
    taken = x.index_select(axis, positions.reshape(-1))
    return taken.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


@moves_unsigned
def _gather_elements(op: Operation, x: Tensor, indices: Tensor) -> Tensor:
    return torch.gather(x, op.axis, _wrapped(indices, x.shape[op.axis]).long())


def _flat_index(indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the row-major position of each index vector (last dimension) in a box of these sizes."""
    flat = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=indices.device)
    for position, size in enumerate(sizes):
        flat = flat * size + _wrapped(indices[..., position], size)
    return flat


@moves_unsigned
def _gather_nd(op: Operation, x: Tensor, indices: Tensor) -> Tensor:
    batch_dims, depth = op.batch_dims or 0, indices.shape[-1]
    batch, sizes = x.shape[:batch_dims], x.shape[batch_dims : batch_dims + depth]
    rest = x.shape[batch_dims + depth :]
    flat, cells = _flat_index(indices, sizes), math.prod(sizes)
    if batch_dims:
        offset = torch.arange(math.prod(batch), device=x.device) * cells
        flat = flat + offset.reshape(tuple(batch) + (1,) * (flat.ndim - batch_dims))
    rows = x.reshape(math.prod(batch) * cells, math.prod(rest))
    return rows.index_select(0, flat.reshape(-1)).reshape(tuple(flat.shape) + tuple(rest))


def _scattered(x: Tensor, axis: int, indices: Tensor, updates: Tensor, reduction: str | None) -> Tensor:
    if reduction in (None, "none"):
        return torch.scatter(x, axis, indices, updates)
    if reduction == "add":
        return torch.scatter_add(x, axis, indices, updates)
    if reduction not in _REDUCTIONS:
        raise UnsupportedAttributeError(f"reduction {reduction!r} is not supported; use none, add, mul, max or min")
    return torch.scatter_reduce(x, axis, indices, updates, _REDUCTIONS[reduction], include_self=True)


@moves_unsigned
def _scatter_elements(op: Operation, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    positions = _wrapped(indices, x.shape[op.axis]).long()
    return _scattered(x, op.axis, positions, updates, getattr(op, "reduction", None))


@moves_unsigned
def _scatter_nd(op: Operation, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    depth = indices.shape[-1]
    sizes, rest = x.shape[:depth], math.prod(x.shape[depth:])
    rows = x.reshape(math.prod(sizes), rest)
    flat = _flat_index(indices, sizes).reshape(-1, 1).expand(-1, rest)
    return _scattered(rows, 0, flat, updates.reshape(flat.shape), op.reduction).reshape(x.shape)


operator(torch=_gather, operands=("x", "indices"), overflow=False, linear=Affine(operands=("x",)))(Gather)


@operator(torch=_gather_elements, operands=("x", "indices"), overflow=False, linear=Affine(operands=("x",)))
class GatherElements(Operation):
    """https://onnx.ai/onnx/operators/onnx__GatherElements.html."""


@operator(torch=_gather_nd, operands=("x", "indices"), overflow=False, linear=Affine(operands=("x",)))
class GatherND(Operation):
    """https://onnx.ai/onnx/operators/onnx__GatherND.html."""


@operator(torch=_scatter_elements, operands=("x", "indices", "updates"), overflow=False)
class Scatter(Operation):
    """https://onnx.ai/onnx/operators/onnx__Scatter.html."""


@operator(torch=_scatter_elements, operands=("x", "indices", "updates"))
class ScatterElements(Operation):
    """https://onnx.ai/onnx/operators/onnx__ScatterElements.html."""


@operator(torch=_scatter_nd, operands=("x", "indices", "updates"))
class ScatterND(Operation):
    """https://onnx.ai/onnx/operators/onnx__ScatterND.html."""


def _one_hot(op: Operation, indices: Tensor, depth: np.ndarray, values: Tensor) -> Tensor:
    count = int(depth.reshape(-1)[0])
    rank = indices.ndim + 1
    axis = op.axis % rank
    classes = torch.arange(count, device=indices.device).reshape([-1 if d == axis else 1 for d in range(rank)])
    hot = indices.long().unsqueeze(axis)
    hot = torch.where(hot < 0, hot + count, hot)
    return torch.where(hot == classes, values[1], values[0])


@operator(torch=_one_hot, static=("depth",), overflow=False)
class OneHot(Operation):
    """https://onnx.ai/onnx/operators/onnx__OneHot.html."""


def _non_zero(op: Operation, x: Tensor) -> Tensor:
    return torch.nonzero(x).T if x.ndim else torch.nonzero(x.reshape(1))[:, :0].T


@operator(torch=_non_zero, dynamic_shape=True, overflow=False)
class NonZero(Operation):
    """https://onnx.ai/onnx/operators/onnx__NonZero.html."""


def _unique(op: Operation, x: Tensor) -> tuple[Tensor, ...]:
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


@operator(torch=_unique, dynamic_shape=True, overflow=False)
class Unique(Operation):
    """https://onnx.ai/onnx/operators/onnx__Unique.html."""
