"""What the rows of `ai.onnx.ml` have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.errors import UnsupportedAttributeError

__all__ = ["DOMAIN", "as_rows", "as_single", "check_finite", "class_labels", "labels_between"]

DOMAIN = "ai.onnx.ml"

_T = TypeVar("_T", Tensor, Interval)


def check_finite(values: Iterable[float], what: str) -> None:
    """Check numbers that a node writes as they are: rows say that those of finite operands are finite.

    Raises:
        UnsupportedAttributeError: Some are NaN or infinite.
    """
    if not np.isfinite(np.asarray(tuple(values), dtype=np.float64)).all():
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
