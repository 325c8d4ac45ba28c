"""The parts of random models: operators and patterns of several operators, each added by a function."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.domain.maker import Maker, Unfit

__all__ = ["FRAGMENTS", "WEIGHTS"]

FRAGMENTS: list[Callable[[Maker], None]] = []
WEIGHTS = {"smooth": 5.0, "hazard": 2.0, "guarded": 4.0, "binary": 6.0, "reduction": 3.0, "matrix": 3.0, "moved": 4.0}
"""How much more likely a fragment is than others."""

_SMOOTH = (
    *("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Softplus", "Erf", "Softsign", "Elu", "LeakyRelu", "Selu", "Mish"),
    *("HardSigmoid", "HardSwish", "Gelu", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Atan", "Asinh", "Celu"),
    *("Identity", "ThresholdedRelu", "Shrink", "Clip"),
)
_HAZARDS = ("Exp", "Log", "Sqrt", "Reciprocal", "Tan", "Asin", "Acos", "Atanh", "Acosh", "Cosh", "Sinh")
_REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceProd", "ReduceSumSquare"),
    *("ReduceLogSumExp", "ReduceMean", "ReduceSum"),
)


def fragment(function: Callable[[Maker], None]) -> Callable[[Maker], None]:
    FRAGMENTS.append(function)
    return function


# elementwise ------------------------------------------------------------------------------------------------------


@fragment
def smooth(m: Maker) -> None:
    m.keep(m.op(str(m.rng.choice(_SMOOTH)), m.pick()))


@fragment
def hazard(m: Maker) -> None:
    m.keep(m.op(str(m.rng.choice(_HAZARDS)), m.pick()))


@fragment
def power(m: Maker) -> None:
    exponent = m.constant(m.one_of(2.0, 3.0, 0.5, -0.5, -1.0, 1.5, 0.25, 4.0, 0.0, 1.0))
    x = m.pick()
    m.keep(m.op("Pow", m.op("Abs", x) if m.rng.random() < 0.5 else x, exponent))


@fragment
def guarded(m: Maker) -> None:
    x, small, one = m.pick(), m.constant(m.one_of(1e-3, 1e-5, 1e-12)), m.constant(1.0)
    square = m.op("Mul", x, x)
    kind = int(m.rng.integers(10))
    if kind == 0:
        m.keep(m.op("Log", m.op("Clip", x, small, m.constant(10.0))))
    elif kind == 1:
        m.keep(m.op("Log", m.op("Add", square, small)))
    elif kind == 2:
        m.keep(m.op("Sqrt", m.op("Add", m.op("Abs", x), small)))
    elif kind == 3:
        m.keep(m.op("Reciprocal", m.op("Add", one, square)))
    elif kind == 4:
        m.keep(m.op("Exp", m.op("Neg", m.op("Abs", x))))
    elif kind == 5:
        m.keep(m.op("Exp", m.op("Clip", x, m.constant(-20.0), m.constant(20.0))))
    elif kind == 6:
        m.keep(m.op("Log", m.op("Sigmoid", x)))
    elif kind == 7:
        m.keep(m.op("Div", x, m.op("Max", m.op("Abs", m.partner(x)), small)))
    elif kind == 8:
        m.keep(m.op("Atanh", m.op("Mul", m.op("Tanh", x), m.constant(m.one_of(1.0, 0.999, 0.5)))))
    else:
        m.keep(m.op("Sqrt", m.op("Sub", one, m.op("Sigmoid", x))))


@fragment
def binary(m: Maker) -> None:
    x = m.pick()
    pair = [x, m.partner(x)]
    m.rng.shuffle(pair)
    m.keep(m.op(str(m.rng.choice(("Add", "Add", "Sub", "Mul", "Mul", "Max", "Min", "Div"))), *pair))


@fragment
def several(m: Maker) -> None:
    x = m.pick()
    m.keep(m.op(str(m.rng.choice(("Sum", "Mean", "Max", "Min"))), x, m.partner(x), m.partner(x)))


@fragment
def itself(m: Maker) -> None:
    x = m.pick()
    m.keep(m.op(str(m.rng.choice(("Sub", "Mul", "Div", "Add", "Max"))), x, x))


@fragment
def remainder(m: Maker) -> None:
    m.keep(m.op("Mod", m.pick(), m.constant(m.one_of(2.0, 0.7, -1.5)), fmod=1))


# functions that networks spell out ----------------------------------------------------------------------------------


@fragment
def spelled_activation(m: Maker) -> None:
    x, one, half = m.pick(), m.constant(1.0), m.constant(0.5)
    kind = int(m.rng.integers(6))
    if kind == 0:
        m.keep(m.op("Mul", x, m.op("Sigmoid", x)))
    elif kind == 1:
        erf = m.op("Erf", m.op("Div", x, m.constant(math.sqrt(2))))
        m.keep(m.op("Mul", m.op("Mul", x, m.op("Add", erf, one)), half))
    elif kind == 2:
        cubic = m.op("Mul", m.op("Pow", x, m.constant(3.0)), m.constant(0.044715))
        inner = m.op("Mul", m.op("Add", x, cubic), m.constant(math.sqrt(2 / math.pi)))
        m.keep(m.op("Mul", m.op("Mul", x, half), m.op("Add", one, m.op("Tanh", inner))))
    elif kind == 3:
        m.keep(m.op("Div", one, m.op("Add", one, m.op("Exp", m.op("Neg", x)))))
    elif kind == 4:
        m.keep(m.op("Log", m.op("Add", one, m.op("Exp", x))))
    else:
        clipped = m.op("Clip", m.op("Add", x, m.constant(3.0)), m.constant(0.0), m.constant(6.0))
        m.keep(m.op("Div", m.op("Mul", x, clipped), m.constant(6.0)))


@fragment
def spelled_softmax(m: Maker) -> None:
    x = m.pick(2, 3, 4)
    axes = m.ints(-1)
    if m.rng.random() < 0.7:
        x = m.op("Sub", x, m.op("ReduceMax", x, axes, keepdims=1))
    exponentials = m.op("Exp", x)
    total = m.op("ReduceSum", exponentials, axes, keepdims=1)
    if m.rng.random() < 0.7:
        m.keep(m.op("Div", exponentials, total))
    else:
        m.keep(m.op("Sub", x, m.op("Log", total)))


@fragment
def spelled_normalisation(m: Maker) -> None:
    x = m.pick(2, 3, 4)
    axes, n = m.ints(-1), m.shape(x)[-1]
    epsilon = m.constant(m.one_of(1e-5, 1e-12, 0.0))
    kind = int(m.rng.integers(4))
    if kind == 0:
        centred = m.op("Sub", x, m.op("ReduceMean", x, axes, keepdims=1))
        square = m.op("Pow", centred, m.constant(2.0)) if m.rng.random() < 0.7 else m.op("Mul", centred, centred)
        scale = m.op("Sqrt", m.op("Add", m.op("ReduceMean", square, axes, keepdims=1), epsilon))
        normal = m.op("Div", centred, scale)
        m.keep(m.op("Add", m.op("Mul", normal, m.weight(n)), m.weight(n)))
    elif kind == 1:
        square = m.op("Pow", x, m.constant(2.0))
        mean = m.op("Add", m.op("ReduceMean", square, axes, keepdims=1), epsilon)
        m.keep(m.op("Mul", m.op("Mul", x, m.op("Reciprocal", m.op("Sqrt", mean))), m.weight(n)))
    elif kind == 2:
        m.keep(m.op("Div", x, m.op("Add", m.op("ReduceL2", x, axes, keepdims=1), epsilon)))
    else:
        norm = m.op("ReduceL2", x, axes, keepdims=1)
        m.keep(m.op("Div", x, m.op("Where", m.op("Equal", norm, m.constant(0.0)), m.constant(1.0), norm)))


@fragment
def entropy(m: Maker) -> None:
    p = m.op("Softmax", m.pick(2, 3), axis=-1)
    logarithm = m.op("Log", m.op("Add", p, m.constant(1e-7)) if m.rng.random() < 0.5 else p)
    m.keep(m.op("Neg", m.op("ReduceSum", m.op("Mul", p, logarithm), m.ints(-1), keepdims=1)))


# linear -------------------------------------------------------------------------------------------------------------


@fragment
def matrix(m: Maker) -> None:
    x = m.pick(2, 3)
    k, n = m.shape(x)[-1], int(m.rng.integers(1, 9))
    y = m.op("MatMul", x, m.weight(k, n))
    if m.rng.random() < 0.6:
        y = m.op("Add", y, m.weight(n))
    if m.rng.random() < 0.4:
        y = m.op("Relu", y)
    m.keep(y)


@fragment
def gemm(m: Maker) -> None:
    x = m.pick(2)
    n, turned = int(m.rng.integers(1, 9)), int(m.rng.integers(2))
    k = m.shape(x)[1]
    weight = m.weight(n, k) if turned else m.weight(k, n)
    bias = [m.weight(n)] if m.rng.random() < 0.7 else []
    alpha, beta = m.one_of(1.0, 0.5), m.one_of(1.0, 2.0)
    m.keep(m.op("Gemm", x, weight, *bias, transB=turned, alpha=alpha, beta=beta))


@fragment
def residual(m: Maker) -> None:
    x = m.pick(2, 3)
    n = m.shape(x)[-1]
    inner = m.op("Relu", m.op("Add", m.op("MatMul", x, m.weight(n, 2 * n)), m.weight(2 * n)))
    y = m.op("Add", x, m.op("Add", m.op("MatMul", inner, m.weight(2 * n, n)), m.weight(n)))
    if m.rng.random() < 0.5:
        y = m.op("LayerNormalization", y, m.weight(n), m.weight(n), axis=-1)
    m.keep(y)


@fragment
def attention(m: Maker) -> None:
    x = m.pick(2, 3)
    n, d = m.shape(x)[-1], int(m.rng.integers(2, 6))
    q, k, v = (m.op("MatMul", x, m.weight(n, d)) for _ in range(3))
    order = [1, 0] if len(m.shape(x)) == 2 else [0, 2, 1]
    scores = m.op("Div", m.op("MatMul", q, m.op("Transpose", k, perm=order)), m.constant(math.sqrt(d)))
    size = m.shape(scores)[-1]
    if m.rng.random() < 0.5:
        hidden = np.triu(np.ones((size, size), np.bool_), 1)
        far = float(m.one_of(-np.inf, -1e4, float(np.finfo(m.dtype).min)))
        if m.rng.random() < 0.5:
            scores = m.op("Add", scores, m.constant(np.where(hidden, far, 0.0)))
        else:
            scores = m.op("Where", m.constant(~hidden, np.bool_), scores, m.constant(far))
    m.keep(m.op("MatMul", m.op("Softmax", scores, axis=-1), v))


@fragment
def convolution(m: Maker) -> None:
    x = m.pick(3, 4)
    shape = m.shape(x)
    channels, space = shape[1], len(shape) - 2
    grouped = m.rng.random() < 0.3
    size, filters = int(m.rng.integers(1, 4)), channels if grouped else int(m.rng.integers(1, 5))
    weight = m.weight(filters, 1 if grouped else channels, *[size] * space)
    bias = [m.weight(filters)] if m.rng.random() < 0.5 else []
    pads = [int(m.rng.integers(0, size)) for _ in range(2 * space)]
    if min(shape[2:]) < size:
        raise Unfit("a window larger than the image")
    strides = [int(m.rng.integers(1, 3))] * space
    y = m.op("Conv", x, weight, *bias, pads=pads, strides=strides, group=channels if grouped else 1)
    if m.rng.random() < 0.5:
        y = _batch_normalised(m, y)
    if m.rng.random() < 0.5:
        y = m.op("Relu", y)
    m.keep(y)


def _batch_normalised(m: Maker, x: str) -> str:
    n = m.shape(x)[1]
    variance = m.constant(m.rng.uniform(1e-3, 2.0, n))
    return m.op("BatchNormalization", x, m.weight(n), m.weight(n), m.weight(n), variance)


@fragment
def transposed_convolution(m: Maker) -> None:
    x = m.pick(3, 4)
    shape = m.shape(x)
    weight = m.weight(shape[1], 2, *[2] * (len(shape) - 2))
    m.keep(m.op("ConvTranspose", x, weight, strides=[m.one_of(1, 2)] * (len(shape) - 2)))


@fragment
def einsum(m: Maker) -> None:
    x = m.pick(2)
    m.keep(m.op("Einsum", x, m.weight(m.shape(x)[1], 3), equation=m.one_of("ij,jk->ik", "ij,jk->ki", "ij,jk->k")))


# windows, reductions, normalisations --------------------------------------------------------------------------------


@fragment
def pooling(m: Maker) -> None:
    x = m.pick(3, 4)
    space = len(m.shape(x)) - 2
    op_type = str(m.rng.choice(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool")))
    if op_type.startswith("Global"):
        m.keep(m.op(op_type, x))
        return
    if min(m.shape(x)[2:]) < 2:
        raise Unfit("a window larger than the image")
    pads = [int(m.rng.integers(0, 2))] * (2 * space)
    m.keep(m.op(op_type, x, kernel_shape=[2] * space, pads=pads, strides=[m.one_of(1, 2)] * space))


@fragment
def reduction(m: Maker) -> None:
    x = m.pick(1, 2, 3, 4)
    axis = int(m.rng.integers(len(m.shape(x))))
    kept = int(m.rng.random() < 0.8 or len(m.shape(x)) == 1)
    m.keep(m.op(str(m.rng.choice(_REDUCTIONS)), x, m.ints(axis), keepdims=kept))


@fragment
def deviation(m: Maker) -> None:
    x = m.pick(2, 3, 4)
    reduced = m.op(m.one_of("ReduceMean", "ReduceMax", "ReduceMin"), x, m.ints(-1), keepdims=1)
    y = m.op("Sub", x, reduced)
    m.keep(m.op("Sqrt", m.op("ReduceMean", m.op("Mul", y, y), m.ints(-1), keepdims=1)) if m.rng.random() < 0.4 else y)


@fragment
def softmax(m: Maker) -> None:
    x = m.pick(1, 2, 3, 4)
    y = m.op(m.one_of("Softmax", "LogSoftmax", "Softmax"), x, axis=int(m.rng.integers(len(m.shape(x)))))
    m.keep(m.op("Log", y) if m.rng.random() < 0.15 else y)


@fragment
def shifted_softmax(m: Maker) -> None:
    x = m.pick(2, 3)
    axis = int(m.rng.integers(len(m.shape(x))))
    if m.rng.random() < 0.4:
        k = m.shape(x)[-1]
        x = m.op("MatMul", x, m.weight(k, k))
    shift = m.op(m.one_of("ReduceMean", "ReduceMax", "ReduceL1"), x, m.ints(axis), keepdims=1)
    if m.rng.random() < 0.6:
        shift = m.op("Mul", shift, m.constant(m.one_of(-1.0, 30.0, -300.0, 2e4)))
    total = m.op("Sub", x, shift) if m.rng.random() < 0.4 else m.op("Add", *m.rng.permutation([x, shift]))
    y = m.op(m.one_of("Softmax", "LogSoftmax"), total, axis=axis)
    m.keep(m.op("Log", y) if m.rng.random() < 0.3 else y)


@fragment
def normalisation(m: Maker) -> None:
    x = m.pick(2, 3, 4)
    shape = m.shape(x)
    c, epsilon = shape[1], float(m.one_of(1e-5, 1e-3))
    op_type = m.one_of("LayerNormalization", "InstanceNormalization", "BatchNormalization", "LpNormalization", "LRN")
    if op_type == "LayerNormalization":
        n = shape[-1]
        bias = [m.weight(n)] if m.rng.random() < 0.7 else []
        m.keep(m.op(op_type, x, m.weight(n), *bias, axis=-1, epsilon=epsilon))
    elif op_type == "InstanceNormalization":
        x = m.pick(3, 4)
        c = m.shape(x)[1]
        m.keep(m.op(op_type, x, m.weight(c), m.weight(c), epsilon=epsilon))
    elif op_type == "BatchNormalization":
        m.keep(_batch_normalised(m, x))
    elif op_type == "LRN":
        m.keep(m.op(op_type, m.pick(4), size=3))
    else:
        m.keep(m.op(op_type, x, axis=-1, p=m.one_of(1, 2)))


@fragment
def running_sum(m: Maker) -> None:
    x = m.pick(1, 2, 3)
    axis = int(m.rng.integers(len(m.shape(x))))
    m.keep(m.op("CumSum", x, m.constant(axis, np.int64), exclusive=m.one_of(0, 1), reverse=m.one_of(0, 1)))
