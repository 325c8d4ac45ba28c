"""Infinities by intent: what is known of the finite values of a tensor that may hold infinities, such as masked scores.

Bounds of [-inf, 3] do not tell whether the finite values reach down to -2 or to the lowest number.  So where an operand
may be infinite, a rule runs twice: on the bounds, which says what infinities become and whether they cancel; and on the
bounds of the finite values alone, which says whether finite numbers overflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval

__all__ = ["Value", "clip_untouched", "find_overflows", "finite_part", "holds_infinity", "settle"]

Value = Interval | np.ndarray | None
"""Bounds of an operand, a static operand, or an absent one."""


def holds_infinity(x: Value) -> bool:
    """Tell whether an operand may hold an infinity."""
    return isinstance(x, Interval) and x.may_be_infinite


def finite_part(x: Interval) -> Interval:
    """Return bounds of the finite values of a tensor; 1, which no operator refuses, where there are none."""
    never = (x.lower == math.inf) | (x.upper == -math.inf)
    part = x.keep_finite()
    return replace(part, lower=part.lower.masked_fill(never, 1), upper=part.upper.masked_fill(never, 1), gap=0.0)


def find_overflows(outputs: Sequence[Interval], finite: Sequence[Interval]) -> tuple[Interval, ...]:
    """Return results that are marked where those of finite operands may be infinite.

    Args:
        outputs: What a rule says of operands that may be infinite.
        finite: What it says of their finite values.
    """
    return tuple(
        replace(y, overflows=True) if part.overflows or part.may_be_infinite else y
        for y, part in zip(outputs, finite, strict=True)
    )


def settle(finite: Sequence[Interval]) -> tuple[Interval, ...]:
    """Return the finite values among the results of finite operands."""
    return tuple(replace(finite_part(y) if y.may_be_infinite else y, nan=False, overflows=False) for y in finite)


def clip_untouched(y: Interval, operands: Sequence[Value]) -> Interval:
    """Return the valid results of an elementwise operator: finite where all elements that it reads are.

    Args:
        y: Bounds of the results.
        operands: What it reads; they broadcast to the result.
    """
    touched = torch.zeros((), dtype=torch.bool)
    for x in operands:
        if isinstance(x, Interval) and x.may_be_infinite:
            touched = touched | _align(x.lower.isinf() | x.upper.isinf(), len(y.shape))
    part = y.keep_finite()
    return Interval.of(torch.where(touched, y.lower, part.lower), torch.where(touched, y.upper, part.upper), y.shape)


def _align(mask: Tensor, rank: int) -> Tensor:
    return mask.reshape((1,) * (rank - mask.ndim) + tuple(mask.shape))
