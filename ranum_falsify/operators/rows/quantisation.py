"""Linear quantisation to integers of 8 and 16 bits and to floats of 8 bits and fewer, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_bounds
from ranum_falsify.domain.rules.cast import convert, convert_to_float, float_bounds
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network.narrow import NARROW_FLOATS, NarrowFloat
from ranum_falsify.network.tensors import ONNX_TO_NUMPY, torch_dtype
from ranum_falsify.operators.support.families import plain


def _align(op: Operation, x: Tensor, values: Tensor) -> Tensor:
    """Return scales or zero points, one or one per axis entry or block, shaped to broadcast with what they scale."""
    if values.numel() == 1 and values.ndim < 2:
        return values.reshape(())
    axis = op.axis % x.ndim
    if getattr(op, "block_size", 0):
        return values.repeat_interleave(op.block_size, axis).narrow(axis, 0, x.shape[axis])
    return values.reshape(-1, *[1] * (x.ndim - 1 - axis))


def _find_requested(op: Operation, attribute: str) -> torch.dtype | None:
    """Return the type that an attribute asks for, None where it does not."""
    number = getattr(op, attribute, 0)
    return torch_dtype(ONNX_TO_NUMPY[number]) if number else None


def _find_floats(op: Operation) -> NarrowFloat | None:
    """Return the floating type to which a node quantises, None for integers."""
    return NARROW_FLOATS.get(getattr(op, "output_dtype", None) or 0)


def quantize(op: Operation, x: Tensor, scale: Tensor, zero_point: Tensor | None) -> Tensor:
    """Quantise numbers, as a node's attributes say."""
    if (kind := _find_floats(op)) is not None:
        # ONNX Runtime divides numbers of half precision in float32.
        precision = _find_requested(op, "precision") or torch.promote_types(scale.dtype, torch.float32)
        return convert_to_float(op, x.to(precision) / _align(op, x, scale).to(precision), kind)
    dtype = _find_requested(op, "output_dtype") or (torch.uint8 if zero_point is None else zero_point.dtype)
    if dtype not in (torch.int8, torch.uint8, torch.int16, torch.uint16):
        raise UnsupportedAttributeError(f"quantising to {dtype} is not supported; use integers of 8 or 16 bits")
    precision = _find_requested(op, "precision") or scale.dtype
    if not precision.is_floating_point:
        raise UnsupportedAttributeError(f"precision {precision} is no floating type, which kernels need to divide")
    steps = (x.to(precision) / _align(op, x, scale).to(precision)).round().float()
    zero = torch.zeros((), device=x.device) if zero_point is None else _align(op, x, zero_point).float()
    limits = torch.iinfo(dtype)
    return (steps + zero).clamp(limits.min, limits.max).to(torch.int32).to(dtype)


def dequantize(op: Operation, x: Tensor, scale: Tensor, zero_point: Tensor | None) -> Tensor:
    """Return the numbers that quantised ones represent, as a node's attributes say."""
    steps = x if x.is_floating_point() else x.to(torch.int32)
    if zero_point is not None:
        steps = steps - _align(op, x, zero_point.to(torch.int32))
    wide = torch.promote_types(scale.dtype, torch.float32)
    product = steps.to(wide) * _align(op, x, scale).to(wide)
    return product.to(_find_requested(op, "output_dtype") or scale.dtype)


_WRAPPED = 2.0**31 - 2.0**17
"""Above it, and at infinity, steps and zero points may add up to more than an integer of 32 bits holds."""


# bounds ---------------------------------------------------------------------------------------------------------


@infinity_aware
def quantized_bounds(site: Site, x: Interval, scale: Interval, zero_point: Interval | None) -> Interval:
    """Bound a function that rises with the operand and the zero point, and is monotone in a scale of one sign."""
    op = site.op
    least, greatest = scale.extremes
    if scale.may_be_infinite or least <= 0 <= greatest:
        y = Interval.top(x.shape, site.dtype)
        return replace(y, nan=True, overflows=True) if y.is_floating else y
    x, scale, zero_point = _unmerge_blocks(op, x, scale, zero_point)
    if (kind := _find_floats(op)) is not None:
        return _quantised_floats(op, x, scale, kind)
    zeros = (None,) if zero_point is None else zero_point.ends
    precisions = [torch.float32] if x.dtype is torch.float32 else [x.dtype, torch.float32]
    points = [
        quantize(op, end.to(precision), size.to(precision), zero)
        for precision in precisions
        for end in x.ends
        for size in scale.ends
        for zero in zeros
    ]
    wide = torch.stack([point.to(torch.int32) for point in points])
    low, high = wide.amin(0), wide.amax(0)
    if x.dtype is torch.float16:
        # ONNX Runtime turns steps into integers of 32 bits before it clamps them.
        limits = torch.iinfo(site.dtype)
        wraps = _steps(op, x, scale) >= _WRAPPED
        low, high = torch.where(wraps, limits.min, low), torch.where(wraps, limits.max, high)
    return Interval.of(low.to(site.dtype), high.to(site.dtype), x.shape)


def _quantised_floats(op: Operation, x: Interval, scale: Interval, kind: NarrowFloat) -> Interval:
    """Bound numbers that are divided by scales of one sign, in any precision, and rounded to a narrow type."""
    ends, sizes = (x.lower.double(), x.upper.double()), (scale.lower.double(), scale.upper.double())
    shares = torch.stack([end / _align(op, end, size) for end in ends for size in sizes])
    wide = round_bounds(shares.amin(0), shares.amax(0), torch.float32, x.shape)
    if x.dtype is not torch.float32:
        # The division may be rounded to the type of the operands before.
        wide = wide.hull(convert(round_bounds(shares.amin(0), shares.amax(0), x.dtype, x.shape), torch.float32))
    return float_bounds(op, wide, kind)


def _steps(op: Operation, x: Interval, scale: Interval) -> Tensor:
    """Return the largest number of steps that an operand may be away from 0."""
    size = torch.maximum(x.lower.abs(), x.upper.abs()).float()
    return size / _align(op, size, torch.minimum(scale.lower.abs(), scale.upper.abs()).float())


def dequantized_bounds(site: Site, x: Interval, scale: Interval, zero_point: Interval | None) -> Interval:
    """Bound a product with a scale, and what ONNX Runtime makes of several pairs of quantisation and dequantisation."""
    wraps = zero_point is not None and x.dtype is torch.int32 and _may_wrap(x, zero_point)
    if wraps:
        x, zero_point = Interval.top(x.shape, x.dtype), None
    x, scale, zero_point = _unmerge_blocks(site.op, x, scale, zero_point)
    zeros = (None,) if zero_point is None else zero_point.ends[::-1]
    count = max(len(x.ends), len(zeros))
    pairs = zip(x.ends * (count // len(x.ends)), zeros * (count // len(zeros)), strict=True)
    # Rounding is monotone: the rounded corners bound the rounded products.  What is not rounded to half precision is
    # enclosed too.
    wide = torch.float64 if scale.dtype is torch.float64 else torch.float32
    points = torch.stack([dequantize(site.op, end, size.to(wide), zero) for end, zero in pairs for size in scale.ends])
    # Where scales are those of blocks, ONNX Runtime's differences have more bits, and do not wrap.
    low, high = (end.double() * (2 if wraps else 1) for end in (points.amin(0), points.amax(0)))
    y = round_bounds(low, high, site.dtype, x.shape)
    if "onnxruntime" in site.runtimes and not x.is_floating:
        for first in _find_merged(site.op):
            y = y.hull(_quantise_once(site, y, first))
    return y


def _may_wrap(x: Interval, zero_point: Interval) -> bool:
    """Tell whether integers of 32 bits hold some difference of others only as another number."""
    (low, high), (least, greatest) = x.extremes, zero_point.extremes
    limits = torch.iinfo(torch.int32)
    return not limits.min <= low - greatest <= high - least <= limits.max


def _find_merged(op: Operation) -> Iterator[Operation]:
    """Yield each node that starts a chain of two or more pairs, quantisation and dequantisation, that a node ends.

    ONNX Runtime merges two pairs into one, with a finer scale over the numbers that both can represent.
    """
    last = op.x
    while isinstance(last, QuantizeLinear) and isinstance(last.x, DequantizeLinear):
        last = last.x.x
        if isinstance(last, QuantizeLinear):
            yield last


def _quantise_once(site: Site, y: Interval, first: Operation) -> Interval:
    """Return bounds of a chain whose first quantisation and last dequantisation are merged into one pair."""
    limit = torch.finfo(y.dtype).max
    scale, zero_point, x = (site.find_known(field) for field in (site.op.x_scale, site.op.x_zero_point, first.x))
    if scale is None or scale.may_be_infinite or scale.extremes[0] < 0:
        return Interval.fill(-limit, limit, y.shape, y.dtype)
    # The finer scale is at most the last one, and its range lies within a step of that one's range.
    step = scale.extremes[1]
    integers = torch.iinfo(torch.uint8 if zero_point is None else zero_point.dtype)
    least, greatest = (0, 0) if zero_point is None else zero_point.extremes
    reach = (integers.min - greatest - 1) * step, (integers.max - least + 1) * step
    if x is None or x.shape != y.shape:
        return Interval.fill(max(reach[0], -limit), min(reach[1], limit), y.shape, y.dtype)
    low, high = x.doubles()
    return round_bounds((low - step).clamp(*reach), (high + step).clamp(*reach), y.dtype, y.shape)


def _unmerge_blocks(
    op: Operation, x: Interval, scale: Interval, zero_point: Interval | None
) -> tuple[Interval, Interval, Interval | None]:
    """Return the operands; where scales are shared by blocks, with no dimension merged."""
    if getattr(op, "block_size", 0):
        x, scale = x.split(*range(len(x.shape))), scale.split(*range(len(scale.shape)))
        zero_point = zero_point and zero_point.split(*range(len(zero_point.shape)))
    return x, scale, zero_point


@plain(torch=quantize, interval=quantized_bounds)
class QuantizeLinear(Operation):
    """https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html."""


@plain(torch=dequantize, interval=dequantized_bounds)
class DequantizeLinear(Operation):
    """https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html."""
