"""Layers that are folded into one: their constants, biases included, are multiplied with each other."""

from __future__ import annotations

from tests.domain.attack.chain import Chain, attack
from tests.domain.maker import Unfit

__all__: list[str] = []

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip", "Elu", "Softplus", "Softsign")


def activated(m: Chain, y: str) -> str:
    """Add an activation with which layers are fused, or none."""
    if m.chance(0.5):
        return y
    op_type = str(m.rng.choice(_ACTIVATIONS))
    if op_type == "Clip":
        low, high = sorted(m.rng.uniform(-3, 6, 2))
        return m.grown(m.op("Clip", y, m.constant(low), m.constant(high)), y, -m.exponent(y))
    attributes = {"LeakyRelu": {"alpha": m.one_of(0.01, 0.2)}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4}}
    linear = op_type in ("Relu", "LeakyRelu")
    z = m.op(op_type, y, **attributes.get(op_type, {}))
    return m.grown(z, y, 0 if linear else -max(0, m.exponent(y)))


def normalised(m: Chain, y: str, by: int) -> str:
    """Add a batch normalisation that changes the exponent of a tensor by a number."""
    n = m.shape(y)[1]
    power = int(m.rng.integers(-18, 12)) if m.chance(0.5) else 0
    epsilon = float(m.one_of(1e-5, 1e-3, 1e-12, 1e-30, 0.0))
    variance = m.constant(m.scaled(m.rng.uniform(0.5, 2, n), 2 * (power // 2)))
    centred = m.chance(0.4)
    mean = m.constant(m.scaled(m.rng.uniform(-1, 1, n) * (0 if centred else 1), m.exponent(y)))
    bias = m.constant(m.scaled(m.rng.uniform(-1, 1, n) * m.one_of(0, 0, 1), m.exponent(y) + by))
    scale = m.sized(by + power // 2, n)
    if abs(by + power // 2) > m.span:
        raise Unfit("no scale that is so large")
    return m.grown(m.op("BatchNormalization", y, scale, bias, mean, variance, epsilon=epsilon), y, by)


def folded(m: Chain, y: str, shape: tuple[int, ...]) -> str:
    """Add an operator that is folded into the layer before: a scale, a normalisation, a sum."""
    y, kind, by = m.between(y), int(m.rng.integers(6)), m.shift(y)
    if kind < 2 and len(m.shape(y)) > 1:
        return normalised(m, y, by)
    few = shape if m.chance(0.7) else (1,) * len(shape) if m.chance(0.5) else ()
    if kind < 4:
        return m.grown(m.swapped("Mul", y, m.sized(by, *few)), y, by)
    if kind == 4:
        divisor = m.constant(m.scaled(m.rng.uniform(0.5, 2, few), -by))
        return m.grown(m.op("Div", y, divisor), y, by)
    return m.grown(m.op(m.one_of("Add", "Add", "Sub"), y, m.sized(m.exponent(y) + m.one_of(0, -8), *few)), y)


@attack
def convolution(m: Chain) -> None:
    x = m.last(3, 4)
    if m.chance(0.3):
        x = padded(m, x, m.one_of(0.0, 0.0, 1.5))
    shape, by = m.shape(x), m.shift(x)
    channels, space = shape[1], len(shape) - 2
    size = int(m.rng.integers(1, min(3, *shape[2:]) + 1))
    grouped = m.chance(0.3)
    filters = channels if grouped else m.one_of(1, 2, 4, 16)
    weight = m.sized(by, filters, 1 if grouped else channels, *[size] * space)
    bias = [m.sized(m.exponent(x) + by, filters)] if m.chance(0.5) else []
    pads = [int(m.rng.integers(0, size)) for _ in range(2 * space)] if m.chance(0.5) else [0] * (2 * space)
    y = m.op("Conv", x, weight, *bias, pads=pads, group=channels if grouped else 1)
    y = m.grown(y, x, by)
    for _ in range(m.one_of(0, 1, 1, 2)):
        y = folded(m, y, (filters, *[1] * space))
    if m.chance(0.2):
        same = [name for name in m.live if m.shape(name) == m.shape(y) and m.exponent(name) <= m.exponent(y)]
        y = m.grown(m.swapped("Add", y, str(m.rng.choice(same))), y) if same else y
    y = activated(m, y)
    m.end(y, y)


def padded(m: Chain, x: str, value: float) -> str:
    """Add padding of the spatial axes."""
    space = len(m.shape(x)) - 2
    ends = [0, 0, *(int(n) for n in m.rng.integers(0, 3, space))]
    starts = [0, 0, *(int(n) for n in m.rng.integers(0, 2, space))]
    given = [m.constant(value)] if value or m.chance(0.5) else []
    return m.grown(m.op("Pad", x, m.ints(*starts, *ends), *given, mode="constant"), x)


@attack
def padded_pool(m: Chain) -> None:
    x = m.last(3, 4)
    lowest = float(m.one_of(-1.0, 2.0))
    x = padded(m, x, m.one_of(0.0, 0.0, 0.0, m.scaled(lowest, m.exponent(x)).item()))
    size = min(2, *m.shape(x)[2:])
    space = len(m.shape(x)) - 2
    op_type = m.one_of("MaxPool", "MaxPool", "AveragePool")
    options = {"count_include_pad": m.one_of(0, 1)} if op_type == "AveragePool" else {}
    pads = [m.one_of(0, 0, size - 1)] * (2 * space)
    m.end(m.op(op_type, x, kernel_shape=[size] * space, strides=[m.one_of(1, 2)] * space, pads=pads, **options), x)


@attack
def product(m: Chain) -> None:
    x = m.last(2, 3, 4)
    by, (k, n) = m.shift(x), (m.shape(x)[-1], int(m.rng.integers(1, 9)))
    y = m.grown(m.op("MatMul", x, m.sized(by, k, n)), x, by)
    for _ in range(m.one_of(0, 1, 1, 2)):
        y = folded(m, y, (n,))
    y = activated(m, y)
    m.end(y, y)


@attack
def gemm(m: Chain) -> None:
    x = m.last(2)
    turned, flipped = m.one_of(0, 1), m.chance(0.2)
    by = m.shift(x) // 2
    k, n = m.shape(x)[1], int(m.rng.integers(1, 9))
    if flipped:
        x = m.grown(m.op("Transpose", x, perm=[1, 0]), x)
    weight = m.sized(by, n, k) if turned else m.sized(by, k, n)
    alpha = float(m.scaled(m.one_of(1.0, 0.5, -1.0), by)) if m.chance(0.4) else 1.0
    beta = float(m.one_of(1.0, 2.0, 0.0))
    whole = m.exponent(x) + (2 * by if alpha != 1.0 else by)
    bias = [m.sized(whole, *m.one_of((n,), (1, n), (1,)))] if m.chance(0.6) else []
    y = m.op("Gemm", x, weight, *bias, transA=int(flipped), transB=turned, alpha=alpha, beta=beta)
    y = m.grown(y, x, whole - m.exponent(x))
    kind = int(m.rng.integers(4))
    if kind == 0:
        y = m.grown(m.op("Sum", y, m.sized(whole, *m.shape(y))), y)
    elif kind == 1:
        y = m.grown(m.op("Transpose", y, perm=[1, 0]), y)
    elif kind == 2:
        y = folded(m, y, (n,))
    y = activated(m, y)
    m.end(y, y)


@attack
def scaled_product(m: Chain) -> None:
    """Scales of both operands and of the result become one factor."""
    x = m.last(2, 3)
    a = m.shift(x)
    left = factor(m, x, a)
    other = [name for name in m.live if m.shape(name) == m.shape(x)]
    z = str(m.rng.choice(other))
    b = m.shift(z) if m.chance(0.5) else 0
    right = factor(m, z, b)
    order = [*range(len(m.shape(x)) - 2), len(m.shape(x)) - 1, len(m.shape(x)) - 2]
    turned = m.op("Transpose", right, perm=order)
    y = m.op("MatMul", left, turned) if m.chance(0.5) else m.op("MatMul", turned, left)
    m.exponents[y] = m.exponent(left) + m.exponent(right)
    if abs(m.exponent(y)) > m.span:
        raise Unfit("a product that is too large")
    y = factor(m, y, m.shift(y))
    m.end(y, y)


def factor(m: Chain, x: str, by: int) -> str:
    """Multiply or divide by a constant scalar, or by none."""
    if not by and m.chance(0.5):
        return x
    shape = m.one_of((), (), (1,), (1, 1))
    if m.chance(0.6):
        return m.grown(m.swapped("Mul", x, m.sized(by, *shape)), x, by)
    return m.grown(m.op("Div", x, m.constant(m.scaled(m.rng.uniform(0.5, 2, shape), -by))), x, by)


@attack
def factors(m: Chain) -> None:
    """Products and quotients in a row."""
    x = y = m.last()
    for _ in range(m.one_of(2, 3)):
        y = factor(m, y, m.shift(y))
    m.end(y, x, m.exponent(y) - m.exponent(x))


@attack
def quotient(m: Chain) -> None:
    """x times 1/z becomes x/z."""
    x = m.last()
    same = [name for name in m.live if m.shape(name) == m.shape(x)]
    z = str(m.rng.choice(same))
    size = m.exponent(z)
    z = m.op("Abs", z) if m.chance(0.5) else m.op("Add", m.op("Abs", z), m.constant(m.scaled(1.0, size)))
    one = m.constant(m.one_of(1.0, 1.0, 2.0))
    inverse = m.op("Div", one, z) if m.chance(0.7) else m.op("Reciprocal", z)
    y = m.swapped("Mul", x, inverse)
    m.end(y, x, -size)


@attack
def linear_chain(m: Chain) -> None:
    """Two products with constants in a row, which a correct runtime does not regroup."""
    x = m.last(2, 3)
    y = x
    for _ in range(2):
        by = m.shift(y)
        k = m.shape(y)[-1]
        y = m.grown(m.op("MatMul", y, m.sized(by, k, m.one_of(1, 3, 8))), y, by)
    m.end(y, y)


@attack
def sums(m: Chain) -> None:
    """Sums with constants that are added up beforehand, or that change nothing."""
    x = y = m.last()
    for _ in range(m.one_of(1, 2, 3)):
        size = m.exponent(x) + m.one_of(0, 0, -6, 3)
        constant = m.constant(m.scaled(m.one_of(0.0, 1.0, -1.0, -2.5), size))
        y = m.op(m.one_of("Add", "Add", "Sub"), y, constant)
    m.end(y, x)
