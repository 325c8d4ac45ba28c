"""Comparisons, logic on booleans and on the bits of integers, and selection by booleans."""

from __future__ import annotations

import math
from functools import reduce

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.domain.rules.logic import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    compared,
    equal,
    logical,
    negate,
    shift_bits,
)
from ranum_falsify.domain.rules.shape import choose
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.path_conditions import guarded
from ranum_falsify.operators.support.families import exact, total
from ranum_falsify.operators.support.functions import by_order, elementwise, widened


@exact(torch=elementwise(torch.logical_and), interval=logical(torch.logical_and))
class And(Operation):
    """https://onnx.ai/onnx/operators/onnx__And.html."""


@exact(torch=elementwise(torch.logical_or), interval=logical(torch.logical_or))
class Or(Operation):
    """https://onnx.ai/onnx/operators/onnx__Or.html."""


@exact(torch=elementwise(torch.logical_xor), interval=logical(torch.logical_xor))
class Xor(Operation):
    """https://onnx.ai/onnx/operators/onnx__Xor.html."""


@exact(torch=elementwise(torch.logical_not), interval=negate)
class Not(Operation):
    """https://onnx.ai/onnx/operators/onnx__Not.html."""


@total(
    torch=elementwise(torch.where),
    interval=guarded(lambda site, condition, a, b: choose(condition, a, b)),
    linear=Affine(operands=("x", "y")),
    kernel=None,
    overflow=False,
)
class Where(Operation):
    """https://onnx.ai/onnx/operators/onnx__Where.html."""


def _shift_right_unsigned(x: Tensor, y: Tensor) -> Tensor:
    # The highest bit of a uint64 is the sign of the int64 with its bits, which the shift of signed integers repeats.
    low_bits = torch.iinfo(x.dtype).max >> (y - 1).clamp_min(0)
    return torch.where(y > 0, (x >> y) & low_bits, x)


def _shift(op: Operation, x: Tensor, y: Tensor) -> Tensor:
    if op.direction == "LEFT":
        return widened(torch.bitwise_left_shift)(x, y)
    return widened(_shift_right_unsigned if x.dtype is torch.uint64 else torch.bitwise_right_shift)(x, y)


@exact(torch=_shift, interval=shift_bits)
class BitShift(Operation):
    """https://onnx.ai/onnx/operators/onnx__BitShift.html."""


@exact(torch=elementwise(widened(torch.bitwise_and)), interval=bitwise_and)
class BitwiseAnd(Operation):
    """https://onnx.ai/onnx/operators/onnx__BitwiseAnd.html."""


@exact(torch=elementwise(widened(torch.bitwise_or)), interval=bitwise_or)
class BitwiseOr(Operation):
    """https://onnx.ai/onnx/operators/onnx__BitwiseOr.html."""


@exact(torch=elementwise(widened(torch.bitwise_xor)), interval=bitwise_xor)
class BitwiseXor(Operation):
    """https://onnx.ai/onnx/operators/onnx__BitwiseXor.html."""


@exact(torch=elementwise(widened(torch.bitwise_not)), interval=bitwise_not)
class BitwiseNot(Operation):
    """https://onnx.ai/onnx/operators/onnx__BitwiseNot.html."""


@exact(torch=elementwise(torch.eq), interval=equal)
class Equal(Operation):
    """https://onnx.ai/onnx/operators/onnx__Equal.html."""


@exact(torch=elementwise(by_order(torch.gt)), interval=compared(torch.gt))
class Greater(Operation):
    """https://onnx.ai/onnx/operators/onnx__Greater.html."""


@exact(torch=elementwise(by_order(torch.ge)), interval=compared(torch.ge))
class GreaterOrEqual(Operation):
    """https://onnx.ai/onnx/operators/onnx__GreaterOrEqual.html."""


@exact(torch=elementwise(by_order(torch.lt)), interval=compared(torch.lt))
class Less(Operation):
    """https://onnx.ai/onnx/operators/onnx__Less.html."""


@exact(torch=elementwise(by_order(torch.le)), interval=compared(torch.le))
class LessOrEqual(Operation):
    """https://onnx.ai/onnx/operators/onnx__LessOrEqual.html."""


def _is_inf(op: Operation, x: Tensor) -> Tensor:
    if op.detect_negative and op.detect_positive:
        return torch.isinf(x)
    if op.detect_negative:
        return torch.isneginf(x)
    return torch.isposinf(x) if op.detect_positive else torch.zeros_like(x, dtype=torch.bool)


def _is_inf_bounds(site: Site, x: Interval) -> Interval:
    asked = [(-math.inf, site.op.detect_negative), (math.inf, site.op.detect_positive)]
    counted = [number for number, detected in asked if detected]
    none = torch.zeros_like(x.lower, dtype=torch.bool)
    surely = reduce(torch.logical_or, ((x.lower == number) & (x.upper == number) for number in counted), none)
    return Interval(surely, reduce(torch.logical_or, (x.contains(number) for number in counted), none), x.shape)


@exact(torch=_is_inf, interval=infinity_aware(_is_inf_bounds))
class IsInf(Operation):
    """https://onnx.ai/onnx/operators/onnx__IsInf.html."""


def _is_nan_bounds(site: Site, x: Interval) -> Interval:
    # Only constants may be NaN without a fault; both infinities as bounds say so.
    maybe = (x.lower == -math.inf) & (x.upper == math.inf)
    return Interval(torch.zeros_like(maybe), maybe, x.shape)


@exact(torch=elementwise(torch.isnan), interval=infinity_aware(_is_nan_bounds))
class IsNaN(Operation):
    """https://onnx.ai/onnx/operators/onnx__IsNaN.html."""
