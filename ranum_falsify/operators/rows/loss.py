"""Losses over classes: the negative log likelihood, and the cross entropy, which computes it from scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.rules.loss import cross_entropy, likelihood_loss, weights_stay_nonzero
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support.conditions import Limits, WithinLimits
from ranum_falsify.operators.support.families import opaque
from ranum_falsify.validity import Condition, NotZero, Operands

_REDUCTIONS = ("none", "mean", "sum")
_NONZERO = NotZero("value", reason="")


def _find_ignored(op: Operation, target: Tensor) -> Tensor:
    if op.ignore_index is None:
        return torch.zeros_like(target, dtype=torch.bool)
    ignored: Tensor = target.long() == op.ignore_index  # int32 cannot hold all that it is compared with
    return ignored


def _classes(op: Operation, x: Tensor, target: Tensor) -> Tensor:
    """Return the targets as indices, 0 where ignored."""
    classes = torch.where(_find_ignored(op, target), 0, target).long()
    # Classes that ONNX Runtime refuses must not stop a batch.
    return torch.remainder(classes, max(x.shape[1], 1))


def _shares(op: Operation, x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Return each target's weight, 0 where ignored."""
    if weight is not None and weight.shape[0] != x.shape[1]:
        raise ValueError(f"{weight.shape[0]} weights for {x.shape[1]} classes, beyond which ONNX Runtime reads")
    classes = _classes(op, x, target)
    ones = torch.ones_like(classes, dtype=x.dtype)
    share = ones if weight is None else weight.gather(0, classes.reshape(-1)).reshape(classes.shape)
    return torch.where(_find_ignored(op, target), 0.0, share)


def _loss(op: Operation, log_prob: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    share = _shares(op, log_prob, target, weight)
    picked = log_prob.gather(1, _classes(op, log_prob, target).unsqueeze(1)).squeeze(1)
    if op.reduction not in _REDUCTIONS:
        raise UnsupportedAttributeError(f"reduction {op.reduction!r} is not supported; use {', '.join(_REDUCTIONS)}")
    # An ignored target counts for nothing even where its likelihood is 0.
    loss = torch.where(_find_ignored(op, target), 0.0, -picked * share)
    if op.reduction == "none":
        return loss
    return loss.sum() if op.reduction == "sum" else loss.sum() / share.sum()


def _cross_entropy(op: Operation, scores: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, ...]:
    log_prob = scores.log_softmax(1)
    return (_loss(op, log_prob, labels, weights), log_prob)[: len(op.output_names)]


def _total_weight(op: Operation, operands: Operands) -> Tensor:
    names = ("input", "target", "weight") if "input" in operands else ("scores", "labels", "weights")
    x = operands[names[0]]
    share = _shares(op, x, operands[names[1]], operands.get(names[2]))
    return share.sum() if op.reduction == "mean" else torch.ones((), dtype=x.dtype, device=x.device)


def _total_margin(op: Operation, operands: Operands) -> Tensor:
    return _NONZERO.margin(op, {"value": _total_weight(op, operands)})


_WEIGHED = Condition(
    "sum of the targets' weights != 0",
    "mean over targets that all weigh nothing",
    _total_margin,
    _total_weight,
    holds_of=weights_stay_nonzero,
)


def _are_classes(target: str, x: str) -> WithinLimits:
    def limits(op: Operation, operands: Mapping[str, Any]) -> Limits:
        count = int(operands[x].shape[1])
        return -count, count - 1

    text = f"-n <= {target} < n, the number of classes, or ignored"
    return WithinLimits(target, text, limits, lambda op: op.ignore_index)


@opaque(torch=_loss, interval=likelihood_loss, kernel=None, valid=[_are_classes("target", "input"), _WEIGHED])
class NegativeLogLikelihoodLoss(Operation):
    """https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html."""


@opaque(
    torch=_cross_entropy,
    interval=cross_entropy,
    kernel=("Exp", "Log"),
    valid=[_are_classes("labels", "scores"), _WEIGHED],
)
class SoftmaxCrossEntropyLoss(Operation):
    """https://onnx.ai/onnx/operators/onnx__SoftmaxCrossEntropyLoss.html."""
