"""Regions of feature maps: pooled to one size each, and the choice among those that overlap."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.interpolation import average_anywhere, bound_anything
from ranum_falsify.domain.rules.shape import collapse, evaluate, take
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.operators.support.conditions import Limits, WithinLimits
from ranum_falsify.operators.support.families import making, opaque
from ranum_falsify.operators.support.functions import ints

_MOST = 64
"""Samples along one axis of a bin where regions decide about their number: for much larger ones than the map, fewer."""

_FAR, _MANY = 2.0**30, 1 << 20
"""Coordinates and numbers of samples beyond which kernels' integers may overflow, or their time."""


# means and maxima between elements ------------------------------------------------------------------------------


def _is_half_pixel(op: Operation) -> bool:
    return bool(getattr(op, "coordinate_transformation_mode", "output_half_pixel") == "half_pixel")


def _extents(op: Operation, rois: Tensor) -> tuple[Tensor, Tensor]:
    """Return starts and sizes of regions on the feature map, `(regions, 2)`, the second axis first."""
    half_pixel = _is_half_pixel(op)
    corners = rois * op.spatial_scale - (0.5 if half_pixel else 0.0)
    start, end = corners[:, :2], corners[:, 2:4]
    return start, end - start if half_pixel else (end - start).clamp(min=1.0)


def _count_samples(op: Operation, sizes: Tensor, bins: int, length: int) -> tuple[Tensor, int]:
    """Return how many samples each region's bins have along one axis, and the most that any has."""
    if op.sampling_ratio > 0:
        return torch.full_like(sizes, float(op.sampling_ratio)), op.sampling_ratio
    limit = max(_MOST, 4 * length // bins)
    counts = (sizes.detach() / bins).ceil().clamp(0, limit)
    try:
        most = int(counts.max()) if counts.numel() else 0
    except RuntimeError:  # under `vmap` no number decides about shapes
        most = limit
    return counts, max(most, 1)


def _weights(start: Tensor, size: Tensor, bins: int, counts: Tensor, most: int, length: int) -> tuple[Tensor, Tensor]:
    """Return the weights of both neighbours of each sample, `(regions, bins, samples, length)`."""
    width = (size / bins)[:, None, None]
    number = torch.arange(bins, device=start.device)[:, None], torch.arange(most, device=start.device)
    place = start[:, None, None] + number[0] * width + (number[1] + 0.5) * width / counts[:, None, None].clamp(min=1)
    inside = (place >= -1) & (place <= length) & (number[1] < counts[:, None, None])
    place = place.clamp(0, length - 1)
    below = place.detach().floor()
    share = place - below
    index = torch.arange(length, device=start.device)
    low = (index == below[..., None]) * (1 - share)[..., None]
    high = (index == (below + 1)[..., None]) * share[..., None]
    return low * inside[..., None], high * inside[..., None]


def _roi_align(op: Operation, x: Tensor, rois: Tensor, batch_indices: Tensor) -> Tensor:
    work = torch.promote_types(x.dtype, torch.float32)
    start, size = _extents(op, rois.to(work))
    maps = x.to(work).index_select(0, torch.remainder(batch_indices, x.shape[0]).reshape(-1))
    sides = []
    for axis, bins in ((1, op.output_height), (0, op.output_width)):
        length = x.shape[3 - axis]
        counts, most = _count_samples(op, size[:, axis], bins, length)
        sides.append((counts, _weights(start[:, axis], size[:, axis], bins, counts, most, length)))
    (rows, row_weights), (columns, column_weights) = sides
    if op.mode == "max":
        return _maxima(maps, rows, columns, row_weights, column_weights).to(x.dtype)
    down, across = ((low + high).sum(2) for low, high in (row_weights, column_weights))
    y = down[:, None] @ maps @ across.mT[:, None]
    return (y / (rows * columns).clamp(min=1).reshape(-1, 1, 1, 1)).to(x.dtype)


def _maxima(
    maps: Tensor, rows: Tensor, columns: Tensor, down: tuple[Tensor, Tensor], across: tuple[Tensor, Tensor]
) -> Tensor:
    """Return the greatest of the weighted neighbours of all samples of a bin, which is what kernels compare."""
    counted = [
        torch.arange(side[0].shape[2], device=maps.device) < n[:, None] for side, n in ((down, rows), (across, columns))
    ]
    known = (counted[0][:, :, None] & counted[1][:, None])[:, None, None, :, None]
    found = []
    for above in down:
        for left in across:
            read = above.flatten(1, 2)[:, None] @ maps @ left.flatten(1, 2).mT[:, None]
            read = read.unflatten(-1, left.shape[1:3]).unflatten(2, above.shape[1:3])
            found.append(torch.where(known, read, -math.inf).amax((3, 5)))
    return torch.where(known.any(3).any(-1), torch.stack(found).amax(0), 0.0)


def _roi_align_bounds(site: Site, x: Interval, rois: Interval, batch_indices: Interval) -> Interval:
    op, shape = site.op, site.shape
    if not math.prod(shape):
        return Interval.top(shape, x.dtype)
    if not x.size:
        return bound_anything(shape, x.dtype)
    far = (max(map(abs, rois.extremes)) + 1) * max(abs(op.spatial_scale), 1.0)
    samples = max(op.sampling_ratio, 0) ** 2
    if not samples:
        samples = math.prod(math.ceil(min(2 * far, _FAR) / bins) + 1 for bins in shape[2:])
    if far > _FAR or samples > _MANY or _may_be_backward(op, rois, shape[2:]):
        return bound_anything(shape, x.dtype)
    if batch_indices.is_point:
        maps = take(x, 0, torch.remainder(batch_indices.expand()[0], x.shape[0]))
    else:
        maps = replace(collapse(x, 0), shape=(shape[0], *x.shape[1:]))
    return average_anywhere(maps, shape, terms=4 * samples, zero=True, dims=(2, 3))


def _may_be_backward(op: Operation, rois: Interval, bins: Sequence[int]) -> bool:
    """Tell whether regions may end before they start, of which kernels would take a negative number of samples."""
    if op.sampling_ratio > 0 or not _is_half_pixel(op):
        return False
    low, high = (end * op.spatial_scale for end in rois.doubles())
    low, high = (end.expand(end.shape[0], 4) for end in (torch.minimum(low, high), torch.maximum(low, high)))
    # They take none down to minus one element for each bin.
    return bool((low[:, 2:] - high[:, :2] <= -0.5 * torch.tensor(bins[::-1])).any())


_SAMPLES = WithinLimits(
    "batch_indices",
    "0 <= batch_indices < n, the batch of x",
    lambda op, operands: (0, int(operands["x"].shape[0]) - 1),
    decided_by=("batch_indices",),
)


@opaque(
    torch=_roi_align,
    interval=_roi_align_bounds,
    kernel=None,
    valid=[_SAMPLES],
    operands=("x", "rois", "batch_indices"),
)
class RoiAlign(Operation):
    """https://onnx.ai/onnx/operators/onnx__RoiAlign.html."""


# maxima of elements ---------------------------------------------------------------------------------------------


def _round(x: Tensor) -> Tensor:
    """Round halves away from 0."""
    return torch.where(x >= 0, (x + 0.5).floor(), (x - 0.5).ceil())


def _members(first: Tensor, last: Tensor, bins: int, length: int) -> Tensor:
    """Return which positions each bin of each region reads along one axis, `(regions, bins, length)`."""
    size = (last - first + 1).clamp(min=1)[:, None] / bins
    number = torch.arange(bins, device=first.device)
    starts = ((number * size).floor() + first[:, None]).clamp(0, length)[..., None]
    ends = (((number + 1) * size).ceil() + first[:, None]).clamp(0, length)[..., None]
    index = torch.arange(length, device=first.device)
    return (index >= starts) & (index < ends)


def _max_roi_pool(op: Operation, x: Tensor, rois: Tensor) -> Tensor:
    bins = ints(op.pooled_shape) or []
    places = _round(rois.detach()[:, 1:].to(torch.promote_types(x.dtype, torch.float32)) * op.spatial_scale)
    rows = _members(places[:, 1], places[:, 3], bins[0], x.shape[2])
    columns = _members(places[:, 0], places[:, 2], bins[1], x.shape[3])
    maps = x.index_select(0, torch.remainder(rois[:, 0].detach().long(), x.shape[0]))
    y = torch.where(rows[:, None, :, :, None], maps[:, :, None], -math.inf).amax(3)
    y = torch.where(columns[:, None, None], y[:, :, :, None], -math.inf).amax(4)
    seen = rows.any(-1)[:, None, :, None] & columns.any(-1)[:, None, None]
    return torch.where(seen, y, 0.0)


def _max_roi_pool_bounds(site: Site, x: Interval, rois: Interval) -> Interval:
    if not math.prod(site.shape) or not x.size:
        return Interval.top(site.shape, x.dtype)
    whole = collapse(x, 0, 2, 3)
    return Interval(whole.lower.clamp(max=0), whole.upper.clamp(min=0), site.shape)


def _samples(op: Operation, operands: Mapping[str, Any]) -> Limits:
    """Return the limits of each column of regions, of which the first is truncated to the number of a sample."""
    below = np.nextafter(np.array([-1, operands["x"].shape[0]], np.float32), np.float32(0))
    limits = torch.tensor([[float(end)] + [sign * math.inf] * 4 for end, sign in zip(below, (-1, 1), strict=True)])
    return limits[0], limits[1]


_OF_SAMPLES = WithinLimits("rois", "-1 < the first column of rois < n, the batch of x", _samples, decided_by=("rois",))


@opaque(
    torch=_max_roi_pool,
    interval=_max_roi_pool_bounds,
    kernel=None,
    valid=[_OF_SAMPLES],
    operands=("x", "rois"),
    overflow=False,
)
class MaxRoiPool(Operation):
    """https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html."""


# choice ---------------------------------------------------------------------------------------------------------


def _corners(boxes: np.ndarray, centred: bool) -> np.ndarray:
    """Return boxes as least and greatest coordinates of either axis."""
    if centred:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        return np.concatenate([middle - half, middle + half], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _overlaps(box: np.ndarray, others: np.ndarray, threshold: float) -> bool:
    """Tell whether a box overlaps one of others by more than the threshold, as a share of their union."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.where((sides > 0).all(1), sides.prod(1), 0)
    areas = (others[:, 2:] - others[:, :2]).prod(1), (box[2:] - box[:2]).prod()
    union = areas[0] + areas[1] - shared
    real = (shared > 0) & (areas[0] > 0) & (areas[1] > 0) & (union > 0)
    return bool((shared[real] / union[real] > threshold).any())


def _suppress(
    op: Operation,
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Tensor | None,
    iou_threshold: Tensor | None,
    score_threshold: Tensor | None,
) -> Tensor:
    if boxes.ndim != 3:
        raise UnsupportedAttributeError("NonMaxSuppression: boxes have the dimensions (batch, boxes, 4)")
    most = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class.reshape(-1)[0])
    threshold = 0.0 if iou_threshold is None else float(iou_threshold.detach().reshape(-1)[0])
    least = None if score_threshold is None else float(score_threshold.detach().reshape(-1)[0])
    chosen: list[tuple[int, int, int]] = []
    for batch, rows in enumerate(to_numpy(scores)):
        corners = _corners(to_numpy(boxes[batch]), bool(op.center_point_box))
        for number, row in enumerate(rows):
            kept: list[int] = []
            for i in np.argsort(-row, kind="stable"):
                if len(kept) >= most:
                    break
                with np.errstate(all="ignore"):
                    overlaps = _overlaps(corners[i], corners[kept], threshold)
                if (least is None or row[i] > least) and not overlaps:
                    kept.append(int(i))
            chosen += [(batch, number, i) for i in kept]
    return torch.tensor(chosen, dtype=torch.int64, device=boxes.device).reshape(-1, 3)


_SHARE = WithinLimits(
    "iou_threshold",
    "0 <= iou_threshold <= 1",
    lambda op, operands: (0, 1),
    reason="ONNX Runtime refuses other shares",
    decided_by=("iou_threshold",),
)


@making(torch=_suppress, interval=evaluate, valid=[_SHARE], dynamic_shape=True)
class NonMaxSuppression(Operation):
    """https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html."""
