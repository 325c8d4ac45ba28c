"""Layers of several steps: softmax, normalisations, recurrent networks, random numbers."""

from __future__ import annotations

import math

import numpy as np

from ranum_falsify.checker.bounds import Bounds, Real, drift, enclose, least, unit
from ranum_falsify.checker.functions import FUNCTIONS, apply
from ranum_falsify.checker.node import NodeView, Operands, Results

SOFTMAX = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-11}
LOG_SOFTMAX = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-11}
_GATE = 1 + 1e-5  # no gate's sigmoid or tanh exceeds it
_FARTHEST_DRAW = 40.0  # of normal numbers made of 53 random bits, in deviations


def _point(value: float) -> Real:
    return Real(np.asarray(float(value)), np.asarray(float(value)))


def soft(node: NodeView, operands: Operands) -> Results:
    """Bound Softmax and LogSoftmax."""
    (x,) = operands
    if x is None or not x.is_float or not x.lower.size or not x.lower.ndim:
        return None
    axis = int(node.attribute("axis", -1 if node.opset >= 13 else 1)) % x.lower.ndim
    shape, real = x.lower.shape, x.real
    if node.opset < 13 and not node.proto.domain:
        real, axis = real.apply(lambda end: end.reshape(math.prod(shape[:axis]), -1)), 1
    n, name = real.low.shape[axis], x.dtype.name
    top = real.high.max(axis, keepdims=True)
    low, high = np.exp(real.low - top), np.exp(real.high - top)
    slack = (n + 8) * 2.0**-50
    total = high.sum(axis, keepdims=True) * (1 + slack)
    fewest = np.maximum(low.sum(axis, keepdims=True) - low - slack * total, 0.0)  # of the others
    most = np.maximum(total - high, 0.0) + slack * total
    if node.proto.op_type == "Softmax":
        share = SOFTMAX[name] + 2 * drift(n, x.dtype)
        ends = low / (low + most + 1e-300) * (1 - share), high / (high + fewest + 1e-300) * (1 + share)
        lost = 2 * least(x.dtype)
        clipped = Real(np.clip(ends[0] - lost, 0, 1), np.clip(np.nan_to_num(ends[1], nan=1.0) + lost, 0, 1))
    else:
        logs = [real.low - top - np.log(low + most + 1e-300), real.high - top - np.log(high + fewest + 1e-300)]
        size = np.maximum(np.abs(real.low), np.abs(real.high)).max(axis, keepdims=True)
        error = [
            LOG_SOFTMAX[name] * (1 + np.abs(end)) + 2 * drift(n + 4, x.dtype) + 8 * unit(x.dtype) * size for end in logs
        ]
        clipped = Real(logs[0] - error[0], np.minimum(np.where(high > 0, logs[1] + error[1], 0.0), 0.0))
    found = enclose(clipped, x.dtype)
    return [Bounds(found.lower.reshape(shape), found.upper.reshape(shape))]


# normalisations --------------------------------------------------------------------------------------------------


def batch_normalise(node: NodeView, operands: Operands) -> Results:
    """Bound BatchNormalization with given statistics."""
    given = [one for one in operands if one is not None]
    if len(given) != 5 or len({one.dtype for one in given}) > 1 or not given[0].is_float:
        return None
    if node.attribute("training_mode", 0) or len([name for name in node.proto.output if name]) > 1:
        return None
    node.attribute("momentum", 0.9)
    node.attribute("spatial", 1)
    x, dtype, epsilon = given[0].real, given[0].dtype, float(node.attribute("epsilon", 1e-5))
    column = (-1, *[1] * (x.low.ndim - 2))
    scale, bias, mean, variance = (one.real.apply(lambda end: end.reshape(column)) for one in given[1:])
    wide = (variance + _point(epsilon)).widen(8 * unit(dtype) * (variance.size + epsilon))
    if not (wide.low > least(dtype)).all():
        return None
    factor = scale / Real(np.sqrt(wide.low), np.sqrt(wide.high))
    error = 64 * unit(dtype) * ((x.size + mean.size) * factor.size + bias.size) + 4 * least(dtype) * (1 + x.size)
    if not ((x.size + mean.size) * factor.size * 2 + bias.size < np.finfo(dtype).max).all():
        return None
    return [enclose((x - mean) * factor + bias, dtype, error)]


def layer_normalise(node: NodeView, operands: Operands, *, centred: bool = True, by_channel: bool = False) -> Results:
    """Bound normalisations over the last dimensions, or over all but the first two.

    Kernels take the deviation from the same computed mean as the numbers, so that it is no smaller than a number's
    distance to the mean by the root of n, but for the roundings of the mean.
    """
    x, scale = operands[:2]
    bias = operands[2] if len(operands) > 2 else None
    if x is None or scale is None or not x.is_float or not x.lower.size:
        return None
    node.attribute("stash_type", 1)
    axes: tuple[int, ...] = tuple(range(2, x.lower.ndim))
    if not by_channel:
        axis = int(node.attribute("axis", -1)) % x.lower.ndim
        axes = tuple(range(axis, x.lower.ndim))
    z = _scores(x, axes, float(node.attribute("epsilon", 1e-5)), centred)
    if z is None:
        return None
    gain, shift = scale.real, bias.real if bias is not None else _point(0)
    if by_channel:
        column = (-1, *[1] * (x.lower.ndim - 2))
        gain, shift = (one.apply(lambda end: end.reshape(column)) for one in (gain, shift))
    y = z * gain + shift
    margin = 32 * unit(x.dtype) * (z.size * gain.size + shift.size) + 4 * least(x.dtype)
    others = [None] * (len(node.proto.output) - 1)
    return [enclose(y, x.dtype, margin), *others]


def _scores(x: Bounds, axes: tuple[int, ...], epsilon: float, centred: bool) -> Real | None:
    """Bound (x - mean) / sqrt(variance + epsilon), or x / sqrt(mean square + epsilon)."""
    real, n = x.real, math.prod(x.lower.shape[axis] for axis in axes)
    magnitude = real.size.max(axes, keepdims=True)
    if epsilon < 1e-12 or not (4 * n * (magnitude + 1) ** 2 < np.finfo(x.dtype).max).all():
        return None
    strays = np.zeros_like(magnitude)
    if centred:
        mean = Real(real.low.mean(axes, keepdims=True), real.high.mean(axes, keepdims=True))
        strays = drift(n + 8 * n.bit_length() + 32, x.dtype) * magnitude
        real = (real - mean).widen(strays)
    floor = math.sqrt(epsilon)
    limit = (math.sqrt(n) + 4 * strays / floor) * (1 + 64 * unit(x.dtype)) * (1 + drift(n, x.dtype))
    spread = Real(np.minimum(real.low / floor * 1.01, 0.0), np.maximum(real.high / floor * 1.01, 0.0))
    return Real(np.maximum(spread.low, -limit), np.minimum(spread.high, limit))


def skip_normalise(node: NodeView, operands: Operands, *, centred: bool = True) -> Results:
    """Bound SkipLayerNormalization and its simplified form: a sum, normalised."""
    x, skip, gamma, *rest = operands
    if x is None or skip is None or x.dtype != skip.dtype or not x.is_float:
        return None
    beta, bias = ([*rest, None, None] if centred else [None, *rest, None])[:2]
    total = x.real + skip.real + (bias.real if bias is not None else _point(0))
    added = enclose(total, x.dtype, 4 * unit(x.dtype) * (x.real.size + skip.real.size + total.size))
    found = layer_normalise(node, [added, gamma, beta], centred=centred)
    if found is None or not added.is_sound:
        return None
    return [found[0], None, None, added][: len(node.proto.output)]


# recurrent networks --------------------------------------------------------------------------------------------------


def recur(node: NodeView, operands: Operands, *, gates: int) -> Results:
    """Bound LSTM, GRU and RNN with their own activations: outputs by those of tanh, cells by the number of steps."""
    given: list[Bounds | None] = [*operands, *[None] * 8]
    x, w, r, b, lengths, hidden, cell, peephole = given[:8]
    if x is None or w is None or r is None or not x.is_float or lengths is not None or peephole is not None:
        return None
    node.attribute("linear_before_reset", 0)
    if node.attribute("input_forget", 0):
        return None
    size, direction = int(node.attribute("hidden_size", 0)), node.attribute("direction", "forward")
    steps, batch, _ = x.lower.shape
    ways = w.lower.shape[0]
    if (
        not steps
        or node.attribute("layout", 0)
        or w.lower.shape[1] != gates * size
        or direction not in ("forward", "reverse", "bidirectional")
    ):
        return None
    start, begun = (0.0 if one is None else float(one.real.size.max()) for one in (hidden, cell))
    # A state of GRU is between the one before and tanh; its gates err by 1e-5.
    most = _GATE**2 if gates == 4 else max(_GATE, start) * math.exp(1e-4 * steps)
    most = max(most, start if gates != 4 else 0.0)
    reach = x.real.size.max() * w.real.size.sum(-1).max() + max(most, start) * 2 * r.real.size.sum(-1).max()
    held = _GATE * (begun + steps * _GATE) * math.exp(1e-4 * steps)
    weights = 0.0 if b is None else 4 * float(b.real.size.max())
    if not 4 * (reach + weights + held) * (1 + drift(w.lower.shape[2] + size, x.dtype)) < np.finfo(x.dtype).max:
        return None
    shapes = [(steps, ways, batch, size), (ways, batch, size), (ways, batch, size)]
    tops = [most, most, held]
    found = [
        enclose(Real(np.full(shape, -top), np.full(shape, top)), x.dtype)
        for shape, top in zip(shapes, tops, strict=True)
    ]
    return found[: len(node.proto.output)]


# what is fused, and what is drawn ---------------------------------------------------------------------------------


def activate(found: Bounds, name: str, parameters: list[float]) -> Bounds | None:
    """Return what an activation makes of a result."""
    if name in ("Relu", ""):
        zero = found.dtype.type(0)
        return Bounds(np.maximum(found.lower, zero), np.maximum(found.upper, zero)) if name else found
    if name == "Clip" and len(parameters) == 2:
        ends = [found.dtype.type(one) for one in parameters]
        return Bounds(np.clip(found.lower, *ends), np.clip(found.upper, *ends))
    if name == "LeakyRelu" and len(parameters) == 1 and 0 <= parameters[0] <= 1:
        line = Real(*(np.where(end > 0, end, end * parameters[0]) for end in (found.real.low, found.real.high)))
        return enclose(line, found.dtype, 8 * unit(found.dtype) * line.size + least(found.dtype))
    return apply(FUNCTIONS[name], found) if name in ("Sigmoid", "Tanh", "Softplus", "Softsign") else None


def random_numbers(node: NodeView, operands: Operands) -> Results:
    """Bound what is drawn."""
    shape = node.attribute("shape", None) if not operands else operands[0].lower.shape if operands[0] else None
    node.attribute("seed", 0.0)
    if (
        shape is None
        or node.attribute("dtype", 1) != 1
        or (operands and operands[0] and operands[0].dtype != np.float32)
    ):
        return None
    if node.proto.op_type.startswith("RandomUniform"):
        low, high = float(node.attribute("low", 0.0)), float(node.attribute("high", 1.0))
    else:
        mean, scale = float(node.attribute("mean", 0.0)), abs(float(node.attribute("scale", 1.0)))
        low, high = mean - _FARTHEST_DRAW * scale, mean + _FARTHEST_DRAW * scale
    dtype = np.dtype(np.float32)
    error = 4 * unit(dtype) * max(abs(low), abs(high), high - low)
    return [enclose(Real(np.full(shape, low), np.full(shape, high)), dtype, error, at_least=low)]
