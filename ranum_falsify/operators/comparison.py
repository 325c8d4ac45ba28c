"""Comparisons and tests of numbers; their results are booleans."""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network.registry import operator
from ranum_falsify.operators.functions import elementwise, widened

__all__ = ["Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual"]


@operator(torch=elementwise(torch.eq), overflow=False)
class Equal(Operation):
    """https://onnx.ai/onnx/operators/onnx__Equal.html."""


@operator(torch=elementwise(widened(torch.gt)), overflow=False)
class Greater(Operation):
    """https://onnx.ai/onnx/operators/onnx__Greater.html."""


@operator(torch=elementwise(widened(torch.ge)), overflow=False)
class GreaterOrEqual(Operation):
    """https://onnx.ai/onnx/operators/onnx__GreaterOrEqual.html."""


@operator(torch=elementwise(widened(torch.lt)), overflow=False)
class Less(Operation):
    """https://onnx.ai/onnx/operators/onnx__Less.html."""


@operator(torch=elementwise(widened(torch.le)), overflow=False)
class LessOrEqual(Operation):
    """https://onnx.ai/onnx/operators/onnx__LessOrEqual.html."""


def _is_inf(op: Operation, x: Tensor) -> Tensor:
    if op.detect_negative and op.detect_positive:
        return torch.isinf(x)
    if op.detect_negative:
        return torch.isneginf(x)
    return torch.isposinf(x) if op.detect_positive else torch.zeros_like(x, dtype=torch.bool)


@operator(torch=_is_inf, overflow=False)
class IsInf(Operation):
    """https://onnx.ai/onnx/operators/onnx__IsInf.html."""


@operator(torch=elementwise(torch.isnan), overflow=False)
class IsNaN(Operation):
    """https://onnx.ai/onnx/operators/onnx__IsNaN.html."""
