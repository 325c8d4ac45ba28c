"""Operators that choose, move and add up elements: indexing, reductions, products of matrices, convolutions, pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ranum_falsify.checker.bounds import Bounds, drift, enclose, least, require
from ranum_falsify.checker.elementwise import choose, rise, same_float
from ranum_falsify.checker.node import NodeView, by_planes, rule

_EXTRA_ROUNDINGS = 6  # a bias added, either factor and the result scaled, conversions
_MOVING: dict[str, Sequence[int]] = {  # the operands whose elements move to where the others, known ones, say
    "Concat": range(1 << 20),
    "Where": (1, 2),
    **dict.fromkeys("Pad ScatterElements ScatterND".split(), (0, 2)),
    **dict.fromkeys(
        "Compress DepthToSpace Expand Flatten Gather GatherElements GatherND Identity Reshape ReverseSequence Slice"
        " SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze".split(),
        (0,),
    ),
}
EXACT = frozenset(  # on known integers, beside what moves, chooses and compares them
    "Shape Size Range Add Sub Mul MatMul Abs Neg ReduceSum ReduceProd CumSum NonZero OneHot ArgMax ArgMin".split()
)


@rule("Constant ConstantOfShape EyeLike Shape Size")
def make_exact(node: NodeView, *operands: Bounds | None) -> list[Bounds]:
    """Compute what known integers, or shapes alone, come to."""
    require(node.op != "ConstantOfShape" or all(one and one.is_point for one in operands))
    return [Bounds.of(one) for one in node.run(*(one and one.lower for one in operands))]


@rule(" ".join(_MOVING), by_planes)
def _move(node: NodeView, *operands: Any) -> list[Bounds]:
    places = _MOVING[node.op]
    moved = [one for place, one in enumerate(operands) if place in places and one]
    is_known = all(one is None or one.is_point for place, one in enumerate(operands) if place not in places)
    if is_known and _is_plain(node, *operands):
        require(len({one.dtype for one in moved}) == 1)
        return list(rise(node, *operands))
    rules = {"Where": choose, "ScatterElements": _scatter, "ScatterND": _scatter}
    return [rules.get(node.op, _gather)(node, *operands)]


def _is_plain(node: NodeView, *operands: Any) -> bool:
    """Tell whether ONNX Runtime moves elements as the reference does.

    Where steps of Slice go back, it takes a start from before the front for the front, and the greatest end for the
    front, too.  Where places that are written are not apart, the order of writing counts.
    """
    x, second, third, axes, steps = [*operands, *[None] * 4][:5]
    if node.op == "Pad":
        require(x and x.lower.size, second is None or second.lower >= 0, not node.attribute("value", 0.0))
    elif node.op == "Slice" and x and second and third and steps and (steps.lower < 0).any():
        sizes = np.array(x.shape)[axes.lower if axes else slice(second.lower.size)]
        require(-sizes <= second.lower, third.lower <= sizes)
    elif node.op.startswith("Scatter") and x and second and third:
        marks = 1.0 + np.arange(third.lower.size).reshape(third.shape)
        is_apart = bool(np.isin(marks, node.run(np.zeros(x.shape), second.lower, marks)[0]).all())
        return is_apart and node.attribute("reduction", "none") == "none"
    return True


def _gather(node: NodeView, x: Bounds, at: Bounds) -> Bounds:
    """Bound a choice by all elements that it may choose."""
    require(node.op.startswith("Gather"), x.lower.size, not node.attribute("batch_dims", 0))
    axes = tuple(range(at.shape[-1])) if node.op == "GatherND" else (int(node.attribute("axis", 0)) % x.lower.ndim,)
    sizes = np.array(x.shape)[[*axes]]
    require(at.lower >= -sizes, at.upper < sizes)
    ends = x.lower.min(axes, keepdims=True), x.upper.max(axes, keepdims=True)
    return Bounds(*ends).map(lambda end: node.run(np.broadcast_to(end, x.shape), np.zeros_like(at.lower))[0])


def _scatter(node: NodeView, x: Bounds, at: Bounds, new: Bounds) -> Bounds:
    """Bound elements that may be written over, or added to, anywhere."""
    reduction, size = node.attribute("reduction", "none"), x.shape[int(node.attribute("axis", 0))]
    require(node.op == "ScatterElements", new.lower.size, reduction in ("none", "add"))
    require(at.lower >= -size, at.upper < size)
    if reduction == "add":
        added = Bounds(np.minimum(new.real.lower, 0.0).sum(), np.maximum(new.real.upper, 0.0).sum())
        return roundings(x + added, x.size + new.size.sum(), new.lower.size + 1, x.dtype)
    return Bounds(np.minimum(x.lower, new.lower.min()), np.maximum(x.upper, new.upper.max()))


@rule("Dropout")
def _drop(node: NodeView, x: Bounds, ratio: Bounds | None = None, training: Bounds | None = None) -> list[Bounds]:
    require(training is None or not training.upper.any())
    return [x, Bounds(np.zeros(x.shape, bool), np.ones(x.shape, bool))][: len(node.proto.output)]


@rule("ArgMax ArgMin")
def _places(node: NodeView, x: Bounds) -> Bounds:
    made = node.run(x.lower)[0]
    return Bounds(np.zeros_like(made), np.full_like(made, x.shape[node.attribute("axis", 0)] - 1))


@rule("Mod")
def _modulo(node: NodeView, x: Bounds, by: Bounds) -> Bounds:
    require(x.dtype.kind in "iu", by.lower > 0)
    high = by.upper - 1 + np.zeros_like(x.upper)
    return Bounds(np.zeros_like(high), high)


def roundings(found: Bounds, magnitude: np.ndarray, terms: int, dtype: np.dtype[Any], scale: float = 1.0) -> Bounds:
    """Bound sums as runtimes compute them, in any order, by exact ones, sums of magnitudes and the number of terms.

    Kernels may apply a scale of all terms before or after they add up.  No partial sum may overflow.
    """
    count = terms + _EXTRA_ROUNDINGS
    error = magnitude * drift(count, dtype) + 2 * count * least(dtype) * (magnitude > 0) * max(1.0, abs(scale))
    whole = (magnitude + error) * (1 + 1e-6) * max(1.0, 1 / abs(scale))
    require(found.lower.size, terms, whole < np.finfo(dtype).max)
    return enclose(found, dtype, error)


def add_products(
    apply: Callable[..., Any], a: Bounds, b: Bounds, terms: int, bias: Sequence[Bounds | None] = (), scale: float = 1.0
) -> Bounds:
    """Bound what a bilinear function of so many terms, a scale in it, makes of intervals, beside a bias."""
    x, y, added = a.real, b.real, [one for one in bias if one]
    (middle, reach), (other, far) = x.ball, y.ball
    centre, magnitude = apply(middle, other), np.abs(apply(x.size, y.size))
    radius = np.abs(apply(reach, np.abs(other) + far))
    if far.any():
        radius = radius + np.abs(apply(np.abs(middle), far))
    found = Bounds(centre - radius, centre + radius)
    for one in added:
        found, magnitude = found + one, magnitude + one.size
    positive = all((one.lower >= 0).all() for one in (x, y, *added)) and scale > 0
    return roundings(found, magnitude, terms, same_float(a), scale).clip(0.0 if positive else -np.inf)


@rule("Sum Mean", by_planes)
def _add_up(node: NodeView, first: Bounds, *others: Bounds) -> Bounds:
    same_float(first, *others)
    scale = 1 / (1 + len(others)) if node.op == "Mean" else 1.0
    bias = [one if scale == 1.0 else one * Bounds.of(scale) for one in others]
    return add_products(np.multiply, first, Bounds.of(scale), 1 + len(others), bias, scale)


@rule("MatMul Gemm com.microsoft.FusedMatMul", by_planes)
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
    return add_products(lambda a, b: scale * np.matmul(a, b), x, w, x.shape[-1], [share], scale)


@rule("Conv ConvTranspose", by_planes)
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


@rule("MaxPool GlobalMaxPool")
@rule("AveragePool GlobalAveragePool", by_planes)
def _pool(node: NodeView, x: Bounds) -> list[Bounds]:
    """Bound the greatest elements of windows, or their means; convolutions pick the elements one by one."""
    require(x.lower.size, x.lower.ndim > 2)
    kernel = node.attribute("kernel_shape", x.shape[2:])
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


def axes_of(node: NodeView, x: Bounds, axes: Bounds | None = None) -> tuple[int, ...]:
    """Return the axes over which a node reduces."""
    require(axes is None or axes.is_point)
    own = node.attribute("axes", None)
    listed = axes.lower.reshape(-1).tolist() if axes else own
    if not listed:
        return () if node.attribute("noop_with_empty_axes", 0) else tuple(range(x.lower.ndim))
    return tuple(sorted(int(axis) % x.lower.ndim for axis in listed))


@rule("ReduceSum ReduceMean", by_planes)
def _reduce(node: NodeView, x: Bounds, axes: Bounds | None = None) -> Bounds:
    over, keep = axes_of(node, x, axes), bool(node.attribute("keepdims", 1))
    require(len(over) or not x.lower.ndim)
    terms = math.prod(x.shape[axis] for axis in over)
    scale = 1 / terms if node.op == "ReduceMean" else 1.0
    found = add_products(lambda a, b: (a * b).sum(axis=over, keepdims=keep), x, Bounds.of(scale), terms, scale=scale)
    # No rounded sum is smaller than one of its terms, if none is negative.
    is_sum = node.op == "ReduceSum" and (x.lower >= 0).all()
    return found.clip(x.lower.max(axis=over, keepdims=keep)) if is_sum else found


@rule("ReduceL1 ReduceL2 ReduceSumSquare")
def _reduce_sizes(node: NodeView, x: Bounds, axes: Bounds | None = None) -> Bounds:
    each = node.call("Abs", x) if node.op == "ReduceL1" else node.call("Mul", x, x)
    found = node.call("ReduceSum", each, Bounds.of(axes_of(node, x, axes)))
    return node.call("Sqrt", found) if node.op == "ReduceL2" else found
