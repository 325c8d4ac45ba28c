"""Convolutions and their transposes, over one to three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Conv, ConvTranspose
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.error_bounds import ROUNDED, ProductRounding
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine, contraction
from ranum_falsify.domain.rules.indexing import scatter
from ranum_falsify.domain.rules.matrix.bilinear import bilinear
from ranum_falsify.domain.rules.shape import reshape
from ranum_falsify.domain.rules.support.building import infinity_aware, unknown
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.relations.fused import requantise, saturate, unless_quantised
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.families import across, summing
from ranum_falsify.operators.support.functions import ints
from ranum_falsify.operators.support.windows import UNIFORM, Axis, axes_of, pad_spatial, spatial

_CHEAP = 1 << 12
"""Multiplications that take no more time than the call of a kernel."""

_FEW = 4
"""Channels of images and spectra."""

_CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


def convolve(op: Operation, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Return the convolution of an operand, as a node's attributes say."""
    rank = spatial(x.shape, op)
    if not w.shape[1]:
        # PyTorch gives a result without channels; in ONNX it has those of the kernel, sums of nothing.
        x, w = x.new_zeros(_with_channels(x.shape, op.group)), w.new_zeros(_with_channels(w.shape, 1))
    axes = axes_of(op, x.shape, w.shape[2:])
    strides, dilations = [axis.stride for axis in axes], [axis.dilation for axis in axes]
    padding = [axis.before for axis in axes]
    if any(axis.before != axis.after or axis.before < 0 for axis in axes):
        x = pad_spatial(x, [(axis.before, axis.after) for axis in axes])
        padding = [0] * rank
    result: Tensor = _CONV[rank](x, w, b, strides, padding, dilations, op.group)
    return result


def _with_channels(shape: Sequence[int], channels: int) -> tuple[int, ...]:
    return (shape[0], channels, *shape[2:])


def _conv_transpose(op: Operation, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    rank = spatial(x.shape, op)
    strides = ints(op.strides) or [1] * rank
    dilations = ints(op.dilations) or [1] * rank
    extra = ints(op.output_padding) or [0] * rank
    if any(more >= stride for more, stride in zip(extra, strides, strict=True)):
        raise UnsupportedAttributeError("output_padding from the stride on is refused by runtimes; make it smaller")
    fulls = [(x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1 for i in range(rank)]
    cuts = _cuts(op, x, fulls, strides, extra)
    apply = _TRANSPOSED[rank]
    if all(before == after and before >= 0 for before, after in cuts):
        direct: Tensor = apply(x, w, b, strides, [before for before, _ in cuts], extra, op.group, dilations)
        return direct
    # PyTorch crops both sides only by the same amount; a transpose reads zeros beyond its full extent.
    full = apply(x, w, None, strides, 0, 0, op.group, dilations)
    y = pad_spatial(full, [(-before, more - after) for (before, after), more in zip(cuts, extra, strict=True)])
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def _cuts(op: Operation, x: Tensor, fulls: list[int], strides: list[int], extra: list[int]) -> list[tuple[int, int]]:
    """Return how much of the full transpose is cut off before and after each axis."""
    rank = len(fulls)
    mode = op.auto_pad or "NOTSET"
    given = ints(op.output_shape)
    if given is None and mode not in ("SAME_UPPER", "SAME_LOWER"):
        pads = [0] * (2 * rank) if mode == "VALID" else ints(op.pads) or [0] * (2 * rank)
        return [(pads[i], pads[rank + i]) for i in range(rank)]
    if any(extra):
        raise UnsupportedAttributeError("runtimes differ in output_padding beside auto_pad or output_shape; give pads")
    sizes = [x.shape[2 + i] * strides[i] for i in range(rank)] if given is None else given[-rank:]
    cuts = []
    for full, size, stride in zip(fulls, sizes, strides, strict=True):
        if size - full >= stride:
            raise UnsupportedAttributeError("its output_shape is too large, which runtimes refuse; make it smaller")
        # In ONNX Runtime padding is never negative: what `output_shape` asks for beyond the full extent lies after it.
        total = max(full - size, 0)
        before = total // 2 if mode == "SAME_UPPER" else total - total // 2
        cuts.append((before, (total if given is None else full - size) - before))
    return cuts


# bounds ---------------------------------------------------------------------------------------------------------


@infinity_aware
def _conv_bounds(site: Site, x: Interval, w: Interval, b: Interval | None) -> Interval:
    if not w.shape[1]:  # ONNX Runtime may leave sums of no terms unwritten
        nothing = unknown(site)[0]
        infinite = b is not None and b.may_be_infinite
        return (
            replace(nothing, lower=-nothing.upper * math.inf, upper=nothing.upper * math.inf) if infinite else nothing
        )
    w, b = requantise(site, w, b)
    how = site.rounding(max(math.prod(w.shape[1:]), 1), x.dtype)
    return saturate(site, bound_convolution(site.op, x, w, b, rounding=how), w)


def bound_convolution(
    op: Operation, x: Interval, w: Interval, b: Interval | None, *, rounding: ProductRounding = ROUNDED
) -> Interval:
    """Return bounds on the convolution that a node's attributes describe, also of integers."""
    spatial(x.shape, op)
    if not w.shape[1]:
        x = Interval.fill(0, 0, _with_channels(x.shape, op.group), x.dtype)
        w = Interval.fill(0, 0, _with_channels(w.shape, 1), w.dtype)
    axes = axes_of(op, x.shape, w.shape[2:])
    shape = (x.shape[0], w.shape[0], *(axis.count for axis in axes))
    terms = max(math.prod(w.shape[1:]), 1)
    x, merged = _find_merged(x, w, axes)
    split = [2 + i for i, one in enumerate(merged) if not one]
    x, w = x.split(*split), w.split(*split)
    contraction = _contraction(x, w, axes, merged, op.group)
    if contraction.groups > 1:
        w = w.split(0)
    return bilinear(contraction, x, w, terms=terms, shape=shape, bias=b, alike=contraction.alike, rounding=rounding)


def _find_merged(x: Interval, w: Interval, axes: list[Axis]) -> tuple[Interval, list[bool]]:
    """Tell which spatial axes stay merged; the bounds then enclose the padding.

    An axis with padding is split where that costs little: what lies near the border reads fewer elements, which adds up
    from layer to layer.  Else it is split only where the bounds do not yet enclose the padding and the kernel is known
    along it; if the kernel is merged itself, the bounds grow to include 0.
    """
    merged = [x.lower.shape[2 + i] == 1 < axis.size and axis.size >= axis.extent for i, axis in enumerate(axes)]
    padded = [one and bool(axis.before or axis.after) for one, axis in zip(merged, axes, strict=True)]
    windows = math.prod(axis.count * axis.kernel for axis, one in zip(axes, merged, strict=True) if not one)
    windows *= math.prod(axis.count * axis.kernel for axis, pad in zip(axes, padded, strict=True) if pad)
    if windows * math.prod(w.lower.shape[:2]) * x.lower.shape[0] <= _CHEAP:
        return x, [one and not pad for one, pad in zip(merged, padded, strict=True)]
    if not any(padded) or bool(x.contains(0).all()):
        return x, merged
    if all(w.lower.shape[2 + i] < axis.kernel for i, axis in enumerate(axes) if padded[i]):
        return replace(x, lower=x.lower.clamp(max=0), upper=x.upper.clamp(min=0)), merged
    return x, [one and not pad for one, pad in zip(merged, padded, strict=True)]


def _contraction(x: Interval, w: Interval, axes: list[Axis], merged: list[bool], groups: int) -> _Contraction:
    channels, inner = x.lower.shape[1], w.lower.shape[1]
    alike = [1] if channels == 1 and inner > 1 else []
    alike += [2 + i for i, one in enumerate(merged) if one and w.lower.shape[2 + i] > 1]
    repeated = [w.shape[2 + i] for i, one in enumerate(merged) if one and w.lower.shape[2 + i] == 1]
    if channels == 1 == inner:
        repeated.append(w.shape[1])
    return _Contraction(
        axes=[UNIFORM if one else axis for one, axis in zip(merged, axes, strict=True)],
        groups=groups if channels > 1 else 1,
        added=groups if channels > 1 and inner == 1 < w.shape[1] else None,
        alike=alike,
        times=math.prod(repeated),
    )


@dataclass(frozen=True)
class _Contraction:
    """The convolution of stored bounds: the parts that read a merged dimension are added up first.

    Attributes:
        axes: Windows along each spatial axis.
        groups: Groups of channels.
        added: Number of sums into which the channels of the operand are added, because the kernel is the same for all
            channels of a group; None if it is not.
        alike: Dimensions of the kernel that read equal bounds.
        times: How often equal bounds of the operand are read with equal bounds of the kernel.
    """

    axes: list[Axis]
    groups: int
    added: int | None
    alike: list[int]
    times: int

    def __call__(self, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        if self.alike:
            w = w.sum(self.alike, keepdim=True)
        if self.times > 1:
            w = w * self.times
        if self.added is not None:
            x = x.reshape(x.shape[0], self.added, -1, *x.shape[2:]).sum(2)
        padding = [axis.before for axis in self.axes]
        if any(axis.before != axis.after or axis.before < 0 for axis in self.axes):
            x = pad_spatial(x, [(axis.before, axis.after) for axis in self.axes])
            padding = [0] * len(padding)
        strides, dilations = [a.stride for a in self.axes], [a.dilation for a in self.axes]
        fused = None if b is None or b.numel() not in (1, w.shape[0]) else b.reshape(-1).expand(w.shape[0])
        if x.ndim == 4 and x.shape[1] <= _FEW and x.numel() > w.numel():
            # PyTorch's kernels for few channels take three times as long in the usual layout.
            x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
        y: Tensor = _CONV[len(self.axes)](x, w, fused, strides, padding, dilations, self.groups)
        return y if b is None or fused is not None else y + b.reshape(-1, *[1] * len(self.axes))


@infinity_aware
def _conv_transpose_bounds(site: Site, x: Interval, w: Interval, b: Interval | None) -> Interval:
    rank, op = spatial(x.shape, site.op), site.op
    w, b = requantise(site, w, b)
    strides, dilations = ints(op.strides) or [1] * rank, ints(op.dilations) or [1] * rank
    # Elements of the kernel that reach one place of the result lie a whole number of strides apart.
    steps = [stride // math.gcd(stride, step) for stride, step in zip(strides, dilations, strict=True)]
    terms = w.shape[0] // op.group * math.prod(-(-w.shape[2 + i] // step) for i, step in enumerate(steps))
    uniform = x.is_scalar and w.is_scalar and (b is None or b.is_scalar)
    if uniform:
        # Some places are reached by fewer.
        x = replace(x, lower=x.lower.clamp(max=0), upper=x.upper.clamp(min=0))
    else:
        x, w = x.split(*range(1, rank + 2)), w.split(*range(rank + 2))

    def product(values: Tensor, kernel: Tensor, c: Tensor | None) -> Tensor:
        y = values * kernel * terms if uniform else _conv_transpose(op, values, kernel, None)
        return y if c is None else y + c.reshape(-1, *[1] * rank)

    # In half precision PyTorch adds up one rounded contribution for each place of the kernel.
    places = ProductRounding(math.prod(w.shape[2:]))
    return bilinear(product, x, w, terms=max(terms, 1), shape=site.shape, bias=b, rounding=places)


_LINEAR = unless_quantised(Affine(factors=("x", "w"), terms=contraction))

summing(torch=convolve, interval=_conv_bounds, linear=_LINEAR, batch=batching.samplewise)(Conv)
summing(torch=_conv_transpose, interval=_conv_transpose_bounds, linear=_LINEAR, batch=batching.samplewise)(
    ConvTranspose
)


def _places(op: Operation, image: np.ndarray, block: np.ndarray) -> tuple[Tensor, list[int], list[tuple[int, int]]]:
    """Return where elements of a block, and of each block, land in the padded image; its sizes; and its padding."""
    rank = len(image)
    strides, dilations = ints(op.strides) or [1] * rank, ints(op.dilations) or [1] * rank
    pads = ints(op.pads) or [0] * (2 * rank)
    padded = [int(image[i]) + pads[i] + pads[rank + i] for i in range(rank)]
    flat = torch.zeros(1, 1, dtype=torch.int64)
    for i, size in enumerate(padded):
        inside = torch.arange(int(block[i])) * dilations[i]
        starts = torch.arange(0, size - int(inside[-1]), strides[i])
        positions = flat[:, None, :, None] * size + (inside[:, None] + starts)[None, :, None, :]
        flat = positions.reshape(len(flat) * len(inside), -1)
    return flat, padded, [(pads[i], pads[rank + i]) for i in range(rank)]


def _image(y: Tensor, shape: tuple[int, ...], padded: list[int], pads: list[tuple[int, int]]) -> Tensor:
    return pad_spatial(y.reshape(*shape, *padded), [(-before, -after) for before, after in pads])


def _col2im(op: Operation, x: Tensor, image: np.ndarray, block: np.ndarray) -> Tensor:
    places, padded, pads = _places(op, image, block)
    shape = (x.shape[0], x.shape[1] // len(places))
    zeros = x.new_zeros(*shape, math.prod(padded))
    y = zeros.index_add(2, places.reshape(-1).to(x.device), x.reshape(*shape, places.numel()))
    return _image(y, shape, padded, pads)


def _col2im_bounds(site: Site, x: Interval, image: np.ndarray, block: np.ndarray) -> Interval:
    places, padded, pads = _places(site.op, image, block)
    shape = (x.shape[0], x.shape[1] // len(places))
    columns = reshape(x, (math.prod(shape), places.numel())).move(lambda bound: bound.T)
    zeros = Interval.fill(0, 0, (math.prod(padded), math.prod(shape)), x.dtype)
    y = scatter(zeros, places.reshape(-1, 1).expand(columns.shape), columns, "add")
    return replace(y.move(lambda bound: _image(bound.T, shape, padded, pads)), nan=y.nan, overflows=y.overflows)


def _block_size(op: Operation, shapes: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
    return shapes[0][1] // output[1]


@across(
    torch=_col2im,
    interval=_col2im_bounds,
    linear=Affine(terms=_block_size),
    batch=batching.samplewise,
    kernel=None,
    valid=(),
    operands=("x", "image_shape", "block_shape"),
    static=("image_shape", "block_shape"),
)
class Col2Im(Operation):
    """https://onnx.ai/onnx/operators/onnx__Col2Im.html."""
