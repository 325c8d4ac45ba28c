"""Quantised tensors: how kernels round to their integers, and the numbers that sums of products of these stand for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import QUANTISED_SHARE, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import corner_products

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


_INT16 = (-(2**15), 2**15 - 1)
_GREATEST = float(torch.finfo(torch.float32).max)

_STEP = 1.01 / 255
"""How far a number lies from what stands for it, as a share of the range: half a step for its own rounding, half for
that of the zero point, and room for the rounding of both."""

_LEAST = 2.0**-90
"""Room for ranges below 2^-100, of which float32 has no digits left for quotients: there, 255 steps are less."""


@dataclass(frozen=True)
class Represented:
    """The numbers that the integers of a tensor stand for which is quantised over the range of its elements and 0.

    The scale of zeros alone is 1, but their integers are the zero point: products of scale and integers are small,
    although bounds of either are not.

    Attributes:
        numbers: Bounds of scale * (q - zero), float64.
        step: The most that a scale is where integers differ from the zero point.
    """

    numbers: Interval
    step: float

    def enclose_sums(self, sums: Interval, b: Interval, terms: int) -> Interval | None:
        """Return bounds of sums of products with integers as kernels compute them; None where they may wrap.

        Args:
            sums: Bounds of the sums in real numbers.
            b: The integers, before a zero point is subtracted.
            terms: How many products are added up.
        """
        if terms * 255 * 255 >= 2**31:
            return None
        less, more = excess(torch.uint8, 255, b, terms)
        return Interval.of(sums.lower - less * self.step, sums.upper + more * self.step, sums.shape)


def represent(x: Interval) -> Represented | None:
    """Return what integers stand for that a tensor is quantised to; None where its range may overflow."""
    if not x.size or x.may_be_infinite:
        return None
    low, high = x.doubles()
    span = max(float(high.max()), 0.0) - min(float(low.min()), 0.0)
    if not span < _GREATEST:
        return None
    step = _STEP * span + _LEAST
    return Represented(Interval.of(low - step, high + step, x.shape), step)


def excess(dtype: torch.dtype, largest: int, b: Interval, terms: int) -> tuple[int, int]:
    """Return by how much sums of products may come out too low and too high where the second factor is signed.

    ONNX Runtime then multiplies unsigned with signed numbers and adds pairs of products in 16 bits, which saturate,
    on processors without the newer dot product instructions
    (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html).

    Args:
        dtype: Type of the first factor; signed numbers are shifted to unsigned ones.
        largest: Its greatest value, before the zero point is subtracted.
        b: Second factor.
        terms: How many products are added up.
    """
    if b.dtype is not torch.int8 or not b.size:
        return 0, 0
    largest += 128 if dtype is torch.int8 else 0
    low, high = (2 * largest * int(end) for end in b.extremes)
    pairs = (terms + 1) // 2
    return pairs * max(high - _INT16[1], 0), pairs * max(_INT16[0] - low, 0)


def _scales_of(scales: list[Interval], alpha: float) -> list[tuple[Tensor, Tensor]]:
    """Return bounds of each factor of a product of scales, float64."""
    factor = torch.tensor(alpha, dtype=torch.float64)
    return [(factor, factor), *((low.double(), high.double()) for low, high in (scale.expand() for scale in scales))]


def _most_of(factors: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the greatest magnitude of a product of some of the factors, in whatever order, and at least 1."""
    sizes = (torch.maximum(low.abs(), high.abs()).clamp(min=1) for low, high in factors)
    return reduce(torch.mul, sizes)


def scale_sums(sums: Interval, scales: list[Interval], bias: Interval | None, alpha: float = 1.0) -> Interval | None:
    """Return bounds of sums in int32 times a product of scales, float32, plus a bias; None for scales that overflow."""
    if any(x is not None and x.may_be_infinite for x in (*scales, bias)):
        return None
    factors = _scales_of(scales, alpha)
    most = _most_of(factors)
    # Kernels multiply scales first: a part of their product may overflow before a small one follows.
    if most.numel() and not float(most.max()) < _GREATEST / 2:
        return None
    ends = sums.doubles()
    low, high = corner_products(ends, reduce(corner_products, factors))
    error = 16 * unit(torch.float32)
    size = torch.maximum(low.abs(), high.abs())
    low, high = low - error * low.abs(), high + error * high.abs()
    if bias is not None:
        least, greatest = bias.doubles()
        size = size + torch.maximum(least.abs(), greatest.abs())
        low, high = low + least - error * size, high + greatest + error * size
    # Or a part of it is denormal, of which kernels lose up to 2^-126, before sums and large scales follow.
    steps = torch.maximum(ends[0].abs(), ends[1].abs()).clamp(min=2.0**31)
    lost = torch.where(size == 0, 0.0, 2.0**-122 * most * steps)
    return round_outward(low - lost, high + lost, torch.float32, sums.shape)
