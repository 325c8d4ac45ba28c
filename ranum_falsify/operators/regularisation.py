"""Dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Dropout
from torch import Tensor

from ranum_falsify.network.registry import operator

__all__: list[str] = []


def _number(value: Any, fallback: float) -> float:
    """Return a static operand as a number."""
    return fallback if value is None else float(np.asarray(value).reshape(-1)[0])


def _draws(op: Operation) -> bool:
    training, ratio = op.training_mode, op.ratio
    if isinstance(training, Operation) or isinstance(ratio, Operation):
        return True
    return bool(_number(training, 0)) and _number(ratio, 0.5) > 0


def _dropout(
    op: Operation, x: Tensor, ratio: np.ndarray | None, training_mode: np.ndarray | None
) -> tuple[Tensor, ...]:
    rate = _number(ratio, 0.5)
    if _number(training_mode, 0) and rate > 0:
        kept = torch.rand(x.shape, device=x.device) >= rate
        return (torch.where(kept, x / (1 - rate), 0), kept)[: len(op.output_names)]
    # Before opset 10 the mask has the operand's type, and before opset 12 ONNX Runtime fills it with zeros.
    mask = torch.full_like(x, op.version >= 12, dtype=torch.bool if op.version >= 10 else x.dtype)
    return (x, mask)[: len(op.output_names)]


operator(
    torch=_dropout,
    operands=("x", "ratio", "training_mode"),
    renamed={"data": "x"},
    static=("ratio", "training_mode"),
    overflow=False,
    random_where=_draws,
)(Dropout)
