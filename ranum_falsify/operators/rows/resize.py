"""Resize and Upsample: axis by axis from taps and weights, by torch's own interpolation where that is the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from dnnv.nn import Operation
from dnnv.nn.operations import Resize
from torch import Tensor

from ranum_falsify.domain.error_bounds import COORDINATE_ROUNDINGS, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.arithmetic.pairs import fit_type
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support.families import plain
from ranum_falsify.operators.support.sampling import ResizedAxis, Sampling, Taps, taps_of

_OPSET_10 = Sampling(
    mode="nearest", transform="asymmetric", nearest="simple", cubic_a=-0.75, exclude_outside=False, antialias=False
)


def _floats(values: np.ndarray | None) -> list[float]:
    return [] if values is None else [float(v) for v in np.asarray(values).reshape(-1)]


def _axes(
    op: Operation, shape: Sequence[int], roi: list[float], scales: list[float], sizes: list[float]
) -> dict[int, ResizedAxis]:
    """Return the resized axes by number."""
    chosen = [axis % len(shape) for axis in getattr(op, "axes", None) or range(len(shape))]
    if len(set(chosen)) < len(chosen):
        raise UnsupportedAttributeError(f"Resize: axes {list(op.axes)} name an axis twice; name it once")
    if len(scales) != len(chosen):
        scales, sizes = _scales_for(op, [shape[axis] for axis in chosen], sizes)
    else:
        sizes = [float(np.floor(np.float32(shape[a]) * np.float32(s))) for a, s in zip(chosen, scales, strict=True)]
    count = len(chosen)
    starts, ends = (roi[:count], roi[count:]) if len(roi) == 2 * count else ([0.0] * count, [1.0] * count)
    return {
        axis: ResizedAxis(before=shape[axis], after=int(sizes[i]), scale=scales[i], start=starts[i], end=ends[i])
        for i, axis in enumerate(chosen)
    }


def _scales_for(op: Operation, before: list[int], sizes: list[float]) -> tuple[list[float], list[float]]:
    if len(sizes) != len(before):
        raise ValueError(f"Resize needs scales or sizes for {len(before)} axes, got {len(sizes)} sizes")
    scales = [float(np.float32(size) / np.float32(old)) for size, old in zip(sizes, before, strict=True)]
    policy = getattr(op, "keep_aspect_ratio_policy", None) or "stretch"
    if policy == "stretch":
        return scales, sizes
    if policy not in ("not_larger", "not_smaller") or any(axis < 0 for axis in op.axes or ()):
        raise UnsupportedAttributeError(
            f"Resize: keep_aspect_ratio_policy {policy!r} of axes {op.axes} is not supported; ONNX Runtime keeps the"
            " ratio of axes that are not negative"
        )
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [scale] * len(before), [float(np.floor(np.float32(scale) * np.float32(old) + 0.5)) for old in before]


def _resize(
    op: Operation, x: Tensor, roi: np.ndarray | None, scales: np.ndarray | None, sizes: np.ndarray | None
) -> Tensor:
    return resample(x, _axes(op, x.shape, _floats(roi), _floats(scales), _floats(sizes)), *_sampling(op))


def _sampling(op: Operation) -> tuple[Sampling, float]:
    """Return how every axis is sampled, and the value outside the input."""
    if op.version < 11 or isinstance(op, Upsample):
        return replace(_OPSET_10, mode=op.mode), 0.0
    how = Sampling(
        mode=op.mode,
        transform=op.coordinate_transformation_mode,
        nearest=op.nearest_mode,
        cubic_a=op.cubic_coeff_a,
        exclude_outside=bool(op.exclude_outside),
        antialias=bool(op.antialias),
    )
    return how, op.extrapolation_value


def resample(x: Tensor, axes: dict[int, ResizedAxis], how: Sampling, extrapolation: float) -> Tensor:
    """Return a tensor with some axes, by number, resized; half precision and integers are interpolated in float32.

    Where the transformation leaves the input, it takes the value for extrapolation.
    """
    if how.transform != "tf_crop_and_resize" and all(axis.before == axis.after for axis in axes.values()):
        # ONNX Runtime copies an input that keeps its shape, whatever the scales say.
        return x
    if how.mode == "nearest":
        working = x
    else:
        working = x if x.dtype in (torch.float32, torch.float64) else x.float()
    arguments = _interpolation(tuple(x.shape), tuple(axes.items()), how)
    if arguments is not None and working.is_floating_point():
        mode, size, aligned = arguments
        working = F.interpolate(working, size=size, mode=mode, align_corners=aligned)
    else:
        working = _apply_taps(working, _taps(axes, how, x.ndim), extrapolation)
    return working.to(x.dtype)


def _taps(axes: dict[int, ResizedAxis], how: Sampling, rank: int) -> dict[int, Taps]:
    """Return what the elements of each axis read; cubic kernels leave those before the last two as they are."""
    kept = {
        number: axis
        for number, axis in axes.items()
        if how.mode != "cubic" or number >= rank - 2 or axis.before != axis.after or axis.scale != 1
    }
    return {number: taps_of(axis, how) for number, axis in kept.items()}


def _apply_taps(x: Tensor, taps: dict[int, Taps], extrapolation: float) -> Tensor:
    for number, tap in taps.items():
        if not tap.is_identity(x.shape[number]):
            x = _apply_along(x, number, tap)
    for number, tap in taps.items():
        if tap.outside is not None:
            mask = torch.from_numpy(tap.outside).to(x.device)
            filling = torch.tensor(extrapolation, device=x.device).to(x.dtype)
            x = torch.where(mask.reshape([-1] + [1] * (x.ndim - number - 1)), filling, x)
    return x


def _apply_along(x: Tensor, number: int, taps: Taps) -> Tensor:
    index = torch.from_numpy(taps.index).to(x.device)
    if taps.weights is None:
        return x.index_select(number, index[0])
    weights = torch.from_numpy(taps.weights).to(x.device, x.dtype)
    weights = weights.reshape([len(index), -1] + [1] * (x.ndim - number - 1))
    result = weights[0] * x.index_select(number, index[0])
    for position in range(1, len(index)):
        result = result + weights[position] * x.index_select(number, index[position])
    return result


_TORCH_MODES = {
    ("nearest", 3): "nearest",
    ("nearest", 4): "nearest",
    ("nearest", 5): "nearest",
    ("linear", 3): "linear",
    ("linear", 4): "bilinear",
    ("linear", 5): "trilinear",
    ("cubic", 4): "bicubic",
}


@lru_cache(maxsize=256)
def _interpolation(
    shape: tuple[int, ...], axes: tuple[tuple[int, ResizedAxis], ...], how: Sampling
) -> tuple[str, list[int], bool | None] | None:
    """Return mode, size and `align_corners` for `torch.nn.functional.interpolate`, None where it would differ."""
    mode = _TORCH_MODES.get((how.mode, len(shape)))
    plain = how.transform != "tf_crop_and_resize" and not (how.antialias or how.exclude_outside)
    moved = {number: axis for number, axis in axes if axis.before != axis.after or axis.scale != 1}
    if mode is None or not plain or any(number < 2 for number in moved):
        return None
    if how.mode == "cubic" and how.cubic_a != -0.75:
        return None
    size = [moved[number].after if number in moved else shape[number] for number in range(2, len(shape))]
    aligned = how.transform == "align_corners"
    if how.mode == "nearest":
        same = all(np.array_equal(taps_of(axis, how).index[0], _torch_nearest(axis)) for axis in moved.values())
        return (mode, size, None) if same else None
    same = all(_torch_samples(axis, how.transform) for axis in moved.values())
    return (mode, size, aligned) if same else None


def _torch_nearest(axis: ResizedAxis) -> np.ndarray:
    """Return what torch's `nearest` reads: floor(i * before / after) in float32."""
    ratio = np.float32(axis.before) / np.float32(axis.after)
    index: np.ndarray = np.floor(np.arange(axis.after, dtype=np.float32) * ratio).astype(np.int64)
    return index.clip(0, axis.before - 1)


def _torch_samples(axis: ResizedAxis, transform: str) -> bool:
    """Tell whether torch's interpolation to the new size uses these coordinates."""
    if transform == "align_corners":
        return axis.after > 1
    exact = float(np.float32(axis.after) / np.float32(axis.before)) == axis.scale
    one = transform == "pytorch_half_pixel" and axis.after == 1
    return exact and not one and transform in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")


# bounds ---------------------------------------------------------------------------------------------------------

_SAFE_INTEGER = 2.0**62
"""Below it, float64 numbers fit into every integer type of 64 bits, whatever is added to round them."""

_DENORMAL = 2.0**-149
"""What a product loses at most where it is a denormal number of float32, twice."""

_STEEPEST = 4.0
"""The largest coefficient of cubic kernels whose errors are known: weights of steeper ones cancel one another."""

_HEADROOM = 8.0
"""Weighted sums along one axis stay finite this factor below the largest number: cubic weights add up to less."""


def _resize_bounds(
    site: Site, x: Interval, roi: np.ndarray | None, scales: np.ndarray | None, sizes: np.ndarray | None
) -> Interval:
    axes = _axes(site.op, x.shape, _floats(roi), _floats(scales), _floats(sizes))
    how, extrapolation = _sampling(site.op)
    if how.transform != "tf_crop_and_resize" and all(axis.before == axis.after for axis in axes.values()):
        return x
    taps = _taps(axes, how, len(x.shape))
    outer = any(number < len(x.shape) - 2 for number in taps)
    steep = how.mode == "cubic" and (outer or not abs(how.cubic_a) <= _STEEPEST)
    shape = tuple(axes[i].after if i in axes else size for i, size in enumerate(x.shape))
    if steep or not _is_crop_followed(how, axes, extrapolation) or _is_cut_off(how, x.dtype):
        return replace(Interval.top(shape, x.dtype), nan=x.is_floating, overflows=x.is_floating)
    x = x.split(*(number for number, tap in taps.items() if tap.outside is not None))
    if how.mode == "nearest":
        # A merged axis stays merged: whatever is read, it is the same.
        moving = {number: tap for number, tap in taps.items() if x.lower.shape[number] > 1 or tap.outside is not None}
        low, high = (_apply_taps(bound, moving, extrapolation) for bound in (x.lower, x.upper))
        return Interval.of(low, high, shape)
    return _interpolate(x, axes, taps, extrapolation, shape)


def _is_crop_followed(how: Sampling, axes: dict[int, ResizedAxis], extrapolation: float) -> bool:
    """Tell whether kernels crop as the standard says: some copy an axis whose size stays, others ignore its region."""
    if how.transform != "tf_crop_and_resize":
        return True
    whole = all(axis.before != axis.after or (axis.start, axis.end) == (0, 1) for axis in axes.values())
    numbers = [extrapolation, *(end for axis in axes.values() for end in (axis.start, axis.end))]
    return whole and not how.antialias and all(map(math.isfinite, numbers))


def _is_cut_off(how: Sampling, dtype: torch.dtype) -> bool:
    """Tell whether ONNX Runtime makes 0 of what is negative after each axis, as its kernels for pictures do."""
    return how.antialias and (dtype is torch.int8 or (dtype is torch.uint8 and how.mode == "cubic"))


def _interpolate(
    x: Interval, axes: dict[int, ResizedAxis], taps: dict[int, Taps], extrapolation: float, shape: tuple[int, ...]
) -> Interval:
    if x.is_floating and max(map(abs, x.extremes)) >= torch.finfo(x.dtype).max / _HEADROOM ** len(axes):
        # Sums of weighted neighbours may overflow on the way, to both sides.
        return replace(Interval.fill(-math.inf, math.inf, shape, x.dtype), nan=True)
    low, high = x.doubles()
    for number, tap in taps.items():
        if not tap.is_identity(axes[number].before):
            merged = low.shape[number] < axes[number].before
            low, high = _weight_ends(low, high, number, tap, axes[number])
            if merged:
                low, high = low.amin(number, keepdim=True), high.amax(number, keepdim=True)
    for number, tap in taps.items():
        if tap.outside is not None:
            mask = torch.from_numpy(tap.outside).reshape([-1] + [1] * (low.ndim - number - 1))
            low, high = torch.where(mask, extrapolation, low), torch.where(mask, extrapolation, high)
    if x.is_floating:
        return round_outward(low, high, x.dtype, shape)
    # Numbers that do not fit are clamped or wrap, depending on the processor.
    least, greatest = (float(end) for end in dtype_range(x.dtype))
    fits = (low > max(least - 1, -_SAFE_INTEGER)) & (high < min(greatest + 1, _SAFE_INTEGER))
    # Kernels for pictures of 8 bits round in integers.
    low, high = ((end.where(fits, 0.0)).clamp(least, greatest) for end in (low.floor() - 1, high.ceil() + 1))
    return fit_type(low.long(), high.long(), fits, x.dtype, shape)


def _weight_ends(low: Tensor, high: Tensor, number: int, taps: Taps, axis: ResizedAxis) -> tuple[Tensor, Tensor]:
    """Return bounds after one axis, which runtimes compute in float32."""
    positions = torch.from_numpy(taps.index if low.shape[number] > 1 else np.zeros_like(taps.index))
    weights = np.ones(taps.index.shape) if taps.weights is None else taps.weights
    column = [-1] + [1] * (low.ndim - number - 1)
    rounding = unit(torch.float32)
    doubt = COORDINATE_ROUNDINGS * rounding * max(axis.before, axis.after)
    least = greatest = error = torch.zeros((), dtype=torch.float64)
    hull: tuple[Tensor, Tensor] | None = None
    for index, row in zip(positions, torch.from_numpy(weights), strict=True):
        a, b = low.index_select(number, index), high.index_select(number, index)
        up, down = row.clamp(min=0).reshape(column), row.clamp(max=0).reshape(column)
        least, greatest = least + (up * a + down * b), greatest + (up * b + down * a)
        size = torch.maximum(a.abs(), b.abs())
        error = error + size * (doubt + taps.error + (len(weights) + 8) * rounding * (up - down))
        error = error + torch.where((size > 0) & (up - down > 0), _DENORMAL, 0.0)
        hull = (a, b) if hull is None else (torch.minimum(hull[0], a), torch.maximum(hull[1], b))
    least, greatest = least - error, greatest + error
    if hull is None or (weights < 0).any():
        return least, greatest
    # Weights that are not negative add up to 1, except for rounding.
    share = 2 * (len(weights) + 8) * rounding + len(weights) * taps.error
    below, above = (share * end.abs() + len(weights) * _DENORMAL * (end != 0) for end in hull)
    return torch.maximum(least, hull[0] - below), torch.minimum(greatest, hull[1] + above)


plain(
    torch=_resize,
    interval=_resize_bounds,
    overflow=True,
    operands=("x", "roi", "scales", "sizes"),
    static=("roi", "scales", "sizes"),
)(Resize)


@plain(
    torch=lambda op, x, scales: _resize(op, x, None, scales, None),
    interval=lambda site, x, scales: _resize_bounds(site, x, None, scales, None),
    operands=("x", "scales"),
    static=("scales",),
)
class Upsample(Operation):
    """https://onnx.ai/onnx/operators/onnx__Upsample.html."""
