"""Sums of products and of elements, in any order: matrix products, convolutions, reductions, averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ranum_falsify.checker.bounds import Bounds, Real, drift, enclose, least, unit
from ranum_falsify.checker.node import NodeView, Operands, Results

_EXTRA_ROUNDINGS = 6  # a bias added, either factor and the result scaled, conversions
_LARGEST_INTEGER = 2.0**31 - 1

Product = Callable[[np.ndarray, np.ndarray], np.ndarray]


def bound_products(apply: Product, x: Bounds, w: Bounds, terms: int, bias: Sequence[Real] = ()) -> Bounds | None:
    """Bound sums of products, by centre and radius of each factor; None where a partial sum may overflow.

    Args:
        apply: Computes them in float64.
        x: First factors.
        w: Second factors, of the same floating type.
        terms: How many products a sum has.
        bias: What is added.
    """
    a, b = x.real, w.real
    centres = (a.low / 2 + a.high / 2, b.low / 2 + b.high / 2)
    radii = (a.high / 2 - a.low / 2, b.high / 2 - b.low / 2)
    centre, magnitude = apply(*centres), apply(a.size, b.size)
    radius = apply(radii[0], np.abs(centres[1]) + radii[1])
    if radii[1].any():
        radius = radius + apply(np.abs(centres[0]), radii[1])
    found = Real(centre - radius, centre + radius)
    for one in bias:
        found, magnitude = found + one, magnitude + one.size
    return finish(found, magnitude, terms, x.dtype)


def finish(found: Real, magnitude: np.ndarray, terms: int, dtype: np.dtype[Any]) -> Bounds | None:
    """Bound sums as runtimes compute them, in any order, given those of magnitudes."""
    count = terms + _EXTRA_ROUNDINGS
    error = magnitude * drift(count, dtype) + 2 * count * least(dtype) * (magnitude > 0)
    if not (found.low.size and terms and np.all((magnitude + error) * (1 + 1e-6) < np.finfo(dtype).max)):
        return None
    return enclose(found, dtype, error)


def matrix_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply matrices."""
    return np.asarray(np.matmul(a, b))


def products(node: NodeView, operands: Operands) -> Results:
    """Bound MatMul and Gemm."""
    x, w = operands[:2]
    if x is None or w is None or not x.is_float or x.dtype != w.dtype:
        return None
    if node.proto.op_type.endswith("Gemm"):
        return _gemm(node, x, w, operands[2] if len(operands) > 2 else None)
    flips = [[int(node.attribute(name, 0)) for name in (f"transBatch{side}", f"trans{side}")] for side in "AB"]
    if any(batch for batch, _ in flips):
        return None
    (_, first), (_, second) = flips
    # ONNX Runtime's FusedMatMul does not look at transA beside a vector.
    if (first or second) and min(x.lower.ndim, w.lower.ndim) < 2:
        return None
    a, b = (_turn(one) if flip else one for one, flip in ((x, first), (w, second)))
    alpha = abs(float(node.attribute("alpha", 1.0)))
    found = bound_products(matrix_product, a, b, a.lower.shape[-1])
    return None if found is None else _scaled(found, float(node.attribute("alpha", 1.0)), alpha)


def _turn(x: Bounds) -> Bounds:
    return Bounds(np.swapaxes(x.lower, -1, -2), np.swapaxes(x.upper, -1, -2))


def _scaled(found: Bounds, alpha: float, size: float) -> Results:
    if alpha == 1.0:
        return [found]
    factor = Real(np.asarray(alpha), np.asarray(alpha))
    scaled = found.real * factor
    return [enclose(scaled, found.dtype, 8 * unit(found.dtype) * scaled.size + least(found.dtype) * (1 + size))]


def _gemm(node: NodeView, x: Bounds, w: Bounds, bias: Bounds | None) -> Results:
    alpha, beta = (float(node.attribute(name, 1.0)) for name in ("alpha", "beta"))
    a = _turn(x) if node.attribute("transA", 0) else x
    b = _turn(w) if node.attribute("transB", 0) else w
    if x.lower.ndim != 2 or w.lower.ndim != 2:
        return None
    shares = [] if bias is None else [bias.real * Real(np.asarray(beta), np.asarray(beta))]
    if alpha != 1.0:
        if shares:
            return None
        found = bound_products(matrix_product, a, b, a.lower.shape[1])
        return None if found is None else _scaled(found, alpha, abs(alpha))
    found = bound_products(matrix_product, a, b, a.lower.shape[1], shares)
    return None if found is None else [found]


# convolutions and windows ----------------------------------------------------------------------------------------


def convolve(node: NodeView, operands: Operands) -> Results:
    """Bound Conv and ConvTranspose."""
    x, w = operands[:2]
    if x is None or w is None or not x.is_float or x.dtype != w.dtype or not x.lower.size or not w.lower.size:
        return None
    bias = operands[2] if len(operands) > 2 else None
    rank = x.lower.ndim - 2
    added = [] if bias is None else [Real(*(end.reshape(-1, *[1] * rank) for end in (bias.real.low, bias.real.high)))]
    group = int(node.attribute("group", 1))
    kernel = w.lower.shape[2:]
    node.attribute("kernel_shape", None)
    places = Windows(node, x.lower.shape[2:], kernel)
    if node.proto.op_type == "ConvTranspose":
        outside = list(node.attribute("output_padding", [0] * rank))
        if node.attribute("output_shape", None) or places.auto_pad != "NOTSET":
            return None
        terms = w.lower.shape[0] // group * math.prod(kernel)
        found = bound_products(lambda a, b: _spread(a, b, places, group, outside), x, w, terms, added)
    else:
        terms = math.prod(w.lower.shape[1:])
        found = bound_products(lambda a, b: _gathered(a, b, places, group), x, w, terms, added)
    return None if found is None else [found]


class Windows:
    """Where windows of a kernel lie on a tensor."""

    def __init__(self, node: NodeView, spatial: Sequence[int], kernel: Sequence[int]) -> None:
        rank = len(spatial)
        self.kernel = tuple(int(size) for size in kernel)
        self.strides = list(node.attribute("strides", None) or [1] * rank)
        self.dilations = list(node.attribute("dilations", None) or [1] * rank)
        self.pads = list(node.attribute("pads", None) or [0] * (2 * rank))
        self.auto_pad = str(node.attribute("auto_pad", "NOTSET"))
        reach = [(size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True)]
        if self.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            counts = [-(-size // stride) for size, stride in zip(spatial, self.strides, strict=True)]
            whole = [
                max((count - 1) * stride + far - size, 0)
                for count, stride, far, size in zip(counts, self.strides, reach, spatial, strict=True)
            ]
            fewer, more = [total // 2 for total in whole], [total - total // 2 for total in whole]
            self.pads = [*fewer, *more] if self.auto_pad == "SAME_UPPER" else [*more, *fewer]
        elif self.auto_pad == "VALID":
            self.pads = [0] * (2 * rank)
        if min([*self.pads, 0]) < 0:
            raise ValueError("negative pads")
        self.reach = reach

    def view(self, x: np.ndarray, fill: float) -> np.ndarray:
        """Return windows `(batch, channels, *places, *kernel)`."""
        rank = len(self.kernel)
        padded = np.pad(
            x, [(0, 0), (0, 0), *zip(self.pads[:rank], self.pads[rank:], strict=True)], constant_values=fill
        )
        view = np.lib.stride_tricks.sliding_window_view(padded, self.reach, axis=tuple(range(2, 2 + rank)))
        steps = [slice(None, None, step) for step in self.strides]
        return view[(slice(None), slice(None), *steps, *(slice(None, None, step) for step in self.dilations))]


def _gathered(x: np.ndarray, w: np.ndarray, places: Windows, group: int) -> np.ndarray:
    rank = len(places.kernel)
    windows = places.view(x, 0.0)
    parts, filters = np.split(windows, group, axis=1), np.split(w, group, axis=0)
    inner = [1, *range(2 + rank, 2 + 2 * rank)]
    sums = [
        np.tensordot(part, one, axes=(inner, list(range(1, 2 + rank))))
        for part, one in zip(parts, filters, strict=True)
    ]
    return np.moveaxis(np.concatenate(sums, axis=-1), -1, 1)


def _spread(x: np.ndarray, w: np.ndarray, places: Windows, group: int, outside: Sequence[int]) -> np.ndarray:
    rank = len(places.kernel)
    full = [
        (n - 1) * s + far + o for n, s, far, o in zip(x.shape[2:], places.strides, places.reach, outside, strict=True)
    ]
    image = np.zeros((x.shape[0], w.shape[1] * group, *full))
    parts, filters = np.split(x, group, axis=1), np.split(w, group, axis=0)
    for at in np.ndindex(*places.kernel):
        each = [
            np.tensordot(a, b[(slice(None), slice(None), *at)], axes=([1], [0]))
            for a, b in zip(parts, filters, strict=True)
        ]
        starts = [i * d for i, d in zip(at, places.dilations, strict=True)]
        cut = [
            slice(start, start + (n - 1) * s + 1, s)
            for start, n, s in zip(starts, x.shape[2:], places.strides, strict=True)
        ]
        image[(slice(None), slice(None), *cut)] += np.moveaxis(np.concatenate(each, axis=-1), -1, 1)
    ends = [size - after for size, after in zip(full, places.pads[rank:], strict=True)]
    return image[(slice(None), slice(None), *(slice(a, b) for a, b in zip(places.pads[:rank], ends, strict=True)))]


def pool(node: NodeView, operands: Operands) -> Results:
    """Bound MaxPool, AveragePool and those over all places."""
    (x,) = operands
    if x is None or not x.lower.size or x.lower.ndim < 3:
        return None
    name, rank = node.proto.op_type, x.lower.ndim - 2
    whole = name.startswith("Global")
    kernel = x.lower.shape[2:] if whole else node.attribute("kernel_shape", None)
    if not whole and node.attribute("ceil_mode", 0):
        return None
    places = Windows(node, x.lower.shape[2:], kernel)
    inner = tuple(range(2 + rank, 2 + 2 * rank))
    if "Max" in name:
        node.attribute("storage_order", 0)
        fill = -np.inf if x.is_float else np.iinfo(x.dtype).min
        low, high = (places.view(end, fill).max(inner) for end in (x.lower, x.upper))
        at = Bounds(np.zeros(low.shape, np.int64), np.full(low.shape, x.lower.size - 1, np.int64))
        return [Bounds(low, high), at][: len(node.proto.output)]
    if not x.is_float:
        return None
    real = x.real
    counted = places.view(np.ones_like(real.low), 1.0 if node.attribute("count_include_pad", 0) else 0.0).sum(inner)
    sums = [places.view(end, 0.0).sum(inner) for end in (real.low, real.high, real.size)]
    found = finish(Real(sums[0], sums[1]), sums[2], math.prod(places.kernel), x.dtype)
    if found is None:
        return None
    return [
        enclose(found.real / Real(counted, counted), x.dtype, 4 * unit(x.dtype) * sums[2] / counted + least(x.dtype))
    ]


# reductions --------------------------------------------------------------------------------------------------------


def axes_of(node: NodeView, operands: Operands, rank: int) -> tuple[int, ...]:
    """Return the axes over which a node reduces."""
    given = operands[1] if len(operands) > 1 else None
    if given is not None and not given.is_point:
        raise ValueError("the axes are not known")
    listed = node.attribute("axes", None) if given is None else given.lower.reshape(-1).tolist()
    if not listed:
        return () if node.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(int(axis) % rank for axis in listed))


def reduce(node: NodeView, operands: Operands) -> Results:
    """Bound reductions."""
    x = operands[0]
    if x is None or not x.lower.size:
        return None
    axes, keep = axes_of(node, operands, x.lower.ndim), bool(node.attribute("keepdims", 1))
    node.attribute("noop_with_empty_axes", 0)
    name = node.proto.op_type
    if not axes and x.lower.ndim:
        return None
    if name in ("ReduceMax", "ReduceMin"):
        apply = np.max if name == "ReduceMax" else np.min
        return [Bounds(*(np.asarray(apply(end, axis=axes, keepdims=keep)) for end in (x.lower, x.upper)))]
    return add_up(name, x, axes, keep=keep) if x.is_float else None


def add_up(name: str, x: Bounds, axes: tuple[int, ...], *, keep: bool) -> Results:
    """Bound sums of elements, of their squares or of their magnitudes, and means and roots of such."""
    real, terms, dtype = x.real, math.prod(x.lower.shape[axis] for axis in axes), x.dtype
    if name in ("ReduceSumSquare", "ReduceL2"):
        real = real.square
    elif name == "ReduceL1":
        around = (real.low <= 0) & (real.high >= 0)
        real = Real(np.where(around, 0.0, np.minimum(np.abs(real.low), np.abs(real.high))), real.size)
    low, high, size = (np.asarray(end.sum(axis=axes, keepdims=keep)) for end in (real.low, real.high, real.size))
    found = finish(Real(low, high), size, terms, dtype)
    if found is None:
        return None
    positive = bool((real.low >= 0).all())
    if positive:
        # A rounded sum of what is not negative is no smaller than any of it.
        most = real.low.max(axis=axes, keepdims=keep) if name == "ReduceSum" else np.zeros_like(low)
        found = Bounds(np.maximum(found.lower, np.asarray(most).astype(dtype)), found.upper)
    if name == "ReduceMean":
        share = Real(np.asarray(float(terms)), np.asarray(float(terms)))
        error = 4 * unit(dtype) * size / terms + least(dtype)
        return [enclose(found.real / share, dtype, error, at_least=0.0 if positive else -np.inf)]
    if name == "ReduceL2":
        root = Real(np.sqrt(found.real.low), np.sqrt(found.real.high))
        return [enclose(root, dtype, 8 * unit(dtype) * root.size + least(dtype), at_least=0.0)]
    return [found]
