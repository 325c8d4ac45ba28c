"""Dropout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Dropout
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.linear.forms import Affine
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import unit
from ranum_falsify.network.registry import Draws
from ranum_falsify.operators.support.families import total

__all__: list[str] = []


def _number(value: Any, fallback: float) -> float:
    """Return a static operand as a number, the fallback if it has none, which ONNX Runtime refuses."""
    numbers = [] if value is None else np.asarray(value).reshape(-1).tolist()
    return float(numbers[0]) if numbers else fallback


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
        return (x * kept / (1 - rate), kept)[: len(op.output_names)]
    # Before opset 10 the mask has the operand's type, and before opset 12 ONNX Runtime fills it with zeros.
    mask = torch.full_like(x, op.version >= 12, dtype=torch.bool if op.version >= 10 else x.dtype)
    return (x, mask)[: len(op.output_names)]


def _dropout_bounds(
    site: Site, x: Interval, ratio: np.ndarray | None, training_mode: np.ndarray | None
) -> tuple[Interval, ...]:
    op, rate = site.op, _number(ratio, 0.5)
    if _number(training_mode, 0) and rate > 0:
        scale = 1 / (1 - rate) if rate < 1 else 0.0
        low, high = (bound * scale for bound in x.keep_finite().doubles())
        # The share that is kept, its reciprocal and the product are rounded.
        y = round_outward(low.clamp(max=0), high.clamp(min=0), x.dtype, x.shape, Envelope(8 * unit(x.dtype)))
        y = y.hull(x) if x.may_be_infinite else y
        mask = Interval.fill(0, 1, x.shape, torch.bool)
        return (replace(y, gap=0.0, nan=x.may_be_infinite), mask)[: len(op.output_names)]
    kind = torch.bool if op.version >= 10 else x.dtype
    return (x, Interval.point(torch.full((), op.version >= 12, dtype=kind).expand(x.shape)))[: len(op.output_names)]


total(
    torch=_dropout,
    interval=infinity_aware(_dropout_bounds),
    linear=lambda op: None if _draws(op) else Affine(operands=("x",)),
    kernel=None,
    operands=("x", "ratio", "training_mode"),
    renamed={"data": "x"},
    static=("ratio", "training_mode"),
    random=Draws(operand="training_mode", where=_draws),
)(Dropout)
