"""Products that ONNX Runtime fuses with the operators around them: transposes, factors, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import growth
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine, AffineThenCurve, LinearForm, contraction, form_of
from ranum_falsify.domain.linear.relaxations import Relaxation
from ranum_falsify.domain.rules.arithmetic.pairs import add
from ranum_falsify.domain.rules.matrix.matmul import largest_finite, matrix_product, overflows_in_parts, sum_scaled
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.relations.fused import is_beside_quantised
from ranum_falsify.operators.relations.norm_bounds import product_of_rows, weighted_means
from ranum_falsify.operators.relations.patterns import refined
from ranum_falsify.operators.support.families import summing
from ranum_falsify.operators.support.microsoft import (
    FLOATS,
    activate,
    activation,
    add_inner_faults,
    bound_part,
    evaluate_part,
    part,
    schema,
)


def _activate(op: Operation, y: Tensor) -> Tensor:
    found = activation(op)
    if found is None:
        return y
    node, limits = found
    return evaluate_part(node, y, *(torch.as_tensor(limit, device=y.device) for limit in limits))


def _activate_bounds(bounds: Callable[..., Interval]) -> IntervalRule:
    """Return the rule of a product and an activation, from that of the product."""

    @infinity_aware
    def rule(site: Site, *operands: Interval | None) -> Interval:
        return activate(site, bounds(site, *operands), *operands)

    return rule


def _linear(op: Operation, inner: Affine, bounds: IntervalRule) -> LinearForm | None:
    """Return how a node depends on its operands: along the curve of its activation, if that has one."""
    found = activation(op)
    if is_beside_quantised(op) or found is None:
        return None if is_beside_quantised(op) else inner
    outer = form_of(found[0])
    return (
        AffineThenCurve(inner=inner, bounds=bounds, outer=outer, last=found[0])
        if isinstance(outer, Relaxation)
        else None
    )


# convolutions ---------------------------------------------------------------------------------------------------


def _conv(op: Operation, x: Tensor, w: Tensor, b: Tensor | None, z: Tensor | None) -> Tensor:
    y = evaluate_part(part(op, "Conv", vars(op)), x, w, b)
    return y if z is None else y + z


@infinity_aware
def _conv_bounds(site: Site, x: Interval, w: Interval, b: Interval | None, z: Interval | None) -> Interval:
    y = bound_part(site, part(site.op, "Conv", vars(site.op)), x, w, b)
    if z is None:
        return y
    # The summand may be added first: then it takes part in the error of the sum, and in overflows on the way.
    terms = math.prod(w.shape[1:])
    beside = largest_finite(z) + (0.0 if b is None else largest_finite(b))
    y = replace(y, overflows=y.overflows or overflows_in_parts(x, w, terms, beside=beside))
    error = growth(terms + 2, z.dtype)
    low, high = z.lower - error * z.lower.abs(), z.upper + error * z.upper.abs()
    widened = z if z.may_be_infinite else replace(z, lower=low, upper=high, gap=0.0)
    return add_inner_faults(add(site, y, widened), y, x, w, b, z)


_CONVOLUTION = Affine(
    factors=("x", "w"), terms=lambda op, shapes, output: contraction(op, shapes, output) + 2, function=_conv
)

_CONV = schema(
    "FusedConv",
    "X:T W:T B:T? Z:T?",
    "Y:T",
    {"T": FLOATS},
    defaults={"auto_pad": "NOTSET", "group": 1},
    kinds={
        "kernel_shape": "ints?",
        "dilations": "ints?",
        "strides": "ints?",
        "pads": "ints?",
        "activation": "string?",
        "activation_params": "floats?",
    },
)


@summing(
    schema=_CONV,
    torch=lambda op, *operands: _activate(op, _conv(op, *operands)),
    interval=_activate_bounds(_conv_bounds),
    linear=lambda op: _linear(op, _CONVOLUTION, _conv_bounds),
    batch="vmap",
)
class FusedConv(Operation):
    """`Conv`, a sum and an activation: `activation(Conv(X, W, B) + Z)`."""


# matrices -------------------------------------------------------------------------------------------------------


def _gemm(op: Operation, a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
    return evaluate_part(part(op, "Gemm", vars(op)), a, b, c)


@infinity_aware
def _gemm_bounds(site: Site, a: Interval, b: Interval, c: Interval | None) -> Interval:
    return bound_part(site, part(site.op, "Gemm", vars(site.op)), a, b, c)


_LAYER = Affine(factors=("a", "b"), terms=contraction, function=_gemm)

_GEMM = schema(
    "FusedGemm",
    "A:T B:T C:T?",
    "Y:T",
    {"T": FLOATS},
    defaults={"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
    kinds={
        "activation": "string?",
        "activation_alpha": "float?",
        "activation_beta": "float?",
        "activation_gamma": "float?",
    },
)


@summing(
    schema=_GEMM,
    torch=lambda op, *operands: _activate(op, _gemm(op, *operands)),
    interval=_activate_bounds(_gemm_bounds),
    linear=lambda op: _linear(op, _LAYER, _gemm_bounds),
    batch="vmap",
    renamed={"transA": "transpose_a", "transB": "transpose_b"},
)
class FusedGemm(Operation):
    """`Gemm` and an activation: `activation(alpha A B + beta C)`."""


def _turn(x: Tensor, *, batch: int, last: int) -> Tensor:
    """Return a factor with its first dimension moved behind those of the batch, and its last two swapped, as asked."""
    if batch and x.ndim > 2:
        x = x.movedim(0, -2)
    return x.mT if last and x.ndim > 1 else x


def _turn_first(x: Tensor, op: Operation, rank: int) -> Tensor:
    """Return the first factor as the kernel reads it beside one of so many dimensions.

    Beside a vector, kernels take the numbers of a matrix to be transposed in the order in which they are stored, as if
    the transposed matrix had been.
    """
    if op.transpose_a and x.ndim > 1 and rank == 1:
        return x.reshape(x.mT.shape)
    return _turn(x, batch=op.transpose_batch_a, last=op.transpose_a)


def _turn_second(x: Tensor, op: Operation) -> Tensor:
    return _turn(x, batch=op.transpose_batch_b, last=op.transpose_b)


def _fused_matmul(op: Operation, a: Tensor, b: Tensor) -> Tensor:
    a, b = _turn_first(a, op, b.ndim), _turn_second(b, op)
    if not (a.numel() and b.numel()) and a.shape[:-2] != b.shape[:-2]:
        raise UnsupportedAttributeError("factors without elements of several batches are not supported")
    product = torch.matmul(a, b)
    return product if op.alpha == 1 else product * op.alpha


@infinity_aware
def _fused_matmul_bounds(site: Site, a: Interval, b: Interval) -> Interval:
    rank = len(b.shape)
    a, b = a.move(lambda t: _turn_first(t, site.op, rank)), b.move(lambda t: _turn_second(t, site.op))
    product, alpha = matrix_product(a, b), float(site.op.alpha)
    # Of no terms, ONNX Runtime leaves the sums unwritten; without elements, it may divide by their number.
    if not a.size or not b.size:
        return replace(Interval.fill(-math.inf, math.inf, site.shape, site.dtype), nan=True, overflows=True)
    if alpha == 1:
        return product
    y = sum_scaled(product, alpha, None, 0.0)
    given = a.may_be_infinite or b.may_be_infinite
    # The sum may overflow before a small factor is applied, and a part of it after a large one.
    overflows = product.overflows or (product.may_be_infinite and not given)
    overflows = overflows or overflows_in_parts(a, b, a.shape[-1], factor=alpha)
    return replace(y, nan=y.nan or product.nan or (alpha == 0 and product.may_be_infinite), overflows=overflows)


_PRODUCT = Affine(factors=("a", "b"), terms=lambda op, shapes, output: max(shapes[1], default=1) + 4)

_MATMUL = schema(
    "FusedMatMul",
    "A:T B:T",
    "Y:T",
    {"T": ("float", "double")},
    defaults={"alpha": 1.0, "transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0},
)


@summing(
    schema=_MATMUL,
    torch=_fused_matmul,
    interval=refined(_fused_matmul_bounds, product_of_rows, weighted_means),
    linear=lambda op: _PRODUCT,
    batch="vmap",
    renamed={
        "transA": "transpose_a",
        "transB": "transpose_b",
        "transBatchA": "transpose_batch_a",
        "transBatchB": "transpose_batch_b",
    },
)
class FusedMatMul(Operation):
    """`MatMul` of transposed factors, times a number: `alpha A B`."""
