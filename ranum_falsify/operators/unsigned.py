"""Unsigned integers in data movement: torch stores them, but few of its kernels move them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.order import SIGNED

__all__ = ["SIGNED", "moves_unsigned"]


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
