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
    apply: Callable[[np.ndarray, np.ndarray], np.ndarray],
    a: Bounds,
    b: Bounds,
    terms: int,
    bias: Sequence[Bounds | None] = (),
    *,
    scale: float = 1.0,
) -> Bounds:
    """Bound sums of products, by centre and radius of each factor.

    A bilinear function computes them in float64, of so many terms; a bias is added; `scale` is a factor in all.
    """
    x, y, added = a.real, b.real, [one for one in bias if one is not None]
    centre, magnitude = apply(x.middle, y.middle), np.abs(apply(x.size, y.size))
    radius = np.abs(apply(x.radius, np.abs(y.middle) + y.radius))
    if y.radius.any():
        radius = radius + np.abs(apply(np.abs(x.middle), y.radius))
    found = Bounds(centre - radius, centre + radius)
    for one in added:
        found, magnitude = found + one, magnitude + one.size
    positive = all((one.lower >= 0).all() for one in (x, y, *added)) and scale > 0
    return roundings(found, magnitude, terms, same_float(a), scale).at_least(0.0 if positive else -np.inf)


@rule("Sum Mean")
@affine
def _add_up(node: NodeView, first: Bounds, *others: Bounds) -> Bounds:
    same_float(first, *others)
    scale = 1 / (1 + len(others)) if node.op == "Mean" else 1.0
    bias = [one if scale == 1.0 else one * Bounds.of(scale) for one in others]
    return add_products(np.multiply, first, Bounds.of(scale), 1 + len(others), bias, scale=scale)


@rule("MatMul Gemm com.microsoft.FusedMatMul")
@affine
def _multiply(node: NodeView, x: Bounds, w: Bounds, bias: Bounds | None = None) -> Bounds:
    same_float(x, w, bias)
    flips, scale = [bool(node.attribute(f"trans{side}", 0)) for side in "AB"], node.attribute("alpha", 1.0)
    if node.op == "Gemm":
        require(x.lower.ndim == w.lower.ndim == 2)
    else:  # ONNX Runtime's FusedMatMul does not look at transA beside a vector.
        require(bias is None, not node.attribute("transBatchA", 0), not node.attribute("transBatchB", 0))
        require(not any(flips) or min(x.lower.ndim, w.lower.ndim) > 1)
    x, w = (one.map(lambda end: end.swapaxes(-1, -2)) if flip else one for one, flip in zip((x, w), flips, strict=True))
    share = bias and bias * Bounds.of(node.attribute("beta", 1.0))
    return add_products(lambda a, b: scale * np.matmul(a, b), x, w, x.shape[-1], [share], scale=scale)


@rule("Conv ConvTranspose")
@affine
def _convolve(node: NodeView, x: Bounds, w: Bounds, bias: Bounds | None = None, beside: Bounds | None = None) -> Bounds:
    same_float(x, w, bias, beside)
    column = bias and bias.map(lambda end: end.reshape(-1, *[1] * (x.lower.ndim - 2)))
    if node.op == "Conv":
        return add_products(lambda a, b: node.run(a, b)[0], x, w, math.prod(w.shape[1:]), [column, beside])
    terms = w.shape[0] // node.attribute("group", 1) * math.prod(w.shape[2:])
    return add_products(lambda a, b: _convolve_back(node, a, b), x, w, terms, [column])


def _convolve_back(node: NodeView, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return a transposed convolution: that of numbers apart from each other with the kernel back to front."""
    rank = x.ndim - 2
    strides, wider = node.attribute("strides", [1] * rank), node.attribute("output_padding", [0] * rank)
    dilations, pads = node.attribute("dilations", [1] * rank), node.attribute("pads", [0] * 2 * rank)
    apart = np.zeros((*x.shape[:2], *((n - 1) * step + 1 for n, step in zip(x.shape[2:], strides, strict=True))))
    apart[:, :, *(slice(None, None, step) for step in strides)] = x
    reach = np.multiply(dilations, np.array(w.shape[2:]) - 1)
    around = np.stack([reach - pads[:rank], reach - pads[rank:] + wider], axis=1)
    parts = np.split(np.flip(w, tuple(range(2, 2 + rank))), node.attribute("group", 1))
    plain = node.like("Conv", strides=[1] * rank, pads=[0] * 2 * rank, auto_pad="NOTSET")
    return plain.run(np.pad(apart, [(0, 0), (0, 0), *around]), np.concatenate([one.swapaxes(0, 1) for one in parts]))[0]


@rule("GlobalMaxPool MaxPool")
def _pool(node: NodeView, x: Bounds) -> list[Bounds]:
    """Bound the greatest elements of windows, or their means; convolutions pick the elements one by one."""
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
    share = 1 / np.asarray(size if node.attribute("count_include_pad", 0) else (at > 0).sum(2))
    return [add_products(lambda a, b: np.append(0.0, a)[at].sum(2) * b, x, Bounds.of(share), size, scale=1 / size)]


rule("AveragePool GlobalAveragePool")(affine(_pool))


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
    if node.op == "ReduceL1":
        x = node.call("Abs", x)
    elif node.op in ("ReduceSumSquare", "ReduceL2"):
        x = square(x)
    found = add_elements(x, over, keep=keep, mean=node.op == "ReduceMean")
    return node.call("Sqrt", found) if node.op == "ReduceL2" else found


rule("ReduceSum ReduceMean")(affine(_reduce))


def add_elements(x: Bounds, axes: tuple[int, ...], *, keep: bool, mean: bool) -> Bounds:
    """Bound sums of elements, or means."""
    terms = math.prod(x.shape[axis] for axis in axes)
    scale = 1 / terms if mean else 1.0
    found = add_products(
        lambda a, b: (a * b).sum(axis=axes, keepdims=keep), x, Bounds.of(scale), terms, scale=scale
    )  # no rounded sum is smaller than one of its terms, if none is negative
    is_sum = not mean and (x.lower >= 0).all()
    return found.at_least(x.lower.max(axis=axes, keepdims=keep)) if is_sum else found
