"""Sections of a tensor that are reduced together, as the last dimension of a matrix; merged dimensions stay merged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval, dtype_range


@dataclass(frozen=True, kw_only=True)
class Sections:
    """Bounds of shape `(..., stored)`: elements that are reduced together lie along the last dimension.

    Attributes:
        lower: Least values, float64, finite or -Inf.
        upper: Greatest values.
        copies: How many elements of the section each stored one stands for.
        dtype: Type of the tensor.
        dims: Dimensions of the tensor that make up a section.
        stored: Stored shape of the tensor's bounds.
    """

    lower: Tensor
    upper: Tensor
    copies: int
    dtype: torch.dtype
    dims: tuple[int, ...]
    stored: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements of a section."""
        return self.copies * self.lower.shape[-1]

    @property
    def magnitude(self) -> Tensor:
        """Greatest absolute value in each section, `(..., 1)`."""
        return torch.maximum(self.lower.abs(), self.upper.abs()).amax(-1, keepdim=True)

    def total(self, values: Tensor) -> Tensor:
        """Return the sum of values over all elements of each section, `(..., 1)`."""
        return values.sum(-1, keepdim=True) * self.copies

    def restore(self, values: Tensor) -> Tensor:
        """Return values of shape `(..., stored)` or `(..., 1)` with the dimensions that the tensor has."""
        order = _order(self.dims, len(self.stored))
        sizes = [self.stored[dim] for dim in order]
        if values.shape[-1] == 1:
            sizes = [1 if dim in self.dims else self.stored[dim] for dim in order]
        inverse = [order.index(dim) for dim in range(len(order))]
        return values.reshape(sizes).permute(inverse)


def sections(x: Interval, dims: Sequence[int]) -> Sections:
    """Return the sections of a tensor along some dimensions; the greatest finite number stands for infinity.

    Args:
        x: Bounds of a tensor that has elements.
        dims: The dimensions to reduce, negative ones counted from the end; none for sections of one element.
    """
    rank = len(x.shape)
    reduced = tuple(sorted(dim % rank for dim in dims)) if rank else ()
    order = _order(reduced, rank)
    greatest = dtype_range(x.dtype)[1]
    low, high = (bound.clamp(max=greatest) for bound in x.doubles())
    kept = [x.lower.shape[dim] for dim in order[: rank - len(reduced)]]
    return Sections(
        lower=low.permute(order).reshape(*kept, -1),
        upper=high.permute(order).reshape(*kept, -1),
        copies=math.prod(x.shape[dim] // x.lower.shape[dim] for dim in reduced),
        dtype=x.dtype,
        dims=reduced,
        stored=tuple(x.lower.shape),
    )


def _order(dims: Sequence[int], rank: int) -> list[int]:
    return [dim for dim in range(rank) if dim not in dims] + list(dims)
