"""Signals: windows, Fourier transforms, and the weights that gather a spectrum on the mel scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import WINDOW_ERROR
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.arithmetic.pairs import multiply
from ranum_falsify.domain.rules.fourier import transform_bounds
from ranum_falsify.domain.rules.support.building import infinity_aware, shape_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.network.tensorise import Surroundings, lowering, refuse
from ranum_falsify.operators.rows.creation import dtype_numbered
from ranum_falsify.operators.support.conditions import ADDRESSES, count_bytes, not_negative, taking
from ranum_falsify.operators.support.families import plain

# windows --------------------------------------------------------------------------------------------------------

_COSINES = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42000001, 0.5, 0.08),  # (1 - 0.16) / 2 in float32
}
"""Coefficients of the cosines of no, one and two periods, the second subtracted."""


def _cosines(op: Operation, size: np.ndarray) -> Tensor:
    count = int(size.reshape(-1)[0])
    # ONNX Runtime has them in float32, for windows of float64 too.
    constant, once, twice = (float(np.float32(share)) for share in _COSINES[type(op).__name__])
    # A symmetric window of one element divides 0 by 0, as in ONNX Runtime.
    angle = torch.arange(count, dtype=torch.float64) * (2 * math.pi) / torch.tensor(count - (not op.periodic)).double()
    return constant - once * angle.cos() + twice * (2 * angle).cos()


def _window(op: Operation, x: np.ndarray) -> Tensor:
    y = _cosines(op, x).to(torch.get_default_device())
    dtype = dtype_numbered(op.output_datatype)
    return y.to(dtype) if dtype.is_floating_point else y.nan_to_num().to(dtype)


def _window_bounds(site: Site, x: np.ndarray | Interval) -> Interval | None:
    if isinstance(x, Interval):
        return None
    y = _cosines(site.op, x)
    if bool(y.isnan().any()):
        anything = Interval.top(tuple(y.shape), site.dtype)
        return replace(anything, nan=True, overflows=True) if anything.is_floating else anything
    low, high = y - WINDOW_ERROR, y + WINDOW_ERROR
    if site.dtype.is_floating_point:
        return round_outward(low, high, site.dtype, tuple(y.shape))
    return Interval(low.trunc().to(site.dtype), high.trunc().to(site.dtype), tuple(y.shape))


_windowing = plain(
    torch=_window, interval=infinity_aware(shape_aware(_window_bounds)), valid=[not_negative("x")], static=("x",)
)


@_windowing
class HannWindow(Operation):
    """https://onnx.ai/onnx/operators/onnx__HannWindow.html."""


@_windowing
class HammingWindow(Operation):
    """https://onnx.ai/onnx/operators/onnx__HammingWindow.html."""


@_windowing
class BlackmanWindow(Operation):
    """https://onnx.ai/onnx/operators/onnx__BlackmanWindow.html."""


# the mel scale --------------------------------------------------------------------------------------------------

_NEAR = 1e-4
"""How close to an integer runtimes may compute the position of an edge to be another one's."""


def _mel_edges(operands: Sequence[np.ndarray], *, ends: bool = False) -> tuple[np.ndarray, int]:
    """Return the edges of the triangles in the spectrum, or the first and last, before rounding, and its size."""
    count, length, rate, lowest, highest = (float(value.reshape(-1)[0]) for value in operands)
    low, high = (2595 * math.log10(1 + edge / 700) for edge in (lowest, highest))
    steps = np.array([0.0, count + 1]) if ends else np.arange(int(count) + 2)
    # A model may be read on an example that has zeros, and a search may try negative numbers.
    mels = low + steps * ((high - low) / (count + 2 or 1.0))
    return (length + 1) * 700 * np.expm1(mels / 2595 * math.log(10)) / (rate or 1.0), int(length) // 2 + 1


def _mel_weights(op: Operation, *operands: np.ndarray) -> Tensor:
    edges, size = _mel_edges(operands)
    if size < 1:
        raise ValueError("MelWeightMatrix: dft_length is negative")
    left, centre, right = (torch.from_numpy(np.floor(edges))[i : len(edges) - 2 + i] for i in range(3))
    if edges.size and (edges[0] < 0 or edges[-1] >= size + 1):
        raise ValueError(f"MelWeightMatrix: an edge lies outside the {size} frequencies of the spectrum")
    place = torch.arange(size, dtype=torch.float64)[:, None]
    rising = torch.where(left == centre, (place == centre).double(), (place - left) / (centre - left))
    falling = (right - place) / (right - centre)
    y = torch.where(place < centre, rising, torch.where(right > centre, falling, rising))
    inside = (place >= left) & (place <= centre) | (place >= centre) & (place < right)
    y = torch.where(inside, torch.where((place == centre) & (left < centre) & (right <= centre), 1.0, y), 0.0)
    return y.to(dtype_numbered(op.output_datatype)).to(torch.get_default_device())


def _mel_bounds(site: Site, *operands: np.ndarray | Interval) -> Interval | None:
    known = [x for x in operands if isinstance(x, np.ndarray)]
    if len(known) < len(operands):
        return None
    edges, _ = _mel_edges(known)
    y = _mel_weights(site.op, *known)
    if (np.abs(edges - np.round(edges)) < _NEAR).any():
        return Interval.fill(0, 1, tuple(y.shape), y.dtype)
    if not y.is_floating_point():
        return Interval.point(y)
    wide = y.double()
    error = torch.where((wide == 0) | (wide == 1), 0.0, WINDOW_ERROR)
    return round_outward(wide - error, wide + error, y.dtype, tuple(y.shape))


def _can_weigh(op: Operation, _: Sequence[int], *operands: np.ndarray) -> bool:
    """Tell whether ONNX Runtime surely computes weights, which it does of odd numbers, too."""
    if any(value.reshape(-1)[0] < least for value, least in zip(operands, (0, 1, 1, 0, 0), strict=True)):
        return False
    edges, size = _mel_edges(operands, ends=True)
    shape = (size, int(operands[0].reshape(-1)[0]))
    if count_bytes(shape, dtype_numbered(op.output_datatype).itemsize) >= ADDRESSES:
        return False
    return bool((edges >= 0).all() and (edges < size + 1 - _NEAR).all())


_MEL_OPERANDS = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")


@plain(
    torch=_mel_weights,
    interval=infinity_aware(shape_aware(_mel_bounds)),
    valid=[taking(_can_weigh, *_MEL_OPERANDS, text="the edges are frequencies of the spectrum")],
    static=_MEL_OPERANDS,
    overflow=False,
)
class MelWeightMatrix(Operation):
    """https://onnx.ai/onnx/operators/onnx__MelWeightMatrix.html."""


# Fourier transforms ---------------------------------------------------------------------------------------------


def _transform(x: Tensor, length: int, *, inverse: bool = False, onesided: bool = False) -> Tensor:
    """Return the transforms along the last dimension but one; the last holds real and imaginary parts."""
    work = x if x.dtype in (torch.float32, torch.float64) else x.float()
    z = work[..., 0] if work.shape[-1] == 1 else torch.complex(work[..., 0], work[..., 1])
    if inverse and onesided:
        y: Tensor = torch.fft.irfft(z, length)
        return y.unsqueeze(-1).to(x.dtype)
    if onesided and not z.is_complex():
        y = torch.fft.rfft(z, length)
    else:
        y = (torch.fft.ifft if inverse else torch.fft.fft)(z, length)
        y = y[..., : length // 2 + 1] if onesided else y
    return torch.stack([y.real, y.imag], -1).to(x.dtype)


_AXIS = 2
"""The place of the axis among the inputs."""


@lowering("DFT", when=lambda node: len(node.input) > _AXIS and not node.input[_AXIS])
def check_axis(around: Surroundings, node: onnx.NodeProto) -> None:
    """An axis that is among the inputs, and left out."""
    raise refuse(node, "its axis is an input without a name, at which ONNX Runtime ends")


def _axis(axis: np.ndarray | int | None, rank: int) -> int:
    return (-2 if axis is None else int(np.asarray(axis).reshape(-1)[0])) % rank


def _length(op: Operation, given: np.ndarray | None, size: int) -> int:
    if given is not None:
        return int(given.reshape(-1)[0])
    return 2 * (size - 1) if op.inverse and op.onesided else size


def _along(op: Operation, length: int) -> Callable[[Tensor], Tensor]:
    return lambda x: _transform(x, length, inverse=bool(op.inverse), onesided=bool(op.onesided))


def _dft(op: Operation, x: Tensor, length: np.ndarray | None, axis: np.ndarray | None) -> Tensor:
    dim = _axis(axis, x.ndim)
    if dim == x.ndim - 1:
        raise ValueError("DFT along the last axis, that of real and imaginary parts, which ONNX Runtime refuses")
    return _along(op, _length(op, length, x.shape[dim]))(x.movedim(dim, -2)).movedim(-2, dim)


def _dft_bounds(site: Site, x: Interval, length: np.ndarray | None, axis: np.ndarray | None) -> Interval:
    dim = _axis(axis, len(x.shape))
    size = _length(site.op, length, x.shape[dim])
    moved = x.split(dim, len(x.shape) - 1).move(lambda bound: bound.movedim(dim, -2))
    y = transform_bounds(_along(site.op, size), moved, size, inverse=bool(site.op.inverse), dtype=x.dtype)
    return replace(y.move(lambda bound: bound.movedim(-2, dim)), nan=y.nan)


@plain(
    torch=_dft,
    interval=_dft_bounds,
    operands=("x", "dft_length", "axis"),
    static=("dft_length", "axis"),
    renamed={"input": "x"},
)
class DFT(Operation):
    """https://onnx.ai/onnx/operators/onnx__DFT.html."""


def _frames(x: Tensor, step: np.ndarray, size: int) -> Tensor:
    """Return the frames of signals `(batch, time, parts)` as `(batch, frames, time, parts)`.

    Real signals may lack the axis of parts: PyTorch's older exporter writes them so, and ONNX Runtime takes them.
    """
    signals = x if x.ndim > 2 else x[..., None]
    return signals.unfold(1, size, int(step.reshape(-1)[0])).transpose(-1, -2)


def _frame_size(x: Sequence[int], window: Sequence[int] | None, given: np.ndarray | None) -> int:
    if given is not None:
        return int(given.reshape(-1)[0])
    return x[1] if window is None else window[0]


def _stft(op: Operation, x: Tensor, step: np.ndarray, window: Tensor | None, length: np.ndarray | None) -> Tensor:
    size = _frame_size(x.shape, None if window is None else window.shape, length)
    frames = _frames(x, step, size)
    frames = frames if window is None else frames * window[:, None]
    return _transform(frames, size, onesided=bool(op.onesided))


def _stft_bounds(
    site: Site, x: Interval, step: np.ndarray, window: Interval | None, length: np.ndarray | None
) -> Interval:
    size = _frame_size(x.shape, None if window is None else window.shape, length)
    frames = x.split(*range(1, len(x.shape))).move(lambda bound: _frames(bound, step, size))
    if window is not None:
        frames = multiply(site, frames, window.move(lambda bound: bound[:, None]))
    onesided = bool(site.op.onesided)
    return transform_bounds(lambda bound: _transform(bound, size, onesided=onesided), frames, size, dtype=x.dtype)


@plain(
    torch=_stft,
    interval=_stft_bounds,
    operands=("x", "frame_step", "window", "frame_length"),
    static=("frame_step", "frame_length"),
    renamed={"signal": "x"},
)
class STFT(Operation):
    """https://onnx.ai/onnx/operators/onnx__STFT.html."""
