"""Rows and scores of classical models: normalised rows, logistic functions, softmaxes, probits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from dnnv.nn.utils import TensorDetails
from torch import Tensor

from ranum_falsify.domain.error_bounds import gamma, tiny, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.softmax import softmax
from ranum_falsify.domain.site import Site

_SINGLE = torch.float32

_LOGISTIC_ROUNDINGS = 8
"""Of 1 / (1 + exp(-|x|)), and of 1 minus that, in roundings of 1: exponential, sum, quotient and difference: 4."""

_PROBIT_ROUNDINGS = 64
"""Of -v + sqrt(v^2 - w) in roundings of |v| + sqrt(v^2 - w).

The factor and the logarithm in v and w (a few roundings each, by the C library or fused), square, difference, root,
sum: 16 by the kernel, and its constants, which are rounded to float32 and which we do not round: 8.
"""

_NEAR_ZERO = 1e-7
"""Scores up to this size count as 0 in a softmax that leaves zeros out."""


def anything(shape: tuple[int, ...]) -> Interval:
    """Return bounds of scores of which nothing is known, not even that they are numbers."""
    return replace(Interval.fill(-math.inf, math.inf, shape, _SINGLE), nan=True, overflows=True)


def as_scores(site: Site, shape: tuple[int, ...]) -> Site:
    """Return the site as one of scores: rules of parts of a node take the type of results from it."""
    return replace(site, details=(TensorDetails(shape, np.dtype(np.float32)),))


def transform_scores(site: Site, scores: Interval, kind: str) -> Interval:
    """Bound what becomes of the scores of each row, `(rows, scores)`."""
    if kind == "NONE" or not scores.size:
        return scores
    if scores.may_be_infinite:
        return anything(scores.shape)
    if kind == "SOFTMAX":
        y = softmax(lambda op, rank: (rank - 1,))(as_scores(site, scores.shape), scores)
        assert isinstance(y, Interval), "a softmax has one output"
    else:
        y = {"LOGISTIC": logistic, "SOFTMAX_ZERO": _softmax_zero}.get(kind, _probit)(site, scores)
    return replace(y, nan=y.nan or scores.nan, overflows=y.overflows or scores.overflows)


def logistic(site: Site, x: Interval) -> Interval:
    """Bound the logistic function, by either kernel."""
    if x.may_be_infinite:
        return anything(x.shape)
    kernel = site.envelope("Sigmoid", _SINGLE)
    error = Envelope(
        kernel.relative,
        kernel.absolute + _LOGISTIC_ROUNDINGS * unit(_SINGLE),
        min(kernel.lowest, 0.0),
        max(kernel.highest, 1.0),
        keeps_sign=True,
    )
    low, high = (torch.sigmoid(end) for end in x.doubles())
    y = round_outward(low, high, _SINGLE, x.shape, error)
    return replace(y, nan=x.nan, overflows=x.overflows)


def opposites(x: Interval) -> Interval:
    """Bound the opposite numbers."""
    return replace(x, lower=-x.upper, upper=-x.lower)


def expand_binary(site: Site, score: Interval, kind: str, *, shared: bool) -> Interval:
    """Bound the two scores of a binary classifier that computes one.

    Args:
        site: The node.
        score: The one, `(rows, 1)`.
        kind: What becomes of it.
        shared: Whether it is a share of 1, whose other class has the rest; else the other class has the opposite.
    """
    if kind == "LOGISTIC":
        first, second = logistic(site, opposites(score)), logistic(site, score)
    elif shared:
        low, high = score.doubles()
        first, second = round_outward(1 - high, 1 - low, _SINGLE, score.shape), score
    else:
        first, second = opposites(score), score
    return side_by_side(first, second)


def side_by_side(first: Interval, second: Interval) -> Interval:
    """Return the bounds of two columns as those of a matrix."""
    low, high = (torch.cat(torch.broadcast_tensors(*pair), 1) for pair in zip(_ends(first), _ends(second), strict=True))
    both = Interval.of(low, high, (first.shape[0], 2))
    return replace(both, nan=first.nan or second.nan, overflows=first.overflows or second.overflows)


def _ends(x: Interval) -> tuple[Tensor, Tensor]:
    return x.lower, x.upper


# rare ones ------------------------------------------------------------------------------------------------------


def _softmax_zero(site: Site, x: Interval) -> Interval:
    """Bound a softmax over the scores that are not 0; those that are stay almost 0, divided by the sum of the others.

    If all are 0, so is the sum; and where all others are far below 0, it vanishes.
    """
    low, high = (end.expand(end.shape[0], x.shape[1]) for end in x.doubles())
    edge = _NEAR_ZERO * (1 + 4 * unit(_SINGLE))
    counted = (low > edge) | (high < -edge)
    greatest = high.amax(1, keepdim=True)
    gap = torch.where(counted, low - greatest, -math.inf).amax(1, keepdim=True)
    # The greatest score itself counts where it is surely not 0.
    gap = torch.where((low.amax(1, keepdim=True) > edge) | (greatest < -edge), 0.0, gap)
    least = gap.exp() * (1 - 1e-3)
    if bool((gap < -80).any()):
        return anything(x.shape)
    reach = (edge * 1.01 / least).expand(low.shape)
    near = (low <= edge) & (high >= -edge)
    lower = torch.where(near, -reach, torch.zeros_like(reach))
    upper = torch.where(near, reach.clamp(min=1.01), torch.full_like(reach, 1.01))
    return round_outward(lower, upper, _SINGLE, x.shape)


def _probit(site: Site, x: Interval) -> Interval:
    """Bound the approximation of the probit of probabilities; at 0 and 1 it is infinite, beyond them NaN."""
    u = unit(_SINGLE)
    low, high = x.doubles()
    low, high = 2 * low - 1, 2 * high - 1
    low, high = low - 2 * u * (1 + low.abs()), high + 2 * u * (1 + high.abs())
    limit = 1 - 8 * u
    beyond = bool((low <= -limit).any()) or bool((high >= limit).any())
    lower, upper = (_bound_probit(end.clamp(-limit, limit), side) for end, side in ((low, -1.0), (high, 1.0)))
    if beyond:
        return anything(x.shape)
    return round_outward(lower, upper, _SINGLE, x.shape)


def _bound_probit(t: Tensor, direction: float) -> Tensor:
    """Return a bound of the approximation at 2 p - 1 = t, from below or from above."""
    logarithm = ((1 - t) * (1 + t)).log()
    v = 2 / (3.14159 * 0.147) + 0.5 * logarithm
    root = (v * v - logarithm / 0.147).sqrt()
    error = _PROBIT_ROUNDINGS * unit(_SINGLE) * (v.abs() + root)
    square = (root - v + direction * t.sign() * error).clamp(min=0)
    at_zero = torch.where(t == 0, direction * error.sqrt(), 0.0)
    return math.sqrt(2) * (t.sign() * square.sqrt() + at_zero) + direction * 1e-6


_ROUNDINGS = 8
"""Of a quotient besides those of the sum: conversion, square, quotient, root, by kernels and by us."""


def normalise(x: Interval, norm: str) -> Interval:
    """Bound the normalised rows of a matrix, in float32.

    Args:
        x: The matrix.
        norm: MAX, L1 or L2.
    """
    if not x.size:
        return Interval.fill(0, 0, x.shape, _SINGLE)
    if x.may_be_infinite or not _is_narrow(x, norm):
        return replace(Interval.fill(-math.inf, math.inf, x.shape, _SINGLE), nan=True, overflows=True)
    low, high = (end.expand(end.shape[0], x.shape[1]) for end in x.doubles())
    if norm == "MAX":
        return _by_greatest(low, high, x.shape)
    return _by_size(low, high, x.shape, squared=norm == "L2")


def _is_narrow(x: Interval, norm: str) -> bool:
    """Tell whether no sum overflows, nor a square or a magnitude in the type of integers."""
    least, greatest = x.extremes
    size = max(abs(least), abs(greatest))
    if norm == "L2":
        size = size * size
    # The least integer is its own magnitude.
    if not x.is_floating and norm != "MAX" and size > dtype_range(x.dtype)[1]:
        return False
    return x.shape[1] * size < 0.5 * torch.finfo(_SINGLE).max


def _by_greatest(low: Tensor, high: Tensor, shape: tuple[int, ...]) -> Interval:
    """Bound x / max(x); an element is the greatest one, or is smaller than it."""
    ends = ((low.amax(1, keepdim=True), -1.0), (high.amax(1, keepdim=True), 1.0))
    first, last = (end + side * unit(_SINGLE) * end.abs() for end, side in ends)
    # A row without negative elements has shares, or is 0 and stays so.
    shares = (low >= 0).all(1, keepdim=True)
    if bool(((first <= tiny(_SINGLE)) & (last >= -tiny(_SINGLE)) & ~shares).any()):
        return replace(Interval.fill(-math.inf, math.inf, shape, _SINGLE), overflows=True)
    corners = torch.stack([x / torch.where(shares, d.clamp(min=1e-300), d) for x in (low, high) for d in (first, last)])
    # No element exceeds the greatest one; where that is negative, no quotient is below 1.
    least = torch.where(last < 0, corners.amin(0).clamp(min=1.0), corners.amin(0))
    greatest = torch.where(last < 0, corners.amax(0), corners.amax(0).clamp(max=1.0))
    # A greatest element that float32 holds as 0 divides nothing.
    least = torch.where(shares, least.clamp(max=1.0).where(first > tiny(_SINGLE), 0.0), least)
    return _round(least, greatest, shape, 1)


def _by_size(low: Tensor, high: Tensor, shape: tuple[int, ...], *, squared: bool) -> Interval:
    """Bound x / sum |x|, or x / sqrt(sum x^2) as the root of a share: at most 1 in size."""
    inside = (low <= 0) & (high >= 0)
    least = torch.where(inside, 0.0, torch.minimum(low.abs(), high.abs()))
    greatest = torch.maximum(low.abs(), high.abs())
    if squared:
        least, greatest = least * least, greatest * greatest
    error = 1 + gamma(shape[1] + _ROUNDINGS, _SINGLE)
    # Denormal squares lose digits, or vanish: the shares of such rows say nothing but that they are shares.
    lost = shape[1] * tiny(_SINGLE)
    rest_least, rest_greatest = (end.sum(1, keepdim=True) - end for end in (least, greatest))
    rest_least = rest_least.clamp(min=0)
    share_most = _share(greatest * error + lost, rest_least / error - lost)
    share_least = _share(least / error - lost, rest_greatest * error + lost)
    if squared:
        share_most, share_least = share_most.sqrt(), share_least.sqrt()
    share_most = share_most.clamp(max=1.0) * error
    # Rows that vanish stay as they are.
    small = least.sum(1, keepdim=True) <= 2 * lost
    share_most = torch.where(small, 1.0 * error, share_most)
    share_least = torch.where(small, 0.0, share_least / error)
    upper = torch.where(high <= 0, -share_least, share_most)
    lower = torch.where(low >= 0, share_least, -share_most)
    return _round(lower, upper, shape, shape[1])


def _share(part: Tensor, rest: Tensor) -> Tensor:
    """Return part / (part + rest) where both are not negative."""
    part, rest = part.clamp(min=0), rest.clamp(min=0)
    whole = part + rest
    return torch.where(whole > 0, part / torch.where(whole > 0, whole, 1.0), 1.0)


def _round(low: Tensor, high: Tensor, shape: tuple[int, ...], terms: int) -> Interval:
    share = gamma(terms + _ROUNDINGS, _SINGLE)
    lost = tiny(_SINGLE)
    return round_outward(low - share * low.abs() - lost, high + share * high.abs() + lost, _SINGLE, shape)
