"""Common parts of the rows of `ai.onnx.ml`: attributes, and the last steps from scores to results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.families import summing

DOMAIN = "ai.onnx.ml"

learned = partial(summing, domain=DOMAIN, linear=None, batch=batching.by_rows)
"""Rows of models over features, a sample in each row."""

scoring = partial(learned, kernel=("Sigmoid", "Exp"))
"""Those that make shares of scores."""

_T = TypeVar("_T", Tensor, Interval)


def check_finite(values: Sequence[float] | np.ndarray, what: str) -> None:
    """Check numbers that a node writes as they are: rows say that those of finite operands are finite."""
    if not np.isfinite(np.asarray(values, dtype=np.float64)).all():
        raise UnsupportedAttributeError(f"{what} are not all finite; use finite numbers")


def as_rows(x: _T) -> _T:
    """Return features as a matrix: a vector is one row."""
    if len(x.shape) > 1:
        return x
    return x[None] if isinstance(x, Tensor) else x.move(lambda end: end[None])


def as_single(x: Interval) -> Interval:
    """Return the bounds converted to float32, as kernels convert what they read."""
    return x if x.dtype is torch.float32 else Interval(x.lower.float(), x.upper.float(), x.shape)


def class_labels(op: Operation) -> tuple[int, ...]:
    """Return the labels of a classifier."""
    names = ("classlabels_int64s", "classlabels_ints")
    found = [value for value in (getattr(op, name, None) for name in names) if value]
    return tuple(found[0]) if found else ()


def labels_between(op: Operation, shape: tuple[int, ...], *, extra: Sequence[int] = ()) -> Interval:
    """Return bounds of the labels that a classifier chooses from, and of others."""
    labels = (*class_labels(op), *extra)
    return Interval.fill(min(labels), max(labels), shape, torch.int64)


def transform_scores(scores: Tensor, kind: str) -> Tensor:
    """Return what becomes of the scores of each row, `(rows, scores)`."""
    if kind == "SOFTMAX":
        return torch.softmax(scores, -1)
    if kind == "LOGISTIC":
        return torch.sigmoid(scores)
    if kind == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    return _probit(scores) if kind == "PROBIT" else scores


def expand_binary(score: Tensor, kind: str, *, shared: bool) -> Tensor:
    """Return the two scores of a binary classifier that computes one, `(rows, 1)`, which become some shares.

    The other class has the rest where the score is a share of 1, else the opposite.
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
