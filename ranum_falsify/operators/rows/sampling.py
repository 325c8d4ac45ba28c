"""Grids: places in a plane, and elements read between those of a tensor at such places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.error_bounds import unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.arithmetic.pairs import multiply
from ranum_falsify.domain.rules.interpolation import average_anywhere, bound_anything, interpolate
from ranum_falsify.domain.rules.matrix.matmul import matrix_product, sum_scaled
from ranum_falsify.domain.rules.shape import reshape
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support.families import plain
from ranum_falsify.operators.support.functions import ints

_NATIVE, _FAR = (torch.float32, torch.float64), 2.0**28


def _base(sizes: list[int], aligned: bool, like: Tensor) -> Tensor:
    """Return the places of the elements of a plane, `(elements, axes + 1)`, the last axis first, and then ones."""
    axes = []
    for size in sizes:
        if size < 1:
            raise ValueError(f"AffineGrid: a grid of size {size}, which ONNX Runtime refuses")
        steps = torch.arange(size, dtype=like.dtype, device=like.device)
        if aligned:
            # A single element lies nowhere; ONNX Runtime puts it at the end.
            axes.append(steps * (2.0 / (size - 1)) - 1 if size > 1 else steps + 1)
        else:
            axes.append(steps * (2.0 / size) + (1.0 / size - 1))
    places = torch.meshgrid(*axes, indexing="ij")
    return torch.stack([*(axis.reshape(-1) for axis in reversed(places)), torch.ones_like(places[0]).reshape(-1)], -1)


def _affine_grid(op: Operation, theta: Tensor, size: np.ndarray) -> Tensor:
    count, _, *sizes = ints(size) or []
    base = _base(sizes, bool(op.align_corners), theta)
    if theta.shape[0] != count:
        raise UnsupportedAttributeError("theta and size differ in the size of the batch")
    return (base @ theta.mT).reshape(theta.shape[0], *sizes, len(sizes))


def _affine_grid_bounds(site: Site, theta: Interval, size: np.ndarray) -> Interval:
    count, _, *sizes = ints(size) or []
    alone = bool(site.op.align_corners) and 1 in sizes
    if alone and theta.dtype not in _NATIVE:
        # For half precision ONNX Runtime has the definition, which divides by 0 where an element is alone.
        return replace(Interval.top((count, *sizes, len(sizes)), theta.dtype), nan=True, overflows=True)
    base = _base(sizes, bool(site.op.align_corners), torch.zeros((), dtype=torch.float64))
    # Kernels compute the places with a few roundings.
    error = 8 * unit(theta.dtype) * (1 + base.abs())
    error[:, -1] = 0
    if alone:
        # PyTorch and the standard put a single element elsewhere.
        error[:, :-1] += 2
    places = Interval((base - error).to(theta.dtype), (base + error).to(theta.dtype), tuple(base.shape))
    y = matrix_product(places, theta, transposed=(False, True)).split(1)
    low, high = (end.reshape(-1, *sizes, end.shape[-1]) for end in (y.lower, y.upper))
    return Interval(low, high, (count, *sizes, len(sizes)), y.nan, y.overflows)


@plain(torch=_affine_grid, interval=_affine_grid_bounds, static=("size",))
class AffineGrid(Operation):
    """https://onnx.ai/onnx/operators/onnx__AffineGrid.html."""


_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Modes as older versions call them."""


def _mode(op: Operation) -> str:
    mode: str = _MODES.get(op.mode, op.mode)
    return mode


def read_grid(x: Tensor, grid: Tensor, mode: str, padding: str, aligned: bool) -> Tensor:
    """Return elements at normalised places, as `torch.nn.functional.grid_sample`, which is not safe everywhere."""
    work = x.dtype if x.dtype in _NATIVE else torch.float32
    # PyTorch's kernels read outside their memory at places that are NaN or far away.
    limit = _FAR / max(*x.shape[2:], 1)
    near = grid.to(work).nan_to_num(0.0, limit, -limit).clamp(-limit, limit)
    y = functional.grid_sample(x.to(work), near, mode, padding, aligned)
    return torch.where(grid.isnan().any(-1)[:, None], math.nan, y).to(x.dtype)


def _sample(op: Operation, x: Tensor, grid: Tensor) -> Tensor:
    if x.ndim not in (4, 5):
        raise UnsupportedAttributeError(f"GridSample over {x.ndim - 2} axes is not supported; use 2 or 3")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(_mode(op), _mode(op))
    return read_grid(x, grid, mode, op.padding_mode, bool(op.align_corners))


def _sample_bounds(site: Site, x: Interval, grid: Interval) -> Interval:
    if not x.is_floating:
        return Interval.top(site.shape, x.dtype)
    return interpolate(
        lambda values, places: _sample(site.op, values, places),
        x,
        grid,
        mode=_mode(site.op),
        padding=site.op.padding_mode,
        shape=site.shape,
    )


@plain(torch=_sample, interval=_sample_bounds, operands=("x", "grid"))
class GridSample(Operation):
    """https://onnx.ai/onnx/operators/onnx__GridSample.html."""


# convolutions that read between elements -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reach:
    """What a deformable convolution reads; `before` is the padding before the first element."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]

    @classmethod
    def of(cls, op: Operation, w: Sequence[int]) -> _Reach:
        """Return what a node reads with a kernel of a shape."""
        if len(w) != 4:
            raise UnsupportedAttributeError(f"DeformConv over {len(w) - 2} axes is not supported; use 2")
        return cls(list(w[2:]), ints(op.strides) or [1, 1], ints(op.dilations) or [1, 1], (ints(op.pads) or [0, 0])[:2])

    def places(self, axis: int, count: int, like: Tensor) -> Tensor:
        """Return where windows read along an axis without offsets, `(kernel, count)`."""
        starts = torch.arange(count, dtype=like.dtype, device=like.device) * self.strides[axis] - self.before[axis]
        return (
            torch.arange(self.kernel[axis], dtype=like.dtype, device=like.device)[:, None] * self.dilations[axis]
            + starts
        )


def _read_deformed(op: Operation, x: Tensor, reach: _Reach, offset: Tensor) -> Tensor:
    """Return what windows read, `(batch, channels, places of the kernel, *windows)`."""
    (n, c, *sizes), (rows, columns), (high, wide) = x.shape, reach.kernel, offset.shape[2:]
    moved = offset.reshape(n, op.offset_group, rows, columns, 2, high, wide)
    down = reach.places(0, high, offset)[:, None, :, None] + moved[:, :, :, :, 0]
    across = reach.places(1, wide, offset)[None, :, None, :] + moved[:, :, :, :, 1]
    grid = torch.stack([(2 * across + 1) / sizes[1] - 1, (2 * down + 1) / sizes[0] - 1], -1)
    parts = x.reshape(n * op.offset_group, c // op.offset_group, *sizes)
    read = read_grid(
        parts, grid.reshape(n * op.offset_group, rows * columns * high, wide, 2), "bilinear", "zeros", False
    )
    return read.reshape(n, c, rows * columns, high, wide)


def _deform_conv(op: Operation, x: Tensor, w: Tensor, offset: Tensor, b: Tensor | None, mask: Tensor | None) -> Tensor:
    reach = _Reach.of(op, w.shape)
    read = _read_deformed(op, x, reach, offset)
    n, c, places, *windows = read.shape
    if mask is not None:
        share = mask.reshape(n, op.offset_group, 1, places, *windows)
        read = (read.reshape(n, op.offset_group, -1, places, *windows) * share).reshape(read.shape)
    columns = read.reshape(n, op.group, c // op.group * places, -1)
    y = w.reshape(op.group, w.shape[0] // op.group, -1) @ columns
    y = y.reshape(n, w.shape[0], *windows)
    return y if b is None else y + b.reshape(-1, 1, 1)


def _deform_conv_bounds(
    site: Site, x: Interval, w: Interval, offset: Interval, b: Interval | None, mask: Interval | None
) -> Interval:
    op = site.op
    n, c, places = x.shape[0], x.shape[1], math.prod(w.shape[2:])
    windows = offset.shape[2:]
    if max(map(abs, offset.extremes)) > _FAR or not math.prod(site.shape):
        return bound_anything(site.shape, x.dtype)
    read = average_anywhere(x, (n, c, places, math.prod(windows)), terms=4, zero=True, dims=(2, 3))
    if mask is not None:
        form = (n, op.offset_group, places, math.prod(windows))
        share = reshape(mask, form).move(lambda bound: bound.repeat_interleave(c // op.offset_group, 1))
        read = sum_scaled(multiply(site, read, share), 1.0, None, 0.0)
    if read.may_be_infinite:
        return bound_anything(site.shape, x.dtype)
    columns = reshape(read, (n, op.group, c // op.group * places, math.prod(windows)))
    kernel = reshape(w, (op.group, w.shape[0] // op.group, math.prod(w.shape[1:])))
    bias = None if b is None else reshape(b, (op.group, w.shape[0] // op.group, 1))
    y = matrix_product(kernel, columns, bias)
    return replace(reshape(y, site.shape), nan=y.nan, overflows=y.overflows)


@plain(torch=_deform_conv, interval=_deform_conv_bounds, operands=("x", "w", "offset", "b", "mask"))
class DeformConv(Operation):
    """https://onnx.ai/onnx/operators/onnx__DeformConv.html."""
