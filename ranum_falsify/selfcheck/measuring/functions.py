"""The functions whose kernels are measured, with their values to any precision, and where their kernels saturate.

For that, every float32 value of magnitude 1/2 to 1024 is run in every way (contiguous and strided, plain and
optimised), one in 61 of the larger ones in the first way, and also a few elements at a time, which no vector body
takes.  Softmax is measured by the distance to the largest element of its row, on rows of 2 to 4096 elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor

from ranum_falsify.selfcheck.running import Run, Ways
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


CHUNK = (1 << 18) + 5
NEAR, FAR, FAR_STEP = 0.5, 1024.0, 61
LENGTHS = (2, 3, 5, 8, 17, 64, 4096)
TAILS = 400

MARGIN = 0.125
"""Margin added to the size of a measured threshold: it covers values that were not run."""

SATURATING = ("Sigmoid", "Tanh", "Exp", "Softplus", "Erf", "Softmax")
"""Functions that saturate."""


@dataclass
class Ends:
    """Observations of one kernel.

    Attributes:
        floor: The function's infimum.
        ceiling: Its supremum.
        last_above: Least size from which on no result of a negative operand lies above the infimum.
        last_below: The same for positive operands and the supremum.
    """

    floor: float
    ceiling: float
    last_above: float = 0.0
    last_below: float = 0.0

    def add(self, x: Tensor, y: Tensor) -> None:
        """Record results for operands of one sign."""
        if bool(x[0] < 0):
            beyond = x[~(y <= self.floor)]
            if beyond.numel():
                self.last_above = max(self.last_above, float(beyond.abs().amax()))
        else:
            beyond = x[~(y >= self.ceiling)]
            if beyond.numel():
                self.last_below = max(self.last_below, float(beyond.amax()))

    def thresholds(self) -> tuple[float, float]:
        """Return the operand up to which results are the infimum, and the one from which on they are the supremum."""
        return -_step_beyond(self.last_above), _step_beyond(self.last_below)


def saturation(function: Subject, ways: Ways, step: int = 1) -> tuple[float, float]:
    """Measure one kernel in float32, on each `step`-th value of magnitude 1/2 to 1024; Softmax takes matrices."""
    rng = np.random.default_rng(0)
    if function.key == "Softmax":
        return _of_softmax(ways, step, rng).thresholds()
    return _of_function(ways, Ends(float(function.infimum), float(function.supremum)), step, rng).thresholds()


def _step_beyond(size: float) -> float:
    """Return the next size above, with the margin, in 1/16; infinite if nothing shows that results saturate."""
    return math.inf if size >= FAR else math.ceil((size + MARGIN) * 16) / 16


def bits_of(number: float) -> int:
    """Return the float32 number as the integer of the same bits."""
    return int(np.float32(number).view(np.int32))


def _sizes(begin: float, end: float, step: int) -> Iterator[Tensor]:
    """Yield each `step`-th float32 number from `begin` on, and infinity if it is the end."""
    for position in range(bits_of(begin), bits_of(end) + 1, CHUNK * step):
        bits = torch.arange(position, min(bits_of(end) + 1, position + CHUNK * step), step, dtype=torch.int32)
        yield bits.view(torch.float32)


def _of_function(ways: Mapping[str, Run], ends: Ends, step: int, rng: np.random.Generator) -> Ends:
    for sign in (-1.0, 1.0):
        for x in _sizes(NEAR, FAR, step):
            for run in ways.values():
                ends.add(sign * x, run(sign * x))
        for x in _sizes(FAR, math.inf, FAR_STEP * step):
            ends.add(sign * x, next(iter(ways.values()))(sign * x))
        candidates = torch.from_numpy(rng.uniform(NEAR, 256, (TAILS, 7)).astype(np.float32)) * sign
        for row in candidates:
            for count in (1, 2, 3, 7):
                for run in ways.values():
                    ends.add(row[:count], run(row[:count]))
    return ends


def _of_softmax(ways: Mapping[str, Run], step: int, rng: np.random.Generator) -> Ends:
    """Run Softmax on rows of 0 and numbers below; an operand counts by its distance to the largest of its row."""
    ends = Ends(0.0, math.inf, last_below=math.inf)
    for begin, stop, stride, kinds in ((NEAR, FAR, step, len(ways)), (FAR, math.inf, FAR_STEP * step, 1)):
        for number, gaps in enumerate(_sizes(begin, stop, stride)):
            length = 4096 if number % 8 else LENGTHS[number // 8 % len(LENGTHS)]
            for run in list(ways.values())[:kinds]:
                _add_rows(run, -gaps, length, ends, int(rng.integers(length)))
    return ends


def _add_rows(run: Run, gaps: Tensor, length: int, ends: Ends, top: int) -> None:
    gaps = torch.cat([gaps, gaps[-1:].expand(-gaps.numel() % (length - 1))])
    others = gaps.reshape(-1, length - 1)
    rows = torch.cat([others[:, :top], torch.zeros(len(others), 1), others[:, top:]], 1)
    y = run(rows)
    ends.add(gaps, torch.cat([y[:, :top], y[:, top + 1 :]], 1).reshape(-1))
