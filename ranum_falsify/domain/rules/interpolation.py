"""Elements read between places: weighted sums of neighbours, with weights that places in the operand's plane choose.

Where the weights are not negative and add up to at most 1, results lie in the hull of what may be read, whatever the
places are.  Where the places are known, the neighbours are, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import TypeAlias

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import COORDINATE_ROUNDINGS, accumulation, gamma, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.shape import collapse

_Sample: TypeAlias = Callable[[Tensor, Tensor], Tensor]

_CUBIC = 1.375**3
"""Cubic weights along one axis add up to 1, their magnitudes to at most 1.375."""

_FAR = 2.0**30
"""Places beyond this may not fit into the integers by which kernels read."""


def bound_anything(shape: tuple[int, ...], dtype: torch.dtype) -> Interval:
    """Return bounds where places overflow: kernels then give anything, NaN too."""
    if not dtype.is_floating_point:
        return Interval.top(shape, dtype)
    return replace(Interval.fill(-math.inf, math.inf, shape, dtype), nan=True, overflows=True)


def largest_place(grid: Interval, sizes: tuple[int, ...]) -> float:
    """Return how far from the operand's plane normalised places may lie, in elements."""
    low, high = grid.extremes
    return (max(abs(low), abs(high)) + 1) * max(*sizes, 1)


def average_anywhere(x: Interval, shape: tuple[int, ...], *, terms: int, zero: bool, dims: tuple[int, ...]) -> Interval:
    """Return bounds of means of elements, or of elements and zeros, at any places.

    Args:
        x: The operand.
        shape: Shape of the result, of as many dimensions.
        terms: The largest number of elements that are added up before they are divided by their number.
        zero: Whether zeros may be among them.
        dims: Dimensions of the operand along which anything may be read.
    """
    whole = collapse(x, *dims)
    low, high = whole.doubles()
    if zero:
        low, high = low.clamp(max=0), high.clamp(min=0)
    work = accumulation(x.dtype)
    size = torch.maximum(low.abs(), high.abs())
    # Weights are products of differences from 1; halves may be rounded once more.
    error = size * (gamma(terms + 16, work) + 4 * unit(x.dtype)) + 4 * terms * tiny(work)
    below, above = low - error, high + error
    below, above = torch.where(low >= 0, below.clamp(min=0), below), torch.where(high <= 0, above.clamp(max=0), above)
    overflows = bool((size * terms * 1.01 > torch.finfo(work).max).any())
    return replace(round_outward(below, above, x.dtype, shape), overflows=overflows)


def interpolate(
    sample: _Sample,
    x: Interval,
    grid: Interval,
    *,
    mode: str,
    padding: str,
    shape: tuple[int, ...],
) -> Interval:
    """Return bounds of elements read at normalised places, as `torch.nn.functional.grid_sample` does.

    Args:
        sample: Reads float64 elements at float64 places.
        x: The operand, `(batch, channels, *spatial)`.
        grid: Places, `(batch, *sizes, axes)`.
        mode: `nearest`, `linear` or `cubic`.
        padding: What lies outside the operand: `zeros`, its `border`, or its `reflection`.
        shape: Shape of the result.
    """
    sizes = x.shape[2:]
    if not math.prod(shape) or not x.size:
        return Interval.top(shape, x.dtype)
    far = largest_place(grid, sizes)
    # Where not all integers are numbers, a place plus 1 may be the place.
    coarse = far > 1 / unit(accumulation(x.dtype))
    # Reflected places may then lie outside the operand.
    if far > _FAR or (coarse and padding == "reflection"):
        return bound_anything(shape, x.dtype)
    dims = tuple(range(2, len(x.shape)))
    doubt = COORDINATE_ROUNDINGS * unit(x.dtype) * far
    anywhere = _anywhere(x, shape, mode, padding == "zeros", dims)
    if coarse and mode == "linear":
        # The two weights along an axis are the distances to the integers around the place: 0 and 0, or 2 and 0.
        return _scale_up(anywhere, 2.0 ** len(dims))
    if not grid.is_point or doubt > 0.1:
        return anywhere
    places = grid.expand()[0].double()
    if mode == "nearest":
        return _read_nearest(sample, x, list(_places_near(places, doubt, sizes)), shape)
    known = _read_between(sample, x, places, doubt, mode, shape)
    return replace(known.meet(anywhere), nan=anywhere.nan, overflows=anywhere.overflows)


def _read_nearest(sample: _Sample, x: Interval, places: list[Tensor], shape: tuple[int, ...]) -> Interval:
    low, high = (end.expand(x.shape) for end in x.doubles())
    least = reduce(torch.minimum, (sample(low, place) for place in places))
    greatest = reduce(torch.maximum, (sample(high, place) for place in places))
    return Interval.of(least.to(x.dtype), greatest.to(x.dtype), shape)


def _read_between(
    sample: _Sample, x: Interval, places: Tensor, doubt: float, mode: str, shape: tuple[int, ...]
) -> Interval:
    """Return bounds of elements read at known places, off by at most `doubt`."""
    dims = tuple(range(2, len(x.shape)))
    low, high = (end.expand(x.shape) for end in x.doubles())
    size = torch.maximum(low.abs(), high.abs()).amax(dims, keepdim=True)
    # Along each axis, places off by `doubt` read up to twice the largest element times it elsewhere.
    error = size * (_CUBIC if mode == "cubic" else 1.0) * (len(dims) * 4 * doubt + 64 * unit(x.dtype))
    error = error + _find_lost(mode, len(dims), x.dtype) * (size > 0)
    if mode == "cubic":
        centre, radius = low + (high - low) / 2, ((high - low) / 2).amax(dims, keepdim=True) * _CUBIC
        least = greatest = sample(centre, places)
        error = error + radius
    else:
        least, greatest = sample(low, places), sample(high, places)
    return round_outward(_fill(least - error, -math.inf), _fill(greatest + error, math.inf), x.dtype, shape)


def _scale_up(y: Interval, most: float) -> Interval:
    """Return bounds of the products of results with any number from 0 to `most`."""
    low, high = y.doubles()
    scaled = round_outward((low * most).clamp(max=0), (high * most).clamp(min=0), y.dtype, y.shape)
    return replace(scaled, nan=y.nan, overflows=y.overflows or scaled.may_be_infinite)


def _fill(end: Tensor, unknown: float) -> Tensor:
    """Return bounds with a number where doubles overflowed on the way, so that nothing is known."""
    return end.nan_to_num(unknown, math.inf, -math.inf)


def _places_near(places: Tensor, doubt: float, sizes: tuple[int, ...]) -> Iterator[Tensor]:
    """Yield places among which are those with the elements that are nearest to any place closer than `doubt`."""
    steps = torch.tensor([2 * doubt / size for size in reversed(sizes)], dtype=torch.float64)
    for signs in product((-1.0, 0.0, 1.0), repeat=len(sizes)):
        yield places + torch.tensor(signs, dtype=torch.float64) * steps


def _find_lost(mode: str, axes: int, dtype: torch.dtype) -> float:
    """Return the most that sums of weighted neighbours, along all axes, lose to underflow."""
    return float(4 * (4 if mode == "cubic" else 2) ** axes * tiny(accumulation(dtype)))


def _anywhere(x: Interval, shape: tuple[int, ...], mode: str, zero: bool, dims: tuple[int, ...]) -> Interval:
    if mode != "cubic":
        return average_anywhere(x, shape, terms=1 if mode == "nearest" else 2 ** len(dims), zero=zero, dims=dims)
    whole = collapse(x, *dims)
    low, high = whole.doubles()
    size = torch.maximum(low.abs(), high.abs())
    size = size * (_CUBIC * 1.001) + _find_lost(mode, len(dims), x.dtype) * (size > 0)
    y = round_outward(-size, size, x.dtype, shape)
    # Along the way, rows of opposite infinite sums may cancel.
    return replace(y, nan=y.may_be_infinite, overflows=y.may_be_infinite)
