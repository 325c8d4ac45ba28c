"""Matrix products and convolutions of 8-bit integers, and of the numbers that these represent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.matrix.matmul import matrix_product
from ranum_falsify.domain.rules.quantisation import (
    Grid,
    anything,
    excess,
    is_product_normal,
    requantise,
    round_to_steps,
)
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.convolution import bound_convolution, convolve
from ranum_falsify.operators.rows.matrix import matrix_of
from ranum_falsify.operators.support.families import making, plain
from ranum_falsify.validity import Bounds, Condition, Operands

_INT32 = (-(2**31), 2**31 - 1)

Place = Callable[[Tensor], Tensor]
"""Reshapes values, of which there is one per channel, so that they broadcast with a tensor."""


def _rows(zeros: Tensor) -> Tensor:
    """Reshape the zero points of a first factor, which may have one per row."""
    return zeros[..., None] if zeros.ndim == 1 and zeros.numel() > 1 else zeros


def _channels(rank: int) -> Place:
    """Return what places one value per channel before `rank` spatial dimensions."""
    return lambda t: t.reshape(-1, *[1] * rank) if t.numel() > 1 else t.reshape(())


# values ---------------------------------------------------------------------------------------------------------


def steps_above(x: Tensor, zero: Tensor | None, place: Place = lambda t: t) -> Tensor:
    """Return integers minus their zero points, int32."""
    wide = x.to(torch.int32)
    return wide if zero is None else wide - place(zero.to(torch.int32))


def _matmul_integer(op: Operation, a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    return matrix_of(steps_above(a, a_zero, _rows), steps_above(b, b_zero))


def _qlinear_matmul(op: Operation, *operands: Tensor) -> Tensor:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
    total = _matmul_integer(op, a, b, a_zero, b_zero).double()
    y = round_to_steps(total * _rows(a_scale.double()) * b_scale / y_scale, y_zero, y_zero.dtype)
    # A product of vectors has no axis, whatever its scales have.
    return y.reshape(total.shape)


def _convolve(op: Operation, x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None) -> Tensor:
    kernel = steps_above(w, w_zero, _channels(w.ndim - 1))
    return convolve(op, steps_above(x, x_zero).double(), kernel.double(), None)


def _conv_integer(op: Operation, x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None) -> Tensor:
    if (x.dtype, w.dtype) == (torch.int8, torch.uint8):
        raise UnsupportedAttributeError("x of int8 beside w of uint8, which the kernel reads as int8, is not supported")
    return _convolve(op, x, w, x_zero, w_zero).to(torch.int32)


def convolution_of_integers(op: Operation, *operands: Any) -> Tensor:
    """Return the convolution of the numbers that integers represent, quantised to integers."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b = operands
    place = _channels(x.ndim - 2)
    total = _convolve(op, x, w, x_zero, w_zero) + (0 if b is None else place(b))
    return round_to_steps(total * x_scale.double() * place(w_scale) / y_scale, y_zero, y_zero.dtype)


def quantise_over_range(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise a tensor over the range of its elements and 0; return the integers, their scale and their zero point."""
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    span = (high - low) / 255
    scale = torch.where(span == 0, 1.0, span)
    zero = round_to_steps(-low / scale, torch.zeros((), device=x.device), torch.uint8)
    return round_to_steps(x / scale, zero, torch.uint8), scale, zero


# bounds ---------------------------------------------------------------------------------------------------------


def _widen(x: Interval, zero: Interval | None, place: Place = lambda t: t) -> Interval:
    """Return bounds of 8-bit integers minus their zero points, in int32; floats stand for what they are."""
    dtype = x.dtype if x.is_floating else torch.int32
    low, high = x.lower.to(dtype), x.upper.to(dtype)
    if zero is not None:
        least, greatest = (place(end.to(dtype)) for end in zero.expand())
        low, high = low - greatest, high - least
    return Interval.of(low, high, x.shape)


def _saturate(sums: Interval, a: Interval, b: Interval, terms: int, zero: Interval | None = None) -> Interval:
    """Return bounds of sums of products of `a` and `b` that also enclose the sums in which pairs saturate.

    Padding, where there is any, holds the zero point.
    """
    if not a.size:
        return sums
    largest = max(int(x.extremes[1]) for x in (a, zero) if x is not None)
    less, more = excess(a.dtype, largest, b, terms)
    if not (less or more):
        return sums
    low, high = sums.lower.long() - less, sums.upper.long() + more
    least, greatest = _INT32
    wraps = (low < least) | (high > greatest)
    low, high = (torch.where(wraps, end, x).to(torch.int32) for end, x in ((least, low), (greatest, high)))
    return Interval.of(low, high, sums.shape)


def matrix_of_integers(
    a: Interval, b: Interval, a_zero: Interval | None, b_zero: Interval | None, *, bias: Interval | None = None
) -> Interval:
    """Return bounds on the product of integer matrices minus their zero points, int32, perhaps with a bias.

    Zero points are one, or one per row of the first factor and per column of the second.
    """
    exact = matrix_product(_widen(a, a_zero, _rows), _widen(b, b_zero), bias)
    return _saturate(exact, a, b, a.shape[-1]) if a.shape[-1] else _leave_unwritten(exact)


def _convolve_integers(
    op: Operation, x: Interval, w: Interval, x_zero: Interval | None, w_zero: Interval | None
) -> Interval:
    kernel = _widen(w, w_zero, _channels(len(w.shape) - 1))
    exact = bound_convolution(op, _widen(x, x_zero), kernel, None)
    return _saturate(exact, x, w, math.prod(w.shape[1:]), x_zero) if w.shape[1] else _leave_unwritten(exact)


def _leave_unwritten(sums: Interval) -> Interval:
    """Return bounds of sums of no terms: ONNX Runtime does not write them, and memory may hold anything."""
    return anything(sums.shape, sums.dtype)


def rescale(
    sums: Interval, bias: Interval | None, scales: tuple[Tensor, ...], grid: Grid, place: Place = lambda t: t
) -> Interval:
    """Return bounds of sums in int32 that are scaled, and rounded to the integers of a grid.

    The bias, integers, is added before scaling; scales come in the order in which kernels multiply them.  Scales and
    biases of which there is one per channel are placed first.
    """
    low, high = sums.doubles()
    if bias is not None:
        least, greatest = (place(end.double()) for end in bias.expand())
        low, high = low + least, high + greatest
    fits = low.numel() and float(low.min()) >= _INT32[0] and float(high.max()) <= _INT32[1]
    if not fits or not is_product_normal(*(scale.abs() for scale in scales), 1 / grid.scale):
        return anything(sums.shape, grid.dtype)
    ratio = math.prod(map(place, scales), start=torch.ones((), dtype=torch.float64)) / grid.scale
    ends = low * ratio, high * ratio
    size = torch.maximum(ends[0].abs(), ends[1].abs())
    return requantise(torch.minimum(*ends), torch.maximum(*ends), size, grid, sums.shape)


def find_grids(site: Site, *operands: Interval) -> tuple[Grid, Grid, Grid] | None:
    """Return the grids of two factors and of the result; None if one is not known.

    The operands are the factors, each with its scale and its zero point, and the scale and zero point of the result.
    """
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
    first, second = Grid.from_constants(a_scale, a_zero, a.dtype), Grid.from_constants(b_scale, b_zero, b.dtype)
    grid = Grid.from_constants(y_scale, y_zero, site.dtype)
    return None if first is None or second is None or grid is None else (first, second, grid)


def _qlinear_matmul_bounds(site: Site, *operands: Interval) -> Interval:
    grids = find_grids(site, *operands)
    if grids is None:
        return anything(site.shape, site.dtype)
    a, _, a_zero, b, _, b_zero, *_ = operands
    first, second, grid = grids
    return rescale(matrix_of_integers(a, b, a_zero, b_zero), None, (_rows(first.scale), second.scale), grid)


def convolution_bounds(site: Site, *operands: Any) -> Interval:
    """Bound `QLinearConv`."""
    *scaled, b = operands
    grids = find_grids(site, *scaled)
    if grids is None:
        return anything(site.shape, site.dtype)
    x, _, x_zero, w, _, w_zero, *_ = scaled
    first, second, grid = grids
    sums = _convolve_integers(site.op, x, w, x_zero, w_zero)
    return rescale(sums, b, (first.scale, second.scale), grid, _channels(len(x.shape) - 2))


def _dynamic_quantize_bounds(site: Site, x: Interval) -> tuple[Interval, ...]:
    """Bound x in steps of 1 / 255 of the range of all its elements and 0."""
    if not x.size:
        return Interval.top(x.shape, torch.uint8), Interval.top((), torch.float32), Interval.top((), torch.uint8)
    low, high = x.doubles()
    below = [(-end.amin()).clamp(min=0) for end in (high, low)]
    above = [end.amax().clamp(min=0) for end in (low, high)]
    least, greatest = below[0] + above[0], below[1] + above[1]
    scale = round_outward(least[None] / 255, greatest[None] / 255, torch.float32, (), Envelope(8 * unit(torch.float32)))
    scale = Interval(scale.lower.reshape(()), scale.upper.reshape(()), ())
    if not float(greatest) < _LARGEST:
        # The span overflows before it is divided.
        scale = Interval(scale.lower, torch.full_like(scale.upper, math.inf), ())
        return Interval.top(x.shape, torch.uint8), scale, Interval.top((), torch.uint8)
    if float(least) < _LEAST_SPAN:
        # The scale of zeros alone is 1.
        scale = scale.hull(Interval.fill(0, 1, (), torch.float32))
        return Interval.top(x.shape, torch.uint8), scale, Interval.top((), torch.uint8)
    error = 255 * 2.0**-16
    zero = [255 * below[0] / (below[0] + above[1]), 255 * below[1] / (below[1] + above[0])]
    zeros = [(zero[0] - error - 0.5).ceil(), (zero[1] + error + 0.5).floor()]
    points = [
        255 * (low + below[0]).clamp(min=0) / (above[1] + below[0]),
        255 * (high + below[1]) / (torch.maximum(high, above[0]) + below[1]),
    ]
    # The zero point is rounded separately.
    ends = [(points[0] - error - 1).ceil(), (points[1] + error + 1).floor()]
    zeros, ends = ([end.clamp(0, 255).to(torch.uint8) for end in pair] for pair in (zeros, ends))
    return Interval.of(ends[0], ends[1], x.shape), scale, Interval.of(zeros[0], zeros[1], ())


def _room(op: Operation, operands: Operands) -> Tensor:
    x = operands["x"].double()
    span = x.amax().clamp(min=0) - x.amin().clamp(max=0)
    return (_LARGEST - span) / _LARGEST


def _has_room(op: Operation, operands: Bounds) -> bool:
    low, high = operands["x"].extremes
    return max(high, 0) - min(low, 0) < _LARGEST


_LARGEST = float(torch.finfo(torch.float32).max)
_FINITE_SPAN = Condition("max(x) - min(x) is finite", "span that overflows", _room, holds_of=_has_room)

_LEAST_SPAN = 2.0**-100
"""Spans of numbers below which float32 has no digits left for the quotients."""


@making(torch=_matmul_integer, interval=lambda site, *operands: matrix_of_integers(*operands))
class MatMulInteger(Operation):
    """https://onnx.ai/onnx/operators/onnx__MatMulInteger.html."""


@making(torch=_qlinear_matmul, interval=_qlinear_matmul_bounds)
class QLinearMatMul(Operation):
    """https://onnx.ai/onnx/operators/onnx__QLinearMatMul.html."""


@making(torch=_conv_integer, interval=lambda site, *operands: _convolve_integers(site.op, *operands))
class ConvInteger(Operation):
    """https://onnx.ai/onnx/operators/onnx__ConvInteger.html."""


@making(torch=convolution_of_integers, interval=convolution_bounds)
class QLinearConv(Operation):
    """https://onnx.ai/onnx/operators/onnx__QLinearConv.html."""


@plain(torch=lambda op, x: quantise_over_range(x), interval=_dynamic_quantize_bounds, valid=[_FINITE_SPAN])
class DynamicQuantizeLinear(Operation):
    """https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html."""
