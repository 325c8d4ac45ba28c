"""Boxes that are hard for rules, and points in them on which runtimes run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = ["CENTRES", "MASKS", "SIDES", "WIDTHS", "Array", "Box", "Feeds", "Recipe"]
__all__ += ["box", "is_float", "points", "recipes"]

Array = NDArray[Any]
Feeds = Mapping[str, Array]
Box = tuple[dict[str, Array], dict[str, Array]]
"""Lower and upper bounds by name of the input."""

CENTRES = ("own", "zero", "border", "scaled", "denormal", "huge")
WIDTHS = ("none", "ulp", "tiny", "small", "one", "wide", "relative", "everything")
SIDES = ("both", "above", "below", "to zero", "symmetric")
MASKS = ("none", "points", "below", "above", "positive points")
_WIDTHS = {"none": 0.0, "small": 1e-2, "one": 1.0, "wide": 8.0}
# Ends of ranges on which functions turn, overflow, saturate or are defined.
_BORDERS = (
    *(0.5, 1.0, 2.0, 3.0, np.pi / 2, np.pi, 2 * np.pi, 0.7978845608, 11.09, 12.0, 15.83, 16.0, 20.0, 87.3, 88.0),
    *(88.7228, 103.97, 104.0, 255.0, 709.78, 65504.0, 16777216.0, 1.8446743e19, 127.0, 0.2785, 1.2784645),
)


def is_float(x: Array) -> bool:
    """Tell whether an array holds floating-point numbers, bfloat16 among them."""
    return x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16


def _limits(x: Array) -> tuple[float, float]:
    """Return the smallest normal and the largest finite number of an array's type."""
    limits = ml_dtypes.finfo(x.dtype)  # type: ignore[no-untyped-call]
    return float(limits.tiny), float(limits.max)


@dataclass(frozen=True)
class Recipe:
    """How the bounds of one floating operand are laid around its values.

    Attributes:
        centre: The values around which bounds lie.
        width: The distance between the bounds.
        side: The side of the centre on which they lie.
        uniform: Whether all elements have the same bounds.
        alike: Whether all elements have the same width.
        mask: Which elements are infinite.
    """

    centre: str = "own"
    width: str = "one"
    side: str = "both"
    uniform: bool = False
    alike: bool = True
    mask: str = "none"

    def bounds(self, x: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return lower and upper bounds of the shape and dtype of an operand."""
        smallest, greatest = _limits(x)
        with np.errstate(all="ignore"):
            centre = self._centre(x.astype(np.float64), greatest, smallest, rng)
            low, high = self._ends(centre, x.dtype, greatest, rng)
            if self.uniform and x.size:
                low, high = (np.full_like(end, end.reshape(-1)[0]) for end in (low, high))
            return self._masked(np.minimum(low, high), np.maximum(low, high), rng)

    def _centre(self, x: Array, greatest: float, smallest: float, rng: np.random.Generator) -> Array:
        sign = rng.choice((-1.0, 1.0), size=x.shape)
        x = np.nan_to_num(x, nan=0.0, posinf=greatest, neginf=-greatest)
        if self.centre == "zero":
            return np.zeros_like(x)
        if self.centre == "border":
            return np.asarray(sign * rng.choice(_BORDERS, size=x.shape))
        if self.centre == "scaled":
            return np.asarray(x * 10.0 ** (np.log10(greatest) * rng.uniform(-0.9, 0.9)))
        if self.centre == "denormal":
            return sign * smallest * rng.random(x.shape) * 2
        if self.centre == "huge":
            return sign * greatest * 10.0 ** rng.uniform(-3, 0, x.shape)
        return x

    def _ends(self, centre: Array, dtype: Any, greatest: float, rng: np.random.Generator) -> tuple[Array, Array]:
        share = np.ones(()) if self.alike else rng.random(centre.shape) * rng.integers(0, 2, centre.shape)
        if self.width == "everything":
            width = np.full_like(centre, greatest)
        elif self.width in ("tiny", "relative"):
            width = np.abs(centre) * (1e-6 if self.width == "tiny" else 2.0)
        else:
            width = np.full_like(centre, _WIDTHS.get(self.width, 0.0))
        width = np.minimum(width, greatest) * share
        below = 0.0 if self.side == "above" else rng.random(centre.shape)
        above = 0.0 if self.side == "below" else rng.random(centre.shape)
        low, high = (
            np.clip(np.clip(end, -greatest, greatest).astype(dtype), -greatest, greatest).astype(dtype)
            for end in (centre - width * below, centre + width * above)
        )
        if self.width == "ulp":
            high = np.clip(np.nextafter(high, np.full_like(high, np.inf)), -greatest, greatest).astype(dtype)
        zero = np.zeros_like(low)
        if self.side == "to zero":
            return np.minimum(low, zero), np.maximum(high, zero)
        if self.side == "symmetric":
            size = np.maximum(np.abs(low), np.abs(high))
            return -size, size
        return low, high

    def _masked(self, low: Array, high: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        if self.mask == "none":
            return low, high
        chosen = rng.random(low.shape) < (1.0 if self.uniform else 0.4)
        infinity = np.full_like(low, -np.inf if self.mask in ("points", "below") else np.inf)
        if self.mask in ("points", "below"):
            return np.where(chosen, infinity, low), np.where(chosen & (self.mask == "points"), infinity, high)
        return np.where(chosen & (self.mask == "positive points"), infinity, low), np.where(chosen, infinity, high)


def recipes(feeds: Feeds, rng: np.random.Generator) -> dict[str, Recipe]:
    """Draw a recipe for each operand: most are moderate, so that one hard operand meets ordinary others."""
    return {name: _recipe(rng, hard=rng.random() < 0.4) for name in feeds}


def _recipe(rng: np.random.Generator, hard: bool) -> Recipe:
    side = str(rng.choice(SIDES))
    return Recipe(
        centre=str(rng.choice(CENTRES)) if hard else "own",
        width=str(rng.choice(WIDTHS if hard else WIDTHS[:-1])),
        side=side,
        uniform=bool(rng.random() < 0.3),
        alike=bool(rng.random() < 0.5),
        mask=str(rng.choice(MASKS)) if hard and rng.random() < 0.25 else "none",
    )


def box(feeds: Feeds, given: Mapping[str, Recipe], rng: np.random.Generator) -> Box:
    """Return bounds around arrays: floating ones by their recipes, integers and booleans by chance."""
    lower, upper = {}, {}
    for name, x in feeds.items():
        if is_float(x):
            lower[name], upper[name] = given[name].bounds(x, rng)
        elif x.dtype == np.bool_:
            free = rng.random(x.shape) < rng.choice((0.0, 0.5, 1.0))
            lower[name], upper[name] = x & ~free, x | free
        else:
            lower[name], upper[name] = _whole_bounds(x, rng)
    return lower, upper


def _whole_bounds(x: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    limits = np.iinfo(x.dtype)
    kind = rng.choice(("point", "near", "far", "all"), p=(0.45, 0.3, 0.2, 0.05))
    if kind == "point":
        return x, x
    if kind == "all":
        return np.full_like(x, limits.min), np.full_like(x, limits.max)
    width = rng.integers(0, 3 if kind == "near" else 100, x.shape).astype(object)
    # Python's integers, because the sum may leave the dtype.
    low = np.clip(x.astype(object) - width, limits.min, limits.max)
    high = np.clip(x.astype(object) + width, limits.min, limits.max)
    return np.asarray(low).astype(x.dtype), np.asarray(high).astype(x.dtype)


def points(lower: Feeds, upper: Feeds, count: int, rng: np.random.Generator) -> Iterator[dict[str, Array]]:
    """Yield points of a box: its two extreme corners first, then all kinds."""
    for number in range(count):
        one_kind = int(rng.integers(9)) if rng.random() < 0.5 else None
        kind = number if number < 2 else one_kind
        yield {name: _point(low, upper[name], kind, rng) for name, low in lower.items()}


def _point(low: Array, high: Array, kind: int | None, rng: np.random.Generator) -> Array:
    # NumPy gives scalars for arrays without dimensions, and float32 for some functions of bfloat16.
    return np.asarray(_any_point(low, high, kind, rng)).astype(low.dtype)


def _any_point(low: Array, high: Array, kind: int | None, rng: np.random.Generator) -> Array:
    kind = int(rng.integers(9)) if kind is None else kind
    either = rng.random(low.shape) < 0.5
    if kind < 2:
        return (low, high)[kind]
    if kind == 2 or low.dtype == np.bool_:
        return np.where(either, low, high)
    if not is_float(low):
        return rng.integers(low, high, endpoint=True, dtype=low.dtype)
    with np.errstate(all="ignore"):
        return np.clip(_inner(low, high, kind, either, rng), low, high)


def _inner(low: Array, high: Array, kind: int, either: Array, rng: np.random.Generator) -> Array:
    if kind == 3:
        return np.where(either, np.nextafter(low, high), np.nextafter(high, low)).astype(low.dtype)
    smallest, greatest = _limits(low)
    if kind == 4:
        special = (0.0, -0.0, smallest / 4, -smallest / 4, smallest, -smallest, 1.0, -1.0)
        return rng.choice(np.array(special), size=low.shape).astype(low.dtype)
    if kind == 5:
        sizes = 10.0 ** rng.uniform(np.log10(smallest), np.log10(greatest), low.shape)
        return np.where(either, sizes, -sizes).astype(low.dtype)
    ends = [np.clip(end.astype(np.float64), -greatest, greatest) for end in (low, high)]
    share = rng.random(low.shape if kind != 6 else ())
    if kind == 7:
        # All but a few at one end.
        share = np.where(rng.random(low.shape) < 0.2, share, float(rng.integers(2)))
    return np.asarray(ends[0] * (1 - share) + ends[1] * share).astype(low.dtype)
