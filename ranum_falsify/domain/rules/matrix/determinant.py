"""Determinants, which kernels compute by elimination with pivots.

By Hadamard's inequality a determinant is at most the product of the norms of the rows; being linear in each row, it
changes with rows of norm a by changes of norm e at most by the product of a + e less that of a.  Elimination computes
the determinant of a matrix that is off by n 2^(n-1) gamma_n times the largest element in each place (Higham, theorem
9.3, with the growth factor of partial pivoting), and then a product.  PyTorch's elimination gives NaN where a pivot is
so small that its reciprocal is infinite.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import accumulation, gamma, tiny

__all__ = ["determinant"]

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
