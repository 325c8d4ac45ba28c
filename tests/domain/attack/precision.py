"""Conversions that are left out, moved or doubled, and half precision that is computed in single."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from tests.domain.attack.chain import Chain, attack
from tests.domain.maker import Unfit

__all__: list[str] = []

_UNARY = (
    *("Relu", "Floor", "Ceil", "Round", "Sign", "Abs", "Neg", "Tan", "Erf", "Tanh", "Sigmoid", "Exp", "Sin", "Cos"),
    *("Atan", "Softplus", "Softsign", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "Identity", "Sqrt", "Gelu", "Mish"),
)
_FLOATS = (TensorProto.FLOAT16, TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BFLOAT16)
_WHOLE = (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT8)


@attack
def half_chain(m: Chain) -> None:
    """Operators between conversions to half precision and back."""
    x = m.moderate()
    if m.dtype == np.float16:
        raise Unfit("there is nothing to convert")
    outer = m.element
    with m.typed(np.float16) as half:
        y = m.cast(x, half)
        for _ in range(m.one_of(1, 1, 1, 2, 3)):
            y = _half_step(m, y)
    y = m.cast(y, outer)
    m.exponents[y] = 0
    m.end(y, y)


def _half_step(m: Chain, y: str) -> str:
    kinds: list[Callable[[], str]] = [
        lambda: m.op(str(m.rng.choice(_UNARY)), y),
        lambda: m.op(str(m.rng.choice(_UNARY)), y),
        lambda: m.op("Relu", y),
        lambda: m.op("Clip", y, m.constant(m.one_of(0.0, -1.0)), m.constant(m.one_of(1.0006, 6.0))),
        lambda: m.swapped(m.one_of("Add", "Mul"), y, m.sized(0, *m.shape(y)[-1:])),
        lambda: m.op(m.one_of("Sub", "Mul", "Add"), y, y),
        lambda: m.op("MatMul", y, m.sized(0, m.shape(y)[-1], 3)),
        lambda: m.op("Softmax", y, axis=-1),
        lambda: m.reduced(m.one_of("ReduceMean", "ReduceSum", "ReduceMax"), y, -1),
        lambda: m.op("Div", y, m.constant(m.one_of(3.0, 0.1))),
        lambda: m.cast(m.cast(y, TensorProto.FLOAT), TensorProto.FLOAT16),
    ]
    if not m.shape(y):
        raise Unfit("no axis")
    return kinds[int(m.rng.integers(len(kinds)))]()


@attack
def conversions(m: Chain) -> None:
    """Conversions in a row; some of them lose what others keep."""
    x = y = m.moderate()
    kinds = _FLOATS if m.chance(0.7) else _FLOATS + _WHOLE
    for _ in range(m.one_of(2, 3, 4)):
        y = m.cast(y, int(m.rng.choice(kinds)))
    y = m.cast(y, m.element)
    m.exponents[y] = 0
    m.end(y, x)


@attack
def wide_part(m: Chain) -> None:
    """A part in double or single precision inside a model of lower precision."""
    x = m.moderate()
    outer = m.element
    dtype = m.one_of(np.float64, np.float32)
    if m.dtype == dtype:
        raise Unfit("the same type")
    with m.typed(dtype) as wide:
        y = m.cast(x, wide)
        y = m.op(str(m.rng.choice(_UNARY)), y)
        if m.chance(0.5):
            y = m.swapped(m.one_of("Add", "Mul"), y, m.sized(0))
    y = m.cast(y, outer)
    m.exponents[y] = 0
    m.end(y, y)


@attack
def compared(m: Chain) -> None:
    """A choice by a comparison in half precision."""
    x = m.moderate()
    outer = m.element
    with m.typed(np.float16) as half:
        y = m.cast(x, half)
        test = m.op(m.one_of("Greater", "Less", "LessOrEqual"), y, m.constant(m.one_of(0.0, 1.0, 0.3)))
        if m.chance(0.5):
            test = m.op("Not", test)
        y = m.op("Where", test, y, m.op("Relu", m.op("Neg", y)))
    m.end(m.cast(y, outer), x)
