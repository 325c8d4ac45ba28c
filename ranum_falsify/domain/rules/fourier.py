"""Fourier transforms: linear maps with known coefficients, whatever algorithm a runtime computes them by.

Kernels choose between the definition, radix-2 steps and convolutions with chirps (Bluestein), so that only the sum of
all magnitudes bounds the error of each result: :func:`~ranum_falsify.domain.error_bounds.fourier_share` says how.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import accumulation, fourier_share, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward

_COEFFICIENTS = 1 << 21
"""Up to this number of coefficients, bounds count each; beyond, they take them as 1."""


def transform_bounds(
    transform: Callable[[Tensor], Tensor],
    x: Interval,
    length: int,
    *,
    inverse: bool = False,
    dtype: torch.dtype,
) -> Interval:
    """Return bounds on the transforms of signals.

    Args:
        transform: The transform of the last two dimensions, time and parts; no coefficient exceeds 2.
        x: Signals, `(..., time, parts)`; of infinite ones nothing is known.
        length: Length of the transform.
        inverse: Whether results are divided by the length.
        dtype: Type of the result.
    """
    x = x.split(len(x.shape) - 2, len(x.shape) - 1)
    low, high = x.doubles()
    size, work = torch.maximum(low.abs(), high.abs()).sum((-2, -1), keepdim=True), accumulation(x.dtype)
    centre, radius = low + (high - low) / 2, (high - low) / 2
    y = transform(centre)
    shape = (*x.shape[:-2], *y.shape[-2:])
    if not float(size.amax() if size.numel() else 0.0) * _growth(length) < torch.finfo(work).max:
        return replace(Interval.fill(-math.inf, math.inf, shape, dtype), nan=True)
    error = 2 * fourier_share(length, work) * size + _growth(length) * tiny(work)
    if inverse:
        # ONNX Runtime has the reciprocal of the length in float32.
        error = (error + 4 * unit(torch.float32) * size) / length
    stray = _spread(transform, radius, y) + error
    return round_outward(y - stray, y + stray, dtype, shape)


def _growth(length: int) -> float:
    """Return by what factor numbers may grow on the way: two transforms of up to four times the length."""
    return 2 * float(4 * length) ** 2


def _spread(transform: Callable[[Tensor], Tensor], radius: Tensor, y: Tensor) -> Tensor:
    """Return how far results may lie from those of the centres."""
    time, parts = radius.shape[-2:]
    count = time * parts
    if count * math.prod(y.shape[-2:]) > _COEFFICIENTS:
        return 2 * radius.sum((-2, -1), keepdim=True)
    units = torch.eye(count, dtype=torch.float64).reshape(count, time, parts)
    sizes = transform(units).abs().flatten(1)
    return (radius.flatten(-2) @ sizes).reshape(y.shape)
