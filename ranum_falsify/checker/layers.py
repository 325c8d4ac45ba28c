"""Layers of several steps: softmax, normalisations, recurrent networks, what is fused, quantised or drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ranum_falsify.checker.bounds import Bounds, corners, drift, enclose, least, require, unit
from ranum_falsify.checker.elementwise import same_float
from ranum_falsify.checker.moving import add_products
from ranum_falsify.checker.node import NodeView, by_planes, rule

# Relative errors of Softmax, and errors of LogSoftmax, relative to 1 and its result; those of sums come besides.
SOFTMAX = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-11}
_GATE = 1 + 1e-5  # no gate's sigmoid or tanh exceeds it
_FARTHEST_DRAW = 40.0  # of normal numbers made of 53 random bits, in deviations
_SATURATION = 2 * 255 * 128 - (2**15 - 1)  # the most by which two products of 8-bit numbers exceed 16 bits


@rule("Softmax LogSoftmax")
def _soft(node: NodeView, x: Bounds) -> Bounds:
    dtype, real, rank = same_float(x), x.real, x.lower.ndim
    axis = int(node.attribute("axis", -1 if node.opset >= 13 else 1)) % rank
    axes = (axis,) if node.opset >= 13 else tuple(range(axis, rank))
    n, share, top = math.prod(x.shape[axis] for axis in axes), SOFTMAX[dtype.name], real.upper.max(axes, keepdims=True)
    low, high = (np.log(np.exp(end - top).sum(axes, keepdims=True)) for end in (real.lower, real.upper))
    logs = Bounds(real.lower - top - high, np.minimum(real.upper - top - low, 0.0))
    logs = logs.widen(2.0**-50 * (n + 8 + logs.size))
    if node.op == "LogSoftmax":
        rounded = 2 * drift(n + 4, dtype) + 8 * unit(dtype) * real.size.max(axes, keepdims=True)
        return enclose(logs.widen(share * (1 + logs.size) + rounded).clip(high=0.0), dtype)
    shares, share, lost = logs.map(np.exp), share + 2 * drift(n, dtype), 2 * least(dtype)
    made = Bounds(shares.lower * (1 - share) - lost, shares.upper * (1 + share) + lost)
    return enclose(made.clip(0.0, 1.0), dtype)


@rule("BatchNormalization", by_planes)
def _batch_normalise(node: NodeView, x: Bounds, *statistics: Bounds) -> Bounds:
    dtype, epsilon = same_float(x, *statistics), float(node.attribute("epsilon", 1e-5))
    require(not any(node.proto.output[1:]))
    column = (-1, *[1] * (x.lower.ndim - 2))
    scale, bias, mean, variance = (one.real.map(lambda end: end.reshape(column)) for one in statistics)
    wide = (variance + Bounds.of(epsilon)).widen(8 * unit(dtype) * (variance.size + epsilon))
    require(wide.lower > least(dtype))
    factor = corners(lambda scale, square: scale / np.sqrt(square), scale.ends, wide.ends)
    reach = (x.size + mean.size) * factor.size + bias.size
    require(reach * 2 < np.finfo(dtype).max)
    error = 64 * unit(dtype) * reach + 4 * least(dtype) * (1 + x.size)
    return enclose((x - mean) * factor + bias, dtype, error)


@rule("LayerNormalization InstanceNormalization RMSNormalization SimplifiedLayerNormalization")
def _normalise(node: NodeView, x: Bounds, scale: Bounds, bias: Bounds | None = None) -> list[Bounds | None]:
    """Bound normalisations over the last dimensions, or, of instances, over all but the first two.

    Kernels take the deviation from the same computed mean as the numbers, so that it is no smaller than a number's
    distance to the mean by the root of n, but for the roundings of the mean.
    """
    dtype, epsilon, rank = same_float(x), float(node.attribute("epsilon", 1e-5)), x.lower.ndim
    gain, shift, start = scale.real, bias.real if bias else Bounds.of(0.0), 2
    is_centred = node.op in ("LayerNormalization", "InstanceNormalization", "SkipLayerNormalization")
    if node.op == "InstanceNormalization":
        gain, shift = (one.map(lambda end: end.reshape(-1, *[1] * (rank - 2))) for one in (gain, shift))
    else:
        start = int(node.attribute("axis", -1)) % rank
        # ONNX Runtime's variance cancels beside a scale or a bias that broadcasts.
        whole = [math.prod(one.shape) == math.prod(x.shape[start:]) for one in (scale, bias) if one]
        require(not is_centred or all(whole))
    axes, real, floor, n = tuple(range(start, rank)), x.real, math.sqrt(epsilon), math.prod(x.shape[start:])
    magnitude = x.size.max(axes, keepdims=True)
    require(x.lower.size, epsilon >= 1e-20, 4 * n * (magnitude + 1) ** 2 < np.finfo(dtype).max)
    strays = drift(n + 8 * n.bit_length() + 32, dtype) * magnitude * is_centred
    if is_centred:
        real = (real - real.map(lambda end: end.mean(axes, keepdims=True))).widen(strays)
    limit = (math.sqrt(n) + 4 * strays / floor) * (1 + 64 * unit(dtype)) * (1 + drift(n, dtype))
    z = (real * Bounds.of(1.01 / floor)).map(lambda end: np.clip(end, -limit, limit))
    z = Bounds(np.minimum(z.lower, 0), np.maximum(z.upper, 0))
    margin = 32 * unit(dtype) * (z.size * gain.size + shift.size) + 4 * least(dtype)
    return [enclose(z * gain + shift, dtype, margin), *[None] * (len(node.proto.output) - 1)]


@rule("com.microsoft.SkipLayerNormalization com.microsoft.SkipSimplifiedLayerNormalization")
def _skip_normalise(node: NodeView, x: Bounds, skip: Bounds, gamma: Bounds, *rest: Bounds | None) -> Any:
    require(node.attribute("epsilon", 0.0) > 0)  # ONNX Runtime's own default is another one
    beta, bias = ([*rest, None, None] if node.op == "SkipLayerNormalization" else [None, *rest, None])[:2]
    added = node.call("Sum", x, skip, *([bias] if bias else []))
    return [_normalise(node, added, gamma, beta)[0], None, None, added][: len(node.proto.output)]


@rule("LSTM GRU RNN com.microsoft.DynamicQuantizeLSTM")
def _recur(node: NodeView, x: Bounds, w: Bounds, r: Bounds, b: Bounds | None = None, *rest: Bounds | None) -> Any:
    """Bound recurrent layers with their own activations: outputs by those of tanh, cells by the number of steps.

    Quantised weights, the other way round, are as large as integers of 8 bits and their scale allow.
    """
    lengths, hidden, cell, peephole, w_scale, _, r_scale = [*rest, *[None] * 7][:7]
    dtype, size, (steps, batch, width), ways = same_float(x), int(node.attribute("hidden_size", 0)), x.shape, w.shape[0]
    require(lengths is None, peephole is None, *(not node.attribute(name, 0) for name in ("input_forget", "layout")))
    require(node.attribute("direction", "forward") in ("forward", "reverse", "bidirectional"), steps)
    require({"GRU": 3, "RNN": 1}.get(node.op, 4) * size == w.shape[-1 if node.proto.domain else 1])
    start, begun = (_largest(one) for one in (hidden, cell))
    # A state of GRU is between the one before and tanh; its gates err by 1e-5.
    grown = math.exp(1e-4 * steps)
    most = _GATE**2 if node.op.endswith("LSTM") else max(_GATE, start) * grown
    sums = [float(one.size.sum(-1).max()) for one in (w, r)]
    if node.proto.domain:
        require(*(one and one.dtype == np.float32 for one in (w_scale, r_scale)))
        sums = [255 * 1.1 * _largest(scale) * one.shape[1] for scale, one in ((w_scale, w), (r_scale, r))]
    reach = x.size.max() * sums[0] + max(most, start) * 2 * sums[1]
    held = _GATE * (begun + steps * _GATE) * grown
    require(4 * (reach + 4 * _largest(b) + held) * (1 + drift(width + size, dtype)) < np.finfo(dtype).max)
    last = _within(most, (ways, batch, size), dtype)
    states = [_within(most, (steps, ways, batch, size), dtype), last, _within(held, last.shape, dtype)]
    return states[: len(node.proto.output)]


def _largest(given: Bounds | None) -> float:
    """Return the greatest magnitude of an operand, 0 where it is not given."""
    return float(given.size.max()) if given else 0.0


def _within(reach: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Bounds:
    return enclose(Bounds(np.full(shape, -reach), np.full(shape, reach)), dtype)


@rule("com.microsoft.FusedConv com.microsoft.FusedGemm")
def _fused(node: NodeView, *operands: Bounds) -> Bounds:
    """Bound a convolution, or a product and a bias, the sum with what stands beside it, and an activation."""
    name, alpha = str(node.attribute("activation", "")), node.attribute("activation_alpha", None)
    parameters = [*node.attribute("activation_params", []), *([] if alpha is None else [alpha])]
    found = node.call(node.op.removeprefix("Fused"), *operands)
    if not name or name == "Clip":
        return node.call(name, found, *(Bounds.of(found.dtype.type(one)) for one in parameters)) if name else found
    require(name in ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Softplus", "Softsign"), len(parameters) < 2)
    return node.call(name, found, alpha=parameters[0]) if name == "LeakyRelu" else node.call(name, found)


@rule("NegativeLogLikelihoodLoss")
def _likelihood(node: NodeView, x: Bounds, labels: Bounds) -> Bounds:
    require(x.is_float, labels.lower.size, labels.lower >= 0, labels.upper < x.shape[1])
    each = Bounds(-x.upper.max(1), -x.lower.min(1))
    op = {"none": "Identity", "mean": "ReduceMean", "sum": "ReduceSum"}[node.attribute("reduction", "mean")]
    return each if op == "Identity" else node.call(op, each, keepdims=0)


@rule("RandomUniform RandomNormal RandomUniformLike RandomNormalLike")
def _draw(node: NodeView, like: Bounds | None = None) -> Bounds:
    shape = like.shape if like else node.attribute("shape", None)
    require(node.attribute("dtype", 1) == 1, like is None or like.dtype == np.float32)
    low, high = node.attribute("low", 0.0), node.attribute("high", 1.0)
    if node.op.startswith("RandomNormal"):
        mean, reach = node.attribute("mean", 0.0), _FARTHEST_DRAW * abs(node.attribute("scale", 1.0))
        low, high = mean - reach, mean + reach
    error = 4 * 2.0**-24 * max(abs(low), abs(high), high - low)
    return enclose(Bounds(np.full(shape, low), np.full(shape, high)), np.dtype(np.float32), error).clip(low)


def _along(node: NodeView, values: Bounds | None, rank: int) -> Bounds:
    """Return values for each place along an axis, or one for all, of what has so many dimensions."""
    axis, given = int(node.attribute("axis", 1)) % max(rank, 1), (values or Bounds.of(0.0)).real
    shape = [-1 if place == axis and given.lower.size > 1 else 1 for place in range(rank)]
    return given.map(lambda end: end.reshape(shape))


@rule("DequantizeLinear com.microsoft.DequantizeLinear")
def _dequantise(node: NodeView, x: Bounds, scale: Bounds, zero: Bounds | None = None) -> Bounds:
    require(scale.is_float, x.dtype.kind in "iu")
    found = (x - _along(node, zero, x.lower.ndim)) * _along(node, scale, x.lower.ndim)
    return enclose(found, scale.dtype, 4 * unit(scale.dtype) * found.size + least(scale.dtype))


@rule("QuantizeLinear com.microsoft.QuantizeLinear")
def _quantise(node: NodeView, x: Bounds, scale: Bounds, zero: Bounds | None = None) -> Bounds:
    require(x.is_float, scale.lower >= 2 * least(scale.dtype))
    steps = corners(np.divide, x.real.ends, _along(node, scale, x.lower.ndim).ends)
    require(steps.size < np.finfo(x.dtype).max)
    wide = steps.widen(8 * unit(x.dtype) * steps.size + 1e-6) + _along(node, zero, x.lower.ndim)
    return _whole(wide, zero.dtype if zero else np.dtype(np.uint8))


def _whole(found: Bounds, dtype: np.dtype[Any]) -> Bounds:
    """Return bounds of numbers that are rounded, and cut off at the limits of a type of integers."""
    limits = np.iinfo(dtype)
    ends = np.floor(found.lower), np.ceil(found.upper)
    return Bounds(*ends).map(lambda end: np.clip(end, limits.min, limits.max).astype(dtype))


@rule("DynamicQuantizeLinear")
def _quantise_dynamically(node: NodeView, x: Bounds) -> list[Bounds]:
    require(x.dtype == np.float32, x.lower.size)
    reach, byte = (max(float(x.upper.max()), 0.0) - min(float(x.lower.min()), 0.0)) / 255 * (1 + 1e-5), np.dtype("u1")
    scale = enclose(Bounds(np.zeros(()), np.asarray(max(reach, 1.0))), x.dtype)
    return [_whole(_within(np.inf, x.shape, x.dtype), byte), scale, _whole(_within(np.inf, (), x.dtype), byte)]


@rule("QLinearMatMul QLinearConv com.microsoft.QGemm com.microsoft.QLinearAdd com.microsoft.QLinearMul")
@rule("com.microsoft.QLinearSigmoid com.microsoft.QLinearLeakyRelu com.microsoft.QLinearSoftmax")
@rule("com.microsoft.QLinearGlobalAveragePool")
def _requantise(node: NodeView, x: Bounds, *rest: Bounds | None) -> Bounds:
    """Bound an operator from integers to integers of a scale: they range over what their type holds."""
    op = node.op.removeprefix("QLinear").removeprefix("Q")
    factors = [x, rest[2]] if op in ("MatMul", "Conv", "Gemm", "Add", "Mul") else [x]
    scale, zero = [*rest, None][3 * len(factors) - (op != "Gemm") :][:2]
    require(x.lower.size, zero, scale and scale.is_float, not node.attribute("channels_last", 0))
    scales = [one for one in rest if one and one.is_float and (one is scale or one.lower.size < 2)]
    require(*(one.lower >= 2 * least(one.dtype) for one in scales))
    for one in node.proto.attribute:
        node.attribute(one.name, None)  # they say how large results are, or, what comes below, how many
    made = node.like(op).run(*(np.zeros(one.shape) for one in factors if one))[0]
    return _whole(_within(np.inf, made.shape, made.dtype), zero.dtype if zero else np.dtype(np.uint8))


@rule("MatMulInteger ConvInteger com.microsoft.MatMulIntegerToFloat com.microsoft.DynamicQuantizeMatMul")
def _multiply_integers(node: NodeView, x: Bounds, w: Bounds, *rest: Bounds | None) -> Bounds:
    """Bound products of what is left of integers by their zero points, exact, or scaled and with a bias.

    DynamicQuantizeMatMul makes integers of its first factor itself, which scaled are about that again.  Where weights
    are signed, processors without VNNI instructions add up pairs of products in 16 bits, at which these are cut off.
    """
    op, given, step = "Conv" if node.op == "ConvInteger" else "MatMul", [*rest, *[None] * 5], 1.0
    scales, zeros, bias = given[:0], given[:2], given[2:3]
    if node.op == "MatMulIntegerToFloat":
        scales, zeros, bias = given[:2], given[2:4], given[4:5]
    elif node.op == "DynamicQuantizeMatMul":
        scales, zeros, bias, step = given[:1], [None, given[1]], given[2:3], 1.05 * 2 * _largest(x) / 255
        x = _within(1.05 * _largest(x), x.shape, np.dtype(np.float64))
    columns = ((-1, 1), (-1,)) if op == "MatMul" else ((), (-1, *[1] * (w.lower.ndim - 1)))
    a, b = (
        one - Bounds(zero.lower.reshape(to), zero.upper.reshape(to)) if zero else one.real
        for one, zero, to in zip((x, w), zeros, columns, strict=True)
    )
    terms = w.shape[-2] if op == "MatMul" else math.prod(w.shape[1:])
    found = add_products(lambda a, b: node.like(op).run(a, b)[0], a, b, terms)
    found = found.widen((terms + 1) // 2 * _SATURATION * step * (w.dtype.kind == "i"))
    if not scales:
        return _whole(found, np.dtype(np.int32))
    # Beside scales of fewer dimensions than a batch, ONNX Runtime scales the bias, too.
    require(*(one and one.dtype == np.float32 for one in scales))
    scale, shift = math.prod(map(_largest, scales)), sum(map(_largest, bias))
    reach = _largest(found) * scale + shift * max(scale, 1.0) * max(_largest(a), 1.0)
    return _within(reach * (1 + 1e-3), found.shape, np.dtype(np.float32))
