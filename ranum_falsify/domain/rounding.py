"""Rounding as in runtimes, enclosed: directed rounding, sums in any order, flushed denormals.

Sources: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1 (gamma_n).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import DENORMAL_UNITS, DOUBLE_SHARE, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import EXACT, Envelope
from ranum_falsify.network.tensors import share

_MANY = 1 << 12
"""From this number of elements on, passes over memory cost more than a tighter bound by one ulp is worth."""

_BLOCK = 1 << 17
"""Elements that fit into the nearest cache."""


def flush(interval: Interval) -> Interval:
    """Return bounds that also enclose the results of a runtime that replaces denormal numbers by 0."""
    if not interval.is_floating:
        return interval
    smallest = tiny(interval.dtype)
    low, high = interval.lower, interval.upper
    if interval.is_scalar:
        least, greatest = interval.extremes
        if not (0 < least < smallest or -smallest < greatest < 0):
            return interval
    if low is high or low.numel() > _MANY:
        ends = (low,) if low is high else (low, high)
        if not any(_has_denormals(end, smallest) for end in ends):
            return interval
    lower = torch.minimum(low, _flush_values(low, smallest))
    upper = torch.maximum(high, _flush_values(high, smallest))
    return replace(interval, lower=lower, upper=upper, gap=interval.gap if interval.gap >= smallest else 0.0)


def _has_denormals(x: Tensor, smallest: float) -> bool:
    # Block by block, large tensors go through memory once.
    blocks = x.view(-1).split(_BLOCK) if x.is_contiguous() else (x,)
    return not all(torch.equal(block, _flush_values(block, smallest)) for block in blocks)


def _flush_values(x: Tensor, smallest: float) -> Tensor:
    """Return numbers with 0 in place of those smaller than the smallest normal number."""
    # `hardshrink` replaces numbers of at most its second operand in size, the largest denormal number.
    return torch.nn.functional.hardshrink(x, smallest * (1 - torch.finfo(x.dtype).eps))


def constant(array: np.ndarray) -> Interval:
    """Return the interval of a constant, as runtimes read it; shares the memory of a read-only array."""
    value = share(array) if array.size > _MANY else array
    if isinstance(value, Tensor) and 0 not in value.stride():
        # Block by block, large weights go through memory once.
        ends = [(*block.aminmax(), block.abs().amin()) for block in value.view(-1).split(_BLOCK)]
        least, greatest, nearest = (torch.stack(column) for column in zip(*ends, strict=True))
        if bool(nearest.amin() >= tiny(value.dtype)):
            interval = Interval(value, value, tuple(value.shape))
            interval.__dict__["extremes"] = least.amin().item(), greatest.amax().item()
            return interval
    return flush(Interval.point(value))


def round_outward(
    lower: Tensor, upper: Tensor, dtype: torch.dtype, shape: tuple[int, ...], envelope: Envelope = EXACT
) -> Interval:
    """Return bounds of a dtype around results that are known in float64.

    Args:
        lower: Least values of the function in real numbers, float64.
        upper: Greatest values.
        dtype: Type of the results.
        shape: Shape of the tensor.
        envelope: Error of the kernels that compute them.
    """
    if dtype is torch.float32 and lower.numel() == upper.numel() == 1:
        least = _stray_number(lower.item(), envelope, -1.0)
        greatest = _stray_number(upper.item(), envelope, 1.0)
        if least <= greatest:
            return round_numbers_outward(least, greatest, shape, dtype)
    if envelope.relative and dtype is torch.float32 and lower.numel() > _MANY:
        near = _stray_quickly(lower, envelope, -1.0), _stray_quickly(upper, envelope, 1.0)
        if all(bool(end.isfinite().all()) for end in near):
            return flush(Interval.of(*near, shape))
    low = _stray(lower, envelope, -1.0, dtype)
    high = _stray(upper, envelope, 1.0, dtype)
    return flush(Interval(_cast(low, dtype, -math.inf), _cast(high, dtype, math.inf), shape))


def round_numbers_outward(low: float, high: float, shape: tuple[int, ...], dtype: torch.dtype) -> Interval:
    """Return the wholly merged bounds of a dtype around all results from `low` to `high`."""
    if dtype is not torch.float32:
        ends = [torch.full((1,) * len(shape), end, dtype=torch.float64) for end in (low, high)]
        return round_outward(ends[0], ends[1], dtype, shape)
    smallest = tiny(dtype)
    with np.errstate(over="ignore"):
        least, greatest = np.float32(low), np.float32(high)
        # NumPy would compare a float32 with a Python number in float32, where they are equal.
        least = np.nextafter(least, np.float32(-np.inf)) if float(least) > low else least
        greatest = np.nextafter(greatest, np.float32(np.inf)) if float(greatest) < high else greatest
    flat = 0.0 if 0 < least < smallest else float(least), 0.0 if -smallest < greatest < 0 else float(greatest)
    return Interval.fill(*flat, shape, dtype)


def _stray_quickly(values: Tensor, envelope: Envelope, direction: float) -> Tensor:
    """Return float32 bounds in few passes: a whole unit in the last place further out; not for infinities."""
    limits = torch.finfo(torch.float32)
    relative = envelope.relative + limits.eps
    absolute = envelope.absolute + 2 * DENORMAL_UNITS * limits.tiny * limits.eps
    moved = torch.add(values, values.abs().mul_(relative).add_(absolute), alpha=direction)
    if envelope.keeps_sign:
        crossing = values >= 0 if direction < 0 else values <= 0
        moved = torch.where(crossing, moved.clamp(min=0) if direction < 0 else moved.clamp(max=0), moved)
    return _overflow(moved, envelope, direction).clamp_(envelope.lowest, envelope.highest).float()


def round_bounds(lower: Tensor, upper: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Interval:
    """Return bounds of a dtype around results whose own bounds are known exactly, in float64."""
    return flush(Interval.of(_cast(lower, dtype, -math.inf), _cast(upper, dtype, math.inf), shape))


def _errors(envelope: Envelope, dtype: torch.dtype) -> tuple[float, float]:
    """Return the relative and the absolute error of kernels, including that of torch's float64 functions."""
    own = DOUBLE_SHARE
    relative = envelope.relative + own
    if dtype is torch.float64:
        relative += 2 * own
    # Below the smallest normal number, the distance between numbers no longer shrinks.
    return relative, envelope.absolute + (2 * DENORMAL_UNITS * tiny(dtype) * unit(dtype) if envelope.relative else 0.0)


def _stray_number(value: float, envelope: Envelope, direction: float) -> float:
    """Return the result of :func:`_stray` for one number, in float32."""
    relative, absolute = _errors(envelope, torch.float32)
    moved = value if math.isinf(value) else value + direction * (abs(value) * relative + absolute)
    if absolute and envelope.keeps_sign:
        if direction < 0 <= value:
            moved = max(moved, 0.0)
        elif value <= 0 < direction:
            moved = min(moved, 0.0)
    if direction * moved >= envelope.overflows:
        moved = direction * math.inf
    return min(max(moved, envelope.lowest), envelope.highest)


def _stray(values: Tensor, envelope: Envelope, direction: float, dtype: torch.dtype) -> Tensor:
    relative, absolute = _errors(envelope, dtype)
    # An infinite value does not stray; infinity minus infinity would be NaN.
    moved = values + direction * torch.where(values.isinf(), 0.0, values.abs() * relative + absolute)
    if absolute and envelope.keeps_sign:
        crossing = values >= 0 if direction < 0 else values <= 0
        moved = torch.where(crossing, moved.clamp(min=0) if direction < 0 else moved.clamp(max=0), moved)
    return _overflow(moved, envelope, direction).clamp(envelope.lowest, envelope.highest)


def _overflow(moved: Tensor, envelope: Envelope, direction: float) -> Tensor:
    """Return bounds with infinity where kernels may overflow."""
    if math.isinf(envelope.overflows):
        return moved
    return torch.where(direction * moved >= envelope.overflows, direction * math.inf, moved)


def _cast(values: Tensor, dtype: torch.dtype, towards: float) -> Tensor:
    """Round float64 values to a dtype, downwards or upwards."""
    if dtype is torch.float64:
        return values
    near = values.to(dtype)
    beyond = near.double() > values if towards < 0 else near.double() < values
    return torch.where(beyond, torch.nextafter(near, torch.full_like(near, towards)), near)
