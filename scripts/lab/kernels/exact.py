"""The record of correct rounding: where functions reach their limits if kernels have no errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath

from lab.kernels.files import path_of
from ranum_falsify.domain.kernels.records import Record, write_record
from ranum_falsify.selfcheck.measuring.functions import FAR, FUNCTIONS, SATURATING


def write_correct_rounding(folder: Path) -> None:
    """Write the record of correct rounding, which needs no run."""
    ends = correct_rounding()
    record = Record(
        runtime="exact",
        family="any",
        versions={},
        safety={},
        swept=dict.fromkeys(ends, "computed"),
        rows={name: {} for name in ends},
        saturation=ends,
    )
    write_record(record, path_of(folder, "exact", "any"))


def correct_rounding() -> dict[str, tuple[float, float]]:
    """Return the thresholds of correct rounding, by function."""
    of = {f.key: _find_exact(f.precise, float(f.infimum), float(f.supremum)) for f in FUNCTIONS if f.key in SATURATING}
    return of | {"Softmax": (_find_exact(mpmath.exp, 0.0, math.inf)[0], math.inf)}


def _find_exact(function: Callable[[Any], Any], floor: float, ceiling: float) -> tuple[float, float]:
    """Return the thresholds of correct rounding, by bisection between float32 numbers."""
    u = mpmath.mpf(2) ** -24
    with mpmath.workprec(400):
        rounds_down = mpmath.mpf(2) ** -150 if floor == 0 else floor + abs(mpmath.mpf(floor)) * u / 2
        rounds_up = mpmath.mpf(2) ** 128 * (1 - u / 2) if ceiling == math.inf else ceiling - ceiling * u / 2
        low = _find_first(lambda size: floor > -math.inf and function(-size) <= rounds_down)
        high = _find_first(lambda size: function(size) >= rounds_up)
    return -low, high


def _find_first(reached: Callable[[Any], bool]) -> float:
    """Return the least size from which on a condition always holds, rounded up to 1/16."""
    first, last = 8, int(FAR * 16)
    if not reached(mpmath.mpf(last) / 16):
        return math.inf
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if reached(mpmath.mpf(middle) / 16) else (middle + 1, last)
    return first / 16
