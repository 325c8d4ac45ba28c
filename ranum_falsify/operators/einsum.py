"""Einstein summation."""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network.registry import operator

__all__ = ["Einsum"]


def _einsum(op: Operation, *inputs: Tensor) -> Tensor:
    return torch.einsum(op.equation.replace(" ", ""), *inputs)


@operator(torch=_einsum, operands=("x",))
class Einsum(Operation):
    """https://onnx.ai/onnx/operators/onnx__Einsum.html."""
