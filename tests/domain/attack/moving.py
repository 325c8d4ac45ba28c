"""Operators that are left out, merged or moved past others: clips, transpositions, slices, choices, equal nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.domain.attack.chain import Chain, attack
from tests.domain.maker import Unfit

__all__: list[str] = []


@attack
def clips(m: Chain) -> None:
    x = y = m.last()
    size = m.exponent(x)
    for _ in range(m.one_of(2, 2, 3)):
        kind = int(m.rng.integers(5))
        low, high = sorted(m.rng.uniform(-2, 2, 2))
        least, most = m.constant(m.scaled(low, size)), m.constant(m.scaled(high, size))
        if kind == 0:
            y = m.op("Relu", y)
        elif kind == 1:
            y = m.op("Clip", y, "", most)
        elif kind == 2:
            y = m.op("Clip", y, least)
        elif kind == 3:
            y = m.op("Max", m.op("Min", y, most), least)
        else:
            y = m.op("Clip", y, least, most)
    m.end(y, x)


@attack
def nothing(m: Chain) -> None:
    """Operators that change nothing, or only the sign of a zero."""
    x = m.last()
    zero, one = m.constant(m.one_of(0.0, -0.0)), m.constant(1.0)
    kinds: list[Callable[[], str]] = [
        lambda: m.swapped("Add", x, zero),
        lambda: m.op("Sub", x, zero),
        lambda: m.swapped("Mul", x, one),
        lambda: m.op("Div", x, one),
        lambda: m.op("Identity", x),
        lambda: m.ops("Dropout", x, outputs=1)[0],
        lambda: m.op("Neg", m.op("Neg", x)),
        lambda: m.op("Expand", x, m.ints(*m.shape(x))),
        lambda: m.cast(x, m.element),
        lambda: m.op("Pow", x, one),
    ]
    m.end(kinds[int(m.rng.integers(len(kinds)))](), x)


def _step(m: Chain, x: str) -> str:
    shape = m.shape(x)
    rank = len(shape)
    axis = int(m.rng.integers(rank))
    weight = m.sized(m.exponent(x), *shape[-1:])
    kinds: list[Callable[[], str]] = [
        lambda: m.op("Transpose", x, perm=[int(i) for i in m.rng.permutation(rank)]),
        lambda: m.op("Transpose", x, perm=[int(i) for i in m.rng.permutation(rank)]),
        lambda: m.op("Reshape", x, m.ints(*shape[::-1])),
        lambda: m.op("Squeeze", m.op("Unsqueeze", x, m.ints(axis)), m.ints(axis)),
        lambda: m.op("Slice", x, m.ints(0), m.ints(m.one_of(1, 100, -1)), m.ints(axis)),
        lambda: m.op("Gather", x, m.ints(m.one_of(0, shape[axis] - 1)), axis=axis),
        lambda: m.op("Softmax", x, axis=axis),
        lambda: m.reduced(m.one_of("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2"), x, axis),
        lambda: m.op("Relu", x),
        lambda: m.swapped(m.one_of("Add", "Mul"), x, weight),
        lambda: m.op("Concat", x, m.op("Neg", x), axis=axis),
        lambda: m.op("Flatten", x, axis=axis),
    ]
    return kinds[int(m.rng.integers(len(kinds)))]()


@attack
def moves(m: Chain) -> None:
    """Transpositions, slices and shapes in a row, other operators between."""
    x = y = m.moderate(2, 3, 4)
    for _ in range(m.one_of(2, 3, 4)):
        y = _step(m, y)
        m.exponents[y] = 0
        if not m.shape(y):
            raise Unfit("no axis")
    m.end(y, x)


@attack
def chosen(m: Chain) -> None:
    x = m.last()
    size = m.exponent(x)
    limit = m.constant(m.scaled(m.one_of(0.0, 0.5, -0.3), size))
    test = m.op(m.one_of("Greater", "Less", "GreaterOrEqual"), x, limit)
    for _ in range(m.one_of(0, 1, 1, 2)):
        test = m.op("Not", test)
    y = m.op("Where", test, x, m.one_of(limit, m.constant(m.scaled(1.0, size)), m.op("Abs", x)))
    m.end(y, x)


@attack
def twice(m: Chain) -> None:
    """The same nodes twice, and constants that are equal; a difference of them, or a sum."""
    x = m.last()
    op_type = m.one_of("Exp", "Sigmoid", "Tanh", "Mul", "Softmax")
    x = x if op_type == "Mul" else m.moderate()
    if not m.shape(x):
        raise Unfit("no axis")
    by = 0

    def once() -> str:
        if op_type == "Mul":
            return m.op("Mul", x, m.constant(0.3))
        return m.op(op_type, x, axis=-1) if op_type == "Softmax" else m.op(op_type, x)

    first, second = once(), once()
    y = m.op(m.one_of("Sub", "Add", "Max", "Mul"), first, second)
    m.end(m.op("Add", y, first) if m.chance(0.5) else y, x, by)


@attack
def cut(m: Chain) -> None:
    """Slices that are put together again."""
    x = m.last(4)
    height, width = m.shape(x)[2:]
    if height % 2 or width % 2:
        raise Unfit("odd")
    far, steps = m.ints(1000, 1000), m.ints(2, 2)
    axes = m.ints(2, 3)
    parts = [m.op("Slice", x, m.ints(i, j), far, axes, steps) for j in (0, 1) for i in (0, 1)]
    y = m.op("Concat", *parts, axis=1)
    m.end(m.op("Conv", y, m.sized(0, 2, m.shape(y)[1], 1, 1)) if m.chance(0.5) else y, x)


@attack
def constants(m: Chain) -> None:
    """Constants that the optimiser computes, at the ends of their type."""
    x = m.last()
    a, b = m.shift(x), m.shift(x)
    start = m.sized(a, *m.shape(x)[-1:])
    kinds: list[Callable[[], str]] = [
        lambda: m.op("Mul", start, m.constant(m.scaled(1.3, b - a))),
        lambda: m.op("Exp", m.constant(m.rng.uniform(-5, 5, m.shape(x)[-1:]))),
        lambda: m.op("Sigmoid", m.constant(m.rng.uniform(-20, 5, m.shape(x)[-1:]))),
        lambda: m.op("Sqrt", m.op("Abs", start)),
        lambda: m.op("Softmax", m.constant(m.rng.uniform(-50, 50, m.shape(x)[-1:])), axis=0),
        lambda: m.op("Transpose", m.constant(np.ones(m.shape(x)[-1:]) * 0.3), perm=[0]),
    ]
    if not m.shape(x):
        raise Unfit("no axis")
    kind = int(m.rng.integers(len(kinds)))
    y = m.op(m.one_of("Mul", "Add"), x, kinds[kind]())
    m.end(y, x, b if kind == 0 else 0)
