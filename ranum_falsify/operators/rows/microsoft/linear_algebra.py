"""Distances between rows, as converters of classical models write them, and inverses of matrices."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import gamma, tiny
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.matrix.elimination import inverse
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.support.families import opaque, plain
from ranum_falsify.operators.support.microsoft import refused, schema
from ranum_falsify.validity import Condition, NotZero, Operands

_METRICS = ("euclidean", "sqeuclidean")


def _is_squared(op: Operation) -> bool:
    if op.metric not in _METRICS:
        raise refused(op, f"metric {op.metric!r} is not supported; {' and '.join(_METRICS)} are")
    return bool(op.metric == "sqeuclidean")


def _distances(op: Operation, a: Tensor, b: Tensor) -> Tensor:
    apart = a[:, None] - b
    y: Tensor = apart.square().sum(-1) if _is_squared(op) else torch.linalg.vector_norm(apart, dim=-1)
    return y


def _distance_bounds(site: Site, a: Interval, b: Interval) -> Interval:
    squared, n = _is_squared(site.op), a.shape[1]
    (low_a, high_a), (low_b, high_b) = (x.split(0, 1).doubles() for x in (a, b))
    low, high = low_a[:, None] - high_b, high_a[:, None] - low_b
    least, greatest = (
        torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(low.abs(), high.abs())),
        torch.maximum(low.abs(), high.abs()),
    )
    sizes = [torch.maximum(x.abs(), y.abs()).square().sum(-1) for x, y in ((low_a, high_a), (low_b, high_b))]
    size = sizes[0][:, None] + sizes[1]
    if not float(4 * size.amax() if size.numel() else 0.0) < torch.finfo(a.dtype).max:
        return replace(Interval.fill(0, math.inf, site.shape, a.dtype), nan=True, overflows=True)
    # Kernels add up |a|^2 + |b|^2 - 2 ab, which cancels, and take 0 for what comes out negative.
    error = 4 * gamma(n + 8, a.dtype) * size + 8 * (n + 2) * tiny(a.dtype)
    below, above = (least.square().sum(-1) - error).clamp(min=0), greatest.square().sum(-1) + error
    if squared:
        return round_outward(below, above, a.dtype, site.shape)
    share = 8 * gamma(1, a.dtype)
    return round_outward(below.sqrt() * (1 - share), above.sqrt() * (1 + share), a.dtype, site.shape)


@plain(
    schema=schema("CDist", "A:T B:T", "C:T", {"T": ("float", "double")}, defaults={"metric": "sqeuclidean"}),
    torch=_distances,
    interval=_distance_bounds,
)
class CDist(Operation):
    """Distances of all rows of one matrix from all rows of another."""


_NOT_ZERO = NotZero("determinant", reason="")


def _inverse(op: Operation, x: Tensor) -> Tensor:
    work = torch.promote_types(x.dtype, torch.float32)
    y, info = torch.linalg.inv_ex(x.to(work))
    return torch.where(info[..., None, None] > 0, math.nan, y).to(x.dtype)


def _determinant(op: Operation, operands: Operands) -> Tensor:
    x = operands["x"]
    found: Tensor = torch.linalg.det(x.to(torch.promote_types(x.dtype, torch.float32)))
    return found


def _margin(op: Operation, operands: Operands) -> Tensor:
    return _NOT_ZERO.margin(op, {"determinant": _determinant(op, operands)})


@opaque(
    schema=schema("Inverse", "X:T", "Y:T", {"T": ("float", "double", "float16")}),
    torch=_inverse,
    interval=inverse,
    kernel=None,
    valid=[
        Condition(
            "det(x) != 0",
            "a matrix without an inverse",
            _margin,
            crossing_of=_determinant,
            holds_of=lambda op, bounds: not bounds["output"].nan,
        )
    ],
)
class Inverse(Operation):
    """Inverse of each matrix in the last two dimensions."""
