"""Shapes that fusions overlook: vectors, single elements, constants of fewer or more dimensions than their partner."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.domain.attack.chain import Chain, attack
from tests.domain.attack.linear import activated
from tests.domain.maker import Unfit

__all__ = ["beside", "finish"]


def beside(m: Chain, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts with another: a scalar, one element, a part of it, more dimensions."""
    kinds: tuple[tuple[int, ...], ...] = (
        *((), (1,), (1,) * len(shape), shape[-1:], shape, tuple(n if m.chance(0.5) else 1 for n in shape)),
        *(tuple(n if m.chance(0.5) else 1 for n in shape), (1, *shape) if m.chance(0.3) else (1,)),
        (1,) * (len(shape) + 1) if m.chance(0.5) else (),
    )
    return kinds[int(m.rng.integers(len(kinds)))]


def finish(m: Chain, y: str, x: str = "") -> None:
    """Let later fragments read a tensor of about the magnitude of another, which gets a dimension if it has none."""
    if not m.shape(y):
        y = m.op("Unsqueeze", y, m.ints(0))
    if len(m.shape(y)) > 5:
        raise Unfit("too many dimensions")
    m.end(y, x)


def _turned(m: Chain, x: str) -> str:
    """Exchange dimensions: the last two, or any."""
    rank = len(m.shape(x))
    if rank == 2 and m.chance(0.3):
        return m.grown(m.op("Transpose", x), x)
    order = [*range(rank - 2), rank - 1, rank - 2] if m.chance(0.6) else [int(i) for i in m.rng.permutation(rank)]
    return m.grown(m.op("Transpose", x, perm=order), x)


def _vector(m: Chain, n: int) -> str:
    """Return a vector: a constant, or a row of a tensor."""
    rows = [name for name in m.live if len(m.shape(name)) == 2 and m.shape(name)[1] == n]
    if rows and m.chance(0.6):
        x = str(m.rng.choice(rows))
        return m.grown(m.op("Gather", x, m.constant(0, np.int64), axis=0), x)
    return m.sized(0, n)


def _scaled(m: Chain, x: str) -> str:
    if m.chance(0.6):
        return x
    return m.grown(m.swapped("Mul", x, m.sized(0, *beside(m, m.shape(x)))), x)


# products -----------------------------------------------------------------------------------------------------------


@attack
def vector_product(m: Chain) -> None:
    x = m.moderate(2, 3, 4)
    t = _turned(m, x) if m.chance(0.7) else x
    t = _scaled(m, t)
    if m.chance(0.6):
        y = m.op("MatMul", t, _scaled(m, _vector(m, m.shape(t)[-1])))
    else:
        y = m.op("MatMul", _vector(m, m.shape(t)[-2]), t)
    finish(m, activated(m, _scaled(m, y)))


@attack
def turned_products(m: Chain) -> None:
    """Both factors computed, transposed in any way, batches included."""
    x = m.moderate(2, 3, 4)
    z = str(m.rng.choice([name for name in m.live if m.shape(name) == m.shape(x)]))
    left, right = (_turned(m, side) if m.chance(0.7) else side for side in (x, z))
    y = _scaled(m, m.op("MatMul", _scaled(m, left), _scaled(m, right)))
    if m.chance(0.4):
        y = _turned(m, y)
    finish(m, activated(m, y))


@attack
def biased_product(m: Chain) -> None:
    x = m.moderate(1, 2, 3)
    k, n = m.shape(x)[-1], m.one_of(1, 3, 8)
    if len(m.shape(x)) == 2 and m.chance(0.5):
        shape = (m.shape(x)[0], n)
        bias = m.sized(0, *m.one_of((), (1,), (n,), (1, n), (shape[0], 1), shape))
        options = {"alpha": m.one_of(1.0, 0.5), "beta": m.one_of(1.0, 2.0)} if m.chance(0.5) else {}
        y = m.op("Gemm", x, m.sized(0, k, n), bias, **options)
    else:
        y = m.op("MatMul", x, m.sized(0, *m.one_of((k, n), (k, n), (1, k, n), (k,))))
        y = m.swapped("Add", m.between(y), m.sized(0, *beside(m, m.shape(y))))
    if m.chance(0.3):
        y = m.swapped(m.one_of("Add", "Sum"), y, m.sized(0, *beside(m, m.shape(y))))
    finish(m, activated(m, y))


# images -------------------------------------------------------------------------------------------------------------


def _convolved(m: Chain, x: str, filters: int) -> str:
    channels, *sizes = m.shape(x)[1:]
    size = int(m.rng.integers(1, min(3, *sizes) + 1))
    options: dict[str, object] = {}
    if m.chance(0.3):
        options["auto_pad"] = m.one_of("SAME_UPPER", "SAME_LOWER", "VALID")
    elif m.chance(0.5):
        options["pads"] = [int(m.rng.integers(0, size)) for _ in range(2 * len(sizes))]
    if m.chance(0.3):
        options["strides"] = [m.one_of(1, 2)] * len(sizes)
    bias = [m.sized(0, filters)] if m.chance(0.4) else []
    if m.chance(0.15) and "auto_pad" not in options:
        return m.op("ConvTranspose", x, m.sized(0, channels, filters, *[size] * len(sizes)), *bias, **options)
    return m.op("Conv", x, m.sized(0, filters, channels, *[size] * len(sizes)), *bias, **options)


@attack
def biased_convolution(m: Chain) -> None:
    """A convolution, and sums and products with constants of any shape after it."""
    x = m.moderate(3, 4)
    y = _convolved(m, x, m.one_of(1, 2, 4, 16))
    for _ in range(m.one_of(1, 1, 2)):
        shape = m.shape(y)
        per_channel = (shape[1], *[1] * (len(shape) - 2))
        few = m.one_of(per_channel, (1, *per_channel), beside(m, shape))
        y = (
            m.swapped("Add", y, m.sized(0, *few))
            if m.chance(0.5)
            else m.op(m.one_of("Mul", "Div"), y, m.sized(0, *few))
        )
    finish(m, activated(m, y))


@attack
def blocked(m: Chain) -> None:
    """Layers that run in blocks of channels, with what may stand between them."""
    x = m.moderate(4)
    y = _convolved(m, x, 16)
    z = _convolved(m, x, 16) if m.chance(0.3) else y
    window = min(2, *m.shape(y)[2:])
    pool = {"kernel_shape": [window] * 2, "strides": [m.one_of(1, 2)] * 2, "ceil_mode": m.one_of(0, 0, 1)}
    pads = {"pads": [m.one_of(0, window - 1) for _ in range(4)]}
    scales = m.constant([1.0, 1.0, 2.0, 2.0], np.float32)
    kinds: list[Callable[[], str]] = [
        lambda: m.op("MaxPool", y, **pool, **pads),
        lambda: m.op("AveragePool", y, **pool, **pads, count_include_pad=m.one_of(0, 1)),
        lambda: m.op(m.one_of("GlobalAveragePool", "GlobalMaxPool"), y),
        lambda: m.swapped(m.one_of("Add", "Mul", "Sum"), y, z),
        lambda: m.swapped("Add", y, m.sized(0, *beside(m, m.shape(y)))),
        lambda: m.op("Concat", y, z, axis=1),
        lambda: m.op(m.one_of("Relu", "Sigmoid", "Tanh", "LeakyRelu"), y),
        lambda: m.op("Resize", y, "", scales, mode=m.one_of("nearest", "linear")),
        lambda: m.op("Transpose", y, perm=[0, 2, 3, 1]),
        lambda: m.op("BatchNormalization", y, *(m.sized(0, 16) for _ in range(3)), m.constant(np.ones(16))),
    ]
    for _ in range(m.one_of(1, 2)):
        y = kinds[int(m.rng.integers(len(kinds)))]()
        window = min(window, *m.shape(y)[2:])
    if m.chance(0.5) and m.shape(y)[1] <= 32:
        y = _convolved(m, y, m.one_of(1, 16))
    finish(m, activated(m, y))


# functions that are spelled out -------------------------------------------------------------------------------------


@attack
def normalised_over(m: Chain) -> None:
    """A normalisation over other axes than the last, with scales of other shapes, in all its spellings."""
    x = m.moderate(2, 3, 4)
    rank = len(m.shape(x))
    axes = m.one_of([-1], [rank - 1], [-2, -1], [1], [0]) if rank > 2 else m.one_of([-1], [1], [0])
    centred = x if m.chance(0.4) else m.op("Sub", x, m.reduced("ReduceMean", x, *axes))
    square = m.op("Mul", centred, centred) if m.chance(0.3) else m.op("Pow", centred, m.constant(m.one_of(2.0, [2.0])))
    epsilon = m.constant(m.one_of(1e-5, 0.1, [1e-5], 1e-12))
    variance = m.swapped("Add", m.reduced("ReduceMean", square, *axes), epsilon)
    if m.chance(0.3):
        y = m.swapped("Mul", centred, m.op("Pow", variance, m.constant(-0.5)))
    elif m.chance(0.5):
        y = m.swapped("Mul", centred, m.op(m.one_of("Reciprocal", "Div"), *_inverse(m, m.op("Sqrt", variance))))
    else:
        y = m.op("Div", centred, m.op("Sqrt", variance))
    y = m.swapped("Mul", m.between(y), m.sized(0, *beside(m, m.shape(x))))
    if m.chance(0.7):
        y = m.swapped("Add", y, m.sized(0, *beside(m, m.shape(y))))
    finish(m, y)


def _inverse(m: Chain, root: str) -> tuple[str, ...]:
    return (root,) if m.chance(0.5) else (m.constant(m.one_of(1.0, [1.0])), root)


@attack
def gated(m: Chain) -> None:
    """The GELUs with constants of one element, and biases of any shape before them."""
    x = m.moderate()
    if m.chance(0.6):
        x = m.swapped("Add", x, m.sized(0, *beside(m, m.shape(x))))

    def number(value: float) -> str:
        return m.constant(value if m.chance(0.5) else np.full(m.one_of((1,), (1, 1)), value))

    if m.opset >= 20 and m.chance(0.4):
        y = m.op("Gelu", x, approximate=m.one_of("none", "tanh"))
    elif m.chance(0.5):
        outer = m.swapped("Add", m.op("Erf", m.op("Div", x, number(math.sqrt(2)))), number(1.0))
        y = m.swapped("Mul", m.swapped("Mul", x, outer), number(0.5))
    elif m.chance(0.5):
        power = m.swapped("Mul", m.op("Pow", x, number(3.0)), number(0.044715))
        inner = m.swapped("Mul", m.swapped("Add", x, power), number(math.sqrt(2 / math.pi)))
        outer = m.swapped("Add", m.op("Tanh", inner), number(1.0))
        y = m.swapped("Mul", m.swapped("Mul", x, number(0.5)), outer)
    else:
        y = m.swapped("Mul", x, m.op("Sigmoid", m.swapped("Mul", x, number(m.one_of(1.702, 1.0, -2.0)))))
    finish(m, y)


@attack
def masked(m: Chain) -> None:
    """Scores with a mask of any shape, or a choice by one, before a softmax over any axis."""
    x = m.moderate()
    few = beside(m, m.shape(x))
    hidden = m.rng.random(few) < 0.4
    far = float(m.one_of(-1e4, -1e9, -5.0)) if m.dtype != np.float16 else -1e4
    if m.chance(0.5):
        y = m.swapped("Add", x, m.constant(np.where(hidden, far, 0.0)))
    else:
        y = m.op("Where", m.constant(hidden, np.bool_), m.constant(far), x)
    axis = int(m.rng.integers(-len(m.shape(y)), len(m.shape(y))))
    finish(m, m.op(m.one_of("Softmax", "Softmax", "LogSoftmax"), y, axis=axis))


# operators that change nothing, or that constants decide ------------------------------------------------------------


@attack
def neutral(m: Chain) -> None:
    """Operators with neutral constants, whose shape may be larger than that of the other operand."""
    x = y = m.last()
    for _ in range(m.one_of(1, 2)):
        y = m.grown(_neutral_step(m, y), x)
    finish(m, y, x)


def _neutral_step(m: Chain, y: str) -> str:
    shape, few = m.shape(y), beside(m, m.shape(y))
    zero, one = m.constant(np.full(few, m.one_of(0.0, -0.0))), m.constant(np.ones(few))
    kinds: list[Callable[[], str]] = [
        lambda: m.swapped("Add", y, zero),
        lambda: m.op("Sub", y, zero),
        lambda: m.op("Sub", zero, y),
        lambda: m.swapped("Mul", y, one),
        lambda: m.op("Div", y, one),
        lambda: m.op("Pow", y, one),
        lambda: m.op("Expand", y, m.ints(*few)),
        lambda: m.op("Where", m.constant(np.ones(few), np.bool_), y, one),
        lambda: m.op("Reshape", y, m.ints(*shape)),
        lambda: m.op("Tile", y, m.ints(*[1] * len(shape))),
        lambda: m.op(m.one_of("Sum", "Max", "Min", "Mean"), y),
    ]
    return kinds[int(m.rng.integers(len(kinds)))]()


@attack
def limited(m: Chain) -> None:
    """Limits in a row, given as scalars, single elements or vectors, and in the wrong order."""
    x = y = m.moderate()
    for _ in range(m.one_of(2, 2, 3)):
        y = _limit(m, y, m.one_of((), (), (1,), m.shape(x)[-1:]))
    finish(m, y)


def _limit(m: Chain, y: str, few: tuple[int, ...]) -> str:
    low, high = (m.constant(np.full(few, value)) for value in m.rng.uniform(-2, 2, 2))
    least, most = (m.constant(float(value)) for value in m.rng.uniform(-2, 2, 2))
    kinds: list[Callable[[], str]] = [
        lambda: m.op("Relu", y),
        lambda: m.swapped(m.one_of("Max", "Min"), y, low),
        lambda: m.op("Max", y, low, high),
        lambda: m.op("Clip", y, least, most),
        lambda: m.op("Clip", y, m.constant(0.0)),
        lambda: m.op("LeakyRelu", y, alpha=m.one_of(0.1, 1.0, 0.0)),
    ]
    return kinds[int(m.rng.integers(len(kinds)))]()
