"""Points of a box on which ONNX Runtime is watched: those at which wrong bounds show, the cheapest first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ranum_falsify.network.tensors import stored_once
from ranum_falsify.properties.problem.problem import InputVariable

__all__ = ["make_points"]

_MOST = 64
"""Points of a box that is more than a point."""

_SPARSE = 3
"""About how many elements of a sparse point are off the centre."""

_SPECIAL = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)
"""Where functions have kinks, zeros and poles; with the neighbours of the ends, and of 0."""

Point = Mapping[str, np.ndarray]
Choice = Callable[[np.ndarray, np.ndarray, tuple[int, ...]], np.ndarray]
"""Returns numbers between stored ends, for a shape."""


def make_points(variables: Sequence[InputVariable]) -> Iterator[Point]:
    """Yield points of a box: one that is cheap to run; its ends, a corner, and points of all kinds in turn."""
    ends = [(v, stored_once(v.lower), stored_once(v.upper)) for v in variables]

    def choose(point: Choice) -> Point:
        return {v.name: np.broadcast_to(point(lower, upper, v.shape), v.shape) for v, lower, upper in ends}

    yield choose(lambda lower, upper, shape: _choose_plain(lower, upper))
    if all(bool((lower == upper).all()) for _, lower, upper in ends):
        return
    yield choose(lambda lower, upper, shape: lower)
    yield choose(lambda lower, upper, shape: upper)
    rng = np.random.default_rng(0)

    def corner(lower: np.ndarray, upper: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return np.where(rng.random(shape) < 0.5, lower, upper)

    def uniform(lower: np.ndarray, upper: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return _between(lower, upper, rng.random(shape))

    def special(lower: np.ndarray, upper: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        known = [np.broadcast_to(x, shape) for x in _list_special(lower, upper)]
        return np.asarray(np.choose(rng.integers(len(known), size=shape), known), lower.dtype)

    def sparse(lower: np.ndarray, upper: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        off = rng.random(shape) * max(1, math.prod(shape)) < _SPARSE
        return np.where(off, uniform(lower, upper, shape), _between(lower, upper, 0.5))

    def constant(lower: np.ndarray, upper: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return _between(lower, upper, rng.random())

    yield choose(corner)
    kinds: Sequence[Choice] = (uniform, special, uniform, sparse, uniform, corner, uniform, special, uniform, constant)
    for number in range(_MOST - 4):
        yield choose(kinds[number % len(kinds)])


def _list_special(lower: np.ndarray, upper: np.ndarray) -> Iterator[np.ndarray]:
    dtype = lower.dtype
    numbers = _SPECIAL if dtype.kind in "fV" else (0, 1, 2) if dtype.kind == "u" else (0, 1, -1, 2)
    for number in numbers if dtype.kind != "b" else ():
        yield np.clip(np.asarray(number, dtype), lower, upper)
    if dtype.kind in "fV":
        yield np.clip(np.nextafter(lower, upper), lower, upper)
        yield np.clip(np.nextafter(upper, lower), lower, upper)
        zero = np.zeros_like(lower)
        yield np.clip(np.nextafter(zero, np.ones_like(lower)), lower, upper)
    yield lower
    yield upper


def _choose_plain(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return the centre, or 1 of integers, as near as the bounds allow: they may be how often a loop runs."""
    if lower.dtype.kind not in "iu":
        return _between(lower, upper, 0.5)
    return np.asarray(np.clip(np.ones_like(lower), lower, upper))


def _between(lower: np.ndarray, upper: np.ndarray, share: float | np.ndarray) -> np.ndarray:
    """Return values at a share of the way from the lower to the upper bound."""
    dtype = lower.dtype
    if dtype.kind in "iu":
        span = _span(lower, upper)
        bits = span.dtype
        step = np.minimum(np.floor(span * share), np.nextafter(np.float64(2.0 ** (8 * bits.itemsize)), 0)).astype(bits)
        return np.asarray((lower.view(bits) + np.minimum(step, span)).view(dtype))
    wide = np.promote_types(dtype, np.float32)
    part = np.asarray(share, wide)
    with np.errstate(invalid="ignore"):  # infinite ends, where both are the same
        middle = lower.astype(wide) * (1 - part) + upper.astype(wide) * part
    return np.asarray(np.clip(np.where(np.isnan(middle), lower, middle), lower, upper), dtype)


def _span(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return how far the ends of integers lie apart, unsigned: there, differences that wrap around are right."""
    bits = np.dtype(f"u{lower.dtype.itemsize}")
    return np.asarray(upper.view(bits) - lower.view(bits))
