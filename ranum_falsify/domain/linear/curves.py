"""Linear relaxations of operators' functions, as facts: bend, derivative, and where it has a given value."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.linear.relaxations import (
    Curve,
    Lines,
    Mirrored,
    Rectifier,
    Relaxation,
    SoftRectifier,
    Stretched,
    kinked,
)
from ranum_falsify.domain.rules.support.real_functions import (
    GELU_TANH_TURN,
    GELU_TURN,
    SWISH_TURN,
    gelu,
    gelu_tanh,
    swish,
)

_PERIODS = 2
"""Periods on either side of 0 in which extremes of a wave are searched; wider operands get constant bounds."""


def _pair_with_negative(x: Tensor) -> tuple[Tensor, ...]:
    return x, -x


def _sigmoid_points(slope: Tensor) -> tuple[Tensor, ...]:
    # s (1 - s) = slope; the smaller root without cancellation.
    root = (1 - 4 * slope).clamp(min=0).sqrt()
    smaller = 2 * slope / (1 + root)
    return _pair_with_negative((smaller / (1 - smaller)).log())


def _sigmoid_slope(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * torch.sigmoid(-x)


def _asinh_points(slope: Tensor) -> tuple[Tensor, ...]:
    # x^2 = (1/s)^2 - 1, where float64 may hold neither square.
    steepness = slope.reciprocal().clamp(min=1)
    return _pair_with_negative((steepness - 1).sqrt() * (steepness + 1).sqrt())


def _softplus(x: Tensor) -> Tensor:
    return x.clamp(min=0) + (-x.abs()).exp().log1p()


RELU = Rectifier()
ABS = kinked(torch.abs, 0.0, bend="convex")
EXP = Curve(torch.exp, bend="convex", slope=torch.exp, points=lambda s: (s.log(),))
LOG = Curve(
    torch.log,
    bend="concave",
    slope=torch.reciprocal,
    points=lambda s: (s.reciprocal(),),
    above=5e-324,
)
SQRT = Curve(torch.sqrt, bend="concave", slope=lambda x: 0.5 * x.rsqrt(), points=lambda s: (0.25 / (s * s),), above=0.0)
SQUARE = Curve(torch.square, bend="convex", slope=lambda x: 2 * x, points=lambda s: (s / 2,))
SOFTPLUS = Curve(_softplus, bend="convex", slope=torch.sigmoid, points=lambda s: (torch.logit(s),))
SIGMOID = Curve(torch.sigmoid, bend="s", slope=_sigmoid_slope, points=_sigmoid_points)
TANH = Curve(
    torch.tanh,
    bend="s",
    slope=lambda x: torch.cosh(x).reciprocal().square(),
    # cosh(x)^2 = 1 / slope
    points=lambda s: _pair_with_negative(torch.acosh(s.rsqrt().clamp(min=1))),
)
ATAN = Curve(
    torch.atan,
    bend="s",
    slope=lambda x: (1 + x * x).reciprocal(),
    points=lambda s: _pair_with_negative((s.reciprocal() - 1).clamp(min=0).sqrt()),
)
ERF = Curve(
    torch.erf,
    bend="s",
    slope=lambda x: 2 / math.sqrt(math.pi) * (-x * x).exp(),
    points=lambda s: _pair_with_negative((-(s * (math.sqrt(math.pi) / 2)).log()).clamp(min=0).sqrt()),
)
ASINH = Curve(
    torch.asinh,
    bend="s",
    slope=lambda x: (1 + x * x).rsqrt(),
    points=_asinh_points,
)
SOFTSIGN = Curve(
    functional.softsign,
    bend="s",
    slope=lambda x: (1 + x.abs()).square().reciprocal(),
    points=lambda s: _pair_with_negative((s.rsqrt() - 1).clamp(min=0)),
)
COSH = Curve(torch.cosh, bend="convex", slope=torch.sinh, points=lambda s: (torch.asinh(s),))
SINH = Mirrored(
    Curve(
        lambda x: -torch.sinh(x),
        bend="s",
        slope=lambda x: -torch.cosh(x),
        points=lambda s: _pair_with_negative(torch.acosh((-s).clamp(min=1))),
    )
)
HARD_SWISH = Curve(
    functional.hardswish,
    bend="any",
    points=lambda s: (torch.full_like(s, -3.0), torch.full_like(s, 3.0), 3 * s - 1.5),
)
# The second derivatives are greatest at 0: 2 / sqrt(2 pi) = 0.79788 and 1/2.  They change sign at the roots of 2 - x^2,
# at 1.41850 in the approximation by tanh, and where x tanh(x / 2) = 2, at 2.39936.
GELU = SoftRectifier(gelu, turn=-GELU_TURN, curvature=0.798, bends=(1.414, 1.415))
GELU_TANH = SoftRectifier(gelu_tanh, turn=-GELU_TANH_TURN, curvature=0.798, bends=(1.418, 1.419))
SWISH = SoftRectifier(swish, turn=-SWISH_TURN, curvature=0.5, bends=(2.399, 2.4))


def stretch(curve: Relaxation, height: float, rate: float) -> Relaxation | None:
    """Return the relaxation of `height * curve(rate * x)`; None unless both are positive numbers of ordinary size."""
    ordinary = all(1e-30 < number < 1e30 for number in (height, rate))
    return Stretched(curve, height, rate) if ordinary else None


class _Wave(Relaxation):
    """sin(x + phase)."""

    def __init__(self, phase: float) -> None:
        self._phase = phase
        self._near = Curve(self._value, bend="any", points=self._points)

    def _value(self, x: Tensor) -> Tensor:
        return torch.cos(x) if self._phase else torch.sin(x)

    def _points(self, slope: Tensor) -> tuple[Tensor, ...]:
        # cos(x + phase) = slope
        angle = torch.acos(slope.clamp(-1, 1))
        turns = [2 * math.pi * k - self._phase for k in range(-_PERIODS, _PERIODS + 1)]
        return tuple(turn + side for turn in turns for side in _pair_with_negative(angle))

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        """See :meth:`Relaxation.lines`."""
        y, zero = self._near.lines(low, high), torch.zeros_like(low)
        reach = 2 * math.pi * (_PERIODS - 1)
        near = (low > -reach) & (high < reach)
        return Lines(
            torch.where(near, y.lower_slope, zero),
            torch.where(near, y.lower_offset, zero - 1),
            torch.where(near, y.upper_slope, zero),
            torch.where(near, y.upper_offset, zero + 1),
        )


SIN = _Wave(0.0)
COS = _Wave(math.pi / 2)


class _Hyperbola(Relaxation):
    """1 / x, without bounds where the operand may be 0."""

    _positive = Curve(
        torch.reciprocal, bend="convex", slope=lambda x: -x.square().reciprocal(), points=lambda s: ((-s).rsqrt(),)
    )

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        """See :meth:`Relaxation.lines`; NaN where there are no bounds."""
        negative = high < 0
        least = torch.where(negative, -high, torch.where(low > 0, low, math.nan))
        y = self._positive.lines(least, torch.where(negative, -low, high))
        # 1 / x = -(1 / -x): the slopes stay, the offsets change sign and place.
        return Lines(
            torch.where(negative, y.upper_slope, y.lower_slope),
            torch.where(negative, -y.upper_offset, y.lower_offset),
            torch.where(negative, y.lower_slope, y.upper_slope),
            torch.where(negative, -y.lower_offset, y.upper_offset),
        )


RECIPROCAL = _Hyperbola()


def leaky(slope: object) -> Relaxation | None:
    """Return the relaxation of x above 0 and `slope * x` below; None where no slope from 0 to 1 is known."""
    if not isinstance(slope, float | np.ndarray):
        return None
    known = torch.tensor(slope, dtype=torch.float64)
    return Rectifier(known) if bool(((known >= 0) & (known <= 1)).all()) else None


def number_in(field: object, absent: float = math.nan) -> float | None:
    """Return a node's operand as a number if it is a constant of one element; `absent` where it has none."""
    if field is None:
        return absent
    return float(field.item()) if isinstance(field, np.ndarray) and field.size == 1 else None


def clip(low: float | None, high: float | None) -> Relaxation | None:
    """Return the relaxation of a clip at two numbers, of which either may be infinite; None if one is not known."""
    if low is None or high is None:
        return None
    if low >= high:
        return kinked(lambda x: x.clamp(low, high), high)
    kinks = [kink for kink in (low, high) if math.isfinite(kink)]
    if len(kinks) == 2:
        return kinked(lambda x: x.clamp(low, high), low, high, bend="s", turn=(low + high) / 2)
    return kinked(lambda x: x.clamp(low, high), *kinks, bend="convex" if math.isfinite(low) else "concave")


def elu(alpha: float, scale: float = 1.0) -> Relaxation:
    """Return the relaxation of x above 0 and alpha (exp(x) - 1) below, both times a positive scale."""

    def function(x: Tensor) -> Tensor:
        return scale * torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0)))

    def slope(x: Tensor) -> Tensor:
        return scale * torch.where(x > 0, 1.0, alpha * x.clamp(max=0).exp())

    def points(s: Tensor) -> tuple[Tensor, ...]:
        return torch.zeros_like(s), (s / (scale * alpha)).log()

    return Curve(function, bend="convex" if 0 < alpha <= 1 else "any", slope=slope, points=points)


def power(exponent: float | None) -> Relaxation | None:
    """Return the relaxation of x to a constant power; None if there is none here or the power is not known."""
    if exponent is None:
        return None
    if exponent == -1:
        return RECIPROCAL
    if exponent == 0.5:
        return SQRT
    whole = float(exponent).is_integer()
    if not whole or exponent < 2:
        return None
    n = int(exponent)

    def root(s: Tensor) -> Tensor:
        return (s.abs() / n) ** (1 / (n - 1))

    if n % 2 == 0:
        return Curve(
            lambda x: x**n,
            bend="convex",
            slope=lambda x: n * x ** (n - 1),
            points=lambda s: _pair_with_negative(root(s)),
        )
    return Mirrored(
        Curve(
            lambda x: -(x**n),
            bend="s",
            slope=lambda x: -n * x ** (n - 1),
            points=lambda s: _pair_with_negative(root(s)),
        )
    )
