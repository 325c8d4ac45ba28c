"""Products of a number with a function of itself that ONNX Runtime computes in one operator."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.activation import gelu_by_erf, gelu_by_tanh
from ranum_falsify.domain.rules.arithmetic.pairs import add
from ranum_falsify.domain.rules.support import real_functions as real
from ranum_falsify.domain.rules.support.building import infinity_aware, piecewise
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.domain.slack import unit
from ranum_falsify.operators.rows.activation import ABOVE_MINUS_INFINITY, SCALED_ABOVE_MINUS_INFINITY
from ranum_falsify.operators.support.families import pointwise
from ranum_falsify.operators.support.microsoft_parts import add_inner_faults
from ranum_falsify.operators.support.microsoft_schemas import FLOATS, schema
from ranum_falsify.validity import Condition, NotInfinite, Operands

__all__ = ["BiasGelu", "FastGelu", "GeluByErf", "QuickGelu"]


def _by_erf(x: Tensor) -> Tensor:
    # PyTorch's own function doubles x before halving it, which overflows.
    y: Tensor = x * torch.special.ndtr(x)
    return y


def _by_tanh(x: Tensor) -> Tensor:
    return x * torch.sigmoid(_SLOPE * x * (1 + _CUBIC * x * x))


_SLOPE, _CUBIC = 2 * math.sqrt(2 / math.pi), 0.044715


@pointwise(
    schema=schema("Gelu", "X:T", "Y:T", {"T": FLOATS}),
    torch=lambda op, x: _by_erf(x),
    interval=gelu_by_erf,
    linear=None,
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


@pointwise(
    schema=schema("BiasGelu", "A:T B:T", "Y:T", {"T": FLOATS}),
    torch=lambda op, x, bias: _by_erf(x + bias),
    interval=_biased(gelu_by_erf),
    linear=None,
    kernel="Gelu",
    valid=[_SUM_ABOVE_MINUS_INFINITY],
    operands=("x", "bias"),
    renamed={"A": "x", "B": "bias"},
)
class BiasGelu(Operation):
    """`Gelu` of a sum, by the error function."""


@pointwise(
    schema=schema("FastGelu", "X:T bias:T?", "Y:T", {"T": FLOATS}),
    torch=lambda op, x, bias: _by_tanh(x if bias is None else x + bias),
    interval=_biased(gelu_by_tanh),
    linear=None,
    kernel="Gelu tanh",
    valid=[_SUM_ABOVE_MINUS_INFINITY],
)
class FastGelu(Operation):
    """`Gelu` of a sum, by the hyperbolic tangent."""


# with a factor --------------------------------------------------------------------------------------------------


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
    size = torch.maximum(*(bound.abs() for bound in x.doubles()))
    # Where the sigmoid saturates, the product errs by what is left of it, x exp(-|alpha x|) at most.
    until = max(-kernel.floor_until, kernel.ceiling_from)
    error = kernel.absolute * size.clamp(max=until / abs(alpha))
    if until < math.inf:
        error = error + until * math.exp(-until) / abs(alpha)
    # Rounding alpha x changes the sigmoid by |alpha x| u of itself, and x^2 sigmoid(x) is at most 0.6 where x < 0.
    rounding = unit(site.dtype)
    error = error + 2 * rounding / abs(alpha)
    relative = kernel.relative + 8 * rounding

    def strayed(bound: Tensor, direction: float) -> Tensor:
        return torch.where(bound.isinf(), bound, bound + direction * (error + relative * bound.abs()))

    return round_outward(strayed(low, -1.0), strayed(high, 1.0), site.dtype, x.shape)


@pointwise(
    schema=schema("QuickGelu", "X:T", "Y:T", {"T": FLOATS}, defaults={"alpha": 1.702}),
    torch=lambda op, x: x * torch.sigmoid(op.alpha * x),
    interval=_quick_gelu_bounds,
    linear=None,
    kernel="Sigmoid",
    valid=[SCALED_ABOVE_MINUS_INFINITY],
)
class QuickGelu(Operation):
    """`x sigmoid(alpha x)`."""
