"""Rows divided by their greatest element, by the sum of their magnitudes, or by the root of the sum of their squares.

A row whose divisor is 0 stays as it is: so kernels decide, by the divisor that they computed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.slack import gamma, tiny, unit

__all__ = ["normalise"]

_SINGLE = torch.float32

_ROUNDINGS = 8
"""Of a quotient besides those of the sum: conversion, square, quotient, root, by kernels and by us."""


def normalise(x: Interval, norm: str) -> Interval:
    """Bound the normalised rows of a matrix, in float32.

    Args:
        x: The matrix.
        norm: MAX, L1 or L2.
    """
    if not x.size:
        return Interval.fill(0, 0, x.shape, _SINGLE)
    if x.may_be_infinite or not _is_narrow(x, norm):
        return replace(Interval.fill(-math.inf, math.inf, x.shape, _SINGLE), nan=True, overflows=True)
    low, high = (end.expand(end.shape[0], x.shape[1]) for end in x.doubles())
    if norm == "MAX":
        return _by_greatest(low, high, x.shape)
    return _by_size(low, high, x.shape, squared=norm == "L2")


def _is_narrow(x: Interval, norm: str) -> bool:
    """Tell whether no sum overflows, nor a square or a magnitude in the type of integers."""
    least, greatest = x.extremes
    size = max(abs(least), abs(greatest))
    if norm == "L2":
        size = size * size
    # The least integer is its own magnitude.
    if not x.is_floating and norm != "MAX" and size > dtype_range(x.dtype)[1]:
        return False
    return x.shape[1] * size < 0.5 * torch.finfo(_SINGLE).max


def _by_greatest(low: Tensor, high: Tensor, shape: tuple[int, ...]) -> Interval:
    """Bound x / max(x); an element is the greatest one, or is smaller than it."""
    ends = ((low.amax(1, keepdim=True), -1.0), (high.amax(1, keepdim=True), 1.0))
    first, last = (end + side * unit(_SINGLE) * end.abs() for end, side in ends)
    # A row without negative elements has shares, or is 0 and stays so.
    shares = (low >= 0).all(1, keepdim=True)
    if bool(((first <= tiny(_SINGLE)) & (last >= -tiny(_SINGLE)) & ~shares).any()):
        return replace(Interval.fill(-math.inf, math.inf, shape, _SINGLE), overflows=True)
    corners = torch.stack([x / torch.where(shares, d.clamp(min=1e-300), d) for x in (low, high) for d in (first, last)])
    # No element exceeds the greatest one; where that is negative, no quotient is below 1.
    least = torch.where(last < 0, corners.amin(0).clamp(min=1.0), corners.amin(0))
    greatest = torch.where(last < 0, corners.amax(0), corners.amax(0).clamp(max=1.0))
    least = torch.where(shares, least.clamp(max=1.0), least)
    return _round(least, greatest, shape, 1)


def _by_size(low: Tensor, high: Tensor, shape: tuple[int, ...], *, squared: bool) -> Interval:
    """Bound x / sum |x|, or x / sqrt(sum x^2) as the root of a share: at most 1 in size."""
    inside = (low <= 0) & (high >= 0)
    least = torch.where(inside, 0.0, torch.minimum(low.abs(), high.abs()))
    greatest = torch.maximum(low.abs(), high.abs())
    if squared:
        least, greatest = least * least, greatest * greatest
    error = 1 + gamma(shape[1] + _ROUNDINGS, _SINGLE)
    # Denormal squares lose digits, or vanish: the shares of such rows say nothing but that they are shares.
    lost = shape[1] * tiny(_SINGLE)
    rest_least, rest_greatest = (end.sum(1, keepdim=True) - end for end in (least, greatest))
    rest_least = rest_least.clamp(min=0)
    share_most = _share(greatest * error + lost, rest_least / error - lost)
    share_least = _share(least / error - lost, rest_greatest * error + lost)
    if squared:
        share_most, share_least = share_most.sqrt(), share_least.sqrt()
    share_most = share_most.clamp(max=1.0) * error
    # Rows that vanish stay as they are.
    small = least.sum(1, keepdim=True) <= 2 * lost
    share_most = torch.where(small, 1.0 * error, share_most)
    share_least = torch.where(small, 0.0, share_least / error)
    upper = torch.where(high <= 0, -share_least, share_most)
    lower = torch.where(low >= 0, share_least, -share_most)
    return _round(lower, upper, shape, shape[1])


def _share(part: Tensor, rest: Tensor) -> Tensor:
    """Return part / (part + rest) where both are not negative."""
    part, rest = part.clamp(min=0), rest.clamp(min=0)
    whole = part + rest
    return torch.where(whole > 0, part / torch.where(whole > 0, whole, 1.0), 1.0)


def _round(low: Tensor, high: Tensor, shape: tuple[int, ...], terms: int) -> Interval:
    share = gamma(terms + _ROUNDINGS, _SINGLE)
    lost = tiny(_SINGLE)
    return round_outward(low - share * low.abs() - lost, high + share * high.abs() + lost, _SINGLE, shape)
