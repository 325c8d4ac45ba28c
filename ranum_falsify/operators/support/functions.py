"""Building blocks of rows: adapters from plain torch functions to `fn(op, *operands)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

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
        return reduce(function, operands)

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
    """Return an operand's value as a number if it is a constant of one element, else None.

    Args:
        value: The node's field, which holds an array where no input reaches the operand.
        rank: Rank of the other operand; a constant of a higher rank would add dimensions to the result.
    """
    if not isinstance(value, np.ndarray) or value.size != 1 or value.ndim > rank:
        return None
    number: float | int = value.item()
    return number


def flattened_before(opset: int, function: Callable[[Tensor, int], Tensor]) -> Callable[[Operation, Tensor], Tensor]:
    """Return the row function of an operator along an axis that, at older opsets, treats its operand as a matrix.

    Args:
        opset: Schema version from which `axis` is a single axis; before it, all axes from `axis` on
            together were the columns of a matrix (https://onnx.ai/onnx/operators/onnx__Softmax.html).
        function: `fn(x, dim)`, which keeps the shape.
    """

    def evaluate(op: Operation, x: Tensor) -> Tensor:
        if op.version >= opset:
            return function(x, op.axis)
        return function(x.flatten(op.axis), -1).reshape(x.shape) if x.ndim else function(x, 0)

    return evaluate


def ints(values: np.ndarray | tuple[int, ...] | None) -> list[int] | None:
    """Return a static operand or attribute as Python integers, None where absent."""
    return None if values is None else [int(v) for v in np.asarray(values).reshape(-1)]
