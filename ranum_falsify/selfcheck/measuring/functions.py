"""The functions whose kernels are measured, with their values to any precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mpmath

from ranum_falsify.selfcheck.subjects import QUICK_ALPHA, SUBJECTS, Subject


@dataclass(frozen=True, kw_only=True)
class ElementFunction(Subject):
    """A function with its value in mpmath, with which float64 kernels are compared."""

    precise: Callable[[Any], Any]


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def _gelu_tanh(x: Any) -> Any:
    return x * _sigmoid(2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf(0.044715) * x**3))


_PRECISE: Mapping[str, Callable[[Any], Any]] = {
    "Sigmoid": _sigmoid,
    "Tanh": mpmath.tanh,
    "Exp": mpmath.exp,
    "Log": mpmath.log,
    "Erf": mpmath.erf,
    "Softplus": lambda x: mpmath.log1p(mpmath.exp(x)) if x < 0 else x + mpmath.log1p(mpmath.exp(-x)),
    "Sqrt": mpmath.sqrt,
    "Reciprocal": lambda x: 1 / x,
    "Sin": mpmath.sin,
    "Cos": mpmath.cos,
    "Tan": mpmath.tan,
    "Atan": mpmath.atan,
    "Asin": mpmath.asin,
    "Acos": mpmath.acos,
    "Sinh": mpmath.sinh,
    "Cosh": mpmath.cosh,
    "Asinh": mpmath.asinh,
    "Acosh": mpmath.acosh,
    "Atanh": mpmath.atanh,
    "Gelu": lambda x: x * mpmath.ncdf(x),
    "Gelu tanh": _gelu_tanh,
    "HardSwish": lambda x: x * max(0, min(1, x / 6 + mpmath.mpf(0.5))),
    "Mish": lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
    "Elu": lambda x: x if x > 0 else mpmath.expm1(x),
    "Softsign": lambda x: x / (1 + abs(x)),
    "Swish": lambda x: x * _sigmoid(x),
    "microsoft Gelu": lambda x: x * mpmath.ncdf(x),
    "microsoft FastGelu": _gelu_tanh,
    "microsoft QuickGelu": lambda x: x * _sigmoid(mpmath.mpf(QUICK_ALPHA) * x),
}


def _make_precise(subject: Subject) -> Callable[[Any], Any]:
    exponent = subject.exponent
    return _PRECISE[subject.key] if exponent is None else lambda x: mpmath.power(x, exponent)


FUNCTIONS: tuple[ElementFunction, ...] = tuple(ElementFunction(**vars(s), precise=_make_precise(s)) for s in SUBJECTS)
