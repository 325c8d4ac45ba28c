"""Activation functions."""

from __future__ import annotations

import math

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Elu, LeakyRelu, Relu, Sigmoid
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.linear import curves
from ranum_falsify.domain.rules.activation import (
    celu,
    clip,
    elu,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    prelu,
    selu,
    shrink,
    swish,
    thresholded_relu,
)
from ranum_falsify.domain.rules.support.building import exactly, monotone, piecewise
from ranum_falsify.domain.rules.support.definitions import defines_softplus, softplus
from ranum_falsify.domain.rules.support.real_functions import MISH_TURN, find_computed_type, mish, sigmoid, softsign
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support.families import exact, pointwise, total
from ranum_falsify.operators.support.functions import by_order, constant_scalar, elementwise, parametrised
from ranum_falsify.validity import AtMost, Bounds, Condition, NotInfinite, Operands, log_of_largest

# Each of these multiplies its operand by a factor that is 0 at -Inf.
ABOVE_MINUS_INFINITY = NotInfinite("x", "minus infinity times zero", only_negative=True)

total(torch=elementwise(torch.relu), interval=exactly(torch.relu), linear=curves.RELU, kernel=None, overflow=False)(
    Relu
)
total(
    torch=elementwise(torch.sigmoid),
    interval=monotone(sigmoid),
    linear=curves.SIGMOID,
    kernel="Sigmoid",
    overflow=False,
)(Sigmoid)
total(
    torch=parametrised(functional.leaky_relu, "alpha"),
    interval=leaky_relu,
    linear=lambda op: curves.leaky(op.alpha),
    kernel=None,
)(LeakyRelu)
total(
    torch=parametrised(functional.elu, "alpha"),
    interval=elu,
    linear=lambda op: curves.elu(op.alpha),
    kernel="Elu",
)(Elu)


def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    # Exact, since one of the two is 0, and three times as fast as a choice by `torch.where`.
    return torch.relu(x) - slope * torch.relu(-x)


@total(torch=elementwise(_prelu), interval=prelu, linear=lambda op: curves.leaky(op.slope), kernel=None)
class PRelu(Operation):
    """https://onnx.ai/onnx/operators/onnx__PRelu.html."""


# Below 0 a negative alpha makes it grow as fast as the exponential.
@total(torch=parametrised(functional.celu, "alpha"), interval=celu, linear=None, kernel=("Elu", "Exp"))
class Celu(Operation):
    """https://onnx.ai/onnx/operators/onnx__Celu.html."""


def _selu(x: Tensor, alpha: float, gamma: float) -> Tensor:
    if gamma == 0:
        raise UnsupportedAttributeError("gamma is 0, which makes infinity no number; use another")
    return gamma * functional.elu(x, alpha)


@total(torch=parametrised(_selu, "alpha", "gamma"), interval=selu, linear=None, kernel="Elu")
class Selu(Operation):
    """https://onnx.ai/onnx/operators/onnx__Selu.html."""


def _hard_sigmoid(x: Tensor, alpha: float, beta: float) -> Tensor:
    if max(abs(alpha), abs(beta)) > torch.finfo(x.dtype).max:
        raise UnsupportedAttributeError(f"alpha {alpha} or beta {beta} is no number of {x.dtype}")
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


def _infinite_times_zero(op: Operation, operands: Operands) -> Tensor:
    margin = NotInfinite("x", "").margin(op, operands)
    return margin if op.alpha == 0 else torch.full_like(margin, math.inf)


@pointwise(
    torch=parametrised(_hard_sigmoid, "alpha", "beta"),
    interval=hard_sigmoid,
    linear=None,
    kernel=None,
    valid=[
        Condition(
            "x is finite where alpha = 0",
            "infinity times zero",
            _infinite_times_zero,
            needs_infinity=True,
            holds_of=lambda op, bounds: op.alpha != 0 or not bounds["x"].may_be_infinite,
        )
    ],
    overflow=False,
)
class HardSigmoid(Operation):
    """https://onnx.ai/onnx/operators/onnx__HardSigmoid.html."""


# Finite operands above a sixth of the largest number overflow in kernels that divide by 6 last.
@pointwise(
    torch=elementwise(functional.hardswish),
    interval=hard_swish,
    linear=curves.HARD_SWISH,
    kernel="HardSwish",
    valid=[ABOVE_MINUS_INFINITY],
)
class HardSwish(Operation):
    """https://onnx.ai/onnx/operators/onnx__HardSwish.html."""


_EXPONENT = AtMost("x", lambda dtype: log_of_largest(find_computed_type(dtype)), reason="", only_finite=True)


def _exponent_margin(op: Operation, operands: Operands) -> Tensor:
    margin = _EXPONENT.margin(op, operands)
    return margin if defines_softplus(op, operands["x"].dtype) else torch.full_like(margin, math.inf)


@pointwise(
    torch=elementwise(functional.softplus),
    interval=softplus,
    linear=curves.SOFTPLUS,
    kernel="Softplus",
    valid=[
        Condition(
            "exp(x) is finite where ONNX Runtime computes it (float64 and half precision at opset 18)",
            "exponential above the largest finite number",
            _exponent_margin,
            holds_of=lambda op, bounds: not bounds["output"].overflows,
        )
    ],
    overflow=False,
)
class Softplus(Operation):
    """https://onnx.ai/onnx/operators/onnx__Softplus.html."""


@pointwise(
    torch=elementwise(functional.softsign),
    interval=monotone(softsign),
    linear=curves.SOFTSIGN,
    kernel="Softsign",
    valid=[NotInfinite("x", "infinity divided by infinity")],
    overflow=False,
)
class Softsign(Operation):
    """https://onnx.ai/onnx/operators/onnx__Softsign.html."""


# PyTorch would round a threshold that half precision does not have.
@exact(
    torch=parametrised(lambda x, alpha: torch.where(x.double() > alpha, x, torch.zeros_like(x)), "alpha"),
    interval=thresholded_relu,
)
class ThresholdedRelu(Operation):
    """https://onnx.ai/onnx/operators/onnx__ThresholdedRelu.html."""


# Finite operands above half of the largest number overflow in some of PyTorch's kernels.
@pointwise(
    torch=lambda op, x: functional.gelu(x, approximate=op.approximate),
    interval=gelu,
    linear=lambda op: curves.GELU_TANH if op.approximate == "tanh" else curves.GELU,
    kernel=("Gelu", "Gelu tanh"),
    valid=[ABOVE_MINUS_INFINITY],
)
class Gelu(Operation):
    """https://onnx.ai/onnx/operators/onnx__Gelu.html."""


@pointwise(
    torch=elementwise(functional.mish),
    interval=piecewise(mish, turns=[MISH_TURN]),
    linear=None,
    kernel="Mish",
    valid=[ABOVE_MINUS_INFINITY],
    overflow=False,
)
class Mish(Operation):
    """https://onnx.ai/onnx/operators/onnx__Mish.html."""


def _swish_margin(op: Operation, operands: Operands) -> Tensor:
    x = operands["x"]
    constraint = NotInfinite("x", "", only_negative=op.alpha != 0)
    return constraint.margin(op, {"x": -x if op.alpha < 0 else x})


def _swish_holds(op: Operation, bounds: Bounds) -> bool:
    x = bounds["x"]
    below, above = bool((x.lower == -math.inf).any()), bool((x.upper == math.inf).any())
    return not (below and op.alpha >= 0) and not (above and op.alpha <= 0)


SCALED_ABOVE_MINUS_INFINITY = Condition(
    "alpha x > -inf", "infinity times zero", _swish_margin, needs_infinity=True, holds_of=_swish_holds
)


@pointwise(
    torch=parametrised(lambda x, alpha: x * torch.sigmoid(alpha * x), "alpha"),
    interval=swish,
    linear=lambda op: curves.SWISH if op.alpha == 1 else None,
    kernel="Swish",
    valid=[SCALED_ABOVE_MINUS_INFINITY],
    overflow=False,
)
class Swish(Operation):
    """https://onnx.ai/onnx/operators/onnx__Swish.html."""


def _shrink(x: Tensor, bias: float, lambd: float) -> Tensor:
    zero = torch.zeros_like(x)
    shrunk = torch.where(x > lambd, x - bias, zero)
    return torch.where(x < -lambd, x + bias, shrunk).to(x.dtype)


@total(torch=parametrised(_shrink, "bias", "lambd"), interval=shrink, linear=None, kernel=None)
class Shrink(Operation):
    """https://onnx.ai/onnx/operators/onnx__Shrink.html."""


def _fit_type(number: float | None, dtype: torch.dtype) -> float | None:
    """Return a bound as a type holds it: float32's largest number, which old opsets imply, is infinite in float16."""
    if number is None or not abs(number) > torch.finfo(dtype).max:
        return number
    return math.copysign(math.inf, number)


def _clip(op: Operation, x: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    if x.is_floating_point():
        # Twice as fast with numbers as with tensors.
        lowest, highest = (_fit_type(constant_scalar(bound, rank=x.ndim), x.dtype) for bound in (op.min, op.max))
        if (low is None or lowest is not None) and (high is None or highest is not None):
            return x if low is high is None else torch.clamp(x, lowest, highest)
    # The bounds of old opsets are float32 attributes whatever the type of x.
    bounds = [None if bound is None else bound.to(x.dtype) for bound in (low, high)]
    y: Tensor = by_order(torch.clamp)(x, *bounds) if any(b is not None for b in bounds) else x
    # Kernels take a bound of shape [1] for a number, whatever the rank of x.
    return y.reshape(x.shape) if y.ndim > x.ndim and y.numel() == x.numel() else y


@total(
    torch=_clip,
    interval=clip,
    linear=lambda op: curves.clip(curves.number_in(op.min, -math.inf), curves.number_in(op.max, math.inf)),
    kernel=None,
    overflow=False,
    operands=("x", "min", "max"),
    renamed={"input": "x"},
)
class Clip(Operation):
    """https://onnx.ai/onnx/operators/onnx__Clip.html."""
