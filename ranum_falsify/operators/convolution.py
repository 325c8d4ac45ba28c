"""Convolutions and their transposes, over one to three spatial axes."""

from __future__ import annotations

from dnnv.nn import Operation
from dnnv.nn.operations import Conv, ConvTranspose
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.linear_forms import Affine, contraction
from ranum_falsify.network.registry import operator
from ranum_falsify.operators.functions import ints
from ranum_falsify.operators.windows import axes_of, pad_spatial, spatial

__all__: list[str] = []

_CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


def _conv(op: Operation, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    rank = spatial(x, op)
    axes = axes_of(op, x, w.shape[2:])
    strides, dilations = [axis.stride for axis in axes], [axis.dilation for axis in axes]
    padding = [axis.before for axis in axes]
    if any(axis.before != axis.after or axis.before < 0 for axis in axes):
        x = pad_spatial(x, [(axis.before, axis.after) for axis in axes])
        padding = [0] * rank
    result: Tensor = _CONV[rank](x, w, b, strides, padding, dilations, op.group)
    return result


def _conv_transpose(op: Operation, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    rank = spatial(x, op)
    strides = ints(op.strides) or [1] * rank
    dilations = ints(op.dilations) or [1] * rank
    extra = ints(op.output_padding) or [0] * rank
    fulls = [(x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1 for i in range(rank)]
    cuts = _cuts(op, x, fulls, strides, extra)
    apply = _TRANSPOSED[rank]
    even = all(before == after and before >= 0 for before, after in cuts)
    if even and all(e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        direct: Tensor = apply(x, w, b, strides, [before for before, _ in cuts], extra, op.group, dilations)
        return direct
    # PyTorch cuts alike on both sides only; a transpose reads zeros beyond its full extent.
    full = apply(x, w, None, strides, 0, 0, op.group, dilations)
    y = pad_spatial(full, [(-before, more - after) for (before, after), more in zip(cuts, extra, strict=True)])
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def _cuts(op: Operation, x: Tensor, fulls: list[int], strides: list[int], extra: list[int]) -> list[tuple[int, int]]:
    """Return what is cut from the full transpose before and after each axis."""
    rank = len(fulls)
    mode = op.auto_pad or "NOTSET"
    sizes = ints(op.output_shape)
    if sizes is not None:
        sizes = sizes[-rank:]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [x.shape[2 + i] * strides[i] for i in range(rank)]
    if sizes is None:
        pads = [0] * (2 * rank) if mode == "VALID" else ints(op.pads) or [0] * (2 * rank)
        return [(pads[i], pads[rank + i]) for i in range(rank)]
    cuts = []
    for i, size in enumerate(sizes):
        total = fulls[i] + extra[i] - size
        small, large = total // 2, total - total // 2
        cuts.append((small, large) if mode == "SAME_UPPER" else (large, small))
    return cuts


operator(torch=_conv, linear=Affine(factors=("x", "w"), terms=contraction))(Conv)
operator(torch=_conv_transpose, linear=Affine(factors=("x", "w"), terms=contraction))(ConvTranspose)
