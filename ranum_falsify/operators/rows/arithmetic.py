"""Arithmetic: sums, products, quotients, remainders, extremes, rounding; several over any number of operands."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Add, Div, Mul, Sign, Sub
from torch import Tensor

from ranum_falsify.domain.linear import curves
from ranum_falsify.domain.linear.declarations import Affine, Extremum
from ranum_falsify.domain.order import SIGNED, greatest, least
from ranum_falsify.domain.rules.arithmetic.pairs import (
    absolute,
    divide,
    greatest_of,
    least_of,
    negate,
    reciprocal,
    subtract,
)
from ranum_falsify.domain.rules.arithmetic.variadic import mean_of_operands
from ranum_falsify.domain.rules.support.building import exactly
from ranum_falsify.domain.rules.wide_integers import between_operands, remainder_of_words, sign_of_words
from ranum_falsify.operators.relations.comparison import bound_difference, bound_ratio
from ranum_falsify.operators.relations.decomposed import quotient_or_rows
from ranum_falsify.operators.relations.fused import accumulate, dequantised_product, sum_operands
from ranum_falsify.operators.relations.norm_bounds import cosine_by_squares
from ranum_falsify.operators.relations.path_conditions import flagged
from ranum_falsify.operators.relations.patterns import (
    difference_to_extreme,
    difference_to_itself,
    difference_to_log_sum,
    difference_to_mean,
    logarithm_of_share,
    product_with_itself,
    refined,
    variance_by_moments,
)
from ranum_falsify.operators.relations.quotients import (
    over_choice,
    over_norm,
    over_reciprocal,
    product_or_quotient,
    quotient_by_itself,
    share_of_sum,
    standard_score,
)
from ranum_falsify.operators.relations.scatter_gather import difference_to_written
from ranum_falsify.operators.relations.self_gated import (
    gelu_by_parts,
    hard_swish_by_parts,
    product_form,
    swish_by_parts,
)
from ranum_falsify.operators.support.families import exact, pointwise, total
from ranum_falsify.operators.support.functions import elementwise, quotient, remainder, variadic, widened
from ranum_falsify.validity import Bounds, Condition, NotZero, Operands, surely_zero

_DIFFERENCES = (
    difference_to_itself,
    difference_to_extreme,
    difference_to_mean,
    variance_by_moments,
    logarithm_of_share,
    difference_to_log_sum,
    difference_to_written,
    bound_difference,
)
_PRODUCTS = (
    product_with_itself,
    swish_by_parts,
    hard_swish_by_parts,
    gelu_by_parts,
    dequantised_product,
    over_reciprocal(standard_score, over_norm, share_of_sum),
)
for _function, _interval, _linear, _node in (
    (torch.add, flagged(accumulate), Affine(), Add),
    (torch.sub, refined(subtract, *_DIFFERENCES), Affine(), Sub),
    (torch.mul, refined(product_or_quotient, *_PRODUCTS), product_form, Mul),
):
    total(torch=elementwise(widened(_function)), interval=_interval, linear=_linear, kernel=None)(_node)


def _sign(x: Tensor) -> Tensor:
    return (x != 0).to(x.dtype) if x.dtype in SIGNED else torch.sign(x)


exact(torch=elementwise(_sign), interval=sign_of_words)(Sign)


def _make_safe(dividend: Tensor, divisor: Tensor) -> Tensor:
    """Return an integer divisor with 1 in place of zeros, on which torch would raise, and of -1 that overflows.

    `NotZero` and :data:`_FITS` report both; the least number divided by -1 wraps to itself, its quotient by 1.
    """
    return divisor.masked_fill(divisor == 0, 1).masked_fill(_wraps(dividend, divisor), 1)


def _wraps(dividend: Tensor, divisor: Tensor) -> Tensor:
    """Tell where a quotient is one more than the largest integer; processors raise an exception there."""
    if dividend.dtype not in (torch.int32, torch.int64):
        return torch.zeros((), dtype=torch.bool, device=divisor.device)
    return (dividend == torch.iinfo(dividend.dtype).min) & (divisor == -1)


def _fits(op: Operation, bounds: Bounds) -> bool:
    a, b = bounds["a"], bounds["b"]
    if a.dtype not in (torch.int32, torch.int64) or getattr(op, "fmod", False):
        return True
    return not bool((a.contains(torch.iinfo(a.dtype).min) & b.contains(-1)).any())


def _fits_never(op: Operation, bounds: Bounds) -> bool:
    a, b = bounds["a"], bounds["b"]
    if getattr(op, "fmod", False) or not (a.size and b.size):
        return False
    return bool((_wraps(a.lower, b.lower) & (a.upper == a.lower) & (b.upper == b.lower)).any())


def _fit_margin(op: Operation, operands: Operands) -> Tensor:
    a, b = operands["a"], operands["b"]
    fits = torch.ones(np.broadcast_shapes(a.shape, b.shape), device=b.device)
    return fits if getattr(op, "fmod", False) else torch.where(_wraps(a, b), -fits, fits)


_FITS = Condition(
    "the quotient of integers fits",
    "the least integer divided by -1",
    margin_of=_fit_margin,
    holds_of=_fits,
    fails_of=_fits_never,
    ranges_of=lambda dtype: (),
    crashes=True,
)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point():
        return torch.div(a, b)
    if a.dtype is torch.uint64:
        return quotient(a, b)
    return widened(lambda x, y: torch.div(x, _make_safe(x, y), rounding_mode="trunc"))(a, b)


_NONZERO = NotZero("b", reason="division by zero")


def _zero_divisor(op: Operation, operands: Operands) -> Tensor:
    # Inf / 0 is Inf, which is not a violation; Inf / Inf is NaN, which the generic condition sees.
    a, divisor = operands["a"], _NONZERO.margin(op, operands)
    return torch.where(a.isfinite(), divisor, math.inf)


def _divides_by_zero(op: Operation, bounds: Bounds) -> bool:
    a, b = bounds["a"], bounds["b"]
    finite = True if not a.is_floating else (a.lower > -math.inf) & (a.upper < math.inf)
    return bool((surely_zero(b) & finite).any())


pointwise(
    torch=elementwise(_divide),
    interval=refined(
        divide,
        quotient_by_itself,
        standard_score,
        over_norm,
        cosine_by_squares,
        share_of_sum,
        bound_ratio,
        over_choice(quotient_by_itself, standard_score, over_norm, share_of_sum),
    ),
    linear=quotient_or_rows,
    kernel=None,
    valid=[
        Condition(
            _NONZERO.describe(),
            reason=_NONZERO.reason,
            margin_of=_zero_divisor,
            crossing_of=_NONZERO.crossing,
            holds_of=_NONZERO.holds,
            fails_of=_divides_by_zero,
            ranges_of=_NONZERO.invalid_ranges,
        ),
        _FITS,
    ],
    divides=True,
)(Div)


@pointwise(
    torch=elementwise(torch.reciprocal),
    interval=reciprocal,
    linear=curves.RECIPROCAL,
    kernel="Reciprocal",
    valid=[NotZero("x", reason="reciprocal of zero")],
)
class Reciprocal(Operation):
    """https://onnx.ai/onnx/operators/onnx__Reciprocal.html."""


def _mod(op: Operation, a: Tensor, b: Tensor) -> Tensor:
    function = torch.fmod if op.fmod else torch.remainder
    if a.is_floating_point():
        return function(a, b)
    if a.dtype is torch.uint64:
        return remainder(a, b)
    return widened(lambda x, y: function(x, _make_safe(x, y)))(a, b)


@pointwise(
    torch=_mod,
    interval=remainder_of_words,
    linear=None,
    kernel=None,
    valid=[
        NotZero("b", reason="remainder of a division by zero"),
        replace(_FITS, only_onnxruntime=True),
        Condition(
            "a is finite",
            "remainder of an infinite number",
            lambda op, operands: torch.where(operands["a"].isinf(), -1.0, 1.0),
            needs_infinity=True,
        ),
    ],
    overflow=False,
    divides=True,
)
class Mod(Operation):
    """https://onnx.ai/onnx/operators/onnx__Mod.html."""


def _absolute(x: Tensor) -> Tensor:
    return x if x.dtype in SIGNED else torch.abs(x)


@total(torch=elementwise(_absolute), interval=absolute, linear=curves.ABS, kernel=None, overflow=False)
class Abs(Operation):
    """https://onnx.ai/onnx/operators/onnx__Abs.html."""


@total(torch=elementwise(torch.neg), interval=negate, linear=Affine(), kernel=None, overflow=False)
class Neg(Operation):
    """https://onnx.ai/onnx/operators/onnx__Neg.html."""


def _beside(op: Operation, *places: Tensor) -> Tensor:
    """Return the elements at the same place of all operands along a last dimension."""
    return torch.stack(torch.broadcast_tensors(*places), -1)


@exact(
    torch=variadic(least),
    interval=between_operands(least_of),
    linear=Extremum(windows=_beside, greatest=False),
    operands=("data",),
)
class Min(Operation):
    """https://onnx.ai/onnx/operators/onnx__Min.html."""


@exact(
    torch=variadic(greatest),
    interval=between_operands(greatest_of),
    linear=Extremum(windows=_beside),
    operands=("data",),
)
class Max(Operation):
    """https://onnx.ai/onnx/operators/onnx__Max.html."""


@total(torch=variadic(torch.add), interval=sum_operands, linear=Affine(), kernel=None, operands=("data",))
class Sum(Operation):
    """https://onnx.ai/onnx/operators/onnx__Sum.html."""


def _mean(op: Operation, *data: Tensor) -> Tensor:
    total: Tensor = sum(data[1:], data[0])
    return total / len(data)


@total(torch=_mean, interval=mean_of_operands, linear=Affine(), kernel=None, operands=("data",))
class Mean(Operation):
    """https://onnx.ai/onnx/operators/onnx__Mean.html."""


@exact(torch=elementwise(torch.ceil), interval=exactly(torch.ceil))
class Ceil(Operation):
    """https://onnx.ai/onnx/operators/onnx__Ceil.html."""


@exact(torch=elementwise(torch.floor), interval=exactly(torch.floor))
class Floor(Operation):
    """https://onnx.ai/onnx/operators/onnx__Floor.html."""


@exact(torch=elementwise(torch.round), interval=exactly(torch.round))
class Round(Operation):
    """Halves to even: https://onnx.ai/onnx/operators/onnx__Round.html."""
