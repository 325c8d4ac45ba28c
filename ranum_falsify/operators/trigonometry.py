"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

import math

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Atan, Tanh

from ranum_falsify.domain import curves
from ranum_falsify.network.registry import operator
from ranum_falsify.operators.functions import elementwise
from ranum_falsify.validity import AtLeast, AtMost, GreaterThan, LessThan, NotInfinite, largest

__all__ = ["Acos", "Acosh", "Asin", "Asinh", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan"]

operator(torch=elementwise(torch.atan), overflow=False, linear=curves.ATAN)(Atan)
operator(torch=elementwise(torch.tanh), overflow=False, linear=curves.TANH)(Tanh)


@operator(torch=elementwise(torch.sin), valid=[NotInfinite("x", "sine of infinity")], overflow=False, linear=curves.SIN)
class Sin(Operation):
    """https://onnx.ai/onnx/operators/onnx__Sin.html."""


@operator(
    torch=elementwise(torch.cos),
    valid=[NotInfinite("x", "cosine of infinity")],
    overflow=False,
    linear=curves.COS,
)
class Cos(Operation):
    """https://onnx.ai/onnx/operators/onnx__Cos.html."""


# No float is close enough to a pole for an infinite tangent.
@operator(torch=elementwise(torch.tan), valid=[NotInfinite("x", "tangent of infinity")], overflow=False)
class Tan(Operation):
    """https://onnx.ai/onnx/operators/onnx__Tan.html."""


@operator(
    torch=elementwise(torch.asin),
    valid=[
        AtLeast("x", -1.0, reason="arc sine of a number below -1"),
        AtMost("x", 1.0, reason="arc sine of a number above 1"),
    ],
    gradient_valid=[
        GreaterThan("x", -1.0, reason="derivative of the arc sine at -1"),
        LessThan("x", 1.0, reason="derivative of the arc sine at 1"),
    ],
    overflow=False,
)
class Asin(Operation):
    """https://onnx.ai/onnx/operators/onnx__Asin.html."""


@operator(
    torch=elementwise(torch.acos),
    valid=[
        AtLeast("x", -1.0, reason="arc cosine of a number below -1"),
        AtMost("x", 1.0, reason="arc cosine of a number above 1"),
    ],
    gradient_valid=[
        GreaterThan("x", -1.0, reason="derivative of the arc cosine at -1"),
        LessThan("x", 1.0, reason="derivative of the arc cosine at 1"),
    ],
    overflow=False,
)
class Acos(Operation):
    """https://onnx.ai/onnx/operators/onnx__Acos.html."""


def _hyperbolic_limit(dtype: torch.dtype) -> float:
    """Return the largest float of the dtype whose hyperbolic cosine is finite."""
    exact = torch.tensor(math.log(largest(dtype)) + math.log(2.0), dtype=torch.float64)
    rounded = exact.to(dtype)
    below = torch.nextafter(rounded, torch.zeros_like(rounded)) if rounded.double() > exact else rounded
    return float(below)


def _minus_hyperbolic_limit(dtype: torch.dtype) -> float:
    return -_hyperbolic_limit(dtype)


_HYPERBOLIC = (
    AtLeast("x", _minus_hyperbolic_limit, "hyperbolic function above the largest finite number", only_finite=True),
    AtMost("x", _hyperbolic_limit, "hyperbolic function above the largest finite number", only_finite=True),
)


@operator(torch=elementwise(torch.sinh), valid=_HYPERBOLIC, overflow=False, linear=curves.SINH)
class Sinh(Operation):
    """https://onnx.ai/onnx/operators/onnx__Sinh.html."""


@operator(torch=elementwise(torch.cosh), valid=_HYPERBOLIC, overflow=False, linear=curves.COSH)
class Cosh(Operation):
    """https://onnx.ai/onnx/operators/onnx__Cosh.html."""


@operator(torch=elementwise(torch.asinh), overflow=False, linear=curves.ASINH)
class Asinh(Operation):
    """https://onnx.ai/onnx/operators/onnx__Asinh.html."""


@operator(
    torch=elementwise(torch.acosh),
    valid=[AtLeast("x", 1.0, reason="inverse hyperbolic cosine of a number below 1")],
    gradient_valid=[GreaterThan("x", 1.0, reason="derivative of the inverse hyperbolic cosine at 1")],
    overflow=False,
)
class Acosh(Operation):
    """https://onnx.ai/onnx/operators/onnx__Acosh.html."""


@operator(
    torch=elementwise(torch.atanh),
    valid=[
        GreaterThan("x", -1.0, reason="inverse hyperbolic tangent of -1 or less"),
        LessThan("x", 1.0, reason="inverse hyperbolic tangent of 1 or more"),
    ],
    overflow=False,
)
class Atanh(Operation):
    """https://onnx.ai/onnx/operators/onnx__Atanh.html."""
