"""Sums of products of 8-bit integers, and the numbers that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import corner_products
from ranum_falsify.domain.slack import unit

__all__ = ["Represented", "excess", "represent", "scale_sums"]

_INT16 = (-(2**15), 2**15 - 1)
_LARGEST = float(torch.finfo(torch.float32).max)

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
    if not span < _LARGEST:
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
    if most.numel() and not float(most.max()) < _LARGEST / 2:
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
