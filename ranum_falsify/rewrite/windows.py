"""Windows that kernels and pools slide over an axis: which elements each covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite.operands import integer_attribute, integers_attribute, text_attribute
from ranum_falsify.rewrite.rewrite import RefusedError


@dataclass(frozen=True, kw_only=True)
class Window:
    """What a kernel covers along an axis: its place k, at window i, is element `i * stride + k * dilation - begin`.

    Of a transposed convolution it is the other way round: element i goes to `i * stride + k * dilation - begin`.

    Attributes:
        length: How many elements the operand has.
        count: How many the result has.
        kernel: How many places the kernel has.
        stride: By how much windows are apart.
        dilation: By how much places of the kernel are.
        begin: How much padding is before the first element.
        end: How much is after the last one.
        is_transposed: Whether it is that of a transposed convolution.
    """

    length: int
    count: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    is_transposed: bool = False

    def elements(self, place: int) -> np.ndarray:
        """Return the element at a place of the kernel, for each window; some lie outside the operand."""
        starts = np.arange(self.length if self.is_transposed else self.count)
        return starts * self.stride + place * self.dilation - self.begin

    def inside(self, place: int) -> np.ndarray:
        """Return which of these lie inside."""
        elements = self.elements(place)
        inside: np.ndarray = (elements >= 0) & (elements < (self.count if self.is_transposed else self.length))
        return inside

    def pairs(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which elements of the operand go where, by a place of the kernel."""
        there = self.elements(place)
        inside = self.inside(place)
        here = np.flatnonzero(inside)
        return (here, there[inside]) if self.is_transposed else (there[inside], here)

    def covered(self) -> np.ndarray:
        """Return how many elements each window covers, padding not counted."""
        total: np.ndarray = np.sum([self.inside(place) for place in range(self.kernel)], axis=0)
        return total


def spatial_windows(node: ir.Node, lengths: Sequence[int], kernel: Sequence[int]) -> list[Window]:
    """Return the windows of a convolution or a pool, one for each spatial axis.

    Raises:
        RefusedError: There are none, or the padding is said in a way that is none.
    """
    rank = len(lengths)
    if len(kernel) != rank:
        raise RefusedError(f"its kernel has {len(kernel)} axes, its images have {rank}")
    strides = integers_attribute(node, "strides", [1] * rank)
    dilations = integers_attribute(node, "dilations", [1] * rank)
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    if spans != list(kernel) and text_attribute(node, "auto_pad", "NOTSET").startswith("SAME"):
        raise RefusedError("it has dilations and auto_pad, which runtimes read differently; give pads")
    padding = _padding(node, lengths, spans, strides)
    ceils = bool(integer_attribute(node, "ceil_mode", 0))
    windows = []
    for axis, (begin, end) in enumerate(padding):
        rest, stride = lengths[axis] + begin + end - spans[axis], strides[axis]
        count = (-(-rest // stride) if ceils else rest // stride) + 1
        if ceils and (count - 1) * stride >= lengths[axis] + begin:
            count -= 1  # a window that starts in the padding at the end is none
        if count < 1:
            raise RefusedError("its kernel is larger than its images")
        windows.append(
            Window(
                length=lengths[axis],
                count=count,
                kernel=kernel[axis],
                stride=stride,
                dilation=dilations[axis],
                begin=begin,
                end=end,
            )
        )
    return windows


def transposed_windows(node: ir.Node, lengths: Sequence[int], kernel: Sequence[int]) -> list[Window]:
    """Return the windows of a transposed convolution, one for each spatial axis.

    Raises:
        RefusedError: Its padding is not explicit.
    """
    rank = len(lengths)
    if text_attribute(node, "auto_pad", "NOTSET") != "NOTSET" or "output_shape" in node.attributes:
        raise RefusedError("its padding is not explicit")
    if len(kernel) != rank:
        raise RefusedError(f"its kernel has {len(kernel)} axes, its images have {rank}")
    strides = integers_attribute(node, "strides", [1] * rank)
    dilations = integers_attribute(node, "dilations", [1] * rank)
    pads = integers_attribute(node, "pads", [0] * (2 * rank))
    more = integers_attribute(node, "output_padding", [0] * rank)
    windows = []
    for axis, length in enumerate(lengths):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        count = (length - 1) * strides[axis] + span + more[axis] - pads[axis] - pads[axis + rank]
        if count < 1:
            raise RefusedError("its padding leaves nothing")
        windows.append(
            Window(
                length=length,
                count=count,
                kernel=kernel[axis],
                stride=strides[axis],
                dilation=dilations[axis],
                begin=pads[axis],
                end=pads[axis + rank],
                is_transposed=True,
            )
        )
    return windows


def _padding(
    node: ir.Node, lengths: Sequence[int], spans: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the padding before and after each axis."""
    rank, kind = len(lengths), text_attribute(node, "auto_pad", "NOTSET")
    if kind == "VALID":
        return [(0, 0)] * rank
    if kind == "NOTSET":
        pads = integers_attribute(node, "pads", [0] * (2 * rank))
        if min(pads, default=0) < 0:
            raise RefusedError("its padding is negative")
        return list(zip(pads[:rank], pads[rank:], strict=True))
    if kind not in ("SAME_UPPER", "SAME_LOWER"):
        raise RefusedError(f"its auto_pad {kind!r} is none")
    padding = []
    for length, span, stride in zip(lengths, spans, strides, strict=True):
        total = max((-(-length // stride) - 1) * stride + span - length, 0)
        less, more = total // 2, total - total // 2
        padding.append((less, more) if kind == "SAME_UPPER" else (more, less))
    return padding
