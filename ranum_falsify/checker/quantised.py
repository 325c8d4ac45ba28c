"""Quantised layers: their integers range over what their type holds, whatever they come from."""

from __future__ import annotations

import numpy as np

from ranum_falsify.checker.bounds import Bounds, Real, enclose, least, unit
from ranum_falsify.checker.layers import recur
from ranum_falsify.checker.node import NodeView, Operands, Results
from ranum_falsify.checker.sums import Windows


def _is_positive(scale: Bounds | None) -> bool:
    return scale is not None and scale.is_float and bool((scale.lower >= 2 * least(scale.dtype)).all())


def _along(node: NodeView, values: Real, rank: int) -> Real:
    if values.low.size == 1:
        return values.apply(lambda end: end.reshape(()))
    axis = int(node.attribute("axis", 1)) % rank
    return values.apply(lambda end: end.reshape([-1 if i == axis else 1 for i in range(rank)]))


def dequantise(node: NodeView, operands: Operands) -> Results:
    """Bound (x - zero point) * scale."""
    x, scale, *rest = operands
    zero = rest[0] if rest else None
    node.attribute("axis", 1)
    if x is None or scale is None or not scale.is_float or x.dtype.kind not in "iu" or node.attribute("block_size", 0):
        return None
    shift = Real(np.zeros(()), np.zeros(())) if zero is None else _along(node, zero.real, x.lower.ndim)
    whole = Real(x.real.low - shift.high, x.real.high - shift.low)  # exact in float64
    found = whole * _along(node, scale.real, x.lower.ndim)
    return [enclose(found, scale.dtype, 4 * unit(scale.dtype) * found.size + least(scale.dtype))]


def quantise(node: NodeView, operands: Operands) -> Results:
    """Bound round(x / scale) + zero point, within the type's range."""
    x, scale, *rest = operands
    zero = rest[0] if rest else None
    node.attribute("axis", 1)
    node.attribute("saturate", 1)
    if x is None or not x.is_float or scale is None or not _is_positive(scale):
        return None
    if node.attribute("block_size", 0) or node.attribute("precision", 0) or node.attribute("output_dtype", 0):
        return None
    dtype = np.dtype(np.uint8) if zero is None else zero.dtype
    if dtype.kind not in "iu":
        return None
    shift = Real(np.zeros(()), np.zeros(())) if zero is None else _along(node, zero.real, x.lower.ndim)
    steps = x.real / _along(node, scale.real, x.lower.ndim)
    if not (steps.size < np.finfo(x.dtype).max).all():
        return None
    wide = steps.widen(8 * unit(x.dtype) * steps.size + 1e-6) + shift
    limits = np.iinfo(dtype)
    ends = np.clip(np.floor(wide.low), limits.min, limits.max), np.clip(np.ceil(wide.high), limits.min, limits.max)
    return [Bounds(ends[0].astype(dtype), ends[1].astype(dtype))]


def dynamic(node: NodeView, operands: Operands) -> Results:
    """Bound DynamicQuantizeLinear: numbers, their scale, and their zero point."""
    (x,) = operands
    if x is None or x.dtype != np.float32 or not x.lower.size:
        return None
    reach = (max(float(x.real.high.max()), 0.0) - min(float(x.real.low.min()), 0.0)) / 255 * (1 + 1e-5)
    scale = np.asarray(max(reach, 1.0))
    return [
        _full(x.lower.shape, np.dtype(np.uint8)),
        enclose(Real(np.zeros(()), scale), x.dtype),
        _full((), np.dtype(np.uint8)),
    ]


def _full(shape: tuple[int, ...], dtype: np.dtype[np.integer]) -> Bounds:
    limits = np.iinfo(dtype)
    return Bounds(np.full(shape, limits.min, dtype), np.full(shape, limits.max, dtype))


def multiply_integers(node: NodeView, operands: Operands) -> Results:
    """Bound MatMulInteger and ConvInteger by the magnitudes of their factors."""
    x, w = operands[:2]
    if x is None or w is None:
        return None
    shape, terms = _shape_of(node, x, w)
    most = min(terms * 255.0 * 255.0, 2.0**31 - 1)
    node.attribute("kernel_shape", None)
    return [Bounds(np.full(shape, -most).astype(np.int32), np.full(shape, most).astype(np.int32))]


def _shape_of(node: NodeView, x: Bounds, w: Bounds) -> tuple[tuple[int, ...], int]:
    if "Conv" not in node.proto.op_type:
        stack = np.broadcast_shapes(x.lower.shape[:-2], w.lower.shape[:-2])
        return (*stack, x.lower.shape[-2], w.lower.shape[-1]), x.lower.shape[-1]
    node.attribute("group", 1)
    node.attribute("kernel_shape", None)
    places = Windows(node, x.lower.shape[2:], w.lower.shape[2:])
    rank = x.lower.ndim - 2
    small = np.broadcast_to(np.zeros((), np.int8), (1, 1, *x.lower.shape[2:]))
    return (x.lower.shape[0], w.lower.shape[0], *places.view(small, 0).shape[2 : 2 + rank]), int(
        np.prod(w.lower.shape[1:])
    )


FORMS: dict[str, tuple[int, int, int]] = {
    "QLinearMatMul": (3, 6, 7),
    "QLinearConv": (3, 6, 7),
    "com.microsoft.QLinearAdd": (3, 6, 7),
    "com.microsoft.QLinearMul": (3, 6, 7),
    "com.microsoft.QLinearSigmoid": (-1, 3, 4),
    "com.microsoft.QLinearLeakyRelu": (-1, 3, 4),
    "com.microsoft.QLinearSoftmax": (-1, 3, 4),
    "com.microsoft.QLinearGlobalAveragePool": (-1, 3, 4),
    "com.microsoft.QGemm": (3, 7, 8),
}
"""Positions of the second factor, of the result's scale and of its zero point."""


def quantised_result(node: NodeView, operands: Operands) -> Results:
    """Bound an operator from integers to integers of a scale."""
    second, at, zero_at = FORMS[node.key]
    x, w, scale, zero = (
        operands[0],
        operands[second] if second > 0 else None,
        *[*operands, None, None][at : zero_at + 1],
    )
    if x is None or zero is None or not _is_positive(scale) or not x.lower.size:
        return None
    if not all(_is_positive(one) for one in operands if one is not None and one.is_float and one.lower.size < 2):
        return None
    for one in node.proto.attribute:
        if one.name not in ("channels_last",) or one.i == 0:
            node.attribute(one.name, None)
    shape = x.lower.shape
    if node.proto.op_type == "QGemm" and w is not None:
        shape = (shape[1 if node.attribute("transA", 0) else 0], w.lower.shape[0 if node.attribute("transB", 0) else 1])
    elif node.proto.op_type == "QLinearGlobalAveragePool":
        shape = (*shape[:2], *(1 for _ in shape[2:]))
    elif w is not None:
        broadcasts = node.proto.domain != ""
        shape = np.broadcast_shapes(shape, w.lower.shape) if broadcasts else _shape_of(node, x, w)[0]
    return [_full(shape, zero.dtype)]


def scaled_product(node: NodeView, operands: Operands) -> Results:
    """Bound MatMulIntegerToFloat, and DynamicQuantizeMatMul, which quantises its first factor itself."""
    x, w, *rest = operands
    dynamically = node.proto.op_type == "DynamicQuantizeMatMul"
    scales, bias = rest[: 1 if dynamically else 2], rest[2 if dynamically else 4 :]
    if x is None or w is None or not all(one is not None and one.dtype == np.float32 for one in scales):
        return None
    shape, terms = _shape_of(node, x, w)
    size = float(np.prod([one.real.size.max() for one in scales if one is not None])) * 255.0 * terms
    size *= 1.05 * float(x.real.size.max()) if dynamically else 255.0
    size += sum(float(one.real.size.max()) for one in bias if one is not None)
    return [enclose(Real(np.full(shape, -size), np.full(shape, size)), np.dtype(np.float32), size * 1e-3)]


def dynamic_lstm(node: NodeView, operands: Operands) -> Results:
    """Bound DynamicQuantizeLSTM by the LSTM whose weights are as large as integers of 8 bits allow."""
    x, w, r, *others = operands
    weights = []
    for matrix, scale in ((w, operands[8]), (r, operands[10])):
        if matrix is None or scale is None or scale.dtype != np.float32:
            return None
        most = np.float32(255 * 1.1 * float(scale.real.size.max()))
        turned = np.full([matrix.lower.shape[i] for i in (0, 2, 1)], most)
        weights.append(Bounds(-turned, turned))
    return recur(node, [x, *weights, *others[:5]], gates=4)
