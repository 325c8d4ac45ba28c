"""Functions that are spelled out in several operators and become one, in another type or with other constants."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from tests.domain.attack.chain import Chain, attack
from tests.domain.maker import Unfit

__all__: list[str] = []

_EPSILONS = (1e-5, 1e-5, 1e-12, 1e-6, 0.0, 1e-3)


def _square(m: Chain, x: str) -> str:
    return m.op("Pow", x, m.constant(2.0)) if m.chance(0.7) else m.op("Mul", x, x)


def _wide(m: Chain, x: str) -> tuple[str, int]:
    """Return a tensor in the type of its statistics, often a wider one, and the ONNX number of that type."""
    if m.dtype == np.float16 and m.chance(0.7):
        return m.grown(m.cast(x, TensorProto.FLOAT), x), TensorProto.FLOAT
    return x, m.element


_NUMPY: dict[int, type] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
    TensorProto.DOUBLE: np.float64,
}


def _affine(m: Chain, y: str, n: int, *, shifted: bool) -> str:
    by = m.one_of(0, 0, 0, 3, -3) if m.span > 3 else 0
    y = m.swapped("Mul", y, m.sized(by, n))
    if shifted:
        y = m.swapped("Add", y, m.sized(by, n))
    m.exponents[y] = by
    return y


@attack
def layer_norm(m: Chain) -> None:
    x = m.last(2, 3, 4)
    n, epsilon = m.shape(x)[-1], float(m.one_of(*_EPSILONS))
    data = _skip(m, x) if m.chance(0.3) else x
    wide, element = _wide(m, data)
    with m.typed(_NUMPY[element]):
        size = m.exponent(x)
        centred = m.op("Sub", wide, m.reduced("ReduceMean", wide, -1))
        variance = m.reduced("ReduceMean", _square(m, centred), -1)
        epsilon = m.scaled(epsilon, 2 * size).item() if m.chance(0.5) else epsilon
        root = m.op("Sqrt", m.swapped("Add", variance, m.constant(epsilon)))
        y = m.op("Div", centred, root) if m.chance(0.8) else m.op("Mul", centred, m.op("Reciprocal", root))
    if element != m.element:
        y = m.cast(y, m.element)
    y = _affine(m, y, n, shifted=True)
    m.end(y, y)


@attack
def rms_norm(m: Chain) -> None:
    x = m.last(2, 3, 4)
    n, epsilon = m.shape(x)[-1], float(m.one_of(*_EPSILONS))
    data = _skip(m, x) if m.chance(0.3) else x
    wide, element = _wide(m, data)
    with m.typed(_NUMPY[element]):
        epsilon = m.scaled(epsilon, 2 * m.exponent(x)).item() if m.chance(0.5) else epsilon
        mean = m.reduced("ReduceMean", _square(m, wide), -1)
        root = m.op("Sqrt", m.swapped("Add", mean, m.constant(epsilon)))
        y = m.op("Div", wide, root) if m.chance(0.7) else m.swapped("Mul", wide, m.op("Reciprocal", root))
    if element != m.element:
        y = m.cast(y, m.element)
    y = _affine(m, y, n, shifted=False)
    m.end(y, y)


def _skip(m: Chain, x: str) -> str:
    """Add a sum before a normalisation: the two become one."""
    same = [name for name in m.live if m.shape(name) == m.shape(x) and abs(m.exponent(name) - m.exponent(x)) < 4]
    y = m.op("Add", x, str(m.rng.choice(same)))
    if m.chance(0.5):
        y = m.swapped("Add", y, m.sized(m.exponent(x), m.shape(x)[-1]))
    return m.grown(y, x)


@attack
def layer_norm_node(m: Chain) -> None:
    x = m.last(2, 3)
    if m.opset < 17:
        raise Unfit("no such operator")
    n, data = m.shape(x)[-1], _skip(m, x) if m.chance(0.7) else x
    bias = [m.sized(0, n)] if m.chance(0.7) else []
    epsilon = float(m.one_of(*_EPSILONS))
    y = m.op("LayerNormalization", data, m.sized(0, n), *bias, axis=-1, epsilon=epsilon)
    m.end(m.grown(y, x, -m.exponent(x)), y)


# self-gated functions -----------------------------------------------------------------------------------------------


@attack
def gelu(m: Chain) -> None:
    """The error function's GELU, with constants that the optimiser takes for the correct ones."""
    x = m.moderate()
    x = _biased(m, x)
    two = m.constant(m.one_of(math.sqrt(2), 1.4142, 1.41421, 1.41421356, 1.4142135))
    inner = m.op("Div", x, two) if m.chance(0.8) else m.swapped("Mul", x, m.constant(math.sqrt(0.5)))
    outer = m.swapped("Add", m.op("Erf", inner), m.constant(m.one_of(1.0, 1.0, 1.0, 1.0, 1.0 + 1e-6)))
    half = m.constant(m.one_of(0.5, 0.5, 0.5, 0.5, 0.5 + 1e-6, 0.499999))
    if m.chance(0.5):
        y = m.swapped("Mul", m.swapped("Mul", x, outer), half)
    else:
        y = m.swapped("Mul", m.swapped("Mul", x, half), outer)
    m.exponents[y] = 0
    m.end(y, y)


@attack
def fast_gelu(m: Chain) -> None:
    """The GELU by the hyperbolic tangent."""
    x = m.moderate()
    x = _biased(m, x)
    near = m.constant(m.one_of(math.sqrt(2 / math.pi), 0.7978845, 0.797885, 0.79788))
    cubic = m.constant(m.one_of(0.044715, 0.044715, 0.0447149, 0.044714998453855515))
    if m.chance(0.5):
        power = m.op("Pow", x, m.constant(3.0))
        inner = m.swapped("Mul", m.swapped("Add", x, m.swapped("Mul", power, cubic)), near)
    else:
        gate = m.swapped("Add", m.swapped("Mul", m.swapped("Mul", x, cubic), x), m.constant(1.0))
        inner = m.swapped("Mul", gate, m.swapped("Mul", x, near))
    outer = m.swapped("Add", m.op("Tanh", inner), m.constant(1.0))
    half = m.constant(0.5)
    if m.chance(0.5):
        y = m.swapped("Mul", outer, m.swapped("Mul", x, half))
    else:
        y = m.swapped("Mul", m.swapped("Mul", x, outer), half)
    m.exponents[y] = 0
    m.end(y, y)


def _biased(m: Chain, x: str) -> str:
    shape = m.shape(x)
    return m.grown(m.swapped("Add", x, m.sized(0, shape[-1])), x) if shape and m.chance(0.3) else x


@attack
def quick_gelu(m: Chain) -> None:
    x = m.last()
    by = m.shift(x) if m.chance(0.3) else -m.exponent(x)
    slope = m.constant(m.scaled(m.one_of(1.702, 1.0, -1.0, 2.5), by))
    inner = m.swapped("Mul", x, slope) if m.chance(0.8) else x
    m.end(m.swapped("Mul", x, m.op("Sigmoid", inner)), x)


@attack
def hard_gate(m: Chain) -> None:
    x = m.moderate()
    gate = m.op("HardSigmoid", x, alpha=m.one_of(1 / 6, 0.2), beta=0.5)
    m.end(m.swapped("Mul", x, gate), x)


# attention ----------------------------------------------------------------------------------------------------------


@attack
def masked_softmax(m: Chain) -> None:
    x = m.moderate(2, 3, 4)
    shape = m.shape(x)
    far = float(m.one_of(-1e4, np.finfo(m.dtype).min, -10.0, 0.0, -np.inf))
    few = tuple(n if m.chance(0.7) else 1 for n in shape[:-1])
    hidden = m.rng.random((*few, shape[-1])) < 0.3
    hidden[..., 0] = False
    with np.errstate(all="ignore"):
        mask = m.constant(np.where(hidden, far, 0.0))
    scores = m.swapped("Add", x, mask)
    y = m.op("Softmax", scores, axis=-1)
    m.exponents[y] = 0
    m.end(y, y)


@attack
def attention(m: Chain) -> None:
    """Scores of two products with a scale, which may be on one side or spread over both."""
    x = m.moderate(3)
    _, length, n = m.shape(x)
    heads = 2 if n % 2 == 0 else 1
    parts = []
    for _ in range(3):
        y = m.swapped("Add", m.op("MatMul", x, m.sized(0, n, n)), m.sized(0, n))
        parts.append(m.op("Reshape", y, m.ints(0, 0, heads, n // heads)))
    q = m.op("Transpose", parts[0], perm=[0, 2, 1, 3])
    k = m.op("Transpose", parts[1], perm=[0, 2, 3, 1])
    v = m.op("Transpose", parts[2], perm=[0, 2, 1, 3])
    root = math.sqrt(n // heads)
    if m.chance(0.4):
        q, k = m.op("Mul", q, m.constant(root**-0.5)), m.op("Mul", k, m.constant(root**-0.5))
        scores = m.op("MatMul", q, k)
    else:
        scores = m.op("Div", m.op("MatMul", q, k), m.constant(root))
    if m.chance(0.5):
        hidden = np.triu(np.ones((length, length)), 1) * m.one_of(-1e4, -10.0)
        scores = m.op("Add", scores, m.constant(hidden))
    mixed = m.op("Transpose", m.op("MatMul", m.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    y = m.op("MatMul", m.op("Reshape", mixed, m.ints(0, 0, n)), m.sized(0, n, n))
    m.exponents[y] = 0
    m.end(m.op("Add", y, x) if m.chance(0.5) else y, y)
