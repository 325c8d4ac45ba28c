"""Sampling of a resized axis: the elements that each output reads, and their weights.

Follows the formulas of https://onnx.ai/onnx/operators/onnx__Resize.html; coordinates are float32 as in ONNX Runtime,
since a rounding decides which neighbour is the nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ranum_falsify.domain.error_bounds import CUBIC_ROUNDINGS
from ranum_falsify.errors import UnsupportedAttributeError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How an axis is sampled: the attributes of `Resize` that concern every axis alike.

    Attributes:
        mode: `nearest`, `linear` or `cubic`.
        transform: ONNX's `coordinate_transformation_mode`.
        nearest: ONNX's `nearest_mode`, or `simple`, the rule of opset 10: down if enlarging, else up.
        cubic_a: Coefficient of Keys' kernel (https://doi.org/10.1109/TASSP.1981.1163711).
        exclude_outside: Whether taps outside the input weigh nothing, instead of repeating the border.
        antialias: Whether the kernel widens when shrinking.
    """

    mode: str
    transform: str
    nearest: str
    cubic_a: float
    exclude_outside: bool
    antialias: bool


@dataclass(frozen=True, kw_only=True)
class ResizedAxis:
    """One axis: its size before and after, the scale between them, and the region of interest."""

    before: int
    after: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True)
class Taps:
    """What the elements of a resized axis read.

    Attributes:
        index: Positions in the input axis, shape (taps, size after).
        weights: Their weights, of that shape in float64; None where a single tap is copied.
        outside: Which elements lie outside the input and take the extrapolation value; None if none does.
        error: How far a weight may be off in float32, its coordinate being right.
    """

    index: np.ndarray
    weights: np.ndarray | None
    outside: np.ndarray | None
    error: float = 0.0

    def is_identity(self, size: int) -> bool:
        """Tell whether an axis of this size stays as it is."""
        single = self.weights is None and self.outside is None
        return single and np.array_equal(self.index[0], np.arange(size))


def _half_pixel(x: np.ndarray, axis: ResizedAxis) -> np.ndarray:
    return (x + np.float32(0.5)) / np.float32(axis.scale) - np.float32(0.5)


def _symmetric(x: np.ndarray, axis: ResizedAxis) -> np.ndarray:
    # ONNX Runtime adds the offset, which it has in single precision, in double precision.
    before = np.float32(axis.before)
    adjustment = np.float32(axis.after) / (np.float32(axis.scale) * before)
    offset = before / np.float32(2) * (np.float32(1) - adjustment)
    exact = float(offset) + (x.astype(np.float64) + 0.5) / axis.scale - 0.5
    return exact.astype(np.float32)


def _align_corners(x: np.ndarray, axis: ResizedAxis) -> np.ndarray:
    if axis.after == 1:
        return np.zeros_like(x)
    return x * np.float32(axis.before - 1) / np.float32(axis.after - 1)


def _crop(x: np.ndarray, axis: ResizedAxis) -> np.ndarray:
    start, end, last = np.float32(axis.start), np.float32(axis.end), np.float32(axis.before - 1)
    if axis.after == 1:
        return np.full_like(x, np.float32(0.5) * (start + end) * last)
    return start * last + x * (end - start) * last / np.float32(axis.after - 1)


_TRANSFORMS: dict[str, Callable[[np.ndarray, ResizedAxis], np.ndarray]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda x, axis: _half_pixel(x, axis) if axis.after > 1 else np.zeros_like(x),
    "align_corners": _align_corners,
    "asymmetric": lambda x, axis: x / np.float32(axis.scale),
    "tf_half_pixel_for_nn": lambda x, axis: (x + np.float32(0.5)) / np.float32(axis.scale),
    "tf_crop_and_resize": _crop,
}

_HALF = 1e-6
"""Coordinates this close to a half count as a half in ONNX Runtime."""

_NEAREST: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "round_prefer_floor": lambda x, scale: np.ceil(x.astype(np.float64) - (0.5 + _HALF)),
    "round_prefer_ceil": lambda x, scale: np.floor(x.astype(np.float64) + (0.5 + _HALF)),
    "floor": lambda x, scale: np.floor(x),
    "ceil": lambda x, scale: np.ceil(x),
    "simple": lambda x, scale: np.ceil(x) if scale < 1 else np.floor(x),
}


def coordinates(axis: ResizedAxis, transform: str) -> np.ndarray:
    """Return the input coordinate of each element of the resized axis, float32."""
    if transform not in _TRANSFORMS:
        known = ", ".join(_TRANSFORMS)
        raise UnsupportedAttributeError(f"Resize: transformation {transform!r} is not supported; use one of {known}")
    x = np.arange(axis.after, dtype=np.float32)
    if axis.scale == 1 and axis.before == axis.after and transform != "tf_crop_and_resize":
        return x
    return _TRANSFORMS[transform](x, axis)


def _triangle(distance: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.maximum(1 - distance, 0)
    return weights


def _keys(distance: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


@lru_cache(maxsize=256)
def taps_of(axis: ResizedAxis, how: Sampling) -> Taps:
    """Return what the elements of a resized axis read."""
    if how.antialias and axis.before == axis.after:
        # ONNX Runtime copies an axis whose size stays, whatever the scale says.
        return Taps(np.arange(axis.before)[None], None, None)
    x = coordinates(axis, how.transform)
    outside = None
    if how.transform == "tf_crop_and_resize":
        beyond = (x < 0) | (x > axis.before - 1)
        outside = beyond if beyond.any() else None
    if how.mode == "nearest":
        if how.nearest not in _NEAREST:
            known = ", ".join(_NEAREST)
            raise UnsupportedAttributeError(f"Resize: rounding {how.nearest!r} is not supported; use one of {known}")
        index = _NEAREST[how.nearest](x, axis.scale).astype(np.int64).clip(0, axis.before - 1)
        return Taps(index[None], None, outside)
    if how.mode not in ("linear", "cubic"):
        raise UnsupportedAttributeError(f"Resize: mode {how.mode!r} is not supported; use nearest, linear or cubic")
    return _weight(x.astype(np.float64), axis, how, outside)


def _weight(x: np.ndarray, axis: ResizedAxis, how: Sampling, outside: np.ndarray | None) -> Taps:
    shrink = min(axis.scale, 1.0) if how.antialias else 1.0
    support = (1.0 if how.mode == "linear" else 2.0) / shrink
    first, last = np.floor(x + 1 - support), np.floor(x + 1 + support)
    positions = first + np.arange(int((last - first).max()))[:, None]
    distance = np.abs(positions - x) * shrink
    weights = _triangle(distance) if how.mode == "linear" else _keys(distance, how.cubic_a)
    weights = np.where(positions < last, weights, 0.0)
    if how.exclude_outside:
        weights = np.where((positions >= 0) & (positions < axis.before), weights, 0.0)
    if how.exclude_outside or how.antialias:
        weights = weights / weights.sum(axis=0)
    # In float32, Keys' kernel is not quite 0 at whole distances.
    used = weights.any(axis=1) | (how.mode == "cubic")
    index, weights = positions[used].astype(np.int64).clip(0, axis.before - 1), weights[used]
    lost = 0.0 if how.mode == "linear" else (CUBIC_ROUNDINGS[0] + CUBIC_ROUNDINGS[1] * abs(how.cubic_a)) * 2.0**-24
    return Taps(index, None if len(index) == 1 and (weights == 1).all() else weights, outside, lost)
