"""Cutting and padding: Slice, Pad, and operators that keep, drop, reverse or zero a part of a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from dnnv.nn import Operation
from dnnv.nn.operations import Pad, Slice
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.domain.rules.indexing import count_nonzero, find_nonzero
from ranum_falsify.domain.rules.shape import collapse, cut, pad, rearrange, reshape, take
from ranum_falsify.domain.rules.support.building import infinity_aware, keeping_infinity
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network.registry import ChosenSize
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.conditions import ADDRESSES, WithinLimits, are_axes, count_bytes, taking
from ranum_falsify.operators.support.families import making, rearranging
from ranum_falsify.operators.support.functions import ints, moves_unsigned

_OPEN = (torch.iinfo(torch.int32).max, torch.iinfo(torch.int64).max)
"""Ends that mean the last position that the step leads to."""

_FRONT = torch.iinfo(torch.int64).min
"""An end before the front of any axis."""


def _ranges(
    shape: Sequence[int],
    starts: np.ndarray,
    ends: np.ndarray,
    axes: np.ndarray | None,
    steps: np.ndarray | None,
) -> list[range]:
    """Return the positions that Slice keeps of each axis."""
    begin, end = ints(starts) or [], ints(ends) or []
    chosen = ints(axes) or list(range(len(begin)))
    strides = ints(steps) or [1] * len(begin)
    kept = [range(size) for size in shape]
    for start, stop, axis, step in zip(begin, end, chosen, strides, strict=True):
        kept[axis] = _positions(shape[axis], start, stop, step)
    return kept


def _positions(size: int, start: int, stop: int, step: int) -> range:
    """Return the positions that ONNX Runtime keeps of an axis.

    Backward, NumPy keeps nothing of what starts before the front, and ONNX Runtime the first element.
    """
    if not size:
        return range(0)
    back, step = step < 0, max(-size, min(step, size))
    start, stop = (end + size if end < 0 else end for end in (start, _FRONT if back and stop in _OPEN else stop))
    return range(max(0, min(start, size - back)), max(-back, min(stop, size)), step)


@moves_unsigned
def _slice(op: Operation, x: Tensor, *where: np.ndarray | None) -> Tensor:
    index, flipped = [slice(None)] * x.ndim, []
    for axis, kept in enumerate(_ranges(x.shape, *where)):  # type: ignore[arg-type]
        step = kept.step
        if step < 0 and len(kept):
            flipped.append(axis)
            kept = kept[::-1]
        index[axis] = slice(kept[0], kept[-1] + 1, abs(step)) if len(kept) else slice(0, 0)
    x = x[tuple(index)]
    return x.flip(flipped) if flipped else x


def _slice_bounds(site: Site, x: Interval, *where: np.ndarray | None) -> Interval:
    return cut(x, _ranges(x.shape, *where))  # type: ignore[arg-type]


def _can_slice(op: Operation, shape: Sequence[int], axes: np.ndarray | None, steps: np.ndarray | None) -> bool:
    return are_axes(axes, len(shape)) and 0 not in (ints(steps) or [])


rearranging(
    torch=_slice,
    interval=keeping_infinity(_slice_bounds),
    linear=Affine(),
    valid=[taking(_can_slice, "axes", "steps", text="steps != 0, and the axes are different ones of x")],
    batch=batching.sliced,
    operands=("x", "starts", "ends", "axes", "steps"),
    static=("starts", "ends", "axes", "steps"),
)(Slice)


def _widths(rank: int, pads: np.ndarray, axes: np.ndarray | None) -> tuple[list[int], list[int]]:
    """Return how much is added before and after each axis."""
    widths, chosen = ints(pads) or [], ints(axes)
    chosen = list(range(rank)) if chosen is None else [axis % rank for axis in chosen]
    before, after = [0] * rank, [0] * rank
    for position, axis in enumerate(chosen):
        before[axis], after[axis] = widths[position], widths[position + len(chosen)]
    return before, after


def _read_pad_value(value: np.ndarray | None) -> Any:
    return 0 if value is None or not value.size else value.reshape(-1)[0].item()


def _pad(
    op: Operation, x: Tensor, pads: np.ndarray, constant_value: np.ndarray | None, axes: np.ndarray | None
) -> Tensor:
    before, after = _widths(x.ndim, pads, axes)
    if op.mode == "constant":
        return _constant_pad(x, before, after, _read_pad_value(constant_value))
    return _extend(op, x, before, after)


def _pad_bounds(
    site: Site, x: Interval, pads: np.ndarray, constant_value: np.ndarray | None, axes: np.ndarray | None
) -> Interval:
    before, after = _widths(len(x.shape), pads, axes)
    if site.op.mode == "constant":
        return pad(x, before, after, _read_pad_value(constant_value))
    x = pad(x, [min(w, 0) for w in before], [min(w, 0) for w in after], 0)
    for axis, (front, back) in enumerate(zip(before, after, strict=True)):
        if front > 0 or back > 0:
            index = _pad_index(x.shape[axis], max(front, 0), max(back, 0), site.op.mode)
            x = take(x, axis, torch.from_numpy(index))
    return x


@moves_unsigned
def _extend(op: Operation, x: Tensor, before: list[int], after: list[int]) -> Tensor:
    # Negative widths crop first; what is left is mirrored or repeated.
    x = _constant_pad(x, [min(w, 0) for w in before], [min(w, 0) for w in after], 0)
    for axis in range(x.ndim):
        if before[axis] > 0 or after[axis] > 0:
            index = _pad_index(x.shape[axis], max(before[axis], 0), max(after[axis], 0), op.mode)
            x = x.index_select(axis, torch.from_numpy(index).to(x.device))
    return x


def _constant_pad(x: Tensor, before: list[int], after: list[int], value: Any) -> Tensor:
    if not any(before) and not any(after):
        return x
    flat = [width for axis in reversed(range(x.ndim)) for width in (before[axis], after[axis])]
    return F.pad(x, flat, value=value)


@lru_cache(maxsize=256)
def _pad_index(size: int, before: int, after: int, mode: str) -> np.ndarray:
    modes = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode not in modes:
        raise UnsupportedAttributeError(f"Pad: mode {mode!r} is not supported; use constant, reflect, edge or wrap")
    return np.pad(np.arange(size), (before, after), mode=mode)  # type: ignore[call-overload, no-any-return]


_WIDEST = 8
"""Bytes of the largest elements that Pad takes."""


def _can_pad(op: Operation, shape: Sequence[int], pads: np.ndarray, axes: np.ndarray | None) -> bool:
    if not are_axes(axes, len(shape)):
        return False
    widths = _widths(len(shape), pads, axes)
    if count_bytes(map(sum, zip(shape, *widths, strict=True)), _WIDEST) >= ADDRESSES:
        return False
    for size, before, after in zip(shape, *widths, strict=True):
        left = size + min(before, 0) + min(after, 0)
        if op.mode == "constant":
            taken = size + before + after >= 0
        else:
            taken = left > 0 and (op.mode != "reflect" or max(before, after) < left)
        if not taken:
            return False
    return True


rearranging(
    torch=_pad,
    interval=keeping_infinity(_pad_bounds),
    linear=Affine(),
    valid=[taking(_can_pad, "pads", "axes", text="x has what pads cut off or mirror, and the axes")],
    batch=batching.padded,
    operands=("x", "pads", "constant_value", "axes"),
    renamed={"value": "constant_value", "paddings": "pads"},
    static=("pads", "constant_value", "axes"),
)(Pad)


def _centre(op: Operation, old: Sequence[int], shape: np.ndarray) -> tuple[list[int], list[int]]:
    """Return how much is added before and after each axis."""
    rank = len(old)
    axes = range(rank) if op.axes is None else [axis % rank for axis in op.axes]
    before, after = [0] * rank, [0] * rank
    for axis, size in zip(axes, ints(shape) or [], strict=True):
        if not 0 <= size < 2**31:
            raise UnsupportedAttributeError(f"a size of {size}, of which ONNX Runtime makes another")
        missing = size - old[axis]
        # Halves round down when padding and when cropping, each seen from the front.
        before[axis] = missing // 2 if missing > 0 else -(-missing // 2)
        after[axis] = missing - before[axis]
    return before, after


def _center_crop_pad(op: Operation, x: Tensor, shape: np.ndarray) -> Tensor:
    return _constant_pad(x, *_centre(op, x.shape, shape), 0)


def _center_crop_pad_bounds(site: Site, x: Interval, shape: np.ndarray) -> Interval:
    return pad(x, *_centre(site.op, x.shape, shape), 0)


@rearranging(
    torch=_center_crop_pad,
    interval=keeping_infinity(_center_crop_pad_bounds),
    linear=Affine(),
    batch="vmap",
    operands=("x", "shape"),
    static=("shape",),
)
class CenterCropPad(Operation):
    """https://onnx.ai/onnx/operators/onnx__CenterCropPad.html."""


@moves_unsigned
def _trilu(op: Operation, x: Tensor, k: np.ndarray | None) -> Tensor:
    diagonal = 0 if k is None else int(k.reshape(-1)[0])
    diagonal = max(-(x.shape[-2] + 1), min(diagonal, x.shape[-1] + 1))
    return torch.triu(x, diagonal) if op.upper else torch.tril(x, diagonal)


def _trilu_bounds(site: Site, x: Interval, k: np.ndarray | None) -> Interval:
    triangle = rearrange(x.split(-2, -1), lambda bound: _trilu(site.op, bound, k), x.shape)
    return replace(triangle, gap=0.0)


@rearranging(
    torch=_trilu,
    interval=keeping_infinity(_trilu_bounds),
    linear=Affine(),
    batch="vmap",
    operands=("x", "k"),
    static=("k",),
)
class Trilu(Operation):
    """https://onnx.ai/onnx/operators/onnx__Trilu.html."""


def _select_positions(op: Operation, shape: Sequence[int], condition: np.ndarray) -> Tensor:
    """Return the positions that Compress keeps: of its axis, or of the flattened tensor."""
    size = math.prod(shape) if op.axis is None else shape[op.axis]
    return torch.from_numpy(np.flatnonzero(condition[:size]))


@moves_unsigned
def _compress(op: Operation, x: Tensor, condition: np.ndarray) -> Tensor:
    kept = _select_positions(op, x.shape, condition).to(x.device)
    return x.reshape(-1).index_select(0, kept) if op.axis is None else x.index_select(op.axis, kept)


def _compress_bounds(site: Site, x: Interval, condition: np.ndarray | Interval) -> Interval:
    axis = 0 if site.op.axis is None else site.op.axis % len(x.shape)
    x = reshape(x, (x.size,)) if site.op.axis is None else x
    if isinstance(condition, np.ndarray):
        return take(x, axis, _select_positions(site.op, x.shape, condition))
    shape = (*x.shape[:axis], site.shape[axis], *x.shape[axis + 1 :])
    if not math.prod(shape):
        return Interval.top(shape, x.dtype)
    places, _ = find_nonzero(_read_part(site.op, x.shape, condition))
    return rearrange(collapse(take(x, axis, places), axis), lambda bound: bound, shape)


def _read_part(op: Operation, shape: Sequence[int], condition: Interval) -> Interval:
    """Return the part of a condition that Compress looks at."""
    size = math.prod(shape) if op.axis is None else shape[op.axis]
    return take(condition, 0, torch.arange(min(size, *condition.shape)))


def _count_kept(op: Operation, x: Interval, condition: Interval) -> tuple[int, int]:
    return count_nonzero(_read_part(op, x.shape, condition))


@making(
    torch=_compress,
    interval=infinity_aware(_compress_bounds),
    operands=("x", "condition"),
    static=("condition",),
    chosen=ChosenSize(axis=lambda op: op.axis or 0, limits=_count_kept),
)
class Compress(Operation):
    """https://onnx.ai/onnx/operators/onnx__Compress.html."""


@moves_unsigned
def _reverse_sequence(op: Operation, x: Tensor, sequence_lens: Tensor) -> Tensor:
    if {op.time_axis, op.batch_axis} != {0, 1}:
        raise UnsupportedAttributeError("time_axis and batch_axis are not 0 and 1, in one order or the other")
    time = torch.arange(x.shape[op.time_axis], device=x.device)
    lengths = sequence_lens.clamp(0, x.shape[op.time_axis]).unsqueeze(1)
    index = torch.where(time < lengths, lengths - 1 - time, time)
    index = (index if op.batch_axis == 0 else index.T).reshape(x.shape[:2] + (1,) * (x.ndim - 2))
    return torch.gather(x, op.time_axis, index.expand(x.shape))


def _reverse_sequence_bounds(site: Site, x: Interval, sequence_lens: Interval) -> Interval:
    if x.lower.shape[site.op.time_axis] == 1:
        return x
    lengths, most = sequence_lens.expand()[0], x.shape[site.op.time_axis]
    # Runtimes refuse lengths beyond the axis; bounds must only be there.
    if not sequence_lens.is_point or not bool(((lengths >= 0) & (lengths <= most)).all()):
        return collapse(x, site.op.time_axis)
    return rearrange(x.split(0, 1), lambda bound: _reverse_sequence(site.op, bound, lengths), x.shape)


_LENGTHS = WithinLimits(
    "sequence_lens",
    "0 <= sequence_lens <= the size of the time axis",
    lambda op, operands: (0, int(operands["x"].shape[op.time_axis])),
)


@rearranging(
    torch=_reverse_sequence,
    interval=keeping_infinity(_reverse_sequence_bounds),
    linear=Affine(operands=("x",)),
    batch="vmap",
    valid=[_LENGTHS],
    operands=("x", "sequence_lens"),
)
class ReverseSequence(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReverseSequence.html."""
