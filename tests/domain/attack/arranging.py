"""Elements that are moved, chosen and counted: slices, reductions, shapes, tests and whole numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper

from tests.domain.attack.chain import Chain, attack
from tests.domain.attack.edges import beside, finish
from tests.domain.maker import Unfit

__all__: list[str] = []

_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare")
_WHOLE = (TensorProto.INT32, TensorProto.INT32, TensorProto.INT64, TensorProto.INT64, TensorProto.UINT8)


def _reduce(m: Chain, x: str, keepdims: int, *axes: int) -> str:
    return m.op(str(m.rng.choice(_REDUCTIONS)), x, m.ints(*axes), keepdims=keepdims)


def _axis(m: Chain, x: str) -> int:
    rank = len(m.shape(x))
    if not rank:
        raise Unfit("no axis")
    return int(m.rng.integers(-rank, rank))


@attack
def reductions(m: Chain) -> None:
    """Reductions that keep dimensions or drop them, and shapes that bring them back."""
    x = m.moderate(2, 3, 4)
    rank = len(m.shape(x))
    axes = sorted(int(i) for i in m.rng.choice(rank, size=m.one_of(1, 1, 2), replace=False))
    kept = m.one_of(0, 1)
    y = _reduce(m, m.op("Mul", x, x) if m.chance(0.3) else x, kept, *axes)
    if m.chance(0.5):
        y = m.op("Squeeze", y, m.ints(*axes)) if kept else m.op("Unsqueeze", y, m.ints(*axes))
    if m.chance(0.3) and m.shape(y):
        y = _reduce(m, y, m.one_of(0, 1), _axis(m, y))
    if m.chance(0.3):
        y = m.op(m.one_of("Div", "Sub", "Mul"), x, y)
    finish(m, y)


def _piece(m: Chain, y: str) -> str:
    axis = _axis(m, y)
    n = m.shape(y)[axis]
    start, end, step = m.one_of(0, 0, 1, -2, -1), m.one_of(n, 1, -1, 10**6), m.one_of(1, 1, 1, 2, -1)
    place = m.constant(m.one_of(0, n - 1, -1, [0], [n - 1, 0], [[0]], [-1]), m.one_of(np.int64, np.int32))
    rank = len(m.shape(y))
    kinds: list[Callable[[], str]] = [
        lambda: m.op("Slice", y, m.ints(start), m.ints(end), m.ints(axis), m.ints(step)),
        lambda: m.op("Slice", y, m.ints(start), m.ints(end), m.ints(axis)),
        lambda: m.op("Gather", y, place, axis=axis),
        lambda: m.op("Gather", y, place, axis=axis),
        lambda: m.op("Concat", *m.ops("Split", y, m.ints(1, n - 1), axis=axis, outputs=2), axis=axis),
        lambda: m.ops("Split", y, m.ints(1, n - 1), axis=axis, outputs=2)[0],
        lambda: m.op("Concat", y, y, axis=axis),
        lambda: m.op("Concat", y, axis=axis),
        lambda: m.op("Unsqueeze", y, m.ints(axis)),
        lambda: m.op("Squeeze", y),
        lambda: m.op("Reshape", y, m.ints(0, -1)),
        lambda: m.op("Reshape", y, m.ints(-1)),
        lambda: m.op("Flatten", y, axis=axis),
        lambda: m.op("Transpose", y, perm=[int(i) for i in m.rng.permutation(rank)]),
        lambda: m.op("Pad", y, m.ints(*[0] * (rank - 1), 1, *[0] * rank), mode=m.one_of("constant", "edge")),
        lambda: m.op("Tile", y, m.ints(*[1] * (rank - 1), 2)),
        lambda: m.op("Expand", y, m.ints(2, *m.shape(y))),
        lambda: m.op("CumSum", y, m.constant(axis, np.int64), reverse=m.one_of(0, 1)),
    ]
    return kinds[int(m.rng.integers(len(kinds)))]()


@attack
def pieces(m: Chain) -> None:
    """Slices, single elements, parts and copies in a row."""
    x = y = m.moderate(1, 2, 3, 4)
    for _ in range(m.one_of(2, 3, 4)):
        y = _piece(m, y)
    finish(m, m.op(m.one_of("Relu", "Neg", "Exp"), y) if m.chance(0.3) else y, x)


@attack
def pushed(m: Chain) -> None:
    """Transpositions before and after an operator past which they may be moved."""
    x = m.moderate(2, 3, 4)
    rank = len(m.shape(x))
    order = [int(i) for i in m.rng.permutation(rank)]
    y = m.op("Transpose", x, perm=order)
    axis = _axis(m, y)
    n = m.shape(y)[axis]
    kinds: list[Callable[[], str]] = [
        lambda: _piece(m, y),
        lambda: _reduce(m, y, m.one_of(0, 1), axis),
        lambda: m.op(m.one_of("Softmax", "LogSoftmax", "Hardmax"), y, axis=axis),
        lambda: m.op(m.one_of("ArgMax", "ArgMin"), y, axis=axis, keepdims=m.one_of(0, 1)),
        lambda: m.op(m.one_of("Add", "Mul", "Sub", "Max"), y, m.sized(0, *beside(m, m.shape(y)))),
        lambda: m.op("Where", m.op("Greater", y, m.constant(0.0)), m.sized(0, *beside(m, m.shape(y))), y),
        lambda: m.ops("TopK", y, m.ints(n), axis=axis, outputs=2)[m.one_of(0, 1)],
        lambda: m.op("LayerNormalization", y, m.sized(0, m.shape(y)[-1]), axis=-1),
        lambda: m.op("GlobalAveragePool" if rank > 2 else "Flatten", y),
        lambda: m.op("MatMul", y, m.sized(0, m.shape(y)[-1], 3)),
        lambda: m.op("OneHot", m.cast(m.op("Abs", y), TensorProto.INT64), m.ints(3), m.constant([0.0, 1.0]), axis=axis),
    ]
    y = kinds[int(m.rng.integers(len(kinds)))]()
    if m.element_of(y) != m.element:
        y = m.cast(y, m.element)
    if m.chance(0.7) and len(m.shape(y)) > 1:
        back = [int(i) for i in np.argsort(order)] if len(m.shape(y)) == rank else list(range(len(m.shape(y))))[::-1]
        y = m.op("Transpose", y, perm=back)
    finish(m, y)


@attack
def tested(m: Chain) -> None:
    """Choices by tests that are negated, joined and compared."""
    x = m.moderate()
    y = _test(m, x)
    for _ in range(m.one_of(0, 1, 2)):
        y = _joined(m, y, _test(m, x))
    few = m.constant(np.full(beside(m, m.shape(x)), m.one_of(0.0, 1.0)))
    finish(m, m.op("Where", y, x, few) if m.chance(0.7) else m.cast(y, m.element))


def _test(m: Chain, x: str) -> str:
    limit = m.constant(np.full(m.one_of((), (1,), m.shape(x)[-1:]), m.one_of(0.0, 0.4, -0.3)))
    found = m.op(m.one_of("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"), x, limit)
    return m.op("Not", found) if m.chance(0.5) else found


def _joined(m: Chain, y: str, z: str) -> str:
    kinds: list[Callable[[], str]] = [
        lambda: m.op(m.one_of("And", "Or", "Xor", "Equal"), y, z),
        lambda: m.op("Not", y),
        lambda: m.cast(m.cast(y, m.one_of(m.element, TensorProto.INT32)), TensorProto.BOOL),
        lambda: m.op("Where", y, z, m.op("Not", y)),
    ]
    return kinds[int(m.rng.integers(len(kinds)))]()


@attack
def measured(m: Chain) -> None:
    """Shapes that are computed from shapes."""
    x = m.moderate(2, 3, 4)
    shape, rank = m.op("Shape", x), len(m.shape(x))

    def size(place: int) -> str:
        single = m.op("Gather", shape, m.constant(place, np.int64), axis=0)
        if m.chance(0.3):
            single = m.op("Div", m.op("Mul", single, m.constant(2, np.int64)), m.constant(2, np.int64))
        return m.op("Unsqueeze", single, m.ints(0))

    kinds: list[Callable[[], str]] = [
        lambda: m.op("Reshape", x, m.op("Concat", size(0), m.ints(-1), axis=0)),
        lambda: m.op("Reshape", x, m.op("Concat", m.ints(-1), size(-1), axis=0)),
        lambda: m.op("Reshape", x, m.op("Concat", *(size(i) for i in range(rank)), axis=0)),
        lambda: m.op("Expand", m.sized(0, *m.shape(x)[-1:]), shape),
        lambda: m.op("Add", x, m.op("ConstantOfShape", shape)),
        lambda: m.op("Mul", x, m.cast(m.op("Size", x), m.element)),
        lambda: m.op("Add", x, m.cast(m.op("Slice", shape, m.ints(-1), m.ints(rank)), m.element)),
        lambda: m.op("Div", x, m.op("Sqrt", m.cast(m.op("Gather", shape, m.ints(-1)), m.element))),
        lambda: m.op("Reshape", m.op("Reshape", x, m.ints(-1)), shape),
    ]
    finish(m, kinds[int(m.rng.integers(len(kinds)))]())


@attack
def whole(m: Chain) -> None:
    """Operators on integers between conversions."""
    x = m.moderate()
    element = int(m.rng.choice(_WHOLE))
    y = m.cast(m.op("Mul", m.op("Abs", x), m.constant(m.one_of(1.0, 50.0))), element)
    for _ in range(m.one_of(1, 2, 3)):
        y = _whole_step(m, y, beside(m, m.shape(x)))
    finish(m, m.cast(y, m.element))


def _whole_step(m: Chain, y: str, few: tuple[int, ...]) -> str:
    element = m.element_of(y)
    dtype = helper.tensor_dtype_to_np_dtype(element)
    number, positive = (m.constant(np.full(few, m.one_of(*kinds)), dtype) for kinds in ((0, 1, 2, 7), (1, 1, 3)))
    kinds: list[Callable[[], str]] = [
        lambda: m.swapped(m.one_of("Add", "Mul", "Max", "Min"), y, number),
        lambda: m.op(m.one_of("Sub", "Add"), y, number),
        lambda: m.op(m.one_of("Div", "Mod"), y, positive),
        lambda: m.op("Clip", y, m.constant(1, dtype), m.constant(m.one_of(0, 5), dtype)),
        lambda: m.op("Pow", y, m.constant(m.one_of(1, 2), dtype)),
        lambda: m.op("Where", m.op("Equal", y, number), number, y),
        lambda: m.cast(m.cast(y, TensorProto.INT32), element),
        lambda: m.op("ReduceSum", y, m.ints(-1), keepdims=m.one_of(0, 1)),
        lambda: m.op("Neg", m.op("Neg", y)),
        lambda: m.op("Relu", y),
    ]
    return kinds[int(m.rng.integers(len(kinds)))]()


@attack
def dynamic_product(m: Chain) -> None:
    """Products of numbers that are quantised by their own range."""
    x = m.moderate(2, 3, 4)
    if m.dtype != np.float32:
        raise Unfit("quantisers are of float32")
    q, scale, zero = m.ops("DynamicQuantizeLinear", x, outputs=3)
    k, n = m.shape(x)[-1], m.one_of(1, 3, 8)
    dtype = m.one_of(np.uint8, np.int8)
    limits = np.iinfo(dtype)
    weights = m.constant(m.rng.integers(limits.min, limits.max + 1, (k, n)), dtype)
    few = m.one_of((), (1,), (n,))
    zeros = [] if m.chance(0.4) else [m.constant(np.full(few, m.one_of(0, 3)), dtype)]
    y = m.cast(m.op("MatMulInteger", q, weights, zero, *zeros), TensorProto.FLOAT)
    y = m.swapped("Mul", y, m.swapped("Mul", scale, m.constant(np.full(m.one_of((), (1,), (n,)), 0.02))))
    if m.chance(0.5):
        y = m.swapped("Add", y, m.sized(0, *beside(m, m.shape(y))))
    finish(m, y)
