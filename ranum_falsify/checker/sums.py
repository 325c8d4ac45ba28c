"""Sums of products and of elements, in any order: matrix products, convolutions, reductions, averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ranum_falsify.checker.bounds import Bounds, drift, enclose, least, require, unit
from ranum_falsify.checker.forms import Form, add_up, multiply
from ranum_falsify.checker.node import NodeView, rule

_EXTRA_ROUNDINGS = 6  # a bias added, either factor and the result scaled, conversions

Bilinear = Callable[[np.ndarray, np.ndarray], np.ndarray]


def same_float(*operands: Bounds | None) -> np.dtype[Any]:
    """Return the floating type of all operands that are given."""
    dtypes = {one.dtype for one in operands if one is not None}
    require(len(dtypes) == 1, all(one is None or one.is_float for one in operands))
    return dtypes.pop()


def roundings(
    found: Bounds, magnitude: np.ndarray, terms: int, dtype: np.dtype[Any], scale: float = 1.0, form: Form | None = None
) -> Bounds:
    """Bound sums as runtimes compute them, in any order, if no partial sum overflows.

    Of the terms, there are the sum, that of magnitudes, their number and type, a factor of all of them, which kernels
    may apply before or after they add up, and the sum as linear functions.
    """
    count = terms + _EXTRA_ROUNDINGS
    error = magnitude * drift(count, dtype) + 2 * count * least(dtype) * (magnitude > 0) * max(1.0, abs(scale))
    whole = (magnitude + error) * (1 + 1e-6) * max(1.0, 1 / abs(scale))
    require(found.lower.size, terms, whole < np.finfo(dtype).max)
    return enclose(found, dtype, error, form)


def add_products(
    apply: Bilinear, a: Bounds, b: Bounds, terms: int, bias: Sequence[Bounds] = (), *, scale: float = 1.0
) -> Bounds:
    """Bound sums of products, by centre and radius of each factor.

    A bilinear function computes them in float64, of so many terms; a bias is added; `scale` is a factor of all.
    """
    x, y = a.real, b.real if scale == 1.0 else b * Bounds.of(scale)
    centres = [one.lower / 2 + one.upper / 2 for one in (x, y)]
    radii = [one.upper / 2 - one.lower / 2 for one in (x, y)]
    centre, magnitude = apply(*centres), apply(x.size, y.size)
    radius = apply(radii[0], np.abs(centres[1]) + radii[1])
    if radii[1].any():
        radius = radius + apply(np.abs(centres[0]), radii[1])
    found, form = Bounds(centre - radius, centre + radius), None
    for one in bias:
        found, magnitude = found + one, magnitude + one.size
    if any(one.form for one in (a, b, *bias)):
        product = multiply(apply, a.linear, (b if scale == 1.0 else y).linear, terms)
        form = product and add_up([(one, np.asarray, np.asarray) for one in (product, *(one.linear for one in bias))])
    positive = all((one.lower >= 0).all() for one in (x, y, *bias))
    made = roundings(found, magnitude, terms, same_float(a), scale, form)
    return made.at_least(0.0 if positive else -np.inf)


@rule("MatMul Gemm com.microsoft.FusedMatMul")
def products(node: NodeView, x: Bounds, w: Bounds, bias: Bounds | None = None) -> Bounds:
    """Bound products of matrices."""
    same_float(x, w, bias)
    flips = [bool(node.attribute(f"trans{side}", 0)) for side in "AB"]
    if node.op.endswith("Gemm"):
        require(x.lower.ndim == w.lower.ndim == 2)
    else:  # ONNX Runtime's FusedMatMul does not look at transA beside a vector.
        require(bias is None, not node.attribute("transBatchA", 0), not node.attribute("transBatchB", 0))
        require(not any(flips) or min(x.lower.ndim, w.lower.ndim) > 1)
    shares = [] if bias is None else [bias * Bounds.of(node.attribute("beta", 1.0))]
    scale, terms = node.attribute("alpha", 1.0), x.shape[-2 if flips[0] else -1]

    def apply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = (one.swapaxes(-1, -2) if flip else one for one, flip in zip((a, b), flips, strict=True))
        return np.asarray(np.matmul(a, b))

    return add_products(apply, x, w, terms, shares, scale=scale)


# convolutions and windows ----------------------------------------------------------------------------------------


@rule("Conv ConvTranspose")
def convolve(node: NodeView, x: Bounds, w: Bounds, bias: Bounds | None = None, beside: Bounds | None = None) -> Bounds:
    """Bound convolutions, and the sum with what stands beside them."""
    same_float(x, w, bias, beside)
    rank, group, kernel = x.lower.ndim - 2, int(node.attribute("group", 1)), w.shape[2:]
    added = [] if bias is None else [bias.map(lambda end: end.reshape(-1, *[1] * rank))]
    node.ignore("kernel_shape")
    places = Windows(node, x.shape[2:], kernel)
    if node.op == "ConvTranspose":
        outside = list(node.attribute("output_padding", [0] * rank))
        require(not node.attribute("output_shape", None), places.auto_pad == "NOTSET")
        terms = w.shape[0] // group * math.prod(kernel)
        return add_products(lambda a, b: _spread(a, b, places, group, outside), x, w, terms, added)
    added += [] if beside is None else [beside]
    return add_products(lambda a, b: _gathered(a, b, places, group), x, w, math.prod(w.shape[1:]), added)


class Windows:
    """Where windows of a kernel lie on a tensor."""

    def __init__(self, node: NodeView, spatial: Sequence[int], kernel: Sequence[int]) -> None:
        rank = len(spatial)
        self.kernel = tuple(int(size) for size in kernel)
        self.strides = list(node.attribute("strides", None) or [1] * rank)
        self.dilations = list(node.attribute("dilations", None) or [1] * rank)
        self.pads = list(node.attribute("pads", None) or [0] * (2 * rank))
        self.auto_pad = str(node.attribute("auto_pad", "NOTSET"))
        self.reach = [(size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True)]
        if self.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            each = zip(spatial, self.strides, self.reach, strict=True)
            whole = [max((-(-size // stride) - 1) * stride + far - size, 0) for size, stride, far in each]
            fewer, more = [total // 2 for total in whole], [total - total // 2 for total in whole]
            self.pads = [*fewer, *more] if self.auto_pad == "SAME_UPPER" else [*more, *fewer]
        elif self.auto_pad == "VALID":
            self.pads = [0] * (2 * rank)
        require(min([*self.pads, 0]) >= 0)

    def view(self, x: np.ndarray, fill: float) -> np.ndarray:
        """Return windows `(batch, channels, *places, *kernel)`."""
        rank = len(self.kernel)
        pads = [(0, 0), (0, 0), *zip(self.pads[:rank], self.pads[rank:], strict=True)]
        padded = np.pad(x, pads, constant_values=fill)
        view = np.lib.stride_tricks.sliding_window_view(padded, self.reach, axis=tuple(range(2, 2 + rank)))
        steps = [slice(None, None, step) for step in (*self.strides, *self.dilations)]
        return view[(slice(None), slice(None), *steps)]


def _gathered(x: np.ndarray, w: np.ndarray, places: Windows, group: int) -> np.ndarray:
    rank = len(places.kernel)
    pairs = zip(np.split(places.view(x, 0.0), group, axis=1), np.split(w, group, axis=0), strict=True)
    axes = ([1, *range(2 + rank, 2 + 2 * rank)], list(range(1, 2 + rank)))
    return np.moveaxis(np.concatenate([np.tensordot(*pair, axes=axes) for pair in pairs], axis=-1), -1, 1)


def _spread(x: np.ndarray, w: np.ndarray, places: Windows, group: int, outside: Sequence[int]) -> np.ndarray:
    rank, steps = len(places.kernel), places.strides
    each = zip(x.shape[2:], steps, places.reach, outside, strict=True)
    full = [(n - 1) * step + far + more for n, step, far, more in each]
    image = np.zeros((x.shape[0], w.shape[1] * group, *full))
    pairs = list(zip(np.split(x, group, axis=1), np.split(w, group, axis=0), strict=True))
    for at in np.ndindex(*places.kernel):
        sums = [np.tensordot(a, b[(..., *at)], axes=([1], [0])) for a, b in pairs]
        starts = [i * dilation for i, dilation in zip(at, places.dilations, strict=True)]
        cut = [slice(i, i + (n - 1) * step + 1, step) for i, n, step in zip(starts, x.shape[2:], steps, strict=True)]
        image[(slice(None), slice(None), *cut)] += np.moveaxis(np.concatenate(sums, axis=-1), -1, 1)
    ends = [size - after for size, after in zip(full, places.pads[rank:], strict=True)]
    return image[(slice(None), slice(None), *map(slice, places.pads[:rank], ends))]


@rule("MaxPool AveragePool GlobalAveragePool GlobalMaxPool")
def pool(node: NodeView, x: Bounds) -> list[Bounds]:
    """Bound the greatest elements of windows, or their means."""
    rank, whole = x.lower.ndim - 2, node.op.removeprefix("QLinear").startswith("Global")
    require(x.lower.size, rank > 0, whole or not node.attribute("ceil_mode", 0))
    kernel = x.shape[2:] if whole else node.attribute("kernel_shape", None)
    places, inner = Windows(node, x.shape[2:], kernel), tuple(range(2 + rank, 2 + 2 * rank))
    if "Max" in node.op:
        node.ignore("storage_order")
        fill = -np.inf if x.is_float else np.iinfo(x.dtype).min
        found = x.map(lambda end: places.view(end, fill).max(inner))
        at = Bounds(np.zeros(found.shape, np.int64), np.full(found.shape, x.lower.size - 1, np.int64))
        return [found, at][: len(node.proto.output)]
    pad, terms = 1.0 if node.attribute("count_include_pad", 0) else 0.0, math.prod(places.kernel)
    share = terms / places.view(np.ones(x.shape), pad).sum(inner)  # each sum is of so many elements fewer
    return [add_products(lambda a, b: places.view(a, 0.0).sum(inner) * b, x, Bounds.of(share), terms, scale=1 / terms)]


# reductions --------------------------------------------------------------------------------------------------------


def axes_of(node: NodeView, x: Bounds, axes: Bounds | None = None) -> tuple[int, ...]:
    """Return the axes over which a node reduces."""
    require(axes is None or axes.is_point)
    listed = node.attribute("axes", None) if axes is None else axes.lower.reshape(-1).tolist()
    if not listed:
        return () if node.attribute("noop_with_empty_axes", 0) else tuple(range(x.lower.ndim))
    return tuple(sorted(int(axis) % x.lower.ndim for axis in listed))


@rule("ReduceSum ReduceMean ReduceL1 ReduceL2 ReduceSumSquare")
def _reduce(node: NodeView, x: Bounds, axes: Bounds | None = None) -> Bounds:
    over, keep = axes_of(node, x, axes), bool(node.attribute("keepdims", 1))
    node.ignore("noop_with_empty_axes")
    require(len(over) or not x.lower.ndim)
    return add_elements(node.op, x, over, keep=keep)


def add_elements(op: str, x: Bounds, axes: tuple[int, ...], *, keep: bool) -> Bounds:
    """Bound sums of elements, of their squares or of their magnitudes, and means and roots of such."""
    dtype, terms = same_float(x), math.prod(x.shape[axis] for axis in axes)
    if op in ("ReduceSumSquare", "ReduceL2"):
        x = enclose(x.magnitudes * x.magnitudes, dtype).at_least(0.0)
    x = x.magnitudes if op == "ReduceL1" else x

    def total(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray((a * b).sum(axis=axes, keepdims=keep))

    found = add_products(total, x, Bounds.of(1.0), terms, scale=1 / terms if op == "ReduceMean" else 1.0)
    if op == "ReduceSum" and (x.lower >= 0).all():  # a rounded sum of what is not negative is no smaller than any of it
        return found.at_least(x.lower.max(axis=axes, keepdims=keep))
    if op == "ReduceL2":
        root = found.real.map(np.sqrt)
        return enclose(root, dtype, 8 * unit(dtype) * root.size + least(dtype)).at_least(0.0)
    return found
