"""Results that kernels round to the integers of a quantised tensor: enclosed whichever way they round.

A quantised tensor holds integers q that represent scale * (q - zero).  Kernels compute a result in units of the
output's scale, in float32 or in fixed point, add the zero point, round and clamp; the order of these steps differs by
operator and by family of processors.  The bounds are those of the real-valued result, widened by

- :data:`~ranum_falsify.domain.slack.QUANTISED_SHARE` of the magnitudes of what is added up, the zero point included;
- both neighbours where a result lies halfway between two integers.

Measured on x86-64 with AVX-512, ONNX Runtime 1.31.1: over all 256 * 256 pairs of operands of `QLinearAdd` and
`QLinearMul`, for 300 choices each of scales between 1e-8 and 1e8 and of zero points, no result strays further from the
nearest integer than 5.3e-8 of the magnitudes, one rounding of float32; results beyond 2^31 steps come out as the least
integer.  On SSE, AVX and AVX2, emulated by qemu-x86_64 (Nehalem, SandyBridge, Haswell), all results of 798 quantised
networks at 8 points each lie within the bounds.  By their source, which was read and not run, the kernels for ARM64
add in fixed point, with factors of 22 bits, and pack into 16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.slack import QUANTISED_SHARE

__all__ = [
    "Grid",
    "Table",
    "anything",
    "is_product_normal",
    "read_known_numbers",
    "requantise",
    "round_to_steps",
]

_LARGEST = 2.0**15 - 512
"""Results of more steps may wrap: some kernels pack them into 16 bits, or convert them to 32, before clamping."""

_NORMAL = (2.0**-120, 2.0**120)
"""Scales and products of scales outside this range lose digits or overflow in float32."""

_EIGHT_BITS = (torch.int8, torch.uint8)


@dataclass(frozen=True)
class Grid:
    """The numbers scale * (q - zero) that 8-bit integers q represent.

    Attributes:
        scale: Positive, float64: one, or one per channel.
        zero: Zero point, float64, of a shape that broadcasts with the scale.
        dtype: Type of the integers.
    """

    scale: Tensor
    zero: Tensor
    dtype: torch.dtype

    @classmethod
    def from_constants(cls, scale: Interval | None, zero: Interval | None, dtype: torch.dtype) -> Grid | None:
        """Return the grid of a scale and a zero point that are constants within float32's range; else None."""
        factor = read_known_numbers(scale)
        if factor is None or dtype not in _EIGHT_BITS or not is_product_normal(factor):
            return None
        offset = torch.zeros((), dtype=torch.float64) if zero is None else read_known_numbers(zero)
        return None if offset is None else cls(factor, offset, dtype)

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest integer."""
        least, greatest = dtype_range(self.dtype)
        return int(least), int(greatest)

    def offsets(self, x: Interval) -> tuple[Tensor, Tensor]:
        """Return bounds of q - zero, float64."""
        low, high = x.doubles()
        return low - self.zero, high - self.zero


def read_known_numbers(x: Interval | None) -> Tensor | None:
    """Return the numbers of a constant, float64; None where it is not constant, or is empty."""
    if x is None or not x.size or not x.is_point:
        return None
    numbers = x.expand()[0].double()
    return numbers.reshape(()) if numbers.numel() == 1 else numbers


def is_product_normal(*factors: Tensor) -> bool:
    """Tell whether positive factors and all their products, multiplied in this order, stay normal in float32."""
    product = torch.ones((), dtype=torch.float64)
    for factor in factors:
        product = product * factor
        if not bool(((product >= _NORMAL[0]) & (product <= _NORMAL[1])).all()):
            return False
    return True


def anything(shape: tuple[int, ...], dtype: torch.dtype) -> Interval:
    """Return all values: nothing is known if scales are not constants, or lie outside float32's range."""
    return Interval.top(shape, dtype)


def requantise(
    low: Tensor, high: Tensor, size: Tensor | float, grid: Grid, shape: tuple[int, ...], *, wraps: bool = False
) -> Interval:
    """Return bounds of results that are rounded to the integers of a grid.

    Args:
        low: Least results in steps of the grid, float64, the zero point not among them.
        high: Greatest results.
        size: Greatest sums of the magnitudes that kernels add up, in steps.
        grid: Zero point and type of the integers.
        shape: Shape of the result.
        wraps: Whether kernels convert numbers that they have not clamped yet.
    """
    error = QUANTISED_SHARE * (size + grid.zero.abs()) + 2.0**-30
    least, greatest = (low - error + grid.zero - 0.5).ceil(), (high + error + grid.zero + 0.5).floor()
    limits = grid.limits
    if wraps:
        beyond = (greatest > _LARGEST) | (least < -_LARGEST)
        least, greatest = torch.where(beyond, -math.inf, least), torch.where(beyond, math.inf, greatest)
    least, greatest = least.nan_to_num(nan=-math.inf), greatest.nan_to_num(nan=math.inf)
    least, greatest = (end.clamp(*limits).to(grid.dtype) for end in (least, greatest))
    return Interval.of(least, greatest, shape)


def round_to_steps(values: Tensor, zero: Tensor, dtype: torch.dtype) -> Tensor:
    """Return results in steps as integers: rounded to nearest, ties to even, shifted by the zero point, clamped."""
    limits = torch.iinfo(dtype)
    moved = values.round() + zero.to(values.dtype)
    return moved.nan_to_num(limits.min).clamp(limits.min, limits.max).to(dtype)


@dataclass(frozen=True)
class Table:
    """Bounds of the results that kernels look up for each 8-bit integer.

    Attributes:
        least: For any two integers from `first` on, the least result between them, `(256, 256)`.
        greatest: The greatest result.
        first: The least integer.
    """

    least: Tensor
    greatest: Tensor
    first: int

    @classmethod
    def of(cls, function: Callable[[Tensor], Interval], dtype: torch.dtype) -> Table:
        """Return the table of a function from all integers of a type, float64, to bounds of the results."""
        first, last = dtype_range(dtype)
        bounds = function(torch.arange(first, last + 1, dtype=torch.float64))
        low, high = bounds.expand()
        rows, columns = torch.arange(256)[:, None], torch.arange(256)[None]
        within = columns >= rows
        least = torch.where(within, low.short(), 256).cummin(1).values
        greatest = torch.where(within, high.short(), -256).cummax(1).values
        return cls(least.to(low.dtype), greatest.to(low.dtype), int(first))

    def bounds(self, x: Interval) -> Interval:
        """Return bounds of the results for bounds of the integers."""
        low, high = x.lower.long() - self.first, x.upper.long() - self.first
        return Interval.of(self.least[low, high], self.greatest[low, high], x.shape)
