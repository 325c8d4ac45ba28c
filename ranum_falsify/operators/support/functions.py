"""Building blocks of rows: adapters from plain torch functions to `fn(op, *operands)`, unsigned integers included.

Torch stores unsigned integers of more than 8 bits, but few of its kernels take them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.order import SIGNED, make_ordered, restore
from ranum_falsify.network.registry import TorchFunction

_WIDER = {torch.uint16: torch.int64, torch.uint32: torch.int64, torch.uint64: torch.int64}
"""Types that torch can hold but hardly compute with; 64-bit arithmetic wraps to the same bits."""


def elementwise(function: Callable[..., Tensor]) -> TorchFunction:
    """Return a row function that ignores the node's attributes."""

    def evaluate(op: Operation, *operands: Tensor) -> Tensor:
        return function(*operands)

    return evaluate


def parametrised(function: Callable[..., Tensor], *attributes: str) -> TorchFunction:
    """Return a row function that passes the named attributes as further positional arguments."""

    def evaluate(op: Operation, *operands: Tensor) -> Tensor:
        return function(*operands, *(getattr(op, name) for name in attributes))

    return evaluate


def variadic(function: Callable[[Tensor, Tensor], Tensor]) -> TorchFunction:
    """Return a row function that folds a binary function over any number of operands, from the left."""

    def evaluate(op: Operation, *operands: Tensor) -> Tensor:
        return functools.reduce(function, operands)

    return evaluate


def widened(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function that also takes unsigned integers of 16, 32 and 64 bits, by way of int64.

    Exact for sums, products and bits; for quotients while the operands are below 2^63.
    """

    def evaluate(first: Tensor, *rest: Tensor | None) -> Tensor:
        dtype = first.dtype
        if dtype not in _WIDER:
            return function(first, *rest)
        operands = (None if x is None else x.to(_WIDER.get(x.dtype, x.dtype)) for x in (first, *rest))
        result = function(*operands)
        return result.to(dtype) if result.dtype is _WIDER[dtype] else result

    return evaluate


def constant_scalar(value: Operation | np.ndarray | None, *, rank: int) -> float | int | None:
    """Return the value of an operand's field if it is a constant of one element, else None.

    A constant of a higher rank than that of the other operand would add dimensions to the result.
    """
    if not isinstance(value, np.ndarray) or value.size != 1 or value.ndim > rank:
        return None
    number: float | int = value.item()
    return number


def flattened_before(opset: int, function: Callable[[Tensor, int], Tensor]) -> Callable[[Operation, Tensor], Tensor]:
    """Return the row function of an operator along an axis, given `fn(x, dim)`, which keeps the shape.

    Before an opset, all axes from `axis` on together were the columns of a matrix
    (https://onnx.ai/onnx/operators/onnx__Softmax.html).
    """

    def evaluate(op: Operation, x: Tensor) -> Tensor:
        if op.version >= opset:
            return function(x, op.axis)
        return function(x.flatten(op.axis), -1).reshape(x.shape) if x.ndim else function(x, 0)

    return evaluate


def ints(values: np.ndarray | tuple[int, ...] | None) -> list[int] | None:
    """Return a static operand or attribute as Python integers, None where absent."""
    return None if values is None else [int(v) for v in np.asarray(values).reshape(-1)]


# unsigned integers -----------------------------------------------------------------------------------------------


def moves_unsigned(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a row function that moves, adds, multiplies or compares elements take unsigned integers.

    Operands of the first one's type are read as the signed integers of the same bits, and the result is read back.
    Sums and products agree modulo the size of the type; for the reductions `max` and `min` the highest bit is
    flipped, which keeps the order.
    """

    @functools.wraps(function)
    def evaluate(op: Operation, x: Tensor, *rest: Any) -> Tensor:
        signed = SIGNED.get(x.dtype)
        if signed is None:
            return function(op, x, *rest)
        flipped = torch.iinfo(signed).min if getattr(op, "reduction", None) in ("max", "min") else 0
        same = [
            item.view(signed) ^ flipped if isinstance(item, Tensor) and item.dtype == x.dtype else item for item in rest
        ]
        return (function(op, x.view(signed) ^ flipped, *same) ^ flipped).view(x.dtype)

    return evaluate


def by_order(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function that compares or chooses among its operands, all of one type, that takes unsigned integers."""

    def evaluate(*operands: Tensor | None) -> Tensor:
        dtype = next(x.dtype for x in operands if x is not None)
        if dtype not in SIGNED:
            return function(*operands)
        result = function(*(None if x is None else make_ordered(x) for x in operands))
        return result if result.dtype is torch.bool else restore(result, dtype)

    return evaluate


def quotient(a: Tensor, b: Tensor) -> Tensor:
    """Return the quotient of two tensors of uint64, rounded down; a divisor of 0 counts as 1."""
    return _divide(a.view(torch.int64), b.view(torch.int64))[0].view(torch.uint64)


def remainder(a: Tensor, b: Tensor) -> Tensor:
    """Return the remainder of a division of two tensors of uint64; a divisor of 0 counts as 1."""
    return _divide(a.view(torch.int64), b.view(torch.int64))[1].view(torch.uint64)


def _divide(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return quotient and remainder of the unsigned integers whose bits are those of two tensors of int64."""
    lowest = torch.iinfo(torch.int64).min
    b = b + (b == 0)
    # Half of the dividend is not negative; twice its quotient is at most 1 too small.
    half = (a >> 1) & ~lowest
    doubled = torch.where(b < 0, 0, half // b.clamp(min=1) * 2)
    rest = a - doubled * b
    more = (rest ^ lowest) >= (b ^ lowest)
    return doubled + more, rest - torch.where(more, b, 0)
