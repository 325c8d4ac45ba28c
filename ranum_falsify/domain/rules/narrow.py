"""Conversions to element types that a wider one stands for: see `ranum_falsify.network.narrow_types`.

To floats of 8 bits and fewer, numbers are rounded to the nearest, ties to even; beyond the greatest one they become it,
or NaN or infinity, as the node says.  To integers of 4 and 2 bits, ONNX Runtime rounds floats, halves away from 0,
where others truncate them; integers that do not fit wrap, floats that do not give any number of the type.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import flush, round_bounds
from ranum_falsify.domain.rules.cast import keep_fitting, wrap
from ranum_falsify.network.narrow_types import NarrowFloat, NarrowInteger

__all__ = ["convert_to_float", "convert_to_integer", "float_bounds", "integer_bounds"]


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
