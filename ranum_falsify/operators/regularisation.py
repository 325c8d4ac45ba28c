"""Dropout."""

from __future__ import annotations

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Dropout
from torch import Tensor

from ranum_falsify.network.registry import operator

__all__: list[str] = []


def _dropout(
    op: Operation, x: Tensor, ratio: np.ndarray | None, training_mode: np.ndarray | None
) -> tuple[Tensor, ...]:
    rate = 0.5 if ratio is None else float(np.asarray(ratio).reshape(-1)[0])
    training = training_mode is not None and bool(np.asarray(training_mode).reshape(-1)[0])
    if training and rate > 0:
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
)(Dropout)
