"""Fragments of random models that move, choose, cut, quantise and rank elements, and recurrent fragments."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.domain.fragments import fragment
from tests.domain.maker import Maker

__all__: list[str] = []


@fragment
def moved(m: Maker) -> None:
    x = m.pick(2, 3, 4)
    shape = m.shape(x)
    rank, axis = len(shape), int(m.rng.integers(len(shape)))
    kind = int(m.rng.integers(9))
    if kind == 0:
        m.keep(m.op("Transpose", x, perm=[int(i) for i in m.rng.permutation(rank)]))
    elif kind == 1:
        m.keep(m.op("Reshape", x, m.ints(shape[0], -1)))
    elif kind == 2:
        alike = [n for n in m.live if m.shape(n) == shape]
        m.keep(m.op("Concat", x, str(m.rng.choice(alike)), m.weight(*shape), axis=axis))
    elif kind == 3:
        m.keep(m.op("Slice", x, m.ints(m.one_of(0, -2)), m.ints(m.one_of(100, -1)), m.ints(axis)))
    elif kind == 4 and shape[axis] > 1:
        cut = int(m.rng.integers(1, shape[axis]))
        m.keep(*m.ops("Split", x, m.ints(cut, shape[axis] - cut), outputs=2, axis=axis))
    elif kind == 5:
        widths = [0] * (2 * rank)
        widths[axis], widths[rank + axis] = 1, m.one_of(0, 2)
        constant = [m.constant(m.one_of(0.0, 1.5, -2.0))]
        mode = m.one_of("constant", "edge")
        m.keep(m.op("Pad", x, m.ints(*widths), *(constant if mode == "constant" else []), mode=mode))
    elif kind == 6:
        m.keep(m.op("Gather", x, m.constant(m.rng.integers(0, shape[axis], 3), np.int64), axis=axis))
    elif kind == 7:
        m.keep(m.op("Tile", x, m.ints(*(m.one_of(1, 2) for _ in shape))))
    else:
        m.keep(m.op("Squeeze", m.op("Unsqueeze", m.op("Neg", x), m.ints(1)), m.ints(1)))


@fragment
def resized(m: Maker) -> None:
    x = m.pick(4)
    scales = m.constant([1.0, 1.0, 2.0, m.one_of(1.0, 2.0)], np.float32)
    mode = m.one_of("nearest", "linear", "cubic")
    m.keep(m.op("Resize", x, "", scales, mode=mode))


@fragment
def chosen(m: Maker) -> None:
    x = m.pick()
    limit = m.constant(m.one_of(0.0, 0.5, -1.0))
    test = m.op(m.one_of("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"), x, limit)
    if m.rng.random() < 0.3:
        test = m.op("Not", test)
    kind = int(m.rng.integers(4))
    if kind == 0:
        m.keep(m.op("Where", test, x, m.partner(x)))
    elif kind == 1:
        m.keep(m.op("Where", test, m.op(m.one_of("Log", "Sqrt", "Reciprocal", "Exp"), x), m.constant(0.0)))
    elif kind == 2:
        safe = m.op("Where", test, x, m.constant(1.0))
        m.keep(m.op(m.one_of("Log", "Sqrt", "Reciprocal"), safe))
    else:
        m.keep(m.op("Mul", x, m.op("Cast", test, to=m.element)))


@fragment
def clipped(m: Maker) -> None:
    low = float(m.rng.uniform(-2, 1))
    m.keep(m.op("Clip", m.pick(), m.constant(low), m.constant(low + m.one_of(0.0, 0.5, 3.0))))


@fragment
def narrowed(m: Maker) -> None:
    kinds = (TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)
    m.keep(m.op("Cast", m.op("Clip", m.pick(), m.constant(-100.0), m.constant(100.0)), to=m.one_of(*kinds)))


@fragment
def quantised(m: Maker) -> None:
    scale, zero = m.constant(m.one_of(0.1, 0.0078125, 2.0)), m.constant(m.one_of(0, 3), m.one_of(np.int8, np.uint8))
    m.keep(m.op("DequantizeLinear", m.op("QuantizeLinear", m.pick(), scale, zero), scale, zero))


@fragment
def ranked(m: Maker) -> None:
    x = m.pick(1, 2, 3)
    if m.rng.random() < 0.5:
        values, _ = m.ops("TopK", x, m.ints(m.one_of(1, 2)), outputs=2, axis=-1, largest=m.one_of(0, 1))
        m.keep(values)
    else:
        m.keep(m.op(m.one_of("ArgMax", "ArgMin"), x, axis=-1, keepdims=1))


@fragment
def recurrent(m: Maker) -> None:
    x = m.pick(3)
    features, hidden = m.shape(x)[2], 3
    op_type, gates = m.one_of(("RNN", 1), ("GRU", 3), ("LSTM", 4))
    weight, again = m.weight(1, gates * hidden, features), m.weight(1, gates * hidden, hidden)
    m.keep(m.op(op_type, x, weight, again, hidden_size=hidden))
