"""Logic on booleans, selection by booleans, and logic on the bits of integers."""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.forms import Affine
from ranum_falsify.domain.rules.logic import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    logical,
    negate,
    shift_bits,
)
from ranum_falsify.domain.rules.shape import choose
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.guards import guarded
from ranum_falsify.operators.support.families import exact, total
from ranum_falsify.operators.support.functions import elementwise, widened

__all__ = ["And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Not", "Or", "Where", "Xor"]


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


def _where_bounds(site: Site, condition: Interval, a: Interval, b: Interval) -> Interval:
    return choose(condition, a, b)


@total(
    torch=elementwise(torch.where),
    interval=guarded(_where_bounds),
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
