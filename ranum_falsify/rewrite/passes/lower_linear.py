"""Gemm and convolutions as products with a matrix, and the windows that kernels and pools slide over an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import (
    NARROW_FLOATS,
    check_integers,
    constant,
    constant_array,
    dtype_of,
    element_type,
    float_attribute,
    integer_attribute,
    integers,
    integers_attribute,
    is_finite,
    length_of,
    optional,
    rank_of,
    required_constant,
    shape_of,
    text_attribute,
)
from ranum_falsify.rewrite.passes.blocks import reshape_sizes
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import Lowering, Op, RefusedError


@dataclass(frozen=True)
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
    strides, dilations = _steps(node, lengths, kernel)
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
        windows.append(Window(lengths[axis], count, kernel[axis], stride, dilations[axis], begin, end))
    return windows


def transposed_windows(node: ir.Node, lengths: Sequence[int], kernel: Sequence[int]) -> list[Window]:
    """Return the windows of a transposed convolution, one for each spatial axis.

    Raises:
        RefusedError: Its padding is not explicit.
    """
    rank = len(lengths)
    if text_attribute(node, "auto_pad", "NOTSET") != "NOTSET" or "output_shape" in node.attributes:
        raise RefusedError("its padding is not explicit")
    strides, dilations = _steps(node, lengths, kernel)
    pads = integers_attribute(node, "pads", [0] * (2 * rank))
    more = integers_attribute(node, "output_padding", [0] * rank)
    windows = []
    for axis, length in enumerate(lengths):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        count = (length - 1) * strides[axis] + span + more[axis] - pads[axis] - pads[axis + rank]
        if count < 1:
            raise RefusedError("its padding leaves nothing")
        ends = pads[axis], pads[axis + rank]
        windows.append(Window(length, count, kernel[axis], strides[axis], dilations[axis], *ends, is_transposed=True))
    return windows


def _steps(node: ir.Node, lengths: Sequence[int], kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the strides and the dilations of a kernel."""
    rank = len(lengths)
    if len(kernel) != rank:
        raise RefusedError(f"its kernel has {len(kernel)} axes, its images have {rank}")
    return integers_attribute(node, "strides", [1] * rank), integers_attribute(node, "dilations", [1] * rank)


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


_MOST_ENTRIES = 2**22


@verify.tolerance
@register("lower_gemm", takes="Gemm", gives="Constant Add MatMul Mul Transpose", needs="float elements")
class LowerGemm(Lowering):
    """Gemm becomes MatMul and Add; constants are transposed and scaled here and now."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        self._dtype = element_type(node)
        for name in ("transA", "transB"):
            integer_attribute(node, name, 0)
        scale = float_attribute(node, "beta", 1.0)
        addend = optional(node, 2)
        array = None if addend is None else constant_array(addend)
        if array is not None and scale != 1 and not is_finite(scale * array.astype(np.float64), self._dtype):
            raise RefusedError("beta times its addend overflows")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        """Multiply, scale, add, in this order, as Gemm does."""
        product = op.MatMul(
            self._turned(op, node.inputs[0], integer_attribute(node, "transA", 0)),
            self._turned(op, node.inputs[1], integer_attribute(node, "transB", 0)),
        )
        product = self._scaled(op, product, float_attribute(node, "alpha", 1.0))
        addend, scale = optional(node, 2), float_attribute(node, "beta", 1.0)
        if addend is None or scale == 0:
            return product
        return op.Add(product, self._scaled(op, addend, scale))

    def _turned(self, op: Op, matrix: Any, turns: int) -> Any:
        array = constant_array(matrix) if turns else None
        if array is not None:
            return constant(op, array.T, self._dtype)
        return op.Transpose(matrix, perm=[1, 0]) if turns else matrix

    def _scaled(self, op: Op, value: Any, scale: float) -> Any:
        if scale == 1:
            return value
        array = constant_array(value)
        if array is not None:
            return constant(op, scale * array.astype(np.float64), self._dtype)
        return op.Mul(value, constant(op, scale, self._dtype))


@dataclass(frozen=True)
class _Linear:
    """A convolution as a matrix.

    Attributes:
        weights: By input channel, output channel, and place in the kernel; 0 between groups.
        windows: What each spatial axis pairs.
    """

    weights: np.ndarray
    windows: Sequence[Window]

    @property
    def entries(self) -> int:
        """How many entries the matrix has."""
        lengths = [window.length * window.count for window in self.windows]
        return int(np.prod([*self.weights.shape[:2], *lengths], dtype=object))

    def matrix(self) -> np.ndarray:
        """Return the matrix, rows for elements of the operand, columns for those of the result."""
        inputs, outputs, *kernel = self.weights.shape
        lengths = [window.length for window in self.windows]
        counts = [window.count for window in self.windows]
        made = np.zeros((inputs, int(np.prod(lengths)), outputs, int(np.prod(counts))))
        for place in np.ndindex(*kernel):
            pairs = [window.pairs(offset) for window, offset in zip(self.windows, place, strict=True)]
            read, written = (np.meshgrid(*[pair[side] for pair in pairs], indexing="ij") for side in (0, 1))
            rows = np.ravel_multi_index(read, lengths).reshape(-1)
            columns = np.ravel_multi_index(written, counts).reshape(-1)
            made[:, rows, :, columns] = self.weights[(..., *place)]
        return made.reshape(inputs * int(np.prod(lengths)), -1)


class _Convolution(Lowering):
    """A convolution with constant weights, as a product with a matrix."""

    _is_transposed = False

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        check_integers(self.opset)
        dtype_of(x, NARROW_FLOATS)
        bias = optional(node, 2)
        if bias is not None:
            required_constant(bias, "its bias is")
        linear = self._linear(node, x)
        if linear.entries > _MOST_ENTRIES:
            raise RefusedError(f"its matrix has {linear.entries:,} entries; at most {_MOST_ENTRIES:,} are written")
        if not is_finite(linear.weights):
            raise RefusedError("a weight is not finite")
        self._reshapes(x, linear)

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        linear = self._linear(node, x)
        flat, back = self._reshapes(x, linear)
        product = op.MatMul(op.Reshape(x, integers(op, flat)), constant(op, linear.matrix(), element_type(node)))
        bias = optional(node, 2)
        if bias is not None:
            places = int(np.prod([window.count for window in linear.windows]))
            repeated = np.repeat(required_constant(bias, "its bias is"), places)
            product = op.Add(product, constant(op, repeated, element_type(node)))
        return op.Reshape(product, integers(op, back))

    @staticmethod
    def _reshapes(x: ir.Value, linear: _Linear) -> tuple[list[int], list[int]]:
        shape, outputs = shape_of(x), linear.weights.shape[1]
        counts = [window.count for window in linear.windows]
        if shape[0] == 0:
            raise RefusedError("it is empty")
        batch = [(shape[0], 0)]
        columns = outputs * int(np.prod(counts))
        rows = linear.weights.shape[0] * int(np.prod([window.length for window in linear.windows]))
        return (
            reshape_sizes(shape, [*batch, (rows, None)]),
            reshape_sizes([shape[0], columns], [*batch, (outputs, None), *((count, None) for count in counts)]),
        )

    def _linear(self, node: ir.Node, x: ir.Value) -> _Linear:
        """Return what a convolution computes, as a matrix and its windows."""
        given = required_constant(optional(node, 1), "its weights are").astype(np.float64)
        lengths = [length_of(x, axis) for axis in range(1, rank_of(x))]
        groups, kernel = integer_attribute(node, "group", 1), list(given.shape[2:])
        channels = given.shape[0] if self._is_transposed else given.shape[1] * groups
        if channels != lengths[0]:
            raise RefusedError(f"its weights have {channels} channels, its operand {lengths[0]}")
        weights = _between_channels(given, groups)
        if self._is_transposed:
            return _Linear(weights, transposed_windows(node, lengths[1:], kernel))
        return _Linear(weights.swapaxes(0, 1), spatial_windows(node, lengths[1:], kernel))


def _between_channels(weights: np.ndarray, groups: int) -> np.ndarray:
    """Return weights between all channels, 0 between those of different groups."""
    rows, columns = weights.shape[0] // groups, weights.shape[1]
    spread = np.zeros((weights.shape[0], columns * groups, *weights.shape[2:]))
    for group in range(groups):
        here = slice(group * rows, (group + 1) * rows)
        spread[here, group * columns : (group + 1) * columns] = weights[here]
    return spread


_CONVOLUTION_NEEDS = (
    f"float32 or float16, finite; constant weights; channels and images of fixed size; a matrix of at most "
    f"{_MOST_ENTRIES:,} entries"
)


@verify.tolerance
@register("lower_conv", takes="Conv", gives="Constant Add MatMul Reshape", needs=_CONVOLUTION_NEEDS)
class LowerConv(_Convolution):
    """Conv becomes Reshape, MatMul with a matrix that has the weights wherever they are used, Add, Reshape."""


@verify.tolerance
@register(
    "lower_conv_transpose",
    takes="ConvTranspose",
    gives="Constant Add MatMul Reshape",
    needs=f"{_CONVOLUTION_NEEDS}; explicit padding",
)
class LowerConvTranspose(_Convolution):
    """ConvTranspose becomes Reshape, MatMul with a matrix that has the weights wherever they are used, Add, Reshape."""

    _is_transposed = True
