"""Ranges of tensors, and the ways in which a search for wide ones changes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain import Interval
from ranum_falsify.network.tensors import to_numpy

Ranges = Mapping[str, Interval]
"""Bounds of tensors, by name."""

Ends = Literal["lower", "upper", "both"]
"""Which ends of a range move."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptRange:
    """The part of a tensor's range that a clip keeps.

    Attributes:
        tensor: Name of the tensor in the model.
        place: What it is.
        lower: Least value of each element, of the tensor's shape and dtype; of stride 0 where elements share it.
        upper: Greatest values, likewise.
        kept: Share of the width of the original range, mean over the elements that have one.
        least: That of the element that keeps the least.
    """

    tensor: str
    place: Literal["input", "weight", "tensor"]
    lower: np.ndarray
    upper: np.ndarray
    kept: float
    least: float

    @classmethod
    def of(cls, tensor: str, place: Literal["input", "weight", "tensor"], part: Interval, whole: Interval) -> KeptRange:
        """Return what a part keeps of a whole range."""
        lower, upper = (to_numpy(end) for end in part.expand())
        kept, least = share_kept(part, whole)
        return cls(tensor=tensor, place=place, lower=lower, upper=upper, kept=kept, least=least)

    @property
    def is_uniform(self) -> bool:
        """Whether one number bounds all elements from below, and one from above."""
        return all(bound.size > 0 and bool((bound == bound.flat[0]).all()) for bound in (self.lower, self.upper))


def share_kept(part: Interval, whole: Interval) -> tuple[float, float]:
    """Return the share of a range's width that a part of it has: mean over the elements, and the least of them.

    Elements with a single value do not count.
    """
    width = whole.upper.double() - whole.lower.double()
    ratio = (part.upper.double() - part.lower.double()) / width
    ratio, counted = torch.broadcast_tensors(ratio, width > 0)
    found = ratio[counted]
    return (float(found.mean()), float(found.amin())) if found.numel() else (1.0, 1.0)


def is_same(a: Interval, b: Interval) -> bool:
    """Tell whether two ranges are equal."""
    if a.lower is b.lower and a.upper is b.upper:
        return True
    return bool((a.lower == b.lower).all()) and bool((a.upper == b.upper).all())


def pin(whole: Interval, value: Tensor) -> Interval:
    """Return the single value of a range that is nearest to one.

    Args:
        whole: The range.
        value: In the range's stored shape, or a shape that broadcasts to it.
    """
    inside = torch.minimum(torch.maximum(value.to(whole.dtype), whole.lower), whole.upper)
    return Interval.of(inside, inside, whole.shape)


def stretch(part: Interval, whole: Interval, fraction: float | Tensor, ends: Ends) -> Interval:
    """Return a part of a range with its ends moved outward.

    Args:
        part: The part.
        whole: The range.
        fraction: Share of the way to the ends of the range, for all elements or for each.
        ends: Which ends move.
    """
    lower = part.lower if ends == "upper" else _move(part.lower, whole.lower, fraction)
    upper = part.upper if ends == "lower" else _move(part.upper, whole.upper, fraction)
    return Interval.of(lower, upper, whole.shape)


def _move(end: Tensor, limit: Tensor, fraction: float | Tensor) -> Tensor:
    """Move an end towards a limit, in whole steps for integers, and not beyond."""
    if isinstance(fraction, float) and fraction >= 1:
        return limit
    near, far, share = end.double(), limit.double(), torch.as_tensor(fraction, dtype=torch.float64)
    distance = share * (far - near)
    rounded = (near + (distance if end.is_floating_point() else distance.trunc())).to(end.dtype)
    between = torch.minimum(torch.maximum(rounded, torch.minimum(end, limit)), torch.maximum(end, limit))
    return torch.where(share >= 1, limit, torch.where(share <= 0, end, between))


def join(first: Interval, second: Interval, axis: int) -> Interval:
    """Return the first range on one half of an axis, and the second on the other."""
    size = first.shape[axis]
    shape = [1] * len(first.shape)
    shape[axis] = size
    of_first = (torch.arange(size) < math.ceil(size / 2)).reshape(shape)
    lower = torch.where(of_first, first.lower, second.lower)
    return Interval.of(lower, torch.where(of_first, first.upper, second.upper), first.shape)
