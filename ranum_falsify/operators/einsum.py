"""Einstein summation."""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network.registry import operator

__all__ = ["Einsum"]


def _einsum(op: Operation, *inputs: Tensor) -> Tensor:
    # Sums of integers become int64 in torch.
    return torch.einsum(op.equation.replace(" ", ""), *inputs).to(inputs[0].dtype)


@operator(torch=_einsum, operands=("x",))
class Einsum(Operation):
    """https://onnx.ai/onnx/operators/onnx__Einsum.html."""
