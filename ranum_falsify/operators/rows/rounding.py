"""Rounding to integers."""

from __future__ import annotations

import torch
from dnnv.nn import Operation

from ranum_falsify.domain.rules.support.building import exactly
from ranum_falsify.operators.support.families import exact
from ranum_falsify.operators.support.functions import elementwise

__all__ = ["Ceil", "Floor", "Round"]


@exact(torch=elementwise(torch.ceil), interval=exactly(torch.ceil))
class Ceil(Operation):
    """https://onnx.ai/onnx/operators/onnx__Ceil.html."""


@exact(torch=elementwise(torch.floor), interval=exactly(torch.floor))
class Floor(Operation):
    """https://onnx.ai/onnx/operators/onnx__Floor.html."""


@exact(torch=elementwise(torch.round), interval=exactly(torch.round))
class Round(Operation):
    """Halves to even: https://onnx.ai/onnx/operators/onnx__Round.html."""
