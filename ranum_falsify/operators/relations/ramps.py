"""Ramps: functions that rise from one number to another along a line, the gates of HardSwish and its like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.attributes import has_denormals
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear import curves
from ranum_falsify.domain.linear.relaxations import Relaxation
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import unit
from ranum_falsify.operators.relations.matching import Field, constant, fields_of, find_scale, is_a, is_same, pairs

__all__ = ["Ramp", "find_ramp"]


@dataclass(frozen=True)
class Ramp:
    """The function k clip(slope x + offset, low, high), with slope > 0 and finite limits.

    Attributes:
        slope: See above.
        offset: See above.
        low: See above.
        high: See above.
        k: See above.
        gain: The most by which its factors, limits and constants, enlarge what others make.
    """

    slope: float
    offset: float
    low: float
    high: float
    k: float = 1.0
    gain: float = 1.0

    @property
    def turns(self) -> Sequence[float]:
        """Where its product with x may turn: at the ends of the ramp, and at the vertex of the parabola there."""
        at = (self.low - self.offset, self.high - self.offset, -self.offset / 2)
        return [point / self.slope for point in at]

    def times_operand(self, x: Tensor) -> Tensor:
        """Return its product with x."""
        return x * self.k * (self.slope * x + self.offset).clamp(self.low, self.high)

    @property
    def curve(self) -> Relaxation | None:
        """Its product with x as a curve, where it rises from 0 to a height that it has half of at x = 0."""
        if self.low != 0 or self.offset != self.high / 2:
            return None
        height = self.k * self.high * self.high / (6 * self.slope)
        return curves.stretch(curves.HARD_SWISH, height, 6 * self.slope / self.high) if self.high else None

    def error(self, site: Site, bounds: Interval) -> float:
        """Return by how much its product with x may stray, besides a few roundings of the product itself.

        Where slope x + offset is off the ramp by more than its own error, the clip hides that error.  Elsewhere it is
        at most 8 u times the larger limit and the offset, and so is slope x, but for that factor.
        """
        size = abs(self.offset) + max(abs(self.low), abs(self.high))
        return abs(self.k) * 8 * unit(bounds.dtype) * size * 2 * size / self.slope


def find_ramp(field: Field, x: Field, depth: int) -> Ramp | None:
    """Return the ramp that a field is of x; None if it is not one."""
    op = is_a(field, "Clip", "HardSigmoid", "Mul", "Div")
    if op is None or not depth:
        return None
    inner, *rest = fields_of(op)
    if is_a(op, "HardSigmoid"):
        ramp = Ramp(op.alpha, op.beta, 0.0, 1.0) if is_same(inner, x) and not has_denormals(op) else None
    elif is_a(op, "Clip"):
        low, high = (constant(limit) for limit in (*rest, None, None)[:2])
        ramp = None if low is None or high is None else _find_clipped(inner, x, low, high)
    else:
        ramp = _find_scaled_ramp(op, x, depth)
    known = ramp is not None and ramp.slope > 0 and ramp.low <= ramp.high
    return ramp if known and all(math.isfinite(number) for number in vars(ramp).values()) else None


def _find_clipped(field: Field, x: Field, low: float, high: float) -> Ramp | None:
    shifted = is_a(field, "Add")
    if shifted is None:
        return None
    for rest, added in pairs(shifted):
        offset, slope = constant(added), find_scale(rest, x)
        if offset is not None and slope is not None:
            return Ramp(slope, offset, low, high, gain=max(abs(low), abs(high), 1.0))
    return None


def _find_scaled_ramp(op: Operation, x: Field, depth: int) -> Ramp | None:
    for inner, number in pairs(op):
        k = constant(number)
        ramp = None if not k else find_ramp(inner, x, depth - 1)
        if ramp is not None and k and (is_a(op, "Mul") or inner is fields_of(op)[0]):
            factor = k if is_a(op, "Mul") else 1 / k
            return replace(ramp, k=ramp.k * factor, gain=ramp.gain * max(abs(factor), 1.0))
    return None
