"""Cutting and padding: Slice, Pad and what keeps, drops, reverses or zeroes a part of a tensor."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from dnnv.nn import Operation
from dnnv.nn.operations import Pad, Slice
from torch import Tensor

from ranum_falsify.domain.linear_forms import Affine
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network.registry import operator
from ranum_falsify.operators.functions import ints
from ranum_falsify.operators.unsigned import moves_unsigned

__all__ = ["CenterCropPad", "Compress", "ReverseSequence", "Trilu"]


@moves_unsigned
def _slice(
    op: Operation,
    x: Tensor,
    starts: np.ndarray,
    ends: np.ndarray,
    axes: np.ndarray | None,
    steps: np.ndarray | None,
) -> Tensor:
    begin, end = ints(starts) or [], ints(ends) or []
    chosen = ints(axes) or list(range(len(begin)))
    strides = ints(steps) or [1] * len(begin)
    index, flipped = [slice(None)] * x.ndim, []
    for start, stop, axis, step in zip(begin, end, chosen, strides, strict=True):
        # ONNX clamps as Python does, -1 past the front included.
        taken = range(x.shape[axis])[start:stop:step]
        if step < 0 and len(taken):
            flipped.append(axis % x.ndim)
            taken = taken[::-1]
        index[axis] = slice(taken[0], taken[-1] + 1, abs(step)) if len(taken) else slice(0, 0)
    x = x[tuple(index)]
    return x.flip(flipped) if flipped else x


operator(
    torch=_slice,
    operands=("x", "starts", "ends", "axes", "steps"),
    static=("starts", "ends", "axes", "steps"),
    overflow=False,
    linear=Affine(),
)(Slice)


def _pad(
    op: Operation, x: Tensor, pads: np.ndarray, constant_value: np.ndarray | None, axes: np.ndarray | None
) -> Tensor:
    widths = ints(pads) or []
    chosen = ints(axes)
    chosen = list(range(x.ndim)) if chosen is None else [axis % x.ndim for axis in chosen]
    before, after = [0] * x.ndim, [0] * x.ndim
    for position, axis in enumerate(chosen):
        before[axis], after[axis] = widths[position], widths[position + len(chosen)]
    if op.mode == "constant":
        value: Any = 0 if constant_value is None or not constant_value.size else constant_value.reshape(-1)[0].item()
        return _constant_pad(x, before, after, value)
    return _extended(op, x, before, after)


@moves_unsigned
def _extended(op: Operation, x: Tensor, before: list[int], after: list[int]) -> Tensor:
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


operator(
    torch=_pad,
    operands=("x", "pads", "constant_value", "axes"),
    renamed={"value": "constant_value", "paddings": "pads"},
    static=("pads", "constant_value", "axes"),
    overflow=False,
    linear=Affine(),
)(Pad)


def _center_crop_pad(op: Operation, x: Tensor, shape: np.ndarray) -> Tensor:
    axes = range(x.ndim) if op.axes is None else [axis % x.ndim for axis in op.axes]
    before, after = [0] * x.ndim, [0] * x.ndim
    for axis, size in zip(axes, ints(shape) or [], strict=True):
        missing = size - x.shape[axis]
        # Halves round down when padding and when cropping, each seen from the front.
        before[axis] = missing // 2 if missing > 0 else -(-missing // 2)
        after[axis] = missing - before[axis]
    return _constant_pad(x, before, after, 0)


@operator(torch=_center_crop_pad, operands=("x", "shape"), static=("shape",), overflow=False, linear=Affine())
class CenterCropPad(Operation):
    """https://onnx.ai/onnx/operators/onnx__CenterCropPad.html."""


@moves_unsigned
def _trilu(op: Operation, x: Tensor, k: np.ndarray | None) -> Tensor:
    diagonal = 0 if k is None else int(k.reshape(-1)[0])
    diagonal = max(-(x.shape[-2] + 1), min(diagonal, x.shape[-1] + 1))
    return torch.triu(x, diagonal) if op.upper else torch.tril(x, diagonal)


@operator(torch=_trilu, operands=("x", "k"), static=("k",), overflow=False, linear=Affine())
class Trilu(Operation):
    """https://onnx.ai/onnx/operators/onnx__Trilu.html."""


@moves_unsigned
def _compress(op: Operation, x: Tensor, condition: np.ndarray) -> Tensor:
    if op.axis is None:
        x, axis = x.reshape(-1), 0
    else:
        axis = op.axis
    kept = np.flatnonzero(condition[: x.shape[axis]])
    return x.index_select(axis, torch.from_numpy(kept).to(x.device))


@operator(torch=_compress, operands=("x", "condition"), static=("condition",), overflow=False)
class Compress(Operation):
    """https://onnx.ai/onnx/operators/onnx__Compress.html."""


@moves_unsigned
def _reverse_sequence(op: Operation, x: Tensor, sequence_lens: Tensor) -> Tensor:
    time = torch.arange(x.shape[op.time_axis], device=x.device)
    lengths = sequence_lens.unsqueeze(1)
    index = torch.where(time < lengths, lengths - 1 - time, time)
    index = (index if op.batch_axis == 0 else index.T).reshape(x.shape[:2] + (1,) * (x.ndim - 2))
    return torch.gather(x, op.time_axis, index.expand(x.shape))


@operator(torch=_reverse_sequence, operands=("x", "sequence_lens"), overflow=False, linear=Affine(operands=("x",)))
class ReverseSequence(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReverseSequence.html."""
