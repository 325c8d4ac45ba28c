"""Sums of products and of elements, in any order: matrix products, convolutions, reductions, averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ranum_falsify.checker.bounds import Bounds, drift, enclose, least, require
from ranum_falsify.checker.elementwise import same_float, square
from ranum_falsify.checker.forms import affine
from ranum_falsify.checker.node import NodeView, rule

_EXTRA_ROUNDINGS = 6  # a bias added, either factor and the result scaled, conversions

Bilinear = Callable[[np.ndarray, np.ndarray], np.ndarray]


def roundings(found: Bounds, magnitude: np.ndarray, terms: int, dtype: np.dtype[Any], scale: float = 1.0) -> Bounds:
    """Bound sums as runtimes compute them, in any order, if no partial sum overflows.

    Of the terms, there are the sum, that of magnitudes, their number and type, and a factor of all of them, which
    kernels may apply before or after they add up.
    """
    count = terms + _EXTRA_ROUNDINGS
    error = magnitude * drift(count, dtype) + 2 * count * least(dtype) * (magnitude > 0) * max(1.0, abs(scale))
    whole = (magnitude + error) * (1 + 1e-6) * max(1.0, 1 / abs(scale))
    require(found.lower.size, terms, whole < np.finfo(dtype).max)
    return enclose(found, dtype, error)


def add_products(
    apply: Bilinear, a: Bounds, b: Bounds, terms: int, bias: Sequence[Bounds | None] = (), *, scale: float = 1.0
) -> Bounds:
    """Bound sums of products, by centre and radius of each factor.

    A bilinear function computes them in float64, of so many terms; a bias is added; `scale` is a factor of all.
    """
    x, y, added = a.real, b.real if scale == 1.0 else b * Bounds.of(scale), [one for one in bias if one is not None]
    centre, magnitude = apply(x.middle, y.middle), apply(x.size, y.size)
    radius = apply(x.radius, np.abs(y.middle) + y.radius)
    if y.radius.any():
        radius = radius + apply(np.abs(x.middle), y.radius)
    found = Bounds(centre - radius, centre + radius)
    for one in added:
        found, magnitude = found + one, magnitude + one.size
    positive = all((one.lower >= 0).all() for one in (x, y, *added))
    return roundings(found, magnitude, terms, same_float(a), scale).at_least(0.0 if positive else -np.inf)


@rule("Sum Mean")
@affine
def _add_up(node: NodeView, first: Bounds, *others: Bounds) -> Bounds:
    same_float(first, *others)
    count = 1 + len(others)
    scale = 1 / count if node.op == "Mean" else 1.0
    bias = others if scale == 1.0 else [one * Bounds.of(scale) for one in others]
    return add_products(np.multiply, first, Bounds.of(1.0), count, bias, scale=scale)


@rule("MatMul Gemm com.microsoft.FusedMatMul")
@affine
def _multiply(node: NodeView, x: Bounds, w: Bounds, bias: Bounds | None = None) -> Bounds:
    """Bound products of matrices."""
    same_float(x, w, bias)
    flips = [bool(node.attribute(f"trans{side}", 0)) for side in "AB"]
    if node.op == "Gemm":
        require(x.lower.ndim == w.lower.ndim == 2)
    else:  # ONNX Runtime's FusedMatMul does not look at transA beside a vector.
        require(bias is None, not node.attribute("transBatchA", 0), not node.attribute("transBatchB", 0))
        require(not any(flips) or min(x.lower.ndim, w.lower.ndim) > 1)
    share = bias and bias * Bounds.of(node.attribute("beta", 1.0))
    a, b = ((lambda one: one.swapaxes(-1, -2)) if flip else np.asarray for flip in flips)
    scale, terms = node.attribute("alpha", 1.0), a(x.lower).shape[-1]
    return add_products(lambda x, w: np.matmul(a(x), b(w)), x, w, terms, [share], scale=scale)


# convolutions and windows --------------------------------------------------------------------------------------------


@rule("Conv ConvTranspose")
@affine
def _convolve(node: NodeView, x: Bounds, w: Bounds, bias: Bounds | None = None) -> Bounds:
    same_float(x, w, bias)
    column = bias and bias.map(lambda end: end.reshape(-1, *[1] * (x.lower.ndim - 2)))
    if node.op == "Conv":
        return add_products(lambda a, b: node.run(a, b)[0], x, w, math.prod(w.shape[1:]), [column])
    terms = w.shape[0] // node.attribute("group", 1) * math.prod(w.shape[2:])
    return add_products(lambda a, b: _transposed(node, a, b), x, w, terms, [column])


def _transposed(node: NodeView, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return a transposed convolution: that of numbers apart from each other with the kernel back to front."""
    rank, group = x.ndim - 2, node.attribute("group", 1)
    strides, dilations, wider = (
        node.attribute(name, [default] * rank)
        for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    pads, reach = node.attribute("pads", [0] * 2 * rank), np.multiply(dilations, np.array(w.shape[2:]) - 1)
    apart = np.zeros((*x.shape[:2], *((n - 1) * step + 1 for n, step in zip(x.shape[2:], strides, strict=True))))
    apart[(..., *(slice(None, None, step) for step in strides))] = x
    parts = [part.swapaxes(0, 1) for part in np.split(np.flip(w, tuple(range(2, 2 + rank))), group)]
    around = [*(reach - pads[:rank]), *(reach - pads[rank:] + wider)]
    node = node.like("Conv", strides=[1] * rank, pads=[0] * 2 * rank, auto_pad="NOTSET")
    cut = [slice(max(-before, 0), min(after, 0) or None) for before, after in zip(around[:rank], around[rank:])]
    margins = [(max(before, 0), max(after, 0)) for before, after in zip(around[:rank], around[rank:])]
    padded = np.pad(apart[(..., *cut)], [(0, 0), (0, 0), *margins])
    return node.run(padded, np.concatenate(parts))[0]


@rule("GlobalMaxPool MaxPool")
def _pool(node: NodeView, x: Bounds) -> list[Bounds]:
    """Bound the means of windows, or their greatest elements, which convolutions pick one by one."""
    require(x.lower.size, x.lower.ndim > 2)
    kernel = tuple(node.attribute("kernel_shape", x.shape[2:]))
    size, at = math.prod(kernel), np.arange(1.0, 1 + x.lower.size).reshape(-1, 1, *x.shape[2:])
    if node.op.startswith("Global"):
        at = at.reshape(len(at), size, *[1] * len(kernel))
    else:
        at = node.like("Conv").run(at, np.eye(size).reshape(size, 1, *kernel))[0]
    at = at.reshape(*x.shape[:2], *at.shape[1:]).astype(np.int64)  # 0 outside
    if node.op.endswith("MaxPool"):
        fill = x.dtype.type(-np.inf if x.is_float else np.iinfo(x.dtype).min)
        found = x.map(lambda end: np.append(fill, end)[at].max(2))
        places = Bounds(np.zeros(found.shape, np.int64), np.full(found.shape, x.lower.size - 1, np.int64))
        return [found, places][: len(node.proto.output)]
    counts = size if node.attribute("count_include_pad", 0) else (at > 0).sum(2)
    add = lambda a, b: np.append(0.0, a)[at].sum(2) * b  # noqa: E731
    return [add_products(add, x, Bounds.of(size / counts), size, scale=1 / size)]


rule("AveragePool GlobalAveragePool")(affine(_pool))


# reductions ----------------------------------------------------------------------------------------------------------


def axes_of(node: NodeView, x: Bounds, axes: Bounds | None = None) -> tuple[int, ...]:
    """Return the axes over which a node reduces."""
    require(axes is None or axes.is_point)
    listed = node.attribute("axes", None) if axes is None else axes.lower.reshape(-1).tolist()
    if not listed:
        return () if node.attribute("noop_with_empty_axes", 0) else tuple(range(x.lower.ndim))
    return tuple(sorted(int(axis) % x.lower.ndim for axis in listed))


@rule("ReduceL1 ReduceL2 ReduceSumSquare")
def _reduce(node: NodeView, x: Bounds, axes: Bounds | None = None) -> Bounds:
    """Bound sums of elements, of their squares or of their magnitudes, and means and roots of such."""
    over, keep = axes_of(node, x, axes), bool(node.attribute("keepdims", 1))
    require(len(over) or not x.lower.ndim)
    if node.op in ("ReduceSumSquare", "ReduceL2"):
        total = add_elements("ReduceSum", square(x), over, keep=keep)
        return total if node.op == "ReduceSumSquare" else node.call("Sqrt", total)
    return add_elements(node.op, node.call("Abs", x) if node.op == "ReduceL1" else x, over, keep=keep)


rule("ReduceSum ReduceMean")(affine(_reduce))


def add_elements(op: str, x: Bounds, axes: tuple[int, ...], *, keep: bool) -> Bounds:
    """Bound sums of elements, or means."""
    terms = math.prod(x.shape[axis] for axis in axes)

    def total(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray((a * b).sum(axis=axes, keepdims=keep))

    found = add_products(total, x, Bounds.of(1.0), terms, scale=1 / terms if op == "ReduceMean" else 1.0)
    if op == "ReduceMean" or not (x.lower >= 0).all():
        return found
    return found.at_least(x.lower.max(axis=axes, keepdims=keep))  # no rounded sum is smaller than one of its terms
