"""Functions of one operand that kernels approximate, with how far they may stray.

The errors are this checker's own: several times what sweeps of the kernels of ONNX Runtime 1.31 and PyTorch 2.13 over
float32 and float16 values showed on x86-64 processors with SSE, AVX, AVX2 and AVX-512, of which the prover has records
of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ranum_falsify.checker.bounds import Bounds, Real, enclose, least
from ranum_falsify.checker.node import NodeView, Operands, Results

RELATIVE: Mapping[str, float] = {"float16": 4e-2, "float32": 4e-6, "float64": 3e-14}
"""Relative errors of kernels, by type; |result - f| <= relative |f| + absolute."""

_ends = (-math.inf, math.inf)
_Scalar = Callable[[float], float]
_Values = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Function:
    """A function that falls until a valley, if it has one, and then rises.

    Attributes:
        values: The function itself, in float64.
        absolute: Absolute errors of its kernels of float16, float32 and float64.
        domain: What its operand has to lie between, if it starts at 0 or the type is float64, in which ONNX Runtime
            computes some by their definition.
        range: What no result lies outside of.
        valley: Where it is smallest, below 0, and at most what value it has there; it is negative from there to 0.
        is_positive: Whether operands have to be positive, even where denormal ones are taken for 0.
    """

    values: _Values
    absolute: tuple[float, float, float] = (0.0, 0.0, 0.0)
    domain: tuple[float, float] = _ends
    range: tuple[float, float] = _ends
    valley: float | None = None
    is_positive: bool = False


def _each(scalar: _Scalar) -> _Values:
    function = np.frompyfunc(scalar, 1, 1)
    return lambda x: np.asarray(function(x), dtype=np.float64)


_erf = _each(math.erf)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + small), small / (1 + small)))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


_ONE = 1 + 1e-6
_ABOUT = (2e-3, 1e-5, 1e-5)
FUNCTIONS: Mapping[str, Function] = {
    "Exp": Function(np.exp, range=(0, math.inf)),
    "Log": Function(np.log, is_positive=True),
    "Sqrt": Function(np.sqrt, domain=(0, math.inf), range=(0, math.inf)),
    "Sigmoid": Function(_sigmoid, (1e-4, 1e-6, 1e-14), range=(0, _ONE)),
    "Tanh": Function(np.tanh, (1e-7, 1e-35, 1e-300), range=(-_ONE, _ONE)),
    "Erf": Function(_erf, (1e-4, 1e-35, 1e-300), range=(-_ONE, _ONE)),
    "Softplus": Function(_softplus, (1e-7, 1e-35, 1e-7), domain=(-math.inf, 700), range=(0, math.inf)),
    "Atan": Function(np.arctan, (1e-7, 1e-35, 1e-300), range=(-1.6, 1.6)),
    "Elu": Function(lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), _ABOUT, range=(-_ONE, math.inf)),
    "HardSwish": Function(lambda x: x * np.clip(x / 6 + 0.5, 0, 1), _ABOUT, valley=-0.3751),
    "Mish": Function(lambda x: x * np.tanh(_softplus(x)), _ABOUT, domain=(-math.inf, 700), valley=-0.3089),
    "Swish": Function(lambda x: x * _sigmoid(x), _ABOUT, valley=-0.2785),
    "Gelu": Function(lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2, _ABOUT, valley=-0.17005),
    "Softsign": Function(lambda x: x / (1 + np.abs(x)), range=(-_ONE, _ONE)),
}
"""The functions by ONNX operator; both forms of Gelu lie within 4.8e-4 of each other, which its users add."""


def apply(function: Function, x: Bounds, extra: float = 0.0) -> Bounds | None:
    """Return bounds of what a function makes of a tensor; None where it may not be defined."""
    real, name = x.real, x.dtype.name
    low, high = function.domain if name == "float64" or function.domain[0] == 0 else _ends
    if function.is_positive:
        low = least(x.dtype)
    if x.lower.size and not (real.low.min() >= low and real.high.max() <= high):
        return None
    found = Real(function.values(real.low), function.values(real.high))
    if function.valley is not None:
        found = Real(np.where(real.low >= 0, found.low, function.valley), np.where(real.high >= 0, found.high, 0.0))
    absolute = function.absolute[("float16", "float32", "float64").index(name)] + extra
    relative = RELATIVE[name]
    found = Real(
        np.clip(found.low - relative * np.abs(found.low) - absolute, *function.range),
        np.clip(found.high + relative * np.abs(found.high) + absolute, *function.range),
    )
    bounds = enclose(found, x.dtype, 0.0)
    floor = x.dtype.type(max(function.range[0], float(np.finfo(x.dtype).min)))
    return Bounds(np.maximum(bounds.lower, floor) if function.range[0] == 0 else bounds.lower, bounds.upper)


def bound_function(node: NodeView, operands: Operands) -> Results:
    """Bound an operator that is one of the functions."""
    (x,) = operands
    if x is None or not x.is_float:
        return None
    name = node.proto.op_type
    if name == "Elu" and node.attribute("alpha", 1.0) != 1.0:
        return None
    if name == "Swish" and node.attribute("alpha", 1.0) != 1.0:
        return None
    approximate = name == "Gelu" and node.attribute("approximate", "none") == "tanh"
    found = apply(FUNCTIONS[name], x, 5e-4 if approximate else 0.0)
    return None if found is None else [found]


def power(node: NodeView, operands: Operands) -> Results:
    """Bound Pow, of positive bases or with one whole exponent."""
    x, y = operands
    if x is None or y is None or not x.is_float or (x.dtype != y.dtype and not y.is_point):
        return None
    shape = np.broadcast_shapes(x.lower.shape, y.lower.shape)
    base, exponent = (one.real.apply(lambda end: np.broadcast_to(end, shape)) for one in (x, y))
    whole = y.is_point and y.lower.size and np.all(exponent.low == exponent.low.flat[0])
    number = float(exponent.low.flat[0]) if whole else math.nan
    if whole and number == round(number) and 0 < number <= 64:
        ends = (base.low**number, base.high**number)
        around = (base.low < 0) & (base.high > 0) if number % 2 == 0 else np.zeros_like(base.low, dtype=bool)
        found = Real(np.where(around, 0.0, np.minimum(*ends)), np.maximum(*ends))
    elif (base.low >= least(x.dtype)).all() or ((base.low >= 0).all() and (exponent.low > 0).all()):
        values = [b**e for b in (base.low, base.high) for e in (exponent.low, exponent.high)]
        found = Real(np.minimum.reduce(values), np.maximum.reduce(values))
    else:
        return None
    error = RELATIVE[x.dtype.name] * found.size
    positive = (found.low >= 0).all()
    return [
        enclose(found, x.dtype, np.where(error > 0, error + least(x.dtype), 0), at_least=0.0 if positive else -math.inf)
    ]
