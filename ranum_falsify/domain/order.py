"""Comparing and moving values of every element type, including unsigned integers, for which torch has few kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""The signed type of the same size, for the unsigned types with which torch does not compute."""


def make_ordered(x: Tensor) -> Tensor:
    """Return values in a type that torch compares, in the same order; values of most types as they are.

    With the highest bit flipped, signed integers have the order of the unsigned ones of the same bits.
    """
    kind = SIGNED.get(x.dtype)
    return x if kind is None else x.view(kind) ^ torch.iinfo(kind).min


def restore(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return values from :func:`make_ordered` in their original type."""
    kind = SIGNED.get(dtype)
    return x if kind is None else (x ^ torch.iinfo(kind).min).view(dtype)


def apply_signed(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function that moves elements and writes no values but 0, whatever their type."""
    kind = SIGNED.get(x.dtype)
    return function(x) if kind is None else function(x.view(kind)).view(x.dtype)


def least(a: Tensor, b: Tensor) -> Tensor:
    """Return the elementwise minimum of two tensors of one type."""
    return restore(torch.minimum(make_ordered(a), make_ordered(b)), a.dtype)


def greatest(a: Tensor, b: Tensor) -> Tensor:
    """Return the elementwise maximum of two tensors of one type."""
    return restore(torch.maximum(make_ordered(a), make_ordered(b)), a.dtype)
