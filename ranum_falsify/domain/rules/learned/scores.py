"""What classical models make of their scores at the end: logistic functions, softmaxes, probits.

ONNX Runtime's kernels compute them in float32, some by `exp` of the C library, some by its own kernels.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from dnnv.nn.utils import TensorDetails
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.softmax import softmax
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import unit

__all__ = ["anything", "as_scores", "expand_binary", "logistic", "opposites", "side_by_side", "transform_scores"]

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
