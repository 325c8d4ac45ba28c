"""Gates that ONNX Runtime computes with what they multiply: of sums, of normalised rows, of an operand itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear import curves
from ranum_falsify.domain.linear.declarations import Affine, AffineThenCurve, UnivariateOf
from ranum_falsify.domain.linear.relaxations import Relaxation
from ranum_falsify.domain.rounding import round_bounds, round_outward
from ranum_falsify.domain.rules.activation import gelu_by_erf, gelu_by_tanh
from ranum_falsify.domain.rules.arithmetic.pairs import add, multiply
from ranum_falsify.domain.rules.normalisation.standardise import finish
from ranum_falsify.domain.rules.normalisation.statistics import divide_by_root_mean_square
from ranum_falsify.domain.rules.support import real_functions as real
from ranum_falsify.domain.rules.support.building import infinity_aware, piecewise, unknown
from ranum_falsify.domain.rules.support.sections import sections
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.activation import ABOVE_MINUS_INFINITY, SCALED_ABOVE_MINUS_INFINITY
from ranum_falsify.operators.rows.microsoft.normalisation import stays_defined
from ranum_falsify.operators.rows.normalisation import MEAN_SQUARE, above_zero
from ranum_falsify.operators.support.families import opaque, pointwise, total
from ranum_falsify.operators.support.microsoft import (
    FLOATS,
    add_inner_faults,
    bound_part,
    evaluate_part,
    part,
    refused,
    schema,
)
from ranum_falsify.validity import Condition, NotInfinite, Operands

_FLOATS = {"T": ("float", "float16")}

# sums -----------------------------------------------------------------------------------------------------------


@infinity_aware
def _gated_add_bounds(site: Site, x: Interval, y: Interval, gate: Interval) -> Interval:
    product = multiply(site, y, gate)
    # A kernel may leave the product unrounded.
    low, high = (end.double() for end in (product.lower, product.upper))
    error = unit(product.dtype)
    if product.may_be_infinite:
        low_size, high_size = (end.abs().masked_fill(end.isinf(), 0.0) for end in (low, high))
        ends = (low - 4 * error * low_size, high + 4 * error * high_size)
        wide = replace(product, lower=ends[0].to(product.dtype), upper=ends[1].to(product.dtype))
    else:
        wide = round_outward(low - error * low.abs(), high + error * high.abs(), product.dtype, product.shape)
    return add_inner_faults(add(site, x, wide), product, x, y, gate)


@total(
    schema=schema("GatedAdd", "X:T Y:T gate:T", "output:T", _FLOATS),
    torch=lambda op, x, y, gate: x + y * gate,
    interval=_gated_add_bounds,
    linear=None,
    kernel=None,
    operands=("x", "y", "gate"),
)
class GatedAdd(Operation):
    """A sum with a tensor whose rows are scaled."""


# normalised rows ------------------------------------------------------------------------------------------------


def _rows(x: Tensor, size: int) -> Tensor:
    return x.reshape(*x.shape[:-1], -1, size)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _gate(op: Operation) -> Operation:
    name = {"silu": "Swish", "swish": "Swish", "sigmoid": "Sigmoid"}.get(op.activation)
    if name is None:
        raise refused(op, f"activation {op.activation!r} is not supported")
    return part(op, name, {})


def _gated_norm(op: Operation, x: Tensor, scale: Tensor, gate: Tensor) -> Tensor:
    if scale.ndim != 1:
        raise refused(op, f"a scale of {scale.ndim} dimensions is not supported")
    rows = _rows(_wide(x), len(scale))
    normal = rows / (rows.square().mean(-1, keepdim=True) + float(op.epsilon)).sqrt() * _wide(scale)
    return (normal.reshape(x.shape) * evaluate_part(_gate(op), _wide(gate))).to(x.dtype)


def _square(op: Operation, operands: Operands) -> Tensor:
    rows = _rows(_wide(operands["x"]), len(operands["scale"]))
    return rows.square().mean(-1) + float(op.epsilon)


def _gated_norm_bounds(site: Site, x: Interval, scale: Interval, gate: Interval) -> Interval:
    if not x.size:
        return x
    op, size = site.op, scale.shape[0]
    x, scale, gate = (_widen(t) for t in (x, scale, gate))
    parts = x.move(lambda bound: _rows(bound, size))
    rows = sections(parts, [-1])
    inner = finish(rows, divide_by_root_mean_square(rows, op.epsilon, 1 / rows.size), scale.doubles(), None, parts)
    active = bound_part(site, _gate(op), gate)
    # The factors may be multiplied in another order, and one product overflow before another takes it back.
    largest = (max(1.0, *map(abs, t.extremes)) for t in (scale, active))
    if inner.nan or active.nan or math.prod(largest) * math.sqrt(size) > torch.finfo(torch.float32).max / 4:
        return unknown(site)[0]
    normal = replace(inner.split(*range(len(parts.shape))).move(lambda bound: bound.flatten(-2)), nan=inner.nan)
    low, high = multiply(site, normal, active).doubles()
    error = 8 * unit(torch.float32)
    y = round_outward(low - error * low.abs(), high + error * high.abs(), torch.float32, x.shape)
    return y if site.dtype is torch.float32 else round_bounds(*y.doubles(), site.dtype, x.shape)


def _widen(x: Interval) -> Interval:
    """Return the bounds in float32, in which kernels compute."""
    return x if x.dtype is torch.float32 else Interval(x.lower.float(), x.upper.float(), x.shape)


@opaque(
    schema=schema(
        "GatedRMSNorm",
        "X:T scale:T gate:T",
        "Y:T",
        _FLOATS,
        defaults={"activation": "silu", "epsilon": 1e-5},
    ),
    torch=_gated_norm,
    interval=_gated_norm_bounds,
    kernel=("Sigmoid", "Swish"),
    valid=[above_zero("mean square + epsilon > 0", MEAN_SQUARE, _square, stays_defined)],
    operands=("x", "scale", "gate"),
)
class GatedRMSNorm(Operation):
    """Rows divided by their root mean square, scaled, and multiplied by a sigmoid or `x sigmoid(x)` of a gate."""


def _by_erf(x: Tensor) -> Tensor:
    # PyTorch's own function doubles x before halving it, which overflows.
    y: Tensor = x * torch.special.ndtr(x)
    return y


def _fast(op: Operation, x: Tensor, bias: Tensor | None) -> Tensor:
    if x.dtype is torch.float64:
        raise UnsupportedAttributeError("double is not supported: ONNX Runtime rounds factors to float")
    return _by_tanh(x if bias is None else x + bias)


def _by_tanh(x: Tensor) -> Tensor:
    return x * torch.sigmoid(_SLOPE * x * (1 + _CUBIC * x * x))


_SLOPE, _CUBIC = 2 * math.sqrt(2 / math.pi), 0.044715


@pointwise(
    schema=schema("Gelu", "X:T", "Y:T", {"T": FLOATS}),
    torch=lambda op, x: _by_erf(x),
    interval=gelu_by_erf,
    linear=curves.GELU,
    kernel="Gelu",
    valid=[ABOVE_MINUS_INFINITY],
    overflow=False,
)
class GeluByErf(Operation):
    """`x (1 + erf(x / sqrt(2))) / 2`, before ONNX had `Gelu`."""


# with a bias ----------------------------------------------------------------------------------------------------


def _sum_margin(op: Operation, operands: Operands) -> Tensor:
    x, bias = operands["x"], operands.get("bias")
    return NotInfinite("x", "", only_negative=True).margin(op, {"x": x if bias is None else x + bias})


_SUM_ABOVE_MINUS_INFINITY = Condition(
    "x + bias > -inf",
    "minus infinity times zero",
    _sum_margin,
    holds_of=lambda op, bounds: not bounds["output"].nan,
)


def _biased(rule: IntervalRule) -> IntervalRule:
    """Return the rule of a function of a sum."""

    def biased(site: Site, x: Interval, bias: Interval | None) -> Interval:
        inner = x if bias is None else add(site, x, bias)
        y = rule(site, inner)
        assert isinstance(y, Interval)
        y = add_inner_faults(y, inner, x, bias)
        return replace(y, nan=y.nan or bool((inner.lower == -math.inf).any()))

    return infinity_aware(biased)


def _sum(op: Operation, x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias


def _sum_bounds(site: Site, x: Interval, bias: Interval | None) -> Interval:
    return x if bias is None else add(site, x, bias)


def _of_sum(curve: Relaxation) -> Callable[[Operation], AffineThenCurve]:
    """Return the linear form of a curve of a sum."""
    return lambda op: AffineThenCurve(inner=Affine(function=_sum), bounds=_sum_bounds, outer=curve, last=op)


@pointwise(
    schema=schema("BiasGelu", "A:T B:T", "Y:T", {"T": FLOATS}),
    torch=lambda op, x, bias: _by_erf(x + bias),
    interval=_biased(gelu_by_erf),
    linear=_of_sum(curves.GELU),
    kernel="Gelu",
    valid=[_SUM_ABOVE_MINUS_INFINITY],
    operands=("x", "bias"),
    renamed={"A": "x", "B": "bias"},
)
class BiasGelu(Operation):
    """`Gelu` of a sum, by the error function."""


@pointwise(
    schema=schema("FastGelu", "X:T bias:T?", "Y:T", {"T": FLOATS}),
    torch=_fast,
    interval=_biased(gelu_by_tanh),
    linear=_of_sum(curves.GELU_TANH),
    kernel="Gelu tanh",
    valid=[_SUM_ABOVE_MINUS_INFINITY],
)
class FastGelu(Operation):
    """`Gelu` of a sum, by the hyperbolic tangent."""


# with a factor --------------------------------------------------------------------------------------------------


def _find_error(site: Site, size: Tensor) -> Tensor:
    """Return the most by which kernels stray, besides a share of the result, for operands of at most some size."""
    alpha, kernel = abs(float(site.op.alpha)), site.own_envelope()
    # Where the sigmoid saturates, the product errs by what is left of it, x exp(-|alpha x|) at most.
    until = max(-kernel.floor_until, kernel.ceiling_from)
    saturated = until * math.exp(-until) / alpha if until < math.inf else 0.0
    # Rounding alpha x changes the sigmoid by |alpha x| u of itself, and x^2 sigmoid(x) is at most 0.6 where x < 0.
    return kernel.absolute * size.clamp(max=until / alpha) + saturated + 2 * unit(site.dtype) / alpha


def _stray(site: Site, x: Interval) -> Interval:
    """Return bounds of what kernels stray, besides a few roundings."""
    least, greatest = x.extremes
    size = max(-least, greatest, 1.0)
    most = float(_find_error(site, torch.tensor(size, dtype=torch.float64))) + site.own_envelope().relative * size
    most += _UNDERFLOWS * tiny(site.dtype) * size
    return Interval.fill(-most, most, (), torch.float64)


def _quick_gelu_form(op: Operation) -> UnivariateOf | None:
    curve = curves.stretch(curves.SWISH, 1 / op.alpha, op.alpha) if op.alpha > 0 else None
    if curve is None or not isinstance(op.x, Operation):
        return None
    return UnivariateOf(operand=op.x, curve=curve, stray=_stray, otherwise=None)


_UNDERFLOWS = 16
"""More products than there are, each of which may vanish."""


@infinity_aware
def _quick_gelu_bounds(site: Site, x: Interval) -> Interval:
    alpha, kernel = float(site.op.alpha), site.own_envelope()
    if alpha == 0 or not math.isfinite(alpha):
        low, high = x.doubles()
        share = 0.5 + kernel.relative / 2 + kernel.absolute if alpha == 0 else 1.0 + kernel.relative
        ends = torch.minimum(low * share, torch.zeros_like(low)), torch.maximum(high * share, torch.zeros_like(high))
        return replace(round_outward(*ends, site.dtype, x.shape), nan=alpha != 0)
    shape = piecewise(lambda t: real.swish(t, alpha), turns=[real.SWISH_TURN / alpha], entry=None)
    y = shape(site, x)
    assert isinstance(y, Interval)
    low, high = y.doubles()
    error = _find_error(site, torch.maximum(*(bound.abs() for bound in x.doubles())))
    relative = kernel.relative + 8 * unit(site.dtype)

    def strayed(bound: Tensor, direction: float) -> Tensor:
        return torch.where(bound.isinf(), bound, bound + direction * (error + relative * bound.abs()))

    return round_outward(strayed(low, -1.0), strayed(high, 1.0), site.dtype, x.shape)


@pointwise(
    schema=schema("QuickGelu", "X:T", "Y:T", {"T": FLOATS}, defaults={"alpha": 1.702}),
    torch=lambda op, x: x * torch.sigmoid(op.alpha * x),
    interval=_quick_gelu_bounds,
    linear=_quick_gelu_form,
    kernel="Sigmoid",
    valid=[SCALED_ABOVE_MINUS_INFINITY],
)
class QuickGelu(Operation):
    """`x sigmoid(alpha x)`."""
