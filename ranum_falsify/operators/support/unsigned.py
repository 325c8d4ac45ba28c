"""Unsigned integers: torch stores those of more than 8 bits, but few of its kernels take them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.order import SIGNED, make_ordered, restore


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
