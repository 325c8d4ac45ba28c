"""Products with rows of shares, such as those of a softmax: sums of sizes that are not negative and at most about 1.

A result lies between the least and the greatest of the numbers that it weighs, or 0, however many they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from dnnv.nn import Operation

from ranum_falsify.domain.error_bounds import ELEMENTWISE_ROUNDINGS, sum_error, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.fused import is_beside_quantised
from ranum_falsify.operators.relations.matching import Field, fields_of, is_a, kind

_DEEPEST = 6
"""How many nodes back a softmax is looked for."""


def weighted_means(site: Site, a: Interval, b: Interval, *rest: Interval | None) -> Interval | None:
    """Bound a product of matrices, the second perhaps transposed, whose first one has rows of shares."""
    op = site.op
    moved = any(getattr(op, f"transpose{which}", 0) for which in ("_a", "_batch_a", "_batch_b"))
    factor = float(getattr(op, "alpha", 1.0))
    known = all(x.is_floating and x.size and not x.may_be_infinite for x in (a, b))
    if moved or not known or any(x is not None for x in rest) or min(len(a.shape), len(b.shape)) < 2:
        return None
    whole = None if is_beside_quantised(op) else bound_shares(site, fields_of(op)[0])
    if whole is None or factor < 0:
        return None
    keys, along = a.shape[-1], -1 if getattr(op, "transpose_b", 0) else -2
    low, high = (end.expand(b.shape) if end.shape[along] != keys else end for end in b.doubles())
    low, high = low.amin(along, keepdim=True).clamp(max=0) * whole, high.amax(along, keepdim=True).clamp(min=0) * whole
    if along == -1:
        low, high = low.mT, high.mT
    size, how = torch.maximum(-low, high), site.rounding(keys, a.dtype)
    lost = how.lost(keys, a.dtype, max(whole, float(size.max())))
    error = size * (how.growth(keys, a.dtype) + 4 * unit(a.dtype)) + lost
    if not bool(((size + error) * max(factor, 1) < torch.finfo(a.dtype).max).all()):
        return None
    return round_outward((low - error) * factor, (high + error) * factor, a.dtype, site.shape)


def bound_shares(site: Site, field: Field, depth: int = _DEEPEST) -> float | None:
    """Return what numbers that are not negative add up to at most along the last dimension; None if nothing tells."""
    op, x = is_a(field, "Mul", "Softmax", "Where"), site.find_known(field)
    if op is None or x is None or not depth or not x.shape or x.dtype not in (torch.float32, torch.float64):
        return None
    if kind(op) == "Softmax":
        rank = len(x.shape)
        is_last = op.axis % rank == rank - 1
        return bound_sum_of_shares(site, x, x.shape[-1]) if is_last else None
    found = [(bound_shares(site, share, depth - 1), factor) for share, factor in _list_reduced(site, op, x)]
    return min((whole * factor for whole, factor in found if whole is not None), default=None)


def bound_sum_of_shares(site: Site, x: Interval, count: int) -> float:
    """Return what the results of a softmax add up to at most, and so a bound of the lengths of its rows.

    Args:
        site: Where the results are read.
        x: The results.
        count: How many there are in a row.
    """
    kernel = site.envelope("Exp")
    error = 2 * sum_error(count, x.dtype, ELEMENTWISE_ROUNDINGS) + 4 * kernel.relative
    return 1 + error + 4 * unit(x.dtype) * math.log(count) + count * (tiny(x.dtype) + kernel.absolute)


def _list_reduced(site: Site, op: Operation, x: Interval) -> Iterator[tuple[Field, float]]:
    """Yield operands of a node, each with a factor that no result exceeds of it at the same place."""
    if kind(op) == "Where":
        _, *branches = fields_of(op)
        pairs = (branches, branches[::-1])
        found = [(share, 1.0) for share, other in pairs if isinstance(other, np.ndarray) and not other.any()]
    else:
        first, second = fields_of(op)
        known = [(share, site.find_known(factor)) for share, factor in ((first, second), (second, first))]
        ends = [(share, factor.extremes) for share, factor in known if factor is not None]
        found = [(share, high * (1 + 4 * unit(x.dtype))) for share, (low, high) in ends if 0 <= low <= high < math.inf]
    for share, factor in found:
        inner = site.find_known(share)
        if inner is not None and inner.shape == x.shape:
            yield share, factor
