"""Sums of products of integers, which are exact or wrap; and parts that all sums of products share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval, dtype_range

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""`product(a, b, c)`: a map that is linear in a and in b, plus c, and rises in each if the other is not negative.

It takes tensors of the operands' stored shapes, and as c a tensor of the bias's stored shape or a single number.
"""

EXACT = 2.0**52
"""Integers below this are exact in float64, and so are their halves."""


def integer_product(
    product: Product, a: Interval, b: Interval, terms: int, shape: tuple[int, ...], bias: Interval | None
) -> Interval:
    """Return bounds on sums of integers: exact, or everything where they may leave the type and wrap."""
    dtype, operands = a.dtype, [x for x in (a, b, bias) if x is not None]
    largest = [max(largest_of(x), 1.0) for x in operands]
    if 8 * terms * largest[0] * largest[1] + sum(largest[2:]) >= EXACT:
        return Interval.top(shape, dtype)
    balls = []
    for x in operands:
        low, high = x.doubles()
        balls.append(((low + high) / 2, (high - low) / 2))
    (centre_a, radius_a), (centre_b, radius_b), *rest = balls
    shift, spread = rest[0] if rest else (None, None)
    centre = product(centre_a, centre_b, shift)
    radius = product(centre_a.abs(), radius_b, spread) + product(radius_a, centre_b.abs() + radius_b, None)
    least, greatest = dtype_range(dtype)
    # The enclosure of an odd sum of halves may end between two integers.
    low, high = (centre - radius).ceil(), (centre + radius).floor()
    wraps = (low < least) | (high > greatest)
    low, high = torch.where(wraps, float(least), low), torch.where(wraps, float(greatest), high)
    if dtype in (torch.int64, torch.uint64) and bool(wraps.any()):
        return Interval.top(shape, dtype)
    return Interval.of(low.to(dtype), high.to(dtype), shape)


def largest_of(x: Interval) -> float:
    """Return the greatest magnitude of an element."""
    low, high = x.extremes
    return max(abs(low), abs(high)) if low <= high else 0.0
