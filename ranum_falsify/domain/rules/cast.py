"""Bounds under a change of element type.

Between floating types, and from integers, values are rounded to the nearest, ties to even; above the largest finite
number they become infinite.  To integers they are truncated; values that do not fit give any number of the type,
depending on runtime and processor.  Integers that do not fit wrap.

ONNX Runtime may leave out a rounding to float16: the operators that read the result may have no kernel for float16 and
run in float32, between two changes of type that cancel.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import flush, round_bounds
from ranum_falsify.domain.rules.support.building import keeping_infinity
from ranum_falsify.domain.site import Site

__all__ = ["cast", "convert", "keep_fitting", "wrap"]

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
