"""Inverses of matrices, which kernels compute by elimination with pivots.

With B close to the inverse of the centre C of a box of radius R, and E >= |I - B C| + |B| R, every matrix X of the box
is B^-1 (I - F) with |F| <= E, and X^-1 = (I + F + F^2 + ...) B; so |X^-1 - B| <= E |B| + e^2 / (1 - e) m, where e < 1
is the greatest row sum of E, and m the greatest element of a column of |B|.

Kernels find an inverse Y of X up to a matrix D of elements of at most d = n 2^(n-1) gamma times the largest of X
(Higham, theorem 9.4 and section 14.3, with the growth factor of partial pivoting): column by column, or with a residual
of at most |Y| D.  Either way, |Y - X^-1| <= d s t in each place, where s and t are the sums of all elements of |X^-1|
and |Y|, and t <= s + d s t.  The reciprocal of a pivot is a sum of elements of X^-1, each times one of at most 1.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import gamma, tiny, unit

__all__ = ["inverse"]

_LARGEST = 32
"""Size of matrices from which on nothing is said: the growth of elimination is bounded by 2^(n-1) alone."""


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
