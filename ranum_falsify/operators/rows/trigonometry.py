"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

import math

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Atan, Tanh

from ranum_falsify.domain.linear import curves
from ranum_falsify.domain.rules.support.building import antitone, monotone, piecewise
from ranum_falsify.domain.rules.support.real_functions import just_below_one, monotone_inside
from ranum_falsify.domain.rules.trigonometry import tangent, wave
from ranum_falsify.operators.support.families import pointwise, total
from ranum_falsify.operators.support.functions import elementwise
from ranum_falsify.validity import (
    AtLeast,
    AtMost,
    Bounds,
    GreaterThan,
    LessThan,
    NotInfinite,
    largest,
    log_of_largest,
)

for _function, _linear, _node in ((torch.atan, curves.ATAN, Atan), (torch.tanh, curves.TANH, Tanh)):
    total(
        torch=elementwise(_function),
        interval=monotone(_function),
        linear=_linear,
        kernel=_node.__name__,
        overflow=False,
    )(_node)


@pointwise(
    torch=elementwise(torch.sin),
    interval=wave(torch.sin, crest=math.pi / 2),
    linear=curves.SIN,
    kernel="Sin",
    valid=[NotInfinite("x", "sine of infinity")],
    overflow=False,
)
class Sin(Operation):
    """https://onnx.ai/onnx/operators/onnx__Sin.html."""


@pointwise(
    torch=elementwise(torch.cos),
    interval=wave(torch.cos, crest=0.0),
    linear=curves.COS,
    kernel="Cos",
    valid=[NotInfinite("x", "cosine of infinity")],
    overflow=False,
)
class Cos(Operation):
    """https://onnx.ai/onnx/operators/onnx__Cos.html."""


@pointwise(
    torch=elementwise(torch.tan),
    interval=tangent,
    linear=None,
    kernel="Tan",
    valid=[NotInfinite("x", "tangent of infinity")],
)
class Tan(Operation):
    """https://onnx.ai/onnx/operators/onnx__Tan.html."""


def _between_ones(function: str) -> tuple[AtLeast, AtMost]:
    return (
        AtLeast("x", -1.0, reason=f"{function} of a number below -1"),
        AtMost("x", 1.0, reason=f"{function} of a number above 1"),
    )


def _inside_ones(function: str) -> tuple[GreaterThan, LessThan]:
    return (
        GreaterThan("x", -1.0, reason=f"derivative of the {function} at -1"),
        LessThan("x", 1.0, reason=f"derivative of the {function} at 1"),
    )


@pointwise(
    torch=elementwise(torch.asin),
    interval=monotone(torch.asin, above=-1.0, below=1.0),
    linear=None,
    kernel="Asin",
    valid=_between_ones("arc sine"),
    gradient_valid=_inside_ones("arc sine"),
    overflow=False,
)
class Asin(Operation):
    """https://onnx.ai/onnx/operators/onnx__Asin.html."""


@pointwise(
    torch=elementwise(torch.acos),
    interval=antitone(torch.acos, above=-1.0, below=1.0),
    linear=None,
    kernel="Acos",
    valid=_between_ones("arc cosine"),
    gradient_valid=_inside_ones("arc cosine"),
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


class _AtLeastHyperbolic(AtLeast):
    """The lower limit; proved only as far as exp(-x) is finite, since some kernels of torch compute exp(x) / 2."""

    def holds(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.holds`."""
        x = self._keep_finite(operands[self.operand])
        return bool((x.lower >= -log_of_largest(x.dtype)).all())


class _AtMostHyperbolic(AtMost):
    """The upper limit; see :class:`_AtLeastHyperbolic`."""

    def holds(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.holds`."""
        x = self._keep_finite(operands[self.operand])
        return bool((x.upper <= log_of_largest(x.dtype)).all())


_TOO_LARGE = "hyperbolic function above the largest finite number"
_HYPERBOLIC = (
    _AtLeastHyperbolic("x", lambda dtype: -_hyperbolic_limit(dtype), _TOO_LARGE, only_finite=True),
    _AtMostHyperbolic("x", _hyperbolic_limit, _TOO_LARGE, only_finite=True),
)


@pointwise(
    torch=elementwise(torch.sinh),
    interval=monotone(torch.sinh),
    linear=curves.SINH,
    kernel="Sinh",
    valid=_HYPERBOLIC,
    overflow=False,
)
class Sinh(Operation):
    """https://onnx.ai/onnx/operators/onnx__Sinh.html."""


@pointwise(
    torch=elementwise(torch.cosh),
    interval=piecewise(torch.cosh, turns=[0.0]),
    linear=curves.COSH,
    kernel="Cosh",
    valid=_HYPERBOLIC,
    overflow=False,
)
class Cosh(Operation):
    """https://onnx.ai/onnx/operators/onnx__Cosh.html."""


@total(
    torch=elementwise(torch.asinh),
    interval=monotone(torch.asinh),
    linear=curves.ASINH,
    kernel="Asinh",
    overflow=False,
)
class Asinh(Operation):
    """https://onnx.ai/onnx/operators/onnx__Asinh.html."""


@pointwise(
    torch=elementwise(torch.acosh),
    interval=monotone(torch.acosh, above=1.0),
    linear=None,
    kernel="Acosh",
    valid=[AtLeast("x", 1.0, reason="inverse hyperbolic cosine of a number below 1")],
    gradient_valid=[GreaterThan("x", 1.0, reason="derivative of the inverse hyperbolic cosine at 1")],
    overflow=False,
)
class Acosh(Operation):
    """https://onnx.ai/onnx/operators/onnx__Acosh.html."""


@pointwise(
    torch=elementwise(torch.atanh),
    interval=monotone_inside(torch.atanh, least=lambda dtype: -just_below_one(dtype), greatest=just_below_one),
    linear=None,
    kernel="Atanh",
    valid=[
        GreaterThan("x", -1.0, reason="inverse hyperbolic tangent of -1 or less"),
        LessThan("x", 1.0, reason="inverse hyperbolic tangent of 1 or more"),
    ],
    overflow=False,
)
class Atanh(Operation):
    """https://onnx.ai/onnx/operators/onnx__Atanh.html."""
