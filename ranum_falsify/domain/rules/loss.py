"""Losses over classes: the likelihoods that targets pick, weighted, and summed or averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import LOSS_ROUNDINGS, accumulation, sum_error, sum_growth, tiny, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.softmax import log_softmax_along
from ranum_falsify.domain.rules.support.building import corner_products
from ranum_falsify.domain.site import Site

Ends = tuple[Tensor, Tensor]
"""Least and greatest values in float64, in the targets' shape or broadcasting to it."""


@dataclass(frozen=True)
class _Targets:
    """What is known about the targets.

    Attributes:
        classes: Class of each target, 0 where ignored; None where targets are computed, or beyond the classes.
        ignored: Where targets are certainly ignored.
        perhaps: Where they may be ignored.
    """

    classes: Tensor | None
    ignored: Tensor
    perhaps: Tensor


def likelihood_loss(site: Site, x: Interval, target: Interval, weight: Interval | None) -> Interval:
    """Bound `NegativeLogLikelihoodLoss`."""
    return _loss(site, x, target, weight, x.dtype)


def cross_entropy(site: Site, scores: Interval, labels: Interval, weights: Interval | None) -> tuple[Interval, ...]:
    """Bound `SoftmaxCrossEntropyLoss`, with the logarithms of probabilities as an additional output."""
    log_prob = log_softmax_along(site, scores, (1,))
    likelihood = log_prob.keep_finite()
    if log_prob.may_be_infinite and torch.finfo(scores.dtype).bits < 32:
        # Kernels that do not round in between average logarithms that half precision cannot hold.
        wide = log_softmax_along(site, _to_float32(scores), (1,))
        likelihood = _to_float32(likelihood).hull(wide.keep_finite())
    loss = _loss(site, likelihood, labels, weights, scores.dtype)
    if log_prob.may_be_infinite:
        loss = replace(loss, overflows=True)
    return (loss, log_prob)[: len(site.op.output_names)]


def _loss(site: Site, x: Interval, target: Interval, weight: Interval | None, dtype: torch.dtype) -> Interval:
    targets = _targets(site.op, target, x.shape[1])
    return _reduce(site, _pick(x, targets), _shares(targets, weight), target.shape, dtype)


def _to_float32(x: Interval) -> Interval:
    lower = x.lower.float()
    return Interval(lower, lower if x.upper is x.lower else x.upper.float(), x.shape)


def weights_stay_nonzero(op: Operation, operands: Mapping[str, Interval]) -> bool:
    """Prove that the weights of the targets do not add up to 0 where their mean is taken."""
    if op.reduction != "mean":
        return True
    names = ("input", "target", "weight") if "input" in operands else ("scores", "labels", "weights")
    x, target, weight = operands[names[0]], operands[names[1]], operands.get(names[2])
    if weight is not None and weight.may_be_infinite:
        return False
    least, greatest = _total(_shares(_targets(op, target, x.shape[1]), weight), target.size, x.dtype)
    return bool(least > 0) or bool(greatest < 0)


def _targets(op: Operation, target: Interval, count: int) -> _Targets:
    low, high = (bound.long() for bound in (target.lower, target.upper))
    number = op.ignore_index
    if number is None:
        surely = perhaps = torch.zeros_like(low, dtype=torch.bool)
    else:
        surely, perhaps = (low == number) & (high == number), (low <= number) & (high >= number)
    if not target.is_point:
        return _Targets(None, surely, perhaps)
    classes = torch.where(surely, 0, low)
    classes = torch.where(classes < 0, classes + count, classes)
    # Runtimes refuse classes that do not exist; bounds only have to be present.
    known = bool(((classes >= 0) & (classes < count)).all())
    return _Targets(classes if known else None, surely, perhaps)


def _pick(x: Interval, targets: _Targets) -> Ends:
    """Return the negated likelihoods that the targets pick; of any class where targets are computed."""
    low, high = x.doubles()
    if targets.classes is None or low.shape[1] == 1:
        return -high.amax(1), -low.amin(1)
    rank = targets.classes.ndim
    sizes = [max(low.shape[0 if dim == 0 else dim + 1], targets.classes.shape[dim]) for dim in range(rank)]
    at = targets.classes.expand(sizes).unsqueeze(1)
    full = [sizes[0], low.shape[1], *sizes[1:]]
    return -high.expand(full).gather(1, at).squeeze(1), -low.expand(full).gather(1, at).squeeze(1)


def _shares(targets: _Targets, weight: Interval | None) -> Ends:
    """Return the weights of the targets, 0 where they are ignored."""
    if weight is None:
        low = high = torch.ones_like(targets.ignored, dtype=torch.float64)
    else:
        ends = weight.doubles()
        if targets.classes is None or weight.is_scalar:
            low, high = (end.expand(targets.ignored.shape) for end in (ends[0].min(), ends[1].max()))
        else:
            low, high = (end[targets.classes] for end in ends)
    low = torch.where(targets.perhaps, low.clamp(max=0), low)
    high = torch.where(targets.perhaps, high.clamp(min=0), high)
    zero = torch.zeros_like(low)
    return torch.where(targets.ignored, zero, low), torch.where(targets.ignored, zero, high)


def _copies(values: Tensor, count: int) -> float:
    return count / max(1, values.numel())


def _total(shares: Ends, count: int, dtype: torch.dtype) -> Ends:
    """Return the ends of the sum of shares, in whatever way a runtime adds them up."""
    low, high = shares
    copies = _copies(low, count)
    size = torch.maximum(low.abs(), high.abs()).sum() * copies
    error = sum_error(count, dtype, 2) * size + count * tiny(dtype)
    least, greatest = low.sum() * copies, high.sum() * copies
    if low.numel() and bool((low >= 0).all()):  # rounding makes no sum of non-negative numbers smaller than one of them
        return torch.maximum(least - error, low.max()), greatest + error
    return least - error, greatest + error


def _without_nan(least: Tensor, greatest: Tensor) -> Ends:
    """Return bounds with infinity for NaN, which comes from an infinite number minus its error if float64 overflows."""
    return least.nan_to_num(-math.inf, math.inf, -math.inf), greatest.nan_to_num(math.inf, math.inf, -math.inf)


def _reduce(site: Site, picked: Ends, shares: Ends, shape: tuple[int, ...], dtype: torch.dtype) -> Interval:
    count = math.prod(shape)
    if not count:
        return replace(Interval.top(site.shape, dtype), nan=True)
    low, high = corner_products(picked, shares)
    size = torch.maximum(low.abs(), high.abs())
    error = 4 * unit(dtype) * size + tiny(dtype) * (size > 0)
    if site.op.reduction == "none":
        return round_outward(*_without_nan(low - error, high + error), dtype, shape)
    copies = count / low.numel()
    error = copies * (error.sum() + sum_error(count, dtype, LOSS_ROUNDINGS) * size.sum())
    least, greatest = _without_nan(low.sum() * copies - error, high.sum() * copies + error)
    # Half precision is summed in float32, but PyTorch rounds the sum before dividing.
    limit = dtype_range(dtype)[1] / (4 if accumulation(dtype) is dtype else sum_growth(count, dtype))
    overflows = bool(copies * size.sum() >= limit)
    if site.op.reduction == "mean":
        least, greatest, unclear = _mean((least, greatest), picked, shares, count, dtype)
        overflows |= unclear
    return replace(round_outward(least, greatest, dtype, ()), overflows=overflows, nan=overflows)


def _mean(total: Ends, picked: Ends, shares: Ends, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, bool]:
    """Return the ends of the total over the sum of shares, and whether that sum may be 0."""
    weights = _total(shares, count, dtype)
    most = dtype_range(dtype)[1]
    if bool((weights[0] <= 0) & (weights[1] >= 0)) or not bool(torch.maximum(-weights[0], weights[1]) < most):
        least, greatest = (torch.tensor(float(end), dtype=torch.float64) for end in dtype_range(dtype))
        return least, greatest, True
    points = torch.stack([t / w for t in total for w in weights])
    error = 4 * unit(dtype) * points.abs().max()
    least, greatest = _without_nan(points.amin() - error, points.amax() + error)
    if bool((shares[0] >= 0).all()):
        # A mean with non-negative weights lies between the numbers that it averages.
        counted = (shares[1] > 0).expand(np.broadcast_shapes(shares[1].shape, picked[0].shape))
        ends = [end.expand(counted.shape)[counted] for end in picked]
        reach = torch.maximum(ends[0].abs().max(), ends[1].abs().max())
        slack = sum_error(2 * count, dtype, LOSS_ROUNDINGS) * reach + 2 * count * tiny(dtype) / weights[0]
        least, greatest = torch.maximum(least, ends[0].min() - slack), torch.minimum(greatest, ends[1].max() + slack)
    return least, greatest, False
