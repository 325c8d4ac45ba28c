"""Shapes: moving, joining and splitting tensors without computing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

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

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.domain.rules.shape import evaluate, join, narrow, reshape, reshaping, tile
from ranum_falsify.domain.rules.support.building import keeping_infinity, moving
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network.registry import BatchRule, TorchFunction
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.conditions import ADDRESSES, are_axes, count_bytes, taking
from ranum_falsify.operators.support.families import making, rearranging, total
from ranum_falsify.operators.support.functions import elementwise, ints
from ranum_falsify.validity import Bounds, Condition, Operands

_Steps = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""A first shape, an order of its dimensions, a last shape."""


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
    if not chosen:  # ONNX Runtime takes an empty list of axes for none
        return x.squeeze()
    for axis in chosen:
        if x.shape[axis] != 1:
            raise ValueError(f"axis {axis} of shape {tuple(x.shape)} cannot be squeezed, its size is not 1")
    # ONNX Runtime takes an axis that comes twice as one.
    return x.squeeze(tuple({axis % x.ndim for axis in chosen}))


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
    return x.expand(np.broadcast_shapes(x.shape, tuple(ints(shape) or ())))


def _tile(op: Operation, x: Tensor, repeats: np.ndarray) -> Tensor:
    # Not `Tensor.repeat`: on the meta device, the first call of that imports SymPy, which takes half a second.
    counts = ints(repeats) or []
    if len(counts) != x.ndim or min(counts, default=0) < 0:
        raise ValueError(f"repeats {counts} do not say how often to repeat each of {x.ndim} axes")
    apart = x.reshape([size for length in x.shape for size in (1, length)])
    copies = apart.expand([size for pair in zip(counts, x.shape, strict=True) for size in pair])
    return copies.reshape([count * length for count, length in zip(counts, x.shape, strict=True)])


def _concat(op: Operation, *parts: Tensor) -> Tensor:
    return torch.cat(parts, dim=op.axis)


def _parts(op: Operation, shape: Sequence[int], split: np.ndarray | None) -> list[int]:
    """Return the sizes into which a shape's axis is split."""
    size, sizes = shape[op.axis], ints(split)
    if sizes is None:
        parts = op.num_outputs or len(op.output_names)
        if parts != len(op.output_names):
            raise UnsupportedAttributeError(f"num_outputs is {parts}, and it has {len(op.output_names)} outputs")
        chunk = -(-size // parts)
        sizes = [chunk] * (parts - 1) + [size - chunk * (parts - 1)]
    if min(sizes) < 0 or sum(sizes) != size:
        raise ValueError(f"axis {op.axis} of shape {tuple(shape)} cannot be split into {sizes}")
    return sizes


def _split(op: Operation, x: Tensor, split: np.ndarray | None) -> tuple[Tensor, ...]:
    return torch.split(x, _parts(op, x.shape, split), dim=op.axis)


def _shape(op: Operation, x: Tensor) -> Tensor:
    sizes = list(x.shape)[slice(op.start, op.end)]
    return torch.tensor(sizes, dtype=torch.int64, device=x.device)


def _depth_to_space_steps(op: Operation, shape: Sequence[int]) -> _Steps:
    n, c, h, w = shape
    b = op.blocksize
    end = (n, c // b**2, h * b, w * b)
    if op.mode == "CRD":
        return (n, c // b**2, b, b, h, w), (0, 1, 4, 2, 5, 3), end
    return (n, b, b, c // b**2, h, w), (0, 3, 4, 1, 5, 2), end


def _space_to_depth_steps(op: Operation, shape: Sequence[int]) -> _Steps:
    n, c, h, w = shape
    b = op.blocksize
    order = (0, 1, 3, 5, 2, 4) if op.mode == "CRD" else (0, 3, 5, 1, 2, 4)
    return (n, c, h // b, b, w // b, b), order, (n, c * b**2, h // b, w // b)


def _blockwise(steps: Callable[[Operation, Sequence[int]], _Steps]) -> tuple[TorchFunction, IntervalRule]:
    """Return function and rule of an operator that reshapes, permutes and reshapes again."""

    def function(op: Operation, x: Tensor) -> Tensor:
        apart, order, end = steps(op, x.shape)
        return x.reshape(apart).permute(order).reshape(end)

    def rule(site: Site, x: Interval) -> Interval:
        apart, order, end = steps(site.op, x.shape)
        return reshape(reshape(x, apart).move(lambda bound: bound.permute(order)), end)

    return function, keeping_infinity(rule)


def _split_bounds(site: Site, x: Interval, split: np.ndarray | None) -> tuple[Interval, ...]:
    axis, starts = site.op.axis % len(x.shape), accumulate(sizes := _parts(site.op, x.shape, split), initial=0)
    return tuple(narrow(x, axis, start, size) for start, size in zip(starts, sizes, strict=False))


def _concat_bounds(site: Site, *parts: Interval) -> Interval:
    return join(parts, site.op.axis % len(parts[0].shape))


_TILED = keeping_infinity(lambda site, x, repeats: tile(x, ints(repeats) or []))
_TO_SPACE, _TO_DEPTH = _blockwise(_depth_to_space_steps), _blockwise(_space_to_depth_steps)

total(
    torch=elementwise(lambda x: x),
    interval=keeping_infinity(lambda site, x: x),
    linear=Affine(),
    kernel=None,
    overflow=False,
)(Identity)


def _row(
    function: TorchFunction,
    interval: IntervalRule,
    batch: BatchRule,
    *,
    by: str | None = None,
    **more: Any,
) -> Callable[[type[Operation]], type[Operation]]:
    """Declare a row of an operator that only moves elements, perhaps as a second operand says, which `by` names."""
    if by is not None:
        more = {"operands": ("x", by), "static": (by,), **more}
    return rearranging(torch=function, interval=interval, linear=Affine(), batch=batch, **more)


# ONNX Runtime refuses other shapes.  Constants have been tried on an example when a model is read.


def _can_squeeze(op: Operation, shape: Sequence[int], axes: np.ndarray | None) -> bool:
    return are_axes(axes, len(shape), repeated=True) and all(shape[axis] == 1 for axis in ints(axes) or [])


def _can_unsqueeze(op: Operation, shape: Sequence[int], axes: np.ndarray) -> bool:
    return are_axes(axes, len(shape) + np.asarray(axes).size)


def _can_split(op: Operation, shape: Sequence[int], split: np.ndarray | None) -> bool:
    sizes = ints(split)
    return sizes is None or (min(sizes, default=0) >= 0 and sum(sizes) == shape[op.axis])


_SQUEEZED = taking(_can_squeeze, "axes", text="the sizes of x along the axes are 1")
_UNSQUEEZED = taking(_can_unsqueeze, "axes", text="the axes are different ones of the result")
_SPLIT = taking(_can_split, "split", text="split >= 0, and the sum is the size of the axis")


def _can_take(function: TorchFunction, by: str) -> Condition:
    """Return the condition that a tensor can be moved as a second operand says, which inputs may compute."""

    def margin(op: Operation, operands: Operands) -> Tensor:
        try:
            function(op, operands["x"], operands[by].numpy())
        except (RuntimeError, ValueError, IndexError):
            return -torch.ones(())
        return torch.ones(())

    def holds(op: Operation, bounds: Bounds) -> bool:
        if not bounds[by].is_point:
            return False
        x = torch.empty(bounds["x"].shape, dtype=bounds["x"].dtype, device="meta")
        try:
            y = function(op, x, bounds[by].expand()[0].numpy())
        except (RuntimeError, ValueError, IndexError):
            return False
        return isinstance(y, Tensor) and count_bytes(y.shape, y.itemsize) < ADDRESSES

    return Condition(
        f"x can take the {by}",
        f"{by} that x cannot take",
        margin,
        refuses=True,
        holds_of=holds,
    )


_row(_reshape, reshaping(_reshape), batching.reshaped, by="shape", valid=[_can_take(_reshape, "shape")])(Reshape)
_row(_flatten, reshaping(_flatten), batching.reshaped)(Flatten)
_row(_unsqueeze, reshaping(_unsqueeze), batching.reshaped, by="axes", valid=[_UNSQUEEZED])(Unsqueeze)
_row(_transpose, moving(_transpose), batching.transposed, renamed={"perm": "permutation"})(Transpose)
_row(_expand, moving(_expand), batching.expanded, by="shape", valid=[_can_take(_expand, "shape")])(Expand)
_row(_tile, _TILED, "vmap", by="repeats", valid=[_can_take(_tile, "repeats")])(Tile)
_row(_concat, keeping_infinity(_concat_bounds), batching.concatenated, operands=("x",))(Concat)
_row(_split, keeping_infinity(_split_bounds), batching.along_axis, by="split", valid=[_SPLIT])(Split)
making(torch=_shape, interval=evaluate, shape_only=True)(Shape)


@_row(_squeeze, reshaping(_squeeze), batching.reshaped, by="axes", valid=[_SQUEEZED])
class Squeeze(Operation):
    """https://onnx.ai/onnx/operators/onnx__Squeeze.html."""


@making(
    torch=lambda op, x: torch.tensor(x.numel(), dtype=torch.int64, device=x.device),
    interval=evaluate,
    shape_only=True,
)
class Size(Operation):
    """https://onnx.ai/onnx/operators/onnx__Size.html."""


@_row(*_TO_SPACE, "vmap")
class DepthToSpace(Operation):
    """https://onnx.ai/onnx/operators/onnx__DepthToSpace.html."""


@_row(*_TO_DEPTH, "vmap")
class SpaceToDepth(Operation):
    """https://onnx.ai/onnx/operators/onnx__SpaceToDepth.html."""
