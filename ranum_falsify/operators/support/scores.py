"""What classical models make of their scores at the end, as ONNX Runtime's kernels compute it.

A row of one score is special: kernels ignore most transformations of it, and may add the score of the other class.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["expand_binary", "transform_scores"]


def transform_scores(scores: Tensor, kind: str) -> Tensor:
    """Return what becomes of the scores of each row, `(rows, scores)`."""
    if kind == "SOFTMAX":
        return torch.softmax(scores, -1)
    if kind == "LOGISTIC":
        return torch.sigmoid(scores)
    return {"SOFTMAX_ZERO": _softmax_zero, "PROBIT": _probit}.get(kind, _keep)(scores)


def _keep(scores: Tensor) -> Tensor:
    return scores


def expand_binary(score: Tensor, kind: str, *, shared: bool) -> Tensor:
    """Return the two scores of a binary classifier that computes one, `(rows, 1)`.

    Args:
        score: The one.
        kind: What becomes of it.
        shared: Whether it is a share of 1, whose other class has the rest; else the other class has the opposite.
    """
    if kind == "LOGISTIC":
        return torch.cat([-score, score], -1).sigmoid()
    return torch.cat([1 - score if shared else -score, score], -1)


def _softmax_zero(scores: Tensor) -> Tensor:
    greatest = scores.amax(-1, keepdim=True)
    counted = scores.abs() > 1e-7
    powers = torch.where(counted, (scores - greatest).exp(), scores * (-greatest).exp())
    return powers / torch.where(counted, powers, 0.0).sum(-1, keepdim=True)


def _probit(p: Tensor) -> Tensor:
    t = 2 * p - 1
    logarithm = ((1 - t) * (1 + t)).log()
    v = 2 / (3.14159 * 0.147) + 0.5 * logarithm
    return math.sqrt(2) * torch.where(t < 0, -1.0, 1.0) * (-v + (v * v - logarithm / 0.147).sqrt()).sqrt()
