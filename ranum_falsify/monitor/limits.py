"""Distances of PyTorch's operators to invalid operands, as the rows of ONNX's operators state them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.network.registry import find
from ranum_falsify.validity import Constraint, largest

_ROWS = {
    "acos": ("Acos",),
    "acosh": ("Acosh",),
    "asin": ("Asin",),
    "atanh": ("Atanh",),
    "div": ("Div",),
    "exp": ("Exp",),
    "log": ("Log",),
    "log10": ("Log",),
    "log2": ("Log",),
    "pow": ("Pow",),
    "reciprocal": ("Reciprocal",),
    "rsqrt": ("Sqrt", "Reciprocal"),
    "sqrt": ("Sqrt",),
}
"""Rows that say what operators of PyTorch reject; their operands come in the same order."""


@dataclass(frozen=True)
class Gauge:
    """One limit of an operator.

    Attributes:
        operand: Which operand it is about; -1 for the result.
        kind: Whether the operand must stay `below` a limit of its type, `above` a number, or `off` zero in size; or
            whether the `size` of the result may overflow.
        end: The limit.
        text: The condition, for people.
    """

    operand: int
    kind: str
    end: float
    text: str


def name_of(func: Any) -> str:
    """Return the name of an operator of PyTorch, without that it writes in place."""
    name: str = func.overloadpacket.__name__
    return name if name.startswith("_") else name.rstrip("_")


@cache
def gauges_of(name: str, dtype: torch.dtype) -> tuple[Gauge, ...]:
    """Return the limits of an operator's operands of a type, as far as one number tells the distance to them."""
    return tuple(gauge for row in _ROWS.get(name, ()) for gauge in _read(row, dtype))


def _read(row: str, dtype: torch.dtype) -> Iterator[Gauge]:
    spec = find(row, "")
    assert spec is not None
    for condition in spec.valid:
        assert isinstance(condition, Constraint)
        text = condition.describe().partition(" (in ")[0]
        other = condition.invalid_ranges(torch.float64 if dtype is torch.float32 else torch.float32) or ()
        for range_, twin in zip(condition.invalid_ranges(dtype) or (), other, strict=False):
            place = spec.operands.index(range_.operand)
            if range_.lower == range_.upper:
                yield Gauge(place, "off", range_.lower, text)
            elif range_.lower > -math.inf and range_ != twin:
                yield Gauge(place, "below", range_.lower, f"{dtype} ends at {range_.lower:.4g}".removeprefix("torch."))
            elif range_.upper < math.inf and not range_.is_open:
                # What rejects numbers below an end that it takes itself is no nearer to failing close to it.
                yield Gauge(place, "above", range_.upper, text)


@cache
def overflow_of(name: str, dtype: torch.dtype) -> Gauge | None:
    """Return the limit of an operator's results, None where finite operands never make an infinite result."""
    rows = [spec for row in _ROWS.get(name, ()) if (spec := find(row, "")) is not None]
    if rows and not any(spec.overflow for spec in rows):
        return None
    end = largest(dtype)
    return Gauge(-1, "size", end, f"{dtype} ends at {end:.4g}".removeprefix("torch."))


def value_of(gauge: Gauge, ends: Sequence[float], least_size: float) -> float:
    """Return the number that a limit is about, given the ends of its operand, and its least size if that is it."""
    low, high = ends[0] + 0.0, ends[1] + 0.0  # no -0
    sizes = {"below": high, "above": low - gauge.end, "size": max(abs(low), abs(high)), "off": least_size}
    return sizes[gauge.kind]


def position_of(gauge: Gauge, value: float, scale: float, dtype: torch.dtype) -> tuple[float, float]:
    """Return the position of a value and that of the limit, which a run of values approaches from below.

    A position is not below 0: what is small, or far from a number that is rejected, is as good as any.  Numbers that a
    subtraction made fall from one unit of rounding of their neighbours, whose largest is the scale, to zero at once, so
    a distance ends there, unless it is smaller.
    """
    if gauge.kind == "below":
        return max(value, 0.0), gauge.end
    limits = torch.finfo(dtype)
    if gauge.kind == "size":
        return math.log(max(value, 1.0)), math.log(limits.max)
    rounding = limits.eps * max(scale, limits.tiny)
    floor = rounding if value > rounding else limits.tiny * limits.eps
    return -math.log(min(max(value, floor), 1.0)), -math.log(min(floor, 0.5))
