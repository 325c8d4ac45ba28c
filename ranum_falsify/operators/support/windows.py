"""Geometry of sliding windows: kernels, strides, dilations and padding of convolutions and pools.

Sources: https://onnx.ai/onnx/operators/onnx__Conv.html and https://onnx.ai/onnx/operators/onnx__MaxPool.html.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from dnnv.nn import Operation
from torch import Tensor
from torch.nn import functional

from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support.functions import ints


@dataclass(frozen=True)
class Axis:
    """Windows along one spatial axis, which read `kernel` elements each of an operand's `size`.

    Padding before the first element and after the last one cuts where it is negative; there are `count` windows.
    """

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    count: int

    @property
    def extent(self) -> int:
        """Elements from the first to the last of a window."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def full(self) -> int:
        """Number of windows that lie in the padded operand."""
        return (self.size + self.before + self.after - self.extent) // self.stride + 1

    @property
    def beyond(self) -> int:
        """Elements that the last window reads after the padding, where `ceil_mode` let it."""
        return max((self.count - 1) * self.stride + self.extent - self.before - self.size - self.after, 0)

    @property
    def left_over(self) -> int:
        """Elements of the operand and its padding that no window from first to last spans."""
        return max(self.before + self.size + self.after - (self.count - 1) * self.stride - self.extent, 0)

    def starts(self) -> range:
        """Return where each window starts in the operand; negative in the padding."""
        return range(-self.before, self.count * self.stride - self.before, self.stride)


UNIFORM = Axis(size=1, kernel=1, stride=1, dilation=1, before=0, after=0, count=1)
"""What windows along a merged axis come down to: they read one element, because all are equal."""


def spatial(shape: Sequence[int], op: Operation) -> int:
    """Return the number of spatial axes of an operand `(batch, channels, *spatial)`; PyTorch's kernels take 1 to 3."""
    rank = len(shape) - 2
    if not 1 <= rank <= 3:
        raise UnsupportedAttributeError(
            f"{type(op).__name__} over {max(rank, 0)} spatial axes is not supported; use 1, 2 or 3"
        )
    return rank


def axes_of(op: Operation, shape: Sequence[int], kernel: Sequence[int]) -> list[Axis]:
    """Return the windows of a convolution or pool along each spatial axis of an operand `(batch, channels, *spatial)`.

    Raises:
        UnsupportedAttributeError: ONNX Runtime refuses the padding that they ask for, or cuts off elements by rules of
            its own.
    """
    rank = len(kernel)
    strides = ints(getattr(op, "strides", None)) or [1] * rank
    dilations = ints(getattr(op, "dilations", None)) or [1] * rank
    pads = ints(getattr(op, "pads", None)) or [0] * (2 * rank)
    mode, ceil = op.auto_pad or "NOTSET", bool(getattr(op, "ceil_mode", 0))
    axes = [
        _axis(shape[2 + i], kernel[i], strides[i], dilations[i], (pads[i], pads[rank + i]), mode, ceil)
        for i in range(rank)
    ]
    for axis in axes if mode.startswith("SAME") else ():
        if axis.dilation != 1:
            raise UnsupportedAttributeError("auto_pad with dilations is read differently by runtimes; give pads")
        # Of one element that is left over, the last window is still the last.
        if axis.left_over > 1:
            raise UnsupportedAttributeError("auto_pad with strides beyond the kernel cuts; runtimes differ; give pads")
    return axes


def _axis(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], mode: str, ceil: bool) -> Axis:
    extent = (kernel - 1) * dilation + 1
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        count = -(-size // stride)
        total = max((count - 1) * stride + extent - size, 0)
        small, large = total // 2, total - total // 2
        before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
        return Axis(size, kernel, stride, dilation, before, after, count)
    before, after = (0, 0) if mode == "VALID" else pads
    room = size + before + after - extent
    count = (-(-room // stride) if ceil else room // stride) + 1
    if ceil and (count - 1) * stride >= size + before:
        # A window that starts in the padding after the operand is left out.
        count -= 1
    return Axis(size, kernel, stride, dilation, before, after, count)


def pad_spatial(x: Tensor, amounts: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    """Return the operand with padding before and after each spatial axis; negative amounts cut."""
    if not any(before or after for before, after in amounts):
        return x
    flat = [amount for before, after in reversed(amounts) for amount in (before, after)]
    return functional.pad(x, flat, value=value)


def view_windows(x: Tensor, dim: int, axis: Axis) -> Tensor:
    """Return the windows along one dimension as a further, last dimension; padding must be in `x` already."""
    if axis.dilation == 1:
        return x.unfold(dim, axis.kernel, axis.stride).narrow(dim, 0, axis.count)
    starts = torch.arange(axis.count, device=x.device) * axis.stride
    positions = starts[:, None] + torch.arange(axis.kernel, device=x.device) * axis.dilation
    read = x.index_select(dim, positions.reshape(-1))
    shape = (*x.shape[:dim], axis.count, axis.kernel, *x.shape[dim + 1 :])
    return read.reshape(shape).movedim(dim + 1, -1)
