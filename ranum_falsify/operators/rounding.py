"""Rounding to integers."""

from __future__ import annotations

import torch
from dnnv.nn import Operation

from ranum_falsify.domain.rules.building import exactly
from ranum_falsify.network.registry import operator
from ranum_falsify.operators.functions import elementwise

__all__ = ["Ceil", "Floor", "Round"]


@operator(torch=elementwise(torch.ceil), interval=exactly(torch.ceil), overflow=False)
class Ceil(Operation):
    """https://onnx.ai/onnx/operators/onnx__Ceil.html."""


@operator(torch=elementwise(torch.floor), interval=exactly(torch.floor), overflow=False)
class Floor(Operation):
    """https://onnx.ai/onnx/operators/onnx__Floor.html."""


@operator(torch=elementwise(torch.round), interval=exactly(torch.round), overflow=False)
class Round(Operation):
    """Halves to even: https://onnx.ai/onnx/operators/onnx__Round.html."""
