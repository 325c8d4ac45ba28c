"""Powers, roots, exponentials and logarithms."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import least_positive
from ranum_falsify.domain.linear import curves
from ranum_falsify.domain.rules.exponential import is_defined, power
from ranum_falsify.domain.rules.support.building import monotone
from ranum_falsify.domain.rules.support.real_functions import exponential, monotone_inside
from ranum_falsify.operators.support.families import pointwise, total
from ranum_falsify.operators.support.functions import constant_scalar, elementwise
from ranum_falsify.validity import (
    AtLeast,
    AtMost,
    Bounds,
    Condition,
    GreaterThan,
    InvalidRange,
    NotZero,
    Operands,
    log_of_largest,
    surely_zero,
)


@pointwise(
    torch=elementwise(torch.log),
    interval=monotone_inside(torch.log, least=least_positive),
    linear=curves.LOG,
    kernel="Log",
    valid=[GreaterThan("x", 0.0, reason="logarithm of a non-positive number")],
    overflow=False,
)
class Log(Operation):
    """https://onnx.ai/onnx/operators/onnx__Log.html."""


@pointwise(
    torch=elementwise(torch.exp),
    interval=exponential,
    linear=curves.EXP,
    kernel="Exp",
    valid=[AtMost("x", log_of_largest, reason="exponential above the largest finite number", only_finite=True)],
    overflow=False,
)
class Exp(Operation):
    """https://onnx.ai/onnx/operators/onnx__Exp.html."""


@pointwise(
    torch=elementwise(torch.sqrt),
    interval=monotone(torch.sqrt, above=0.0),
    linear=curves.SQRT,
    kernel="Sqrt",
    valid=[AtLeast("x", 0.0, reason="square root of a negative number")],
    gradient_valid=[GreaterThan("x", 0.0, reason="derivative of the square root at zero")],
    overflow=False,
)
class Sqrt(Operation):
    """https://onnx.ai/onnx/operators/onnx__Sqrt.html."""


@total(torch=elementwise(torch.erf), interval=monotone(torch.erf), linear=curves.ERF, kernel="Erf", overflow=False)
class Erf(Operation):
    """https://onnx.ai/onnx/operators/onnx__Erf.html."""


def _pow(op: Operation, x: Tensor, y: Tensor) -> Tensor:
    if not x.is_floating_point():
        # Integers to a negative or fractional power: computed in double, cut towards zero.
        return torch.pow(x.double(), y.double()).to(x.dtype)
    exponent = constant_scalar(op.y, rank=x.ndim)
    if exponent is not None:
        # torch has fast paths for numbers (squares, roots), none for tensors.
        return torch.pow(x, exponent)
    return torch.pow(x, y.to(x.dtype))


def _negative_base(op: Operation, operands: Operands) -> Tensor:
    x, y = operands["x"], operands["y"]
    if not (x.is_floating_point() and y.is_floating_point()):
        return _never(x, y)
    defined = (y == y.round()) | x.isinf()
    return torch.where(defined, math.inf, x)


def _exponent(operands: Operands) -> Tensor:
    y = operands["y"]
    # Of the unsigned integers torch compares only those of 8 bits.
    return y if y.is_floating_point() else y.double()


def _zero_base(op: Operation, operands: Operands) -> Tensor:
    x, y = operands["x"], _exponent(operands)
    if not x.is_floating_point():
        return _never(x, y)
    return torch.where((y < 0) & (y > -math.inf), NotZero("x", "").margin(op, operands), math.inf)


def _zero_base_crossing(op: Operation, operands: Operands) -> Tensor:
    x, y = operands["x"], _exponent(operands)
    return torch.where(y < 0, x.to(torch.result_type(x, 1.0)), 1.0)


def _steep(op: Operation, operands: Operands) -> Tensor:
    x, y = operands["x"], _exponent(operands)
    if not x.is_floating_point():
        return _never(x, y)
    return torch.where((y > 0) & (y < 1), NotZero("x", "").margin(op, operands), math.inf)


def _no_negative_base(op: Operation, bounds: Bounds) -> bool:
    x, y = bounds["x"], bounds["y"]
    return not (x.is_floating and y.is_floating) or bool(is_defined(x, y).all())


def _no_zero_base(op: Operation, bounds: Bounds) -> bool:
    x, y = bounds["x"], bounds["y"]
    return not x.is_floating or bool(((y.doubles()[0] >= 0) | ~x.contains(0)).all())


def _not_steep(op: Operation, bounds: Bounds) -> bool:
    x, y = bounds["x"], bounds["y"]
    least, greatest = y.doubles()
    return not x.is_floating or bool(((least >= 1) | (greatest <= 0) | ~x.contains(0)).all())


def _surely_negative_base(op: Operation, bounds: Bounds) -> bool:
    x, y = bounds["x"], bounds["y"]
    if not x.is_floating or y.dtype is not x.dtype:
        return False
    low, high = y.doubles()
    broken = low.ceil() > high.floor()
    return bool(((x.upper < 0) & (x.lower > -math.inf) & broken).any())


def _surely_zero_base(op: Operation, bounds: Bounds) -> bool:
    x, y = bounds["x"], bounds["y"]
    if not x.is_floating or (y.is_floating and y.dtype is not x.dtype):
        return False
    low, high = y.doubles()
    return bool((surely_zero(x) & (high < 0) & (low > -math.inf)).any())


def _surely_steep(op: Operation, bounds: Bounds) -> bool:
    x, y = bounds["x"], bounds["y"]
    if not x.is_floating or y.dtype is not x.dtype:
        return False
    low, high = y.doubles()
    return bool((surely_zero(x) & (low > 0) & (high < 1)).any())


def _negative_ranges(op: Operation, bounds: Bounds) -> Iterator[InvalidRange]:
    if bounds["x"].is_floating and bounds["y"].is_floating:
        yield InvalidRange("x", upper=0.0, is_open=True)


def _zero_ranges(op: Operation, bounds: Bounds) -> Iterator[InvalidRange]:
    if bounds["x"].is_floating:
        yield InvalidRange("x", lower=0.0, upper=0.0)


def _never(x: Tensor, y: Tensor) -> Tensor:
    shape = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))
    return torch.full(shape, math.inf, device=x.device)


@pointwise(
    torch=_pow,
    interval=power,
    linear=lambda op: curves.power(curves.number_in(op.y)),
    kernel="Pow",
    valid=[
        Condition(
            "x >= 0 where y is not an integer",
            "fractional power of a negative number",
            _negative_base,
            holds_of=_no_negative_base,
            fails_of=_surely_negative_base,
            beside_of=_negative_ranges,
        ),
        Condition(
            "x != 0 where y < 0",
            "negative power of zero",
            _zero_base,
            _zero_base_crossing,
            holds_of=_no_zero_base,
            fails_of=_surely_zero_base,
            beside_of=_zero_ranges,
        ),
    ],
    gradient_valid=[
        Condition(
            "x != 0 where 0 < y < 1",
            "derivative of a root at zero",
            _steep,
            holds_of=_not_steep,
            fails_of=_surely_steep,
            beside_of=_zero_ranges,
        )
    ],
)
class Pow(Operation):
    """https://onnx.ai/onnx/operators/onnx__Pow.html."""
