"""ONNX Runtime's softmax and means of quantised tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.quantisation import Grid, anything, is_product_normal, requantise, round_to_steps
from ranum_falsify.domain.rules.softmax import shares
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.microsoft.quantised_elements import between_grids, dequantise
from ranum_falsify.operators.rows.pooling import average_pool
from ranum_falsify.operators.support.families import making
from ranum_falsify.operators.support.functions import ints
from ranum_falsify.operators.support.microsoft import BYTES, FLOATS, schema

_EXACT_TERMS = 16
"""Sums of up to this many numbers err no more than bounds allow for anyway."""

# softmax --------------------------------------------------------------------------------------------------------

_ONE_AXIS = 13

_LARGEST_PART = 140
"""Kernels scale exponentials so that n of them add up to e^-5 of the largest float32, then multiply by the steps."""


_WRAPS = 2**31
"""From where on kernels read another opset."""


def _dims(op: Operation, rank: int) -> Sequence[int]:
    return [op.axis % rank] if op.softmax_opset >= _ONE_AXIS else range(op.axis % rank, rank)


def _steps_per_unit(scale: Tensor) -> Tensor:
    """Return how many whole steps are in 1, which kernels use as the reciprocal of the scale."""
    return (1 / scale.float()).floor().double()


def _softmax(
    op: Operation, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor
) -> Tensor:
    if not 1 <= op.softmax_opset < _WRAPS:
        raise UnsupportedAttributeError(f"opset {op.softmax_opset} is not one of ONNX")
    if not -x.ndim <= op.axis < x.ndim:
        raise UnsupportedAttributeError(f"axis {op.axis} is not one of {x.ndim}")
    for name, one in (("scale", y_scale), ("zero point", y_zero)):
        if one.numel() != 1:
            raise UnsupportedAttributeError(f"a {name} of {one.numel()} elements is not one of all results")
    values, dims = x.double() * x_scale.double(), tuple(_dims(op, x.ndim))
    powers = (values - values.amax(dims, keepdim=True)).exp()
    return round_to_steps(powers / powers.sum(dims, keepdim=True) * _steps_per_unit(y_scale), y_zero, x.dtype)


@between_grids
def _softmax_bounds(site: Site, x: Interval, source: Grid, grid: Grid) -> Interval:
    if not x.size:
        return anything(x.shape, x.dtype)
    dims = _dims(site.op, len(x.shape))
    count = math.prod(x.shape[dim] for dim in dims)
    near = [_steps_per_unit(grid.scale * (1 + share)) for share in (2.0**-22, -(2.0**-22))]
    if float(near[1]) >= _LARGEST_PART * count:
        # The product overflows, and kernels turn infinity into any number.
        return anything(x.shape, x.dtype)
    low, high = x.doubles()
    low, high = shares(Interval(low * source.scale, high * source.scale, x.shape), dims)
    low, high = low * near[0], high * near[1]
    y = requantise(low, high, high * max(1.0, count / _EXACT_TERMS), grid, x.shape)
    if x.dtype is torch.uint8:
        return y
    # Numbers beyond 127 wrap in some versions.
    beyond = high + grid.zero > grid.limits[1]
    least, greatest = (torch.tensor(limit, dtype=x.dtype) for limit in grid.limits)
    return Interval(torch.where(beyond, least, y.lower), torch.where(beyond, greatest, y.upper), y.shape)


# means ----------------------------------------------------------------------------------------------------------


def _channels_second(op: Operation, x: Tensor) -> Tensor:
    return x.movedim(-1, 1) if op.channels_last else x


def _channels_back(op: Operation, x: Tensor) -> Tensor:
    return x.movedim(1, -1) if op.channels_last else x


def _average_pool(
    op: Operation, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None
) -> Tensor:
    means = average_pool(op, _channels_second(op, dequantise(x, x_scale, x_zero)))
    zero = x.new_zeros(()) if y_zero is None else y_zero
    return _channels_back(op, round_to_steps(means / y_scale.double(), zero, x.dtype))


def _global_average_pool(
    op: Operation, x: Tensor, x_scale: Tensor, x_zero: Tensor, y_scale: Tensor, y_zero: Tensor
) -> Tensor:
    values = _channels_second(op, dequantise(x, x_scale, x_zero))
    _check_ratio(op, math.prod(values.shape[2:]))
    means = values.mean(tuple(range(2, x.ndim)), keepdim=True)
    return _channels_back(op, round_to_steps(means / y_scale.double(), y_zero, x.dtype))


def _check_ratio(op: Operation, count: int) -> None:
    """Refuse scales that ONNX Runtime refuses when it runs, or that inputs compute, which may be such."""
    if isinstance(op.x_scale, Operation) or isinstance(op.y_scale, Operation):
        raise UnsupportedAttributeError("scales that are computed are not supported; store them")
    with np.errstate(all="ignore"):
        ratio = np.ravel(op.x_scale)[:1] / (np.ravel(op.y_scale)[:1] * np.float32(count))
    if not np.all((ratio >= 2.0**-32) & (ratio < 256)):
        raise UnsupportedAttributeError("x_scale / y_scale over the number of positions is not in [2**-32, 256)")


@between_grids
def _average_pool_bounds(site: Site, x: Interval, source: Grid, grid: Grid) -> Interval:
    op = site.op
    # Where windows reach beyond the padding, kernels divide by the size of whole windows.
    if op.ceil_mode:
        return anything(site.shape, x.dtype)
    x = x.move(lambda t: _channels_second(op, t))
    x = x.split(*range(2, len(x.shape)))
    low, high = (average_pool(op, end) for end in source.offsets(x))
    y = _requantise_means(x, low, high, math.prod(ints(op.kernel_shape) or []), source, grid)
    return y.move(lambda t: _channels_back(op, t))


@between_grids
def _global_average_pool_bounds(site: Site, x: Interval, source: Grid, grid: Grid) -> Interval:
    op = site.op
    if not x.size:
        return anything(site.shape, x.dtype)
    x = x.move(lambda t: _channels_second(op, t))
    # Dimensions that are merged have one mean.
    low, high = (end.mean(tuple(range(2, len(x.shape))), keepdim=True) for end in source.offsets(x))
    y = _requantise_means(x, low, high, math.prod(x.shape[2:]), source, grid)
    return y.move(lambda t: _channels_back(op, t))


def _requantise_means(x: Interval, low: Tensor, high: Tensor, count: int, source: Grid, grid: Grid) -> Interval:
    """Return bounds of means in steps of one grid as integers of another."""
    ratio = source.scale / grid.scale
    shape = (*x.shape[:2], *low.shape[2:])
    if not is_product_normal(ratio) or not is_product_normal(ratio / max(count, 1)):
        return anything(shape, x.dtype)
    size = (256 + source.zero.abs()) * ratio * max(1.0, count / _EXACT_TERMS)
    return requantise(low * ratio, high * ratio, size, grid, shape, wraps=True)


# rows -----------------------------------------------------------------------------------------------------------

_TYPES = {"T": BYTES, "F": FLOATS}


@making(
    schema=schema(
        "QLinearSoftmax",
        "X:T X_scale:F x_zero_point:T? y_scale:F y_zero_point:T",
        "Y:T",
        _TYPES,
        defaults={"axis": -1},
        kinds={"opset": "int"},
    ),
    torch=_softmax,
    interval=_softmax_bounds,
    renamed={"opset": "softmax_opset"},
)
class QLinearSoftmax(Operation):
    """Softmax of a quantised tensor, by a table of exponentials."""


@making(
    schema=schema(
        "QLinearAveragePool",
        "X:T x_scale:F x_zero_point:T? y_scale:F y_zero_point:T?",
        "Y:T",
        _TYPES,
        defaults={"auto_pad": "NOTSET", "ceil_mode": 0, "count_include_pad": 0, "channels_last": 0},
        kinds={"kernel_shape": "ints", "strides": "ints?", "pads": "ints?"},
    ),
    torch=_average_pool,
    interval=_average_pool_bounds,
)
class QLinearAveragePool(Operation):
    """Means over windows of a quantised tensor."""


@making(
    schema=schema(
        "QLinearGlobalAveragePool",
        "X:T x_scale:F x_zero_point:T y_scale:F y_zero_point:T",
        "Y:T",
        _TYPES,
        defaults={"channels_last": 0},
    ),
    torch=_global_average_pool,
    interval=_global_average_pool_bounds,
)
class QLinearGlobalAveragePool(Operation):
    """Means over all positions of a quantised tensor."""
