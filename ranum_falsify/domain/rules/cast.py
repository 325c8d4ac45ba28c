"""Conversions of element types: those that torch computes with, and those that a wider one stands for."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import flush, round_bounds
from ranum_falsify.domain.rules.support.building import keeping_infinity
from ranum_falsify.domain.site import Site
from ranum_falsify.network.narrow import NarrowFloat, NarrowInteger

_HALVES = (torch.float16, torch.bfloat16)
_EXACT_SINGLE = 2.0**24
"""Integers up to this size are exact in float32."""

_SIGNED_LIMIT = 2.0**63
"""From here on float64 values do not fit into int64; kernels differ in how they convert them to uint64."""


def cast(site: Site, x: Interval, *target: Interval) -> Interval:
    """Return the operand's bounds in the type of the output; a rule."""
    return convert(x, site.dtype, rounds="onnxruntime" not in site.runtimes)


keeping_infinity(cast)


def convert(x: Interval, dtype: torch.dtype, *, rounds: bool = True) -> Interval:
    """Return bounds of the values in another element type.

    Args:
        x: The values.
        dtype: The type.
        rounds: Whether they are certain to be rounded to it, if it is float16.
    """
    if x.dtype is dtype:
        return x
    if dtype is torch.bool:
        return Interval(~x.contains(0), (x.lower != 0) | (x.upper != 0), x.shape)
    if dtype.is_floating_point:
        return flush(_to_float(x, dtype) if rounds or dtype is not torch.float16 else _enclose(x, dtype))
    if x.is_floating:
        return _truncate(x, dtype)
    return wrap(x, dtype, dtype_range(dtype))


def _to_float(x: Interval, dtype: torch.dtype) -> Interval:
    if dtype not in _HALVES or (x.is_floating and x.dtype is not torch.float64):
        return replace(x.map(lambda bound: bound.to(dtype)), gap=_gap(x))
    # Some kernels round to float32 first: its neighbours bound both ways.
    low, high = (_round_to_single(bound, end) for bound, end in ((x.lower, -math.inf), (x.upper, math.inf)))
    return Interval(low.to(dtype), high.to(dtype), x.shape)


def _enclose(x: Interval, dtype: torch.dtype) -> Interval:
    """Return bounds of a type around the values, whether or not they are rounded to it."""
    low, high = x.doubles()
    y = round_bounds(low, high, dtype, x.shape)
    return replace(y, gap=_gap(x)) if x.is_floating else y


def _gap(x: Interval) -> float:
    # Rounding moves a number by less than this share of its size.
    return x.gap * (1 - 2**-7) if x.gap else 0.0


def _round_to_single(bound: Tensor, towards: float) -> Tensor:
    """Return float32 values on the given side of values in float64 or in an integer type."""
    near = bound.float()
    if bound.is_floating_point():
        beyond = near.double() > bound if towards < 0 else near.double() < bound
    else:
        beyond = near.abs() > _EXACT_SINGLE
    return torch.where(beyond, torch.nextafter(near, torch.full_like(near, towards)), near)


def _truncate(x: Interval, dtype: torch.dtype) -> Interval:
    low, high = x.doubles()
    least = low.trunc()
    return keep_fitting(least, least if high is low else high.trunc(), x.shape, dtype, dtype_range(dtype))


def keep_fitting(
    low: Tensor, high: Tensor, shape: tuple[int, ...], dtype: torch.dtype, limits: tuple[float | int, float | int]
) -> Interval:
    """Return bounds of whole numbers, anything between two limits where one lies beyond them.

    Args:
        low: The least numbers, in float64; the same tensor as the greatest ones if they are known.
        high: The greatest ones.
        shape: Shape of the tensor.
        dtype: The integer type that holds them.
        limits: The least and the greatest number that they may be.
    """
    inside = (low >= limits[0]) & (high <= limits[1]) & (high < _SIGNED_LIMIT)
    least = low.where(inside, 0.0).to(torch.int64)
    greatest = least if high is low else high.where(inside, 0.0).to(torch.int64)
    return _where(inside, least, greatest, shape, dtype, limits)


def wrap(x: Interval, dtype: torch.dtype, limits: tuple[float | int, float | int]) -> Interval:
    """Return bounds of integers that wrap where they do not fit between two limits."""
    low = x.lower.to(torch.int64)
    high = low if x.upper is x.lower else x.upper.to(torch.int64)
    inside = (low >= limits[0]) & (high <= min(limits[1], torch.iinfo(torch.int64).max))
    if x.dtype is torch.uint64:
        # The upper half has the bits of negative numbers.
        inside &= (low >= 0) & (high >= 0)
    return _where(inside, low, high, x.shape, dtype, limits)


def _where(
    inside: Tensor,
    low: Tensor,
    high: Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    limits: tuple[float | int, float | int],
) -> Interval:
    if bool(inside.all()):
        lower = low.to(dtype)
        return Interval(lower, lower if high is low else high.to(dtype), shape)
    least, greatest = (torch.full((), end, dtype=dtype) for end in limits)
    lower, upper = torch.where(inside, low.to(dtype), least), torch.where(inside, high.to(dtype), greatest)
    return Interval(lower, upper, shape)


def convert_to_float(op: Operation, x: Tensor, kind: NarrowFloat) -> Tensor:
    """Return numbers rounded to a narrow type, in float32, as a node's attributes say."""
    x = x.float()
    if kind.is_power:
        return _round_to_power(op, x, kind)
    y = _round(x, kind)
    beyond = y.abs() > kind.greatest
    largest = torch.where(beyond, torch.copysign(torch.full_like(y, kind.greatest), y), y)
    if _saturates(op, kind):
        return largest if kind.has_nan else largest.nan_to_num(0.0)
    return torch.where(beyond, torch.copysign(torch.full_like(y, kind.beyond), y), y)


def _saturates(op: Operation, kind: NarrowFloat) -> bool:
    """Tell whether numbers that are too large become the greatest one."""
    return op.saturate is None or bool(op.saturate) or not kind.has_nan


def _round(x: Tensor, kind: NarrowFloat) -> Tensor:
    """Return float32 numbers rounded to the digits of a narrow type, however large."""
    exponent = torch.frexp(x.detach())[1] - 1
    step = torch.ldexp(torch.ones_like(x), exponent.clamp(min=kind.exponent) - kind.digits)
    y = torch.where(x.isfinite(), (x / step).round() * step, x)
    return y if kind.has_negative_zero else y + 0.0


def _round_to_power(op: Operation, x: Tensor, kind: NarrowFloat) -> Tensor:
    """Return the powers of two near positive numbers; what becomes of negative ones is not specified."""
    least = 2.0**kind.exponent
    mantissa, exponent = torch.frexp(x.double())
    doubled = 2 * mantissa  # from 1 to 2
    mode = getattr(op, "round_mode", None) or "up"
    higher = {"up": doubled > 1, "down": doubled < 1, "nearest": doubled >= 1.5}[mode]
    power = torch.ldexp(torch.ones_like(doubled), exponent - 1 + higher.to(exponent.dtype))
    y = torch.where(x > 0, power, 0.0).clamp(least, kind.greatest)
    out = ~(x > 0) | (power < least) | (power > kind.greatest) | x.isinf()
    wrong = x.isnan() if _saturates(op, kind) else out
    return torch.where(wrong, math.nan, torch.where(x == math.inf, kind.greatest, y)).float()


def convert_to_integer(x: Tensor, kind: NarrowInteger, dtype: torch.dtype) -> Tensor:
    """Return integers of a narrow type in the type that stands for it."""
    whole = _round_away(x).nan_to_num(0.0, 0.0, 0.0) if x.is_floating_point() else x
    return _wrap(whole.to(torch.int64), kind).to(dtype)


def _round_away(x: Tensor) -> Tensor:
    """Return the nearest whole numbers; of two, the one further from 0."""
    whole = x.trunc()
    return torch.where((x - whole).abs() >= 0.5, whole + x.sign(), whole)


def _wrap(x: Tensor, kind: NarrowInteger) -> Tensor:
    return (x - kind.least) % (kind.greatest - kind.least + 1) + kind.least


# bounds ---------------------------------------------------------------------------------------------------------


def float_bounds(op: Operation, x: Interval, kind: NarrowFloat) -> Interval:
    """Bound numbers in float32 that are rounded to a narrow type, and say where they may become NaN or infinite."""
    single = x if x.dtype is torch.float32 else round_bounds(*x.doubles(), torch.float32, x.shape)
    if kind.is_power:
        return _power_bounds(op, single, kind)
    ends = [_round(end, kind) for end in (single.lower, single.upper)]
    beyond = [end.abs() > kind.greatest for end in ends]
    low, high = (end.clamp(-kind.greatest, kind.greatest) for end in ends)
    y = flush(Interval.of(low, high, x.shape))
    if _saturates(op, kind) or not bool((beyond[0] | beyond[1]).any()):
        return y
    if math.isinf(kind.beyond):
        low, high = (
            torch.where(end.isinf(), end, inside) for end, inside in zip(ends, (y.lower, y.upper), strict=True)
        )
        y = Interval.of(low, high, x.shape)
    # ONNX Runtime makes NaN of numbers that are to become infinite.
    return replace(y, nan=True, overflows=math.isinf(kind.beyond))


def _power_bounds(op: Operation, x: Interval, kind: NarrowFloat) -> Interval:
    # What becomes of negative numbers is not specified: some runtimes take their absolute values, others zero or NaN.
    size = torch.maximum(x.lower.abs(), x.upper.abs()).double().clamp(2.0 ** (kind.exponent + 1), kind.greatest)
    high = torch.ldexp(torch.ones_like(size), torch.frexp(size)[1]).clamp(max=kind.greatest)
    least_size = x.lower.double().clamp(2.0**kind.exponent, kind.greatest)
    low = torch.ldexp(torch.ones_like(least_size), torch.frexp(least_size)[1] - 1)
    y = flush(Interval.of(low.float(), high.float(), x.shape))
    least, greatest = x.extremes
    inside = 2.0 ** (kind.exponent + 1) <= least and greatest <= kind.greatest / 2
    valid = not x.size or inside or (_saturates(op, kind) and least >= 0)
    return y if valid else replace(y, nan=True)


def integer_bounds(x: Interval, kind: NarrowInteger, dtype: torch.dtype) -> Interval:
    """Bound integers of a narrow type in the type that stands for it."""
    limits = (kind.least, kind.greatest)
    if not x.is_floating:
        return wrap(x, dtype, limits)
    low, high = x.doubles()
    least, greatest = torch.minimum(low.trunc(), _round_away(low)), torch.maximum(high.trunc(), _round_away(high))
    return keep_fitting(least, greatest, x.shape, dtype, limits)
