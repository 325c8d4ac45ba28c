"""Moving, joining and choosing elements of bounds; dimensions that stay uniform stay merged.

Dimensions count from 0.  Everything here is exact, except for hulls over positions that depend on the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ranum_falsify.domain.interval import Interval, find_shared_gap
from ranum_falsify.domain.order import SIGNED, apply_signed, greatest, least, make_ordered, restore
from ranum_falsify.domain.rules.support.building import infinity_aware, keeping_infinity, unknown
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.network.registry import spec_of


def make_placeholder(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor of a shape with one stored element, from which a row function reads the sizes."""
    return torch.zeros((), dtype=dtype).expand(tuple(shape))


def rearrange(x: Interval, function: Callable[[Tensor], Tensor], shape: Sequence[int]) -> Interval:
    """Return bounds whose stored tensors a function makes from the given ones.

    Args:
        x: Bounds.
        function: Moves, repeats or drops elements; merged dimensions come at size 1.
        shape: Shape that the results stand for.
    """
    low = apply_signed(x.lower, function)
    high = low if x.upper is x.lower else apply_signed(x.upper, function)
    return Interval(low, high, tuple(shape), gap=x.gap)


# shapes ---------------------------------------------------------------------------------------------------------


def reshape(x: Interval, shape: Sequence[int]) -> Interval:
    """Return the same elements in another shape; merged dimensions stay merged unless their elements are separated.

    Raises:
        ValueError: The shape has another number of elements.
    """
    if math.prod(shape) != x.size:
        raise ValueError(f"{x.size} elements do not fill a shape of {tuple(shape)}")
    if not x.size:
        return x.move(lambda bound: bound.reshape(tuple(shape)))
    mixed, stored = list[int](), list[int]()
    for old, new in _groups(x.shape, shape):
        if all(x.lower.shape[dim] == 1 for dim in old):
            stored += [1] * len(new)
            continue
        stored += [shape[dim] for dim in new]
        mixed += old
    return rearrange(x.split(*mixed), lambda bound: bound.reshape(stored), shape)


def _groups(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[range, range]]:
    """Yield the smallest runs of dimensions, old and new, that hold the same elements."""
    i = j = 0
    while i < len(old) or j < len(new):
        first, second = i, j
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while (before := math.prod(old[first:i])) != (after := math.prod(new[second:j])):
            i, j = (i + 1, j) if before < after else (i, j + 1)
        yield range(first, i), range(second, j)


def reshaping(function: Callable[..., Tensor]) -> IntervalRule:
    """Return the rule of an operator that gives its first operand another shape.

    Args:
        function: The row's torch function, `fn(op, x, *static)`.
    """

    def rule(site: Site, x: Interval, *rest: object) -> Interval:
        return reshape(x, tuple(function(site.op, make_placeholder(x.shape), *rest).shape))

    return keeping_infinity(rule)


def tile(x: Interval, repeats: Sequence[int]) -> Interval:
    """Return bounds repeated along each dimension."""
    shape = tuple(size * times for size, times in zip(x.shape, repeats, strict=True))
    stored = [times if size > 1 else 1 for size, times in zip(x.lower.shape, repeats, strict=True)]
    return rearrange(x, lambda bound: bound.repeat(stored), shape)


# parts ----------------------------------------------------------------------------------------------------------


def cut(x: Interval, ranges: Sequence[range]) -> Interval:
    """Return the positions of each dimension that a range holds, in its order."""
    index, flipped = list[slice](), list[int]()
    for dim, (kept, stored) in enumerate(zip(ranges, x.lower.shape, strict=True)):
        if stored == 1 or kept == range(stored):
            index.append(slice(None))
            continue
        if kept.step < 0 and len(kept):
            flipped.append(dim)
            kept = kept[::-1]
        index.append(slice(kept[0], kept[-1] + 1, kept.step) if len(kept) else slice(0, 0))

    def function(bound: Tensor) -> Tensor:
        bound = bound[tuple(index)]
        return bound.flip(flipped) if flipped else bound

    return rearrange(x, function, [len(kept) for kept in ranges])


def narrow(x: Interval, dim: int, start: int, length: int) -> Interval:
    """Return the positions `start` to `start + length` of one dimension."""
    return cut(x, [range(start, start + length) if d == dim else range(n) for d, n in enumerate(x.shape)])


def take(x: Interval, dim: int, index: Tensor) -> Interval:
    """Return the known positions of one dimension, whose place the dimensions of the index take.

    Args:
        x: Bounds.
        dim: The dimension.
        index: Positions from 0, int64, of any shape.
    """
    shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    stored = x.lower.shape
    merges = stored[dim] == 1
    place = (1,) * index.ndim if merges else tuple(index.shape)
    form = (*stored[:dim], *place, *stored[dim + 1 :])
    if merges:
        return rearrange(x, lambda bound: bound.reshape(form), shape)
    return rearrange(x, lambda bound: bound.index_select(dim, index.reshape(-1)).reshape(form), shape)


def collapse(x: Interval, *dims: int) -> Interval:
    """Return bounds on any element along dimensions, merged along them; none of them may have size 0."""
    real = [dim for dim in dims if x.lower.shape[dim] > 1]
    if not real:
        return x
    low = restore(make_ordered(x.lower).amin(real, keepdim=True), x.dtype)
    high = restore(make_ordered(x.upper).amax(real, keepdim=True), x.dtype)
    return replace(x, lower=low, upper=high)


# joining --------------------------------------------------------------------------------------------------------


def join(parts: Sequence[Interval], dim: int) -> Interval:
    """Return bounds of tensors one after another along a dimension, which stays merged if all are equal."""
    shape = list(parts[0].shape)
    shape[dim] = sum(part.shape[dim] for part in parts)
    parts = [part for part in parts if part.shape[dim]] or list(parts[:1])
    gap = find_shared_gap(*parts)
    first = parts[0]
    if all(part.lower.shape == first.lower.shape and part.lower.shape[dim] == 1 for part in parts) and all(
        torch.equal(part.lower, first.lower) and torch.equal(part.upper, first.upper) for part in parts[1:]
    ):
        return Interval(first.lower, first.upper, tuple(shape), gap=gap)
    apart = [d for d in range(len(shape)) if d == dim or any(part.lower.shape[d] > 1 for part in parts)]
    parts = [part.split(*apart) for part in parts]
    low = torch.cat([part.lower for part in parts], dim)
    known = all(part.upper is part.lower for part in parts)
    return Interval(low, low if known else torch.cat([part.upper for part in parts], dim), tuple(shape), gap=gap)


def pad(x: Interval, before: Sequence[int], after: Sequence[int], value: float | int) -> Interval:
    """Return bounds with a number around them; negative widths cut."""
    sizes = zip(x.shape, before, after, strict=True)
    kept = [range(max(-b, 0), max(n + min(a, 0), max(-b, 0))) for n, b, a in sizes]
    x = cut(x, kept)
    front, back = [max(b, 0) for b in before], [max(a, 0) for a in after]
    wide = [dim for dim, widths in enumerate(zip(front, back, strict=True)) if any(widths)]
    if not wide:
        return x
    if math.isnan(value):
        low, high = (pad(x, before, after, end) for end in (-math.inf, math.inf))
        return Interval.of(low.lower, high.upper, low.shape, nan=True)
    shape = tuple(b + n + a for b, n, a in zip(front, x.shape, back, strict=True))
    filling = torch.full((), value, dtype=x.dtype)
    if x.is_scalar and bool((x.lower == filling).all() and (x.upper == filling).all()):
        return replace(x, shape=shape)
    number = filling.view(SIGNED.get(x.dtype, x.dtype)).item()
    flat = [width for dim in reversed(range(len(shape))) for width in (front[dim], back[dim])]
    padding = rearrange(x.split(*wide), lambda bound: F.pad(bound, flat, value=number), shape)
    return replace(padding, gap=find_shared_gap(x, Interval(filling, filling, ())) if value else 0.0)


# choosing -------------------------------------------------------------------------------------------------------


def choose(condition: Interval, a: Interval, b: Interval) -> Interval:
    """Return bounds of elements of `a` where a condition holds, of `b` where it does not, of both if it may do either.

    Args:
        condition: Bounds of booleans.
        a: Bounds of the elements taken where it is true.
        b: Bounds of the elements taken elsewhere.
    """
    shape = tuple(np.broadcast_shapes(condition.shape, a.shape, b.shape))
    always, never = condition.lower, ~condition.upper
    if bool(always.all()):
        return _broadcast(a, shape)
    if bool(never.all()):
        return _broadcast(b, shape)
    if not bool(always.any()) and not bool(never.any()):
        return _broadcast(a.hull(b), shape)
    low = torch.where(always, a.lower, torch.where(never, b.lower, least(a.lower, b.lower)))
    known = condition.is_point and a.lower is a.upper and b.lower is b.upper
    high = low if known else torch.where(always, a.upper, torch.where(never, b.upper, greatest(a.upper, b.upper)))
    return replace(Interval.of(low, high, shape), gap=find_shared_gap(a, b))


def _broadcast(x: Interval, shape: tuple[int, ...]) -> Interval:
    return replace(Interval.of(x.lower, x.upper, shape), gap=x.gap)


def _read_known(x: Interval | np.ndarray | None) -> Tensor | np.ndarray | None:
    return x.expand()[0] if isinstance(x, Interval) else x


def evaluate(site: Site, *operands: Interval | np.ndarray | None) -> tuple[Interval, ...]:
    """Return the result of an operator for known operands, or for shapes if it reads no more than those; a rule."""
    spec = spec_of(site.op)
    if spec.shape_only:
        sizes = (make_placeholder(x.shape, x.dtype) if isinstance(x, Interval) else x for x in operands)
        results = spec.torch(site.op, *sizes)
    elif all(not isinstance(x, Interval) or x.is_point for x in operands):
        results = spec.torch(site.op, *(_read_known(x) for x in operands))
    else:
        return unknown(site)
    return tuple(Interval.point(y) for y in (results if isinstance(results, tuple) else (results,)))


infinity_aware(evaluate)
