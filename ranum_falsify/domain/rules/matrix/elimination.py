"""Determinants and inverses of matrices, which kernels compute by elimination with pivots."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import accumulation, gamma, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.site import Site

_LARGEST = 32
"""Size of matrices from which on nothing is said: the growth of elimination is bounded by 2^(n-1) alone."""


def determinant(site: Site, x: Interval) -> Interval:
    """Bound the determinants of the last two dimensions."""
    n, work = x.shape[-1], accumulation(x.dtype)
    if not x.size or n == 1:
        return x.move(lambda bound: bound[..., 0, 0]) if n else Interval.fill(1, 1, site.shape, x.dtype)
    rank = len(x.shape)
    low, high = x.split(rank - 2, rank - 1).doubles()
    size = torch.maximum(low.abs(), high.abs())
    largest = size.amax((-2, -1))
    growth = 2.0 ** (n - 1)
    bits = n * math.log2(growth * n * max(float(largest.amax()), 1.0))
    if n > _LARGEST or bits >= math.log2(torch.finfo(work).max):
        return replace(Interval.fill(-math.inf, math.inf, site.shape, x.dtype), nan=True, overflows=True)
    centre, radius = low + (high - low) / 2, (high - low) / 2
    error = (n * growth * gamma(n + 2, work) * largest)[..., None] * math.sqrt(n)
    norms = centre.square().sum(-1).sqrt()
    # Pivots that vanish lose the smallest normal number each, times what is left of the product.
    moved = norms + radius.square().sum(-1).sqrt() + error + n * growth * tiny(work)
    stray = (moved.prod(-1) - norms.prod(-1)).clamp(min=0) + moved.prod(-1) * (gamma(n, work) + n * 2.0**-48)
    stray = stray + n * tiny(work) * (growth * n * largest).clamp(min=1) ** n
    y = torch.linalg.det(centre)
    # LAPACK multiplies with reciprocals of pivots, the product of which is the determinant.
    rest = (growth * largest).clamp(min=1) ** (n - 1)
    tame = "torch" not in site.runtimes or bool(((y.abs() - stray) / rest > 4 * tiny(work)).all())
    return replace(round_outward(y - stray, y + stray, x.dtype, site.shape), nan=not tame)


def inverse(site: Site, x: Interval) -> Interval:
    """Bound the inverses of the matrices in the last two dimensions; anything where one may be singular.

    ONNX Runtime eliminates in half precision where that is the type, of which nothing is said.
    """
    n, rank = x.shape[-1], len(x.shape)
    if not x.size:
        return Interval.fill(0, 0, x.shape, x.dtype)
    if x.dtype not in (torch.float32, torch.float64):
        return replace(Interval.fill(-math.inf, math.inf, x.shape, x.dtype), nan=True, overflows=True)
    low, high = x.split(rank - 2, rank - 1).doubles()
    ends = _of_numbers(low, high, x.dtype) if n == 1 else _enclose(low, high, x.dtype)
    if n > _LARGEST or not all(bool(end.isfinite().all()) for end in ends):
        return replace(Interval.fill(-math.inf, math.inf, x.shape, x.dtype), nan=True, overflows=True)
    return round_outward(*ends, x.dtype, x.shape)


def _of_numbers(low: Tensor, high: Tensor, work: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return bounds of reciprocals, with an error of a few roundings; infinite where a number may be too small."""
    apart = (low > 4 * tiny(work)) | (high < -4 * tiny(work))
    error = gamma(4, work)
    ends = [torch.where(apart, 1 / end, math.inf) for end in (high, low)]
    return ends[0] - error * ends[0].abs(), ends[1] + error * ends[1].abs()


def _enclose(low: Tensor, high: Tensor, work: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return bounds of inverses as kernels compute them in a type; NaN or infinite where nothing is known."""
    n = low.shape[-1]
    largest = torch.maximum(low.abs(), high.abs()).amax((-2, -1), keepdim=True)
    centre = low + (high - low) / 2
    radius = torch.maximum(centre - low, high - centre) + 4 * unit(torch.float64) * centre.abs()
    near, _ = torch.linalg.inv_ex(centre)
    size = near.abs()
    own = 4 * gamma(n + 4, torch.float64)
    residual = (torch.eye(n, dtype=torch.float64) - near @ centre).abs() + own * (size @ centre.abs() + 1)
    error = (residual + size @ radius) * (1 + own)
    share = error.sum(-1, keepdim=True).amax(-2, keepdim=True) * (1 + own)
    rest = torch.where(share < 1, share.square() / (1 - share), math.inf)
    stray = (error @ size + rest * size.amax(-2, keepdim=True)) * (1 + own)
    lost = _find_rounding(size + stray, largest, work)
    return near - stray - lost, near + stray + lost


def _find_rounding(size: Tensor, largest: Tensor, work: torch.dtype) -> Tensor:
    """Return by how much an element of an inverse of some size may be off; infinite where parts of it may overflow."""
    n = size.shape[-1]
    reach = 2.0**n * (largest + 1)
    moved = n * reach * gamma(4 * n + 8, work) + 8 * n * tiny(work) * reach
    total = size.sum((-2, -1), keepdim=True) * (1 + 1e-9)
    computed = total / (1 - moved * total)
    vanished = 8 * n * tiny(work) * total * reach
    known = (moved * total < _HALF) & (4 * n * reach * (computed + 1) < torch.finfo(work).max)
    return torch.where(known, (moved * total * computed + vanished) * (1 + 1e-9), math.inf)


_HALF = 0.5
