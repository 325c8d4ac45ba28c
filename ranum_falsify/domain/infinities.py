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
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.network import spec_of

Value = Interval | np.ndarray | None
"""Bounds of an operand, a static operand, or an absent one."""


def _holds_infinity(x: Value) -> bool:
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


def select_valid(op: Operation, outputs: tuple[Interval, ...], operands: Sequence[Value]) -> tuple[Interval, ...]:
    """Return the bounds of valid results, which are finite if all operands are finite.

    Operators that finite operands cannot make overflow may have infinite constants in their attributes (`Pad`).
    """
    if not any(y.nan or y.overflows or y.may_be_infinite for y in outputs):
        return outputs
    spec = spec_of(op)
    harmless = not spec.originates_nonfinite
    if harmless or any(map(_holds_infinity, operands)):
        clipped = spec.elementwise and not harmless
        outputs = tuple(_clip_untouched(y, operands) if clipped and y.overflows else y for y in outputs)
        return tuple(replace(y, nan=False, overflows=False) if y.nan or y.overflows else y for y in outputs)
    return tuple(
        replace(y.keep_finite(), nan=False, overflows=False) if y.nan or y.overflows or y.may_be_infinite else y
        for y in outputs
    )


def _clip_untouched(y: Interval, operands: Sequence[Value]) -> Interval:
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
