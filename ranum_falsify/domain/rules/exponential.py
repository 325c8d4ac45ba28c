"""Powers: x^y over ranges of the base and of the exponent.

For x > 0 the logarithm y ln x of the power is linear in ln x and in y, so that its extremes are at the corners.
Negative bases have integer exponents only, and parity decides the sign.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.error_bounds import INTEGER_POWER_SHARE, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import infinity_aware, result_shape
from ranum_falsify.domain.site import Site

Pair = tuple[Tensor, Tensor]


@infinity_aware
def power(site: Site, x: Interval, y: Interval) -> Interval:
    """Bound x^y, without the fractional powers of negative numbers; infinite where 0 may have a negative exponent."""
    if not x.is_floating:
        return _of_integers(x, y)
    return replace(_of_floats(site, x, y), nan=not bool(is_defined(x, y).all()))


def _of_floats(site: Site, x: Interval, y: Interval) -> Interval:
    shape = result_shape(x, y)
    low, high = (bound + 0.0 for bound in x.doubles())  # -0 would turn the sign of an infinite power
    envelope = site.own_envelope()
    exponent = _one_exponent(y, x.dtype)
    if exponent is None:
        return round_outward(*_general(low, high, *_exponents(y, x.dtype)), x.dtype, shape, envelope)
    if exponent == 1:
        return Interval.of(x.lower, x.upper, shape)
    if exponent == 0:
        return Interval.fill(1, 1, shape, x.dtype)
    if exponent == 2:
        envelope = Envelope(2 * unit(x.dtype))
    bounds = round_outward(*_constant(low, high, exponent), x.dtype, x.shape, envelope)
    return Interval.of(bounds.lower, bounds.upper, shape)


def is_defined(x: Interval, y: Interval) -> Tensor:
    """Tell where no base is negative, or where the exponent is one known integer."""
    low, high = y.doubles()
    whole = (low == high) & (low == low.round()) if y.is_floating else torch.ones_like(low, dtype=torch.bool)
    return (x.lower >= 0) | whole


def _one_exponent(y: Interval, dtype: torch.dtype) -> float | None:
    """Return the exponent, if it is one finite number that every runtime reads alike."""
    if not (y.is_scalar and y.is_point):
        return None
    low, high = (float(bound) for bound in _exponents(y, dtype))
    return low if low == high and math.isfinite(low) else None


def _exponents(y: Interval, dtype: torch.dtype) -> Pair:
    """Return bounds of the exponents in float64, whether or not a runtime rounds them to the base's type first."""
    low, high = y.doubles()
    if y.dtype is dtype or dtype is torch.float64:
        return low, high
    return torch.minimum(low, low.to(dtype).double()), torch.maximum(high, high.to(dtype).double())


def _constant(low: Tensor, high: Tensor, exponent: float) -> Pair:
    """Bound powers of one exponent."""
    whole = exponent == round(exponent)
    if not whole:
        # A fractional power of minus infinity equals that of infinity.
        high = torch.where(low == -math.inf, math.inf, high).clamp(min=0)
        low = low.clamp(min=0)
    at_low, at_high = torch.pow(low, exponent), torch.pow(high, exponent)
    least, greatest = torch.minimum(at_low, at_high), torch.maximum(at_low, at_high)
    if not whole or exponent % 2:
        if exponent > 0 or not whole:
            return least, greatest
        around = (low <= 0) & (high >= 0)
        below, above = around & (low < 0), around & (high > 0)
        # The power falls on either side of its pole.
        least = torch.where(below, -math.inf, torch.where(around, at_high, least))
        greatest = torch.where(above, math.inf, torch.where(around, at_low, greatest))
        return least, torch.maximum(least, greatest)
    around = (low < 0) & (high > 0)
    if exponent > 0:
        return torch.where(around, 0.0, least), greatest
    return least, torch.where(around, math.inf, greatest)


def _general(low: Tensor, high: Tensor, least_exponent: Tensor, greatest_exponent: Tensor) -> Pair:
    """Bound powers of ranges of exponents."""
    least, greatest = _bound_by_corners(low.clamp(min=0), high.clamp(min=0), least_exponent, greatest_exponent)
    if not bool((low < 0).any()):
        return least, greatest
    from_below, from_above = _negative(low, high.clamp(max=0), least_exponent, greatest_exponent)
    some_negative, all_negative = torch.isfinite(from_below) | torch.isfinite(from_above), high < 0
    least = torch.where(some_negative & all_negative, from_below, torch.minimum(least, from_below))
    greatest = torch.where(some_negative & all_negative, from_above, torch.maximum(greatest, from_above))
    return least, greatest


def _bound_by_corners(low: Tensor, high: Tensor, least_exponent: Tensor, greatest_exponent: Tensor) -> Enclosure:
    """Bound powers of bases that are not negative."""
    return Enclosure.hull_of(Enclosure(low, high).corners(torch.pow, Enclosure(least_exponent, greatest_exponent)))


def _negative(low: Tensor, high: Tensor, least_exponent: Tensor, greatest_exponent: Tensor) -> Pair:
    """Bound powers of negative bases; (inf, -inf) where no exponent within the bounds allows one."""
    first, last = least_exponent.ceil(), greatest_exponent.floor()
    none = (first > last) | (low >= 0)
    nearest, furthest = ((-bound).clamp(min=0) + 0.0 for bound in (high, low))  # -0 would turn the sign of infinity
    least, greatest = _bound_by_corners(nearest, furthest, first, torch.maximum(first, last))
    single = first == last
    odd, even = single & (first % 2 != 0) & first.isfinite(), single & (first % 2 == 0)
    lower = torch.where(odd | ~even, -greatest, least)
    upper = torch.where(odd, -least, greatest)
    lower, upper = lower.masked_fill(none, math.inf), upper.masked_fill(none, -math.inf)
    # Minus infinity has fractional powers too, which equal those of infinity.
    for y in (least_exponent, greatest_exponent):
        limit = torch.pow(-low, y)
        lower = torch.where(low == -math.inf, torch.minimum(lower, limit), lower)
        upper = torch.where(low == -math.inf, torch.maximum(upper, limit), upper)
    return lower, upper


def _of_integers(x: Interval, y: Interval) -> Interval:
    """Bound powers of integers, which are computed in float64 and truncated towards 0."""
    (low, high), (least_exponent, greatest_exponent) = x.doubles(), y.doubles()
    least, greatest = _general(low, high, least_exponent, greatest_exponent)
    shape = result_shape(x, y)
    lowest, highest = dtype_range(x.dtype)
    least = (least - least.abs() * INTEGER_POWER_SHARE).trunc()
    greatest = (greatest + greatest.abs() * INTEGER_POWER_SHARE).trunc()
    # A negative base with a fractional exponent gives NaN, which is truncated to any number.
    broken = (low < 0) & ~((least_exponent == greatest_exponent) & (least_exponent == least_exponent.round()))
    out = broken | ~((least >= lowest) & (greatest <= highest)) | (greatest.abs() >= 2.0**62)
    if bool(out.any()):
        return Interval.fill(lowest, highest, shape, x.dtype)
    return Interval.of(least.to(x.dtype), greatest.to(x.dtype), shape)
