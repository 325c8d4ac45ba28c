"""Shapes: moving, joining and splitting tensors without computing."""

from __future__ import annotations

import math

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import (
    Concat,
    Expand,
    Flatten,
    Identity,
    Reshape,
    Shape,
    Split,
    Tile,
    Transpose,
    Unsqueeze,
)
from torch import Tensor

from ranum_falsify.domain.linear_forms import Affine
from ranum_falsify.errors import ModelError
from ranum_falsify.network.registry import operator
from ranum_falsify.operators.functions import elementwise, ints

__all__ = ["DepthToSpace", "Size", "SpaceToDepth", "Squeeze"]


def _reshape(op: Operation, x: Tensor, shape: np.ndarray) -> Tensor:
    sizes = ints(shape) or []
    if not op.allowzero:
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


def _flatten(op: Operation, x: Tensor) -> Tensor:
    axis = op.axis + x.ndim if op.axis < 0 else op.axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _squeeze(op: Operation, x: Tensor, axes: np.ndarray | None) -> Tensor:
    chosen = ints(axes)
    if chosen is None:
        return x.squeeze()
    for axis in chosen:
        if x.shape[axis] != 1:
            raise ModelError(f"axis {axis} of shape {tuple(x.shape)} cannot be squeezed, its size is not 1")
    return x.squeeze(tuple(chosen)) if chosen else x


def _unsqueeze(op: Operation, x: Tensor, axes: np.ndarray) -> Tensor:
    chosen = ints(axes) or []
    rank = x.ndim + len(chosen)
    for axis in sorted(axis % rank for axis in chosen):
        x = x.unsqueeze(axis)
    return x


def _transpose(op: Operation, x: Tensor) -> Tensor:
    return x.permute(op.permutation if op.permutation is not None else tuple(reversed(range(x.ndim))))


def _expand(op: Operation, x: Tensor, shape: np.ndarray) -> Tensor:
    # The shape may hold 1 where x is larger: both sides broadcast.
    return x.expand(torch.broadcast_shapes(x.shape, tuple(ints(shape) or ())))


def _tile(op: Operation, x: Tensor, repeats: np.ndarray) -> Tensor:
    return x.repeat(ints(repeats) or [])


def _concat(op: Operation, *parts: Tensor) -> Tensor:
    return torch.cat(parts, dim=op.axis)


def _split(op: Operation, x: Tensor, split: np.ndarray | None) -> tuple[Tensor, ...]:
    size, sizes = x.shape[op.axis], ints(split)
    if sizes is None:
        parts = op.num_outputs or len(op.output_names)
        chunk = -(-size // parts)
        sizes = [chunk] * (parts - 1) + [size - chunk * (parts - 1)]
    if min(sizes) < 0 or sum(sizes) != size:
        raise ModelError(f"axis {op.axis} of shape {tuple(x.shape)} cannot be split into {sizes}")
    return torch.split(x, sizes, dim=op.axis)


def _shape(op: Operation, x: Tensor) -> Tensor:
    sizes = list(x.shape)[slice(op.start, op.end)]
    return torch.tensor(sizes, dtype=torch.int64, device=x.device)


def _size(op: Operation, x: Tensor) -> Tensor:
    return torch.tensor(x.numel(), dtype=torch.int64, device=x.device)


def _depth_to_space(op: Operation, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = op.blocksize
    if op.mode == "CRD":
        x = x.reshape(n, c // b**2, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    else:
        x = x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return x.reshape(n, c // b**2, h * b, w * b)


def _space_to_depth(op: Operation, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = op.blocksize
    x = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 1, 3, 5, 2, 4) if op.mode == "CRD" else (0, 3, 5, 1, 2, 4)
    return x.permute(order).reshape(n, c * b**2, h // b, w // b)


operator(torch=elementwise(lambda x: x), overflow=False, linear=Affine())(Identity)
operator(torch=_reshape, operands=("x", "shape"), static=("shape",), overflow=False, linear=Affine())(Reshape)
operator(torch=_flatten, overflow=False, linear=Affine())(Flatten)
operator(torch=_unsqueeze, operands=("x", "axes"), static=("axes",), overflow=False, linear=Affine())(Unsqueeze)
operator(torch=_transpose, renamed={"perm": "permutation"}, overflow=False, linear=Affine())(Transpose)
operator(torch=_expand, operands=("x", "shape"), static=("shape",), overflow=False, linear=Affine())(Expand)
operator(torch=_tile, operands=("x", "repeats"), static=("repeats",), overflow=False, linear=Affine())(Tile)
operator(torch=_concat, operands=("x",), overflow=False, linear=Affine())(Concat)
operator(torch=_split, operands=("x", "split"), static=("split",), overflow=False, linear=Affine())(Split)
operator(torch=_shape, shape_only=True, overflow=False)(Shape)


@operator(torch=_squeeze, operands=("x", "axes"), static=("axes",), overflow=False, linear=Affine())
class Squeeze(Operation):
    """https://onnx.ai/onnx/operators/onnx__Squeeze.html."""


@operator(torch=_size, shape_only=True, overflow=False)
class Size(Operation):
    """https://onnx.ai/onnx/operators/onnx__Size.html."""


@operator(torch=_depth_to_space, overflow=False, linear=Affine())
class DepthToSpace(Operation):
    """https://onnx.ai/onnx/operators/onnx__DepthToSpace.html."""


@operator(torch=_space_to_depth, overflow=False, linear=Affine())
class SpaceToDepth(Operation):
    """https://onnx.ai/onnx/operators/onnx__SpaceToDepth.html."""
