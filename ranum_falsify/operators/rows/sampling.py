"""Grids: places in a plane, and elements read between those of a tensor at such places."""

from __future__ import annotations

import math

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.interpolation import interpolate
from ranum_falsify.domain.rules.matrix.matmul import matrix_product
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import unit
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support.families import opaque
from ranum_falsify.operators.support.functions import ints

__all__ = ["AffineGrid", "GridSample"]

_NATIVE, _FAR = (torch.float32, torch.float64), 2.0**28


def _base(sizes: list[int], aligned: bool, like: Tensor) -> Tensor:
    """Return the places of the elements of a plane, `(elements, axes + 1)`, the last axis first, and then ones."""
    axes = []
    for size in sizes:
        steps = torch.arange(size, dtype=like.dtype, device=like.device)
        if aligned:
            # A single element lies nowhere; ONNX Runtime puts it at the end.
            axes.append(steps * (2.0 / (size - 1)) - 1 if size > 1 else steps + 1)
        else:
            axes.append(steps * (2.0 / size) + (1.0 / size - 1))
    places = torch.meshgrid(*axes, indexing="ij")
    return torch.stack([*(axis.reshape(-1) for axis in reversed(places)), torch.ones_like(places[0]).reshape(-1)], -1)


def _affine_grid(op: Operation, theta: Tensor, size: np.ndarray) -> Tensor:
    sizes = (ints(size) or [])[2:]
    base = _base(sizes, bool(op.align_corners), theta)
    return (base @ theta.mT).reshape(theta.shape[0], *sizes, len(sizes))


def _affine_grid_bounds(site: Site, theta: Interval, size: np.ndarray) -> Interval:
    sizes = (ints(size) or [])[2:]
    base = _base(sizes, bool(site.op.align_corners), torch.zeros((), dtype=torch.float64))
    # Kernels compute the places with a few roundings.
    error = 8 * unit(theta.dtype) * (1 + base.abs())
    error[:, -1] = 0
    if site.op.align_corners and 1 in sizes:
        # PyTorch and the standard put a single element elsewhere.
        error[:, :-1] += 2
    places = Interval((base - error).to(theta.dtype), (base + error).to(theta.dtype), tuple(base.shape))
    y = matrix_product(places, theta, transposed=(False, True)).split(1)
    low, high = (end.reshape(-1, *sizes, end.shape[-1]) for end in (y.lower, y.upper))
    return Interval(low, high, site.shape, y.nan, y.overflows)


@opaque(torch=_affine_grid, interval=_affine_grid_bounds, kernel=None, valid=(), static=("size",))
class AffineGrid(Operation):
    """https://onnx.ai/onnx/operators/onnx__AffineGrid.html."""


_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Modes as older versions call them."""


def _mode(op: Operation) -> str:
    mode: str = _MODES.get(op.mode, op.mode)
    return mode


def _sample(op: Operation, x: Tensor, grid: Tensor) -> Tensor:
    if x.ndim not in (4, 5):
        raise UnsupportedAttributeError(f"GridSample over {x.ndim - 2} axes is not supported; use 2 or 3")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(_mode(op), _mode(op))
    work = x.dtype if x.dtype in _NATIVE else torch.float32
    # PyTorch's kernels read outside their memory at places that are NaN or far away.
    limit = _FAR / max(*x.shape[2:], 1)
    near = grid.to(work).nan_to_num(0.0, limit, -limit).clamp(-limit, limit)
    y = functional.grid_sample(x.to(work), near, mode, op.padding_mode, bool(op.align_corners))
    return torch.where(grid.isnan().any(-1)[:, None], math.nan, y).to(x.dtype)


def _sample_bounds(site: Site, x: Interval, grid: Interval) -> Interval:
    if not x.is_floating:
        return Interval.top(site.shape, x.dtype)
    return interpolate(
        lambda values, places: _sample(site.op, values, places),
        x,
        grid,
        mode=_mode(site.op),
        zero=site.op.padding_mode == "zeros",
        shape=site.shape,
    )


@opaque(
    torch=_sample,
    interval=_sample_bounds,
    kernel=None,
    valid=(),
    operands=("x", "grid"),
)
class GridSample(Operation):
    """https://onnx.ai/onnx/operators/onnx__GridSample.html."""
