"""The functions whose kernels are measured, with their values to any precision; how those of rows are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import torch

from ranum_falsify.selfcheck.measuring.errors import Errors
from ranum_falsify.selfcheck.running import SessionOf, ways_to_run
from ranum_falsify.selfcheck.subjects import QUICK_ALPHA, ROW_SUBJECTS, SUBJECTS, Subject


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


_ROUNDS = 400
_LENGTHS = (1, 2, 3, 5, 8, 17, 64, 100, 1000, 4096)


Row = np.ndarray[Any, np.dtype[np.longdouble]]


@dataclass(frozen=True, kw_only=True)
class MatrixFunction(Subject):
    """A function of the rows of a matrix, with its values in NumPy's widest floats.

    Attributes:
        precise: The function.
        tolerated: Relative error, in units of roundoff, above which an absolute error takes over.
    """

    precise: Callable[[Row], Row]
    tolerated: float


def _softmax(x: Row) -> Row:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _log_softmax(x: Row) -> Row:
    gaps = x - x.max(-1, keepdims=True)
    # The sum without its greatest term, which is 1: where the others are tiny, 1 + x - 1 would lose them.
    powers = np.exp(gaps)
    np.put_along_axis(powers, gaps.argmax(-1)[..., None], 0, -1)
    return np.asarray(gaps - np.log1p(powers.sum(-1, keepdims=True)))


_PRECISE_ROWS: dict[str, tuple[Callable[[Row], Row], float]] = {
    "Softmax": (_softmax, 1024),
    "LogSoftmax": (_log_softmax, 32),
}
ROW_FUNCTIONS = tuple(
    MatrixFunction(**vars(subject), precise=precise, tolerated=tolerated)
    for subject in ROW_SUBJECTS
    for precise, tolerated in (_PRECISE_ROWS[subject.key],)
)


def measure_rows(function: MatrixFunction, runtime: str, session_of: SessionOf | None) -> dict[torch.dtype, Errors]:
    """Measure a function on rows of a length up to 4096, in every element type."""
    found: dict[torch.dtype, Errors] = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        rng = np.random.default_rng(0)
        ways = ways_to_run(function, dtype, runtime, rank=2, session_of=session_of)
        if not ways:
            continue
        errors = found[dtype] = Errors(dtype, function.infimum, function.supremum, tolerated=function.tolerated)
        for _ in range(_ROUNDS if dtype is torch.float32 else _ROUNDS // 4):
            x = torch.from_numpy(_rows(rng)).to(dtype)
            value = function.precise(x.double().numpy().astype(np.longdouble)).reshape(-1)
            near = torch.from_numpy(value.astype(np.float64))
            for run in ways.values():
                result = run(x).reshape(-1)
                sizes = np.abs(result.double().numpy() - value).astype(np.float64)
                errors.add(x.reshape(-1), result, near, torch.from_numpy(sizes))
    return found


def _rows(rng: np.random.Generator) -> np.ndarray:
    """Return rows of one length: of one spread, of two levels, or with one element that stands out."""
    length = int(rng.choice(_LENGTHS))
    count = max(1, 4096 // length)
    spread = 2.0 ** rng.uniform(-20, 8)
    x = rng.standard_normal((count, length)) * spread
    kind = rng.integers(4)
    if kind == 1:
        x = np.where(rng.random(x.shape) < 0.5, 0.0, -spread)
    elif kind == 2:
        x[:, rng.integers(length)] += rng.uniform(0, 100)
    elif kind == 3:
        x = rng.uniform(-100, 0, x.shape)
    return np.asarray(x + rng.choice((0.0, 0.0, 10.0, -1000.0)))
