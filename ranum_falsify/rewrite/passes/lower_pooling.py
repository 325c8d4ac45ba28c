"""Pools in terms of slices, convolutions and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import (
    FLOATS,
    NARROW_FLOATS,
    check_double,
    check_images,
    check_shape,
    constant,
    dtype_of,
    element_type,
    integer_attribute,
    integers_attribute,
    length_of,
    rank_of,
    shape_of,
    text_attribute,
)
from ranum_falsify.rewrite.passes.blocks import reduced, runs_of, taken
from ranum_falsify.rewrite.passes.lower_linear import Window, spatial_windows
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import Lowering, Op, RefusedError, is_read, operand

_MOST_SLICES = 256


class _GlobalPool(Lowering):
    """A pool of whole images, as a reduction."""

    reduction: str

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        dtype_of(x, FLOATS)
        check_images(x)

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        return reduced(op, self.reduction, self.opset, x, range(2, rank_of(x)), keepdims=True)


@verify.tolerance
@register(
    "lower_global_average_pool", takes="GlobalAveragePool", gives="Constant ReduceMean", needs="floats; a known rank"
)
class LowerGlobalAveragePool(_GlobalPool):
    """GlobalAveragePool becomes ReduceMean of the spatial axes."""

    reduction = "ReduceMean"


@verify.equality(signed_zero=False, everywhere=False)
@register(
    "lower_global_max_pool",
    takes="GlobalMaxPool",
    gives="Constant ReduceMax",
    needs="floats, none of them NaN; a known rank",
)
class LowerGlobalMaxPool(_GlobalPool):
    """GlobalMaxPool becomes ReduceMax of the spatial axes."""

    reduction = "ReduceMax"


@verify.tolerance
@register(
    "lower_average_pool",
    takes="AveragePool",
    gives="Constant Conv Mul",
    needs="float32 or float16, finite; a fixed number of channels, and images of fixed size",
)
class LowerAveragePool(Lowering):
    """AveragePool becomes Conv, each channel by itself, and Mul where padding does not count."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        dtype_of(x, NARROW_FLOATS)
        check_images(x)
        length_of(x, 1)
        windows = _windows(node)
        if integer_attribute(node, "count_include_pad", 0) and any((_end(window) > window.end) for window in windows):
            raise RefusedError("its last window reaches beyond the padding, which ceil_mode does not count")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        """Sum the n-th parts of n elements; where fewer count, scale up what comes out."""
        windows = _windows(node)
        kernel = [window.kernel for window in windows]
        channels, size = length_of(x, 1), int(np.prod(kernel))
        mean = op.Conv(
            x,
            constant(op, np.full((channels, 1, *kernel), 1 / size), element_type(node)),
            group=channels,
            kernel_shape=kernel,
            strides=[window.stride for window in windows],
            dilations=[window.dilation for window in windows],
            pads=[*(window.begin for window in windows), *(_end(window) for window in windows)],
        )
        covered = _covered(windows)
        if integer_attribute(node, "count_include_pad", 0) or (covered == size).all():
            return mean
        return op.Mul(mean, constant(op, (size / covered)[None, None], element_type(node)))


@verify.equality(signed_zero=False, everywhere=False)
@register(
    "lower_max_pool",
    takes="MaxPool",
    gives="Constant Concat Identity Max Slice",
    needs="floats, none of them NaN; images of fixed size; no use of the indices; for strides, opset 10",
)
class LowerMaxPool(Lowering):
    """MaxPool becomes, for each spatial axis, Max of the slices that lie under the places of the kernel."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        if any(is_read(value) for value in node.outputs[1:]):
            raise RefusedError("its indices are used")
        check_double("Max", dtype_of(x, FLOATS), self.opset)
        check_images(x)
        pieces = [runs_of(each, opset=self.opset) for window in _windows(node) for each in _elements(window)]
        slices = sum(map(len, pieces))
        if slices > _MOST_SLICES:
            raise RefusedError(f"it would take {slices:,} slices; at most {_MOST_SLICES} are made")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        made = x
        for axis, window in enumerate(_windows(node), 2):
            if window.kernel == 1 and window.count == window.length:
                continue
            parts = [taken(op, self.opset, made, axis, elements) for elements in _elements(window)]
            made = parts[0] if len(parts) == 1 else op.Max(*parts)
        return op.Identity(made) if made is x else made


def _windows(node: ir.Node) -> list[Window]:
    """Return the windows of a pool."""
    x = operand(node, 0)
    lengths = [length_of(x, axis) for axis in range(2, len(shape_of(x)))]
    windows = spatial_windows(node, lengths, integers_attribute(node, "kernel_shape", []))
    if not all(window.covered().all() for window in windows):
        raise RefusedError("a window covers nothing but padding")
    if text_attribute(node, "auto_pad", "NOTSET").startswith("SAME") and any(
        (window.count - 1) * window.stride + window.kernel < window.length for window in windows
    ):
        raise RefusedError("its auto_pad leaves out elements, which runtimes read differently; give pads")
    check_shape(node.outputs[0], [*shape_of(x)[:2], *(window.count for window in windows)])
    return windows


def _elements(window: Window) -> list[list[int]]:
    """Return the element under each place of the kernel, for each window.

    In place of padding stands the first element that the window covers, which changes no maximum.
    """
    inside = np.stack([window.inside(place) for place in range(window.kernel)])
    elements = np.stack([window.elements(place) for place in range(window.kernel)])
    first = elements[inside.argmax(0), np.arange(window.count)]
    return [[int(index) for index in row] for row in np.where(inside, elements, first)]


def _end(window: Window) -> int:
    """Return the padding at the end that the last window needs."""
    reach = (window.count - 1) * window.stride + (window.kernel - 1) * window.dilation + 1
    return max(reach - window.length - window.begin, 0)


def _covered(windows: Sequence[Window]) -> np.ndarray:
    """Return how many elements count for each place of the result."""
    made = np.ones(())
    for window in windows:
        made = np.multiply.outer(made, window.covered())
    return made
