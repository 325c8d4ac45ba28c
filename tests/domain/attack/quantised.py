"""Operators between quantisers, which ONNX Runtime runs on integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.domain.attack.chain import Chain, attack
from tests.domain.maker import Unfit

__all__: list[str] = []


@dataclass(frozen=True)
class _Code:
    """Scale and zero point of quantised values."""

    scale: float
    zero: int
    dtype: Any


def _code(m: Chain, exponent: int = 0, *, signed: bool | None = None) -> _Code:
    # Only quantisers of one type are fused with the operators between them.
    dtype = m.whole if m.chance(0.9) else m.one_of(np.uint8, np.int8, np.uint16, np.int16)
    if signed is not None:
        dtype = np.int8 if signed else np.uint8
    limits = np.iinfo(dtype)
    zero = int(m.rng.integers(limits.min, limits.max + 1)) if m.chance(0.6) else (0 if limits.min else m.one_of(0, 128))
    # Multiples of one another: sums and products lie halfway between two steps.
    step = float(m.one_of(0.01, 0.02, 0.02, 0.03, 0.04, 0.1, 0.0078125, 1 / 255, float(m.rng.uniform(0.002, 0.2))))
    return _Code(float(m.scaled(step, exponent)), zero, dtype)


def _parameters(m: Chain, code: _Code) -> tuple[str, str]:
    return m.constant(code.scale), m.constant(code.zero, code.dtype)


def pair(m: Chain, x: str, code: _Code | None = None) -> str:
    """Quantise a tensor and back."""
    code = code or _code(m, m.exponent(x))
    scale, zero = _parameters(m, code)
    if m.opset < 21 and np.iinfo(code.dtype).bits > 8:
        raise Unfit("16 bits")
    y = m.op("QuantizeLinear", x, scale, zero)
    if m.chance(0.2):  # parameters of their own that are equal
        scale, zero = _parameters(m, code)
    return m.grown(m.op("DequantizeLinear", y, scale, zero), x)


def stored(m: Chain, *shape: int, exponent: int = 0, axis: int | None = None) -> str:
    """Add a constant that is stored as integers of 8 bits; with a scale for each slice along an axis, or one."""
    code = _code(m, exponent, signed=None if m.chance(0.6) else m.chance(0.7))
    if np.iinfo(code.dtype).bits > 8:
        raise Unfit("16 bits")
    limits = np.iinfo(code.dtype)
    far = m.chance(0.3)  # neighbours that saturate 16 bits
    values = m.rng.choice((limits.min, limits.max), shape) if far else m.rng.integers(limits.min, limits.max + 1, shape)
    if axis is None:
        scale, zero = _parameters(m, code)
        return m.op("DequantizeLinear", m.constant(values, code.dtype), scale, zero)
    n = shape[axis]
    scales = m.constant(m.scaled(m.rng.uniform(0.001, 0.1, n), exponent))
    zeros = m.constant(np.zeros(n), code.dtype)
    return m.op("DequantizeLinear", m.constant(values, code.dtype), scales, zeros, axis=axis)


def finished(m: Chain, y: str) -> None:
    """Quantise a result, rarely after an activation, and let others read it."""
    if m.chance(0.2):
        y = m.grown(m.op(m.one_of("Relu", "Clip"), y), y)
    if m.chance(0.9):
        y = pair(m, y)
    m.end(y, y)


def _float_only(m: Chain) -> None:
    if m.dtype != np.float32 and m.chance(0.8):
        raise Unfit("quantisers are of float32")


@attack
def unary(m: Chain) -> None:
    _float_only(m)
    x = pair(m, m.last())
    rank = len(m.shape(x))
    kinds: list[Callable[[], str]] = [
        lambda: m.op(m.one_of("Sigmoid", "Tanh", "Relu", "LeakyRelu", "Abs", "Sqrt", "Exp", "Neg"), x),
        lambda: m.op("Softmax", x, axis=int(m.rng.integers(rank))),
        lambda: m.op("LeakyRelu", x, alpha=m.one_of(0.01, 0.3)),
        lambda: m.op("Sigmoid", x),
        lambda: m.op("Clip", x, m.constant(m.one_of(0.0, -1.0)), m.constant(m.one_of(1.0, 6.0))),
    ]
    y = kinds[int(m.rng.integers(len(kinds)))]()
    finished(m, m.grown(y, x, -m.exponent(x) if m.chance(0.5) else 0))


@attack
def binary(m: Chain) -> None:
    _float_only(m)
    x = m.last()
    shape = m.shape(x)
    op_type = m.one_of("Add", "Add", "Mul", "Mul", "Sub", "Div", "Max", "Min")
    same = [name for name in m.live if m.shape(name) == shape]
    kind = m.rng.random()
    if kind < 0.5:
        exponent = m.exponent(x) if op_type in ("Add", "Sub") else 0
        other = stored(m, *(shape if m.chance(0.6) else shape[-1:]), exponent=exponent)
    elif kind < 0.9:
        other = pair(m, str(m.rng.choice(same)))
    else:
        other = m.sized(m.exponent(x), *shape[-1:])
    y = m.op(op_type, pair(m, x), other)
    finished(m, m.grown(y, x))


@attack
def joined(m: Chain) -> None:
    _float_only(m)
    x = m.last(2, 3, 4)
    same = [name for name in m.live if m.shape(name) == m.shape(x)]
    other = pair(m, str(m.rng.choice(same))) if m.chance(0.6) else stored(m, *m.shape(x), exponent=m.exponent(x))
    axis = int(m.rng.integers(len(m.shape(x))))
    finished(m, m.grown(m.op("Concat", pair(m, x), other, axis=axis), x))


@attack
def product(m: Chain) -> None:
    _float_only(m)
    x = m.last(2, 3)
    k, n = m.shape(x)[-1], int(m.rng.integers(1, 9))
    left = pair(m, x)
    if m.chance(0.8):
        right = stored(m, k, n, axis=1 if m.chance(0.3) else None)
    else:
        right = m.sized(0, k, n)
    y = m.op("MatMul", left, right)
    if m.chance(0.4):
        y = m.swapped("Add", y, m.sized(m.exponent(x), n))
    finished(m, m.grown(y, x))


@attack
def gemm(m: Chain) -> None:
    _float_only(m)
    x = m.last(2)
    k, n, turned = m.shape(x)[-1], int(m.rng.integers(1, 9)), m.one_of(0, 1)
    code = _code(m, m.exponent(x))
    weight = stored(m, *((n, k) if turned else (k, n)), axis=m.one_of(None, 0 if turned else 1))
    bias = []
    if m.chance(0.6):
        step = float(code.scale) * 0.01
        values = m.constant(m.rng.integers(-2000, 2000, n), np.int32)
        bias = [m.op("DequantizeLinear", values, m.constant(step), m.constant(0, np.int32))]
    finished(m, m.grown(m.op("Gemm", pair(m, x, code), weight, *bias, transB=turned), x))


@attack
def convolution(m: Chain) -> None:
    _float_only(m)
    x = m.last(3, 4)
    channels, space = m.shape(x)[1], len(m.shape(x)) - 2
    size = int(m.rng.integers(1, min(3, *m.shape(x)[2:]) + 1))
    weight = stored(m, 4, channels, *[size] * space, axis=m.one_of(None, 0))
    y = m.op("Conv", pair(m, x), weight, pads=[m.one_of(0, size - 1)] * (2 * space))
    finished(m, m.grown(activated(m, y), x))


def activated(m: Chain, y: str) -> str:
    """Add an activation that the quantiser after it makes unnecessary, or none."""
    kind = m.rng.random()
    if kind < 0.6:
        return y
    if kind < 0.8:
        return m.op("Relu", y)
    return m.op("Clip", y, m.constant(0.0), m.constant(m.one_of(6.0, 1.0)))


@attack
def pool(m: Chain) -> None:
    _float_only(m)
    x = m.last(3, 4)
    space = len(m.shape(x)) - 2
    size = min(2, *m.shape(x)[2:])
    op_type = m.one_of("MaxPool", "AveragePool", "GlobalAveragePool", "ReduceMean", "Resize")
    given = pair(m, x)
    if op_type == "GlobalAveragePool":
        y = m.op(op_type, given)
    elif op_type == "ReduceMean":
        y = m.reduced(op_type, given, -1)
    elif op_type == "Resize":
        y = m.op(op_type, given, "", m.constant([1.0, 1.0, *[2.0] * space], np.float32), mode="nearest")
    else:
        y = m.op(op_type, given, kernel_shape=[size] * space, pads=[m.one_of(0, size - 1)] * (2 * space))
    finished(m, m.grown(y, x))


@attack
def pairs(m: Chain) -> None:
    """Pairs in a row that are merged, or moved past operators that only move elements."""
    _float_only(m)
    x = y = m.last()
    for _ in range(m.one_of(2, 2, 3)):
        y = pair(m, y)
        kind, rank = int(m.rng.integers(6)), len(m.shape(y))
        if kind == 0:
            y = m.grown(m.op("Reshape", y, m.ints(-1)), x)
        elif kind == 1:
            y = m.grown(m.op("Transpose", y, perm=[int(i) for i in m.rng.permutation(rank)]), x)
        elif kind == 2:
            y = m.grown(m.op(m.one_of("Relu", "Clip"), y), x)
    m.end(y, x)


@attack
def rectified(m: Chain) -> None:
    """An activation before a quantiser that takes over its effect."""
    _float_only(m)
    x = m.last()
    code = _code(m, m.exponent(x))
    if m.chance(0.5):
        code = _Code(code.scale, int(np.iinfo(code.dtype).min), code.dtype)
    size = m.exponent(x)
    low, high = m.scaled(m.one_of(0.0, 0.0, -1.0, 0.5), size), m.scaled(m.one_of(6.0, 1.0, 100.0), size)
    y = m.op("Relu", x) if m.chance(0.4) else m.op("Clip", x, m.constant(low), m.constant(high))
    m.end(pair(m, m.grown(y, x), code), x)


@attack
def integers(m: Chain) -> None:
    """Products of integers, converted and scaled."""
    if m.dtype != np.float32:
        raise Unfit("quantisers are of float32")
    x = m.last(2, 3)
    k, n = m.shape(x)[-1], int(m.rng.integers(1, 9))
    dtype = m.one_of(np.int8, np.uint8)
    limits = np.iinfo(dtype)
    values = m.constant(m.rng.integers(limits.min, limits.max + 1, (k, n)), dtype)
    code = _code(m, m.exponent(x), signed=m.chance(0.3))
    if np.iinfo(code.dtype).bits > 8:
        raise Unfit("16 bits")
    scale, zero = _parameters(m, code)
    q = m.op("QuantizeLinear", x, scale, zero)
    weights_zero = m.constant(m.one_of(0, 3), dtype)
    y = m.cast(m.op("MatMulInteger", q, values, zero, weights_zero), m.element)
    y = m.op("Mul", y, m.swapped("Mul", scale, m.sized(0, *m.one_of((), (1,), (n,)))))
    if m.chance(0.5):
        y = m.op("Add", y, m.sized(m.exponent(x), n))
    m.end(y, x, 1)
