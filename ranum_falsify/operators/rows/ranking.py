"""Ranking: the largest or smallest elements, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.rules.reduction.extremes import top
from ranum_falsify.operators.relations.ranked import first_is_largest
from ranum_falsify.operators.support.families import making
from ranum_falsify.operators.support.limits import Limits, WithinLimits

__all__ = ["TopK"]


def _top_k(op: Operation, x: Tensor, k: np.ndarray) -> tuple[Tensor, Tensor]:
    # A stable sort gives the lower index first among equals, as ONNX asks; `torch.topk` gives any.
    descending = True if op.largest is None else bool(op.largest)
    values, indices = torch.sort(x, stable=True, dim=op.axis, descending=descending)
    # ONNX Runtime refuses other counts, which must not stop a batch.
    count = min(max(int(np.asarray(k).reshape(-1)[0]), 0), x.shape[op.axis])
    return values.narrow(op.axis, 0, count), indices.narrow(op.axis, 0, count)


def _counts(op: Operation, operands: Mapping[str, Any]) -> Limits:
    return 0, int(operands["x"].shape[op.axis])


@making(
    torch=_top_k,
    interval=first_is_largest(top),
    valid=[WithinLimits("k", "0 <= k <= the size of the axis", _counts, reason="ONNX Runtime refuses other counts")],
    static=("k",),
)
class TopK(Operation):
    """https://onnx.ai/onnx/operators/onnx__TopK.html."""
