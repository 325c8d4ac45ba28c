"""Activation functions that consist of pieces, most of them with slopes or thresholds as attributes.

Attributes of 16-bit operators may be rounded to that type or not; bounds cover both.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import tiny, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.rounding import round_bounds, round_outward
from ranum_falsify.domain.rules.arithmetic.pairs import greatest_of, least_of
from ranum_falsify.domain.rules.shape import reshape
from ranum_falsify.domain.rules.support import real_functions as real
from ranum_falsify.domain.rules.support.building import (
    corner_products,
    infinity_aware,
    part_by_part,
    piecewise,
    result_shape,
)
from ranum_falsify.domain.rules.wide_integers import between_operands
from ranum_falsify.domain.site import Site

Pair = tuple[Tensor, Tensor]


def _bound_rounding(dtype: torch.dtype, operations: int) -> Envelope:
    """Return the error of a few rounded operations, and of an attribute that is rounded first."""
    return Envelope(2 * (operations + 1) * unit(dtype))


def _join(x: Interval, below: Pair, above: Pair) -> Pair:
    """Return the hull of a function's values below 0 and above it, each if the operand can be there.

    Args:
        x: The operand.
        below: Bounds of the results for the part of the operand that is not above 0.
        above: Bounds for the part that is not below 0.
    """
    only_above, only_below = x.lower >= 0, x.upper < 0
    least, greatest = torch.minimum(below[0], above[0]), torch.maximum(below[1], above[1])
    least = torch.where(only_above, above[0], torch.where(only_below, below[0], least))
    return least, torch.where(only_above, above[1], torch.where(only_below, below[1], greatest))


def _parts(x: Interval) -> tuple[Pair, Pair]:
    """Return the parts of the operand that are not above and not below 0, in float64."""
    low, high = x.doubles()
    return (low.clamp(max=0), high.clamp(max=0)), (low.clamp(min=0), high.clamp(min=0))


def _scale(bounds: Pair, factor: float) -> Pair:
    """Return bounds times a number, with 0 times infinity being 0."""
    low, high = ((bound * factor).nan_to_num(0.0, math.inf, -math.inf) for bound in bounds)
    return (low, high) if factor >= 0 else (high, low)


# slopes ---------------------------------------------------------------------------------------------------------


@infinity_aware
def leaky_relu(site: Site, x: Interval) -> Interval:
    """Bound x above 0 and alpha x below; NaN where alpha is 0 and x may be minus infinity."""
    alpha = float(site.op.alpha)
    below, above = _parts(x)
    bounds = _round_once(*_join(x, _scale(below, alpha), above), x.dtype, x.shape)
    return replace(bounds, nan=alpha == 0 and bool((x.lower == -math.inf).any()))


def _round_once(least: Tensor, greatest: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Interval:
    """Return bounds around one rounded sum or product of an operand and an attribute."""
    if dtype in (torch.float32, torch.float64):
        return round_bounds(least, greatest, dtype, shape)
    return round_outward(least, greatest, dtype, shape, _bound_rounding(dtype, 1))


def prelu(site: Site, x: Interval, slope: Interval) -> Interval:
    """Bound x above 0 and slope * x below."""
    below, above = _parts(x)
    scaled = corner_products(below, slope.doubles())
    if not x.is_floating:
        return _integers(*_join(x, scaled, above), x.dtype, result_shape(x, slope))
    return _round_once(*_join(x, scaled, above), x.dtype, result_shape(x, slope))


def _integers(low: Tensor, high: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Interval:
    """Return integer bounds of results that are truncated towards 0; the whole range where they may wrap."""
    lowest, highest = dtype_range(dtype)
    # Beyond 2^53 float64 rounds integers.
    limit = min(float(highest), 2.0**53)
    if low.numel() and (float(low.amin()) < max(float(lowest), -limit) or float(high.amax()) > limit):
        return Interval.fill(lowest, highest, shape, dtype)
    return Interval.of(low.trunc().to(dtype), high.trunc().to(dtype), shape)


# exponential below 0 --------------------------------------------------------------------------------------------


def _exponential(site: Site, below: Pair) -> Pair:
    """Bound exp(x) - 1 as kernels compute it, for bounds of x that are not above 0."""
    bounds = round_outward(torch.expm1(below[0]), torch.expm1(below[1]), site.dtype, (), site.own_envelope())
    return bounds.doubles()


@infinity_aware
def elu(site: Site, x: Interval) -> Interval:
    """Bound x above 0 and alpha (exp(x) - 1) below."""
    below, above = _parts(x)
    bent = _widen(site, _scale(_exponential(site, below), float(site.op.alpha)))
    return round_bounds(*_join(x, bent, above), site.dtype, x.shape)


def _widen(site: Site, bounds: Pair) -> Pair:
    """Widen bounds by the rounding of a few factors."""
    return round_outward(*bounds, site.dtype, (), _bound_rounding(site.dtype, 3)).doubles()


@infinity_aware
def selu(site: Site, x: Interval) -> Interval:
    """Bound gamma x above 0 and gamma alpha (exp(x) - 1) below.

    ONNX Runtime replaces by 0 the values that a negative alpha makes positive.
    """
    alpha, gamma = float(site.op.alpha), float(site.op.gamma)
    if abs(alpha * gamma) > dtype_range(site.dtype)[1]:
        # Kernels may multiply the factors first.
        return replace(Interval.fill(-math.inf, math.inf, x.shape, site.dtype), nan=True, overflows=True)
    below, above = _parts(x)
    low, high = _scale(_exponential(site, below), alpha)
    if alpha < 0:
        low = low.clamp(max=0)
    return round_outward(
        *_join(x, _scale((low, high), gamma), _scale(above, gamma)), site.dtype, x.shape, _bound_rounding(site.dtype, 3)
    )


@infinity_aware
def celu(site: Site, x: Interval) -> Interval:
    """Bound x above 0 and alpha (exp(x / alpha) - 1) below; NaN where alpha is 0."""
    alpha = float(site.op.alpha)
    if not alpha:
        return replace(Interval.top(x.shape, site.dtype), nan=True)
    below, above = _parts(x)
    if alpha > 0:
        inner = _exponential(site, _scale(below, 1 / alpha))
    else:
        # The exponent is positive then, and its rounding matters.
        error = _bound_rounding(torch.float32, 2).relative * below[0].abs() / abs(alpha)
        low, high = _scale(below, 1 / alpha)
        inner = torch.expm1(low - error).clamp(min=0), torch.expm1(high + error)
        low, high = _widen_by_exponential(inner, site.own_envelope(1))
        # The exponential overflows before a small alpha makes it smaller, in some kernels a little earlier.
        inner = low, torch.where(high > torch.finfo(torch.float32).max / 2, math.inf, high)
    return round_bounds(*_join(x, _widen(site, _scale(inner, alpha)), above), site.dtype, x.shape)


def _widen_by_exponential(bounds: Pair, envelope: Envelope) -> Pair:
    """Widen bounds of exp(x) - 1 that are not negative by the error of exp(x)."""
    low, high = (bound.nan_to_num(math.inf) for bound in bounds)
    return (low - envelope.relative * (1 + low)).nan_to_num(math.inf).clamp(min=0), high + envelope.relative * (
        1 + high
    )


# thresholds -----------------------------------------------------------------------------------------------------


@infinity_aware
def hard_sigmoid(site: Site, x: Interval) -> Interval:
    """Bound alpha x + beta, cut to [0, 1]."""
    alpha, beta = float(site.op.alpha), float(site.op.beta)
    low, high = _scale(x.doubles(), alpha)
    error = _bound_rounding(site.dtype, 1).relative

    def at(bound: Tensor, direction: float) -> Tensor:
        slack = error * (bound.abs() + abs(beta))
        return torch.where(bound.isinf(), bound, bound + beta + direction * slack).clamp(0, 1)

    return round_outward(at(low, -1.0), at(high, 1.0), site.dtype, x.shape, Envelope(0.0, 0.0, 0.0, 1.0))


@infinity_aware
def thresholded_relu(site: Site, x: Interval) -> Interval:
    """Bound x above alpha, else 0."""
    alpha = float(site.op.alpha)
    thresholds = alpha, torch.tensor(alpha, dtype=x.dtype).item()
    low, high = x.doubles()
    passes, blocked = high > min(thresholds), low <= max(thresholds)
    kept = low.clamp(min=min(thresholds))
    least = torch.where(passes, torch.where(blocked, kept.clamp(max=0), low), 0.0)
    greatest = torch.where(passes, torch.where(blocked, high.clamp(min=0), high), 0.0)
    return Interval.of(least.to(x.dtype), greatest.to(x.dtype), x.shape)


@infinity_aware
def shrink(site: Site, x: Interval) -> Interval:
    """Bound x + bias below -lambd, x - bias above lambd, and 0 between."""
    bias, lambd = float(site.op.bias), float(site.op.lambd)
    low, high = x.doubles()
    # ONNX Runtime computes in float32, whatever the type is.
    error = 0.0 if x.dtype is torch.float32 else 2 * unit(torch.float32)
    lost = tiny(torch.float32) if x.dtype is torch.float64 else 0.0
    near = max(error, 2 * unit(x.dtype) if x.dtype.itemsize == 2 and x.is_floating else 0.0) * abs(lambd) + lost
    if x.is_floating and abs(lambd) > torch.finfo(x.dtype).max:
        near = math.inf  # PyTorch compares with infinity, which no infinity exceeds
    pieces = (
        (low < -lambd + near, low, high.clamp(max=-lambd + near), bias),
        ((high > lambd - near) & (high >= -lambd - near), low.clamp(min=abs(lambd) - near), high, -bias),
    )
    least, greatest = torch.full_like(low, math.inf), torch.full_like(high, -math.inf)
    for has, begin, end, shift in pieces:
        begin, end = (_shift(bound, shift, way * error) + way * lost for bound, way in ((begin, -1.0), (end, 1.0)))
        least = torch.where(has, torch.minimum(least, begin), least)
        greatest = torch.where(has, torch.maximum(greatest, end), greatest)
    flat = (high >= -abs(lambd) - near) & (low <= abs(lambd) + near)
    least = torch.where(flat, least.clamp(max=0), least)
    greatest = torch.where(flat, greatest.clamp(min=0), greatest)
    if not x.is_floating:
        return _integers(least, greatest, x.dtype, x.shape)
    limit = torch.finfo(torch.float32).max
    least = torch.where(least < -limit, -math.inf, least.clamp(max=limit))
    greatest = torch.where(greatest > limit, math.inf, greatest.clamp(min=-limit))
    return _round_once(least, greatest, x.dtype, x.shape)


def _shift(bound: Tensor, shift: float, error: float) -> Tensor:
    """Return a sum minus or plus its relative error and that of its terms."""
    return torch.where(bound.isinf(), bound, bound + shift + error * (bound.abs() + abs(shift)))


_raised, _lowered = between_operands(greatest_of), between_operands(least_of)


@infinity_aware
def clip(site: Site, x: Interval, low: Interval | None = None, high: Interval | None = None) -> Interval:
    """Bound min(max(x, low), high); kernels take a limit of shape [1] for a number, whatever the rank of x."""
    shape = x.shape
    for limit, cut, end in ((low, _raised, 0), (high, _lowered, 1)):
        if limit is None and x.dtype is torch.int64:  # kernels compare with the ends of the type
            limit = Interval.fill(dtype_range(x.dtype)[end], dtype_range(x.dtype)[end], (), x.dtype)
        if limit is not None:
            if limit.dtype is not x.dtype:  # an attribute of old opsets
                limit = round_bounds(*limit.doubles(), x.dtype, limit.shape)
            x = cut(site, x, limit)
    x = reshape(x, shape) if len(x.shape) > len(shape) and x.size == math.prod(shape) else x
    if (low is None or high is None) and x.may_be_infinite:
        # ONNX Runtime uses the largest finite numbers for limits that are absent.
        least, greatest = dtype_range(x.dtype)
        return replace(x, lower=x.lower.clamp(max=greatest), upper=x.upper.clamp(min=least))
    return x


# products with a bent factor ------------------------------------------------------------------------------------

gelu_by_erf = piecewise(real.gelu, turns=[real.GELU_TURN])
gelu_by_tanh = piecewise(real.gelu_tanh, turns=[real.GELU_TANH_TURN], entry=-1)


@infinity_aware
def gelu(site: Site, x: Interval) -> Interval:
    """Bound x times the normal distribution function, or its approximation by the hyperbolic tangent."""
    by_tanh = site.op.approximate == "tanh"
    bounds = (gelu_by_tanh if by_tanh else gelu_by_erf)(site, x)
    assert isinstance(bounds, Interval)
    if by_tanh:
        return bounds
    # Kernels that halve x (1 + erf(x / sqrt(2))) last overflow; that of PyTorch for AVX-512 makes infinity NaN.
    overflows = x.upper.double() > float(dtype_range(site.dtype)[1]) / 2
    nan = "torch" in site.runtimes and bool((x.upper == math.inf).any())
    return replace(bounds, upper=torch.where(overflows, torch.inf, bounds.upper), nan=bounds.nan or nan)


_hard_swish = piecewise(real.hard_swish, turns=[-1.5])


@infinity_aware
def hard_swish(site: Site, x: Interval) -> Interval:
    """Bound x max(0, min(1, x / 6 + 1 / 2)); a kernel that divides by 6 last may overflow."""
    bounds = _hard_swish(site, x)
    assert isinstance(bounds, Interval)
    greatest = float(dtype_range(site.dtype)[1])
    return replace(bounds, upper=torch.where(x.upper.double() > greatest / 6, torch.inf, bounds.upper))


@part_by_part
def swish(site: Site, x: Interval) -> Interval:
    """Bound x / (1 + exp(-alpha x)): g(alpha x) / alpha for g(z) = z / (1 + exp(-z)).

    The rounding of alpha x adds to the kernel's errors: g'(z) z u is at most 1.3 u |g(z)| for positive z, and
    at most 0.7 u for negative ones.
    """
    alpha, kernel = float(site.op.alpha), site.own_envelope()
    if alpha == 0:
        low, high = x.doubles()
        return round_outward(low / 2, high / 2, site.dtype, x.shape)
    low, high = x.doubles()
    at_low, at_high = real.swish(low, alpha), real.swish(high, alpha)
    turn = real.SWISH_TURN / alpha
    at_turn = real.swish(torch.tensor(turn, dtype=torch.float64), alpha)
    turns = (low <= turn) & (high >= turn)
    ends = torch.minimum(at_low, at_high), torch.maximum(at_low, at_high)
    least = torch.where(turns, torch.minimum(ends[0], at_turn), ends[0])
    greatest = torch.where(turns, torch.maximum(ends[1], at_turn), ends[1])
    rounding = unit(site.dtype)
    envelope = replace(
        kernel,
        relative=kernel.relative + 8 * rounding,
        absolute=(kernel.absolute + 2 * rounding) / abs(alpha),
    )
    return round_outward(least, greatest, site.dtype, x.shape, envelope)
