"""Arithmetic: sums, products, quotients, powers, exponentials and logarithms."""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Add, Sub

from ranum_falsify.network.registry import operator
from ranum_falsify.operators.functions import elementwise
from ranum_falsify.validity import GreaterThan

__all__ = ["Log"]

operator(torch=elementwise(torch.add))(Add)
operator(torch=elementwise(torch.sub))(Sub)


@operator(
    torch=elementwise(torch.log),
    valid=[GreaterThan("x", 0.0, reason="logarithm of a non-positive number")],
    overflow=False,
)
class Log(Operation):
    """https://onnx.ai/onnx/operators/onnx__Log.html."""
