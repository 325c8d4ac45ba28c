"""ONNX Runtime's matrix products, convolutions and pools of quantised tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rules.quantisation import Represented, anything, represent, round_to_steps, scale_sums
from ranum_falsify.domain.rules.support.building import unknown
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.relations.fused import find_represented
from ranum_falsify.operators.rows.matrix import matrix_of
from ranum_falsify.operators.rows.pooling import max_pool, max_pool_bounds
from ranum_falsify.operators.rows.quantised_layers import (
    convolution_bounds,
    convolution_of_integers,
    find_grids,
    matrix_of_integers,
    quantise_over_range,
    rescale,
    steps_above,
)
from ranum_falsify.operators.support.families import making, plain
from ranum_falsify.operators.support.microsoft import BYTES, FLOATS, schema

# values ---------------------------------------------------------------------------------------------------------


def _gemm(op: Operation, *operands: Any) -> Tensor:
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = operands
    if (y_scale is None) != (y_zero is None):
        raise UnsupportedAttributeError("y_scale without y_zero_point is not supported; give both or none")
    a = a.mT if op.transpose_a else a
    total = matrix_of(steps_above(a, a_zero), steps_above(b.mT if op.transpose_b else b, b_zero))
    total = (total if c is None else total + c).double() * op.alpha * a_scale.double() * b_scale
    if y_scale is None or y_zero is None:
        unrounded: Tensor = total.float()
        return unrounded
    return round_to_steps(total / y_scale, y_zero, y_zero.dtype)


def multiply_integers(
    op: Operation,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None,
    b_zero: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """Return the product of quantised matrices, as the numbers that it represents, plus a bias."""
    sums = matrix_of(steps_above(a, a_zero), steps_above(b, b_zero))
    total = sums.double() * a_scale.double() * b_scale
    fits = sums.shape[-1] == b.shape[-1] and total.shape == sums.shape
    if not fits or (b_scale.ndim > 1 and b_scale.shape[-2:] != (1, b.shape[-1])):
        raise ValueError("scales or zero points have more or fewer elements than the product has columns")
    if bias is not None and np.broadcast_shapes(bias.shape, sums.shape) != sums.shape:
        raise ValueError("the bias has more dimensions or rows than the product, which ONNX Runtime does not take on")
    if bias is not None and b_scale.numel() > 1 and 2 < b.ndim != b_scale.ndim:
        raise UnsupportedAttributeError(
            "scales by column of a batch have fewer dimensions: ONNX Runtime scales the bias, too"
        )
    return (total if bias is None else total + bias).float()


def _dynamic(
    op: Operation, a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None, bias: Tensor | None
) -> Tensor:
    steps, scale, zero = quantise_over_range(a)
    return multiply_integers(op, steps, b, scale, b_scale, zero, b_zero, bias)


# bounds ---------------------------------------------------------------------------------------------------------


def _gemm_bounds(site: Site, *operands: Any) -> Interval:
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = operands
    op = site.op
    a = a.move(lambda t: t.mT) if op.transpose_a else a
    b = b.move(lambda t: t.mT) if op.transpose_b else b
    sums = matrix_of_integers(a, b, a_zero, b_zero, bias=c)
    if y_zero is None:
        scaled = scale_sums(sums, [a_scale, b_scale], None, op.alpha) if a.size and b.size else None
        return scaled or unknown(site)[0]
    grids = find_grids(site, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)
    if grids is None:
        return anything(site.shape, site.dtype)
    first, second, grid = grids
    return rescale(sums, None, (torch.tensor(op.alpha, dtype=torch.float64), first.scale, second.scale), grid)


def _to_float_bounds(
    site: Site,
    a: Interval,
    b: Interval,
    a_scale: Interval,
    b_scale: Interval,
    a_zero: Interval | None,
    b_zero: Interval | None,
    bias: Interval | None,
) -> Interval:
    sums = matrix_of_integers(a, b, a_zero, b_zero)
    y = scale_sums(sums, [a_scale, b_scale], bias)
    if y is None or not a.shape[-1]:  # results of no terms are not written
        return unknown(site)[0]
    found = find_represented(site, site.op.a, site.op.a_scale, site.op.a_zero_point)
    near = None if found is None else _multiply_represented(found, b, b_scale, b_zero, bias)
    return y if near is None else y.meet(near)


def _multiply_represented(
    a: Represented, b: Interval, b_scale: Interval, b_zero: Interval | None, bias: Interval | None
) -> Interval | None:
    """Bound the product of the numbers that integers stand for with quantised ones, plus a bias."""
    if not b.size:
        return None
    steps, zero = (None if x is None else Interval.of(*x.doubles(), x.shape) for x in (b, b_zero))
    assert steps is not None
    exact = matrix_of_integers(a.numbers, steps, None, zero)
    sums = a.enclose_sums(exact, b, a.numbers.shape[-1])
    return None if sums is None else scale_sums(sums, [b_scale], bias)


def _dynamic_bounds(
    site: Site, a: Interval, b: Interval, b_scale: Interval, b_zero: Interval | None, bias: Interval | None
) -> Interval:
    """Bound the product of the numbers that the quantised operand represents, each within a step of the original."""
    found = represent(a)
    if found is None or not found.step * max(map(abs, b_scale.extremes)) < dtype_range(torch.float32)[1]:
        # Scales are multiplied first: infinity times a sum of 0 is no number.
        return unknown(site)[0]
    y = _multiply_represented(found, b, b_scale, b_zero, bias)
    return unknown(site)[0] if y is None else y


# layouts --------------------------------------------------------------------------------------------------------


def _conv(op: Operation, x: Tensor, *rest: Any) -> Tensor:
    if not op.channels_last:
        return convolution_of_integers(op, x, *rest)
    return convolution_of_integers(op, x.movedim(-1, 1), *rest).movedim(1, -1)


def _conv_bounds(site: Site, x: Interval, *rest: Any) -> Interval:
    if not site.op.channels_last:
        return convolution_bounds(site, x, *rest)
    y = convolution_bounds(site, x.move(lambda t: t.movedim(-1, 1)), *rest)
    moved = y.move(lambda t: t.movedim(1, -1))
    return moved if moved.shape == site.shape else y  # which is anything, of the shape of the result


def _max_pool_last(op: Operation, x: Tensor) -> Tensor:
    return max_pool(op, x.movedim(-1, 1))[0].movedim(1, -1)


def _max_pool_last_bounds(site: Site, x: Interval) -> Interval:
    return max_pool_bounds(site, x.move(lambda t: t.movedim(-1, 1)))[0].move(lambda t: t.movedim(1, -1))


# rows -----------------------------------------------------------------------------------------------------------

_TYPES = {"T": BYTES, "W": BYTES, "F": FLOATS}


@plain(
    schema=schema(
        "QGemm",
        "A:T a_scale:F a_zero_point:T B:W b_scale:F b_zero_point:W C:C? y_scale:F? y_zero_point:Z?",
        "Y:Y",
        {**_TYPES, "C": ("int32",), "Z": BYTES, "Y": (*BYTES, *FLOATS)},
        defaults={"transA": 0, "transB": 0, "alpha": 1.0},
    ),
    torch=_gemm,
    interval=_gemm_bounds,
    renamed={"transA": "transpose_a", "transB": "transpose_b"},
)
class QGemm(Operation):
    """Scaled product of quantised matrices plus a bias, quantised or not."""


@plain(
    schema=schema(
        "MatMulIntegerToFloat",
        "A:T B:W a_scale:F b_scale:F a_zero_point:T? b_zero_point:W? bias:F?",
        "Y:F",
        _TYPES,
    ),
    torch=multiply_integers,
    interval=_to_float_bounds,
)
class MatMulIntegerToFloat(Operation):
    """Product of quantised matrices, as the numbers that it represents."""


@plain(
    schema=schema("DynamicQuantizeMatMul", "A:F B:W b_scale:F b_zero_point:W? bias:F?", "Y:F", _TYPES),
    torch=_dynamic,
    interval=_dynamic_bounds,
)
class DynamicQuantizeMatMul(Operation):
    """Product of a matrix, quantised by the span of its elements, with a quantised one."""


@making(
    schema=schema(
        "QLinearConv",
        "x:T x_scale:F x_zero_point:T w:W w_scale:F w_zero_point:W y_scale:F y_zero_point:Y B:B?",
        "y:Y",
        {**_TYPES, "Y": BYTES, "B": ("int32",)},
        defaults={"auto_pad": "NOTSET", "group": 1, "channels_last": 0},
        kinds={"kernel_shape": "ints?", "strides": "ints?", "dilations": "ints?", "pads": "ints?"},
    ),
    torch=_conv,
    interval=_conv_bounds,
)
class MicrosoftQLinearConv(Operation):
    """Convolution of a quantised tensor whose channels may come last."""


@making(
    schema=schema(
        "NhwcMaxPool",
        "x:T",
        "y:T",
        {"T": BYTES},
        defaults={"auto_pad": "NOTSET", "ceil_mode": 0},
        kinds={"kernel_shape": "ints", "strides": "ints?", "dilations": "ints?", "pads": "ints?"},
    ),
    torch=_max_pool_last,
    interval=_max_pool_last_bounds,
)
class NhwcMaxPool(Operation):
    """Maxima over windows of a tensor whose channels come last."""
