"""Products of a number with a function of itself, in several nodes: Swish, HardSwish, Gelu, Mish, x (1 - x), x^3.

Each is one function of x with known turning points; the product of its parts' bounds would forget their relation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import piecewise
from ranum_falsify.domain.rules.support.real_functions import (
    GELU_TANH_TURN,
    GELU_TURN,
    MISH_TURN,
    SWISH_TURN,
    gelu,
    mish,
    swish,
)
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import unit
from ranum_falsify.operators.relations.matching import (
    Field,
    constant,
    fields_of,
    find_other,
    is_a,
    is_same,
    pairs,
    source,
    square_of,
)

__all__ = ["complement", "cube", "gelu_by_parts", "hard_swish_by_parts", "mish_by_parts", "swish_by_parts"]

_DEPTH = 4
"""How deep products of products are searched."""

_CUBIC = 0.044715
_CLOSE = 1e-3
"""Relative tolerance of constants, which may have been rounded to half precision."""


def _curve(
    site: Site, x: Interval, function: Callable[[Tensor], Tensor], turns: Sequence[float], error: float
) -> Interval | None:
    """Bound a function of x that is computed with an absolute error and a few roundings."""
    if not x.is_floating or not x.size or x.may_be_infinite:
        return None
    y = piecewise(function, turns=turns, entry=None)(site, x)
    assert isinstance(y, Interval)
    low, high = y.doubles()
    if not bool(low.isfinite().all() and high.isfinite().all()):  # of float64 numbers whose parts overflow here
        return None
    relative = 16 * unit(x.dtype)
    return round_outward(low - error - relative * low.abs(), high + error + relative * high.abs(), x.dtype, x.shape)


def _size(x: Interval) -> float:
    least, greatest = x.extremes
    return float(max(-least, greatest, 0))


def _scale_of(field: Field, x: Field) -> float | None:
    """Return c where a field is c x with a constant c."""
    if is_same(field, x):
        return 1.0
    op = is_a(field, "Mul", "Div")
    if op is None:
        return None
    for number, rest in ((constant(b), a) for a, b in pairs(op)):
        if number is not None and is_same(rest, x):
            if is_a(op, "Mul"):
                return number
            return 1 / number if number and is_same(fields_of(op)[0], x) else None
    return None


def swish_by_parts(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x sigmoid(c x) for a constant c > 0."""
    for (x, factor), bounds in zip(pairs(site.op), (a, b), strict=True):
        gate = is_a(factor, "Sigmoid")
        scale = None if gate is None else _scale_of(fields_of(gate)[0], x)
        if scale is None or not scale > 0:
            continue
        c, kernels = scale, [site.envelope(name) for name in ("Sigmoid", "Swish")]
        # Rounding c x changes the sigmoid by |c x| u of itself, and x^2 sigmoid(x) is at most 0.6 where x < 0.
        error = max(k.absolute for k in kernels) * _size(bounds) + 2 * unit(bounds.dtype) / c
        relative = sum(k.relative for k in kernels) * _size(bounds)
        return _curve(site, bounds, partial(_scaled_swish, c), [SWISH_TURN / c], error + relative)
    return None


def _scaled_swish(c: float, t: Tensor) -> Tensor:
    return swish(c * t) / c


def mish_by_parts(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x tanh(softplus(x))."""
    for (x, factor), bounds in zip(pairs(site.op), (a, b), strict=True):
        gate = is_a(factor, "Tanh")
        inner = None if gate is None else is_a(fields_of(gate)[0], "Softplus")
        if inner is None or not is_same(fields_of(inner)[0], x):
            continue
        kernels = [site.envelope(name) for name in ("Tanh", "Softplus")]
        error = sum(k.absolute + k.relative for k in kernels) * _size(bounds)
        return _curve(site, bounds, mish, [MISH_TURN], error)
    return None


def complement(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x (1 - x), which is at most 1 / 4."""
    for (x, factor), bounds in zip(pairs(site.op), (a, b), strict=True):
        rest = is_a(factor, "Sub")
        if rest is None or constant(fields_of(rest)[0]) != 1 or not is_same(fields_of(rest)[1], x):
            continue
        return _curve(site, bounds, lambda t: t * (1 - t), [0.5], 0.0)
    return None


def cube(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x * x^2, which rises."""
    for (x, factor), bounds in zip(pairs(site.op), (a, b), strict=True):
        if is_same(square_of(factor), x):
            return _curve(site, bounds, lambda t: t**3, [], 0.0)
    return None


# HardSwish ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ramp:
    """The function k clip(slope x + offset, low, high), with slope > 0 and finite limits."""

    slope: float
    offset: float
    low: float
    high: float
    k: float = 1.0

    @property
    def turns(self) -> Sequence[float]:
        """Where its product with x may turn: at the ends of the ramp, and at the vertex of the parabola there."""
        at = (self.low - self.offset, self.high - self.offset, -self.offset / 2)
        return [point / self.slope for point in at]

    def times_operand(self, x: Tensor) -> Tensor:
        """Return its product with x."""
        return x * self.k * (self.slope * x + self.offset).clamp(self.low, self.high)

    def error(self, unit_roundoff: float) -> float:
        """Return by how much its product with x may stray, besides a few roundings of the product itself.

        Where slope x + offset is off the ramp by more than its own error, the clip hides that error.  Elsewhere it is
        at most 8 u times the larger limit and the offset, and so is slope x, but for that factor.
        """
        size = abs(self.offset) + max(abs(self.low), abs(self.high))
        return abs(self.k) * 8 * unit_roundoff * size * 2 * size / self.slope


def hard_swish_by_parts(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x k clip(s x + c, l, h), of which x clip(x + 3, 0, 6) / 6 is the usual one."""
    for (x, factor), bounds in zip(pairs(site.op), (a, b), strict=True):
        ramp = _find_ramp(factor, x, _DEPTH)
        if ramp is not None and bounds.shape == site.shape:
            return _curve(site, bounds, ramp.times_operand, ramp.turns, ramp.error(unit(bounds.dtype)))
    return None


def _find_ramp(field: Field, x: Field, depth: int) -> _Ramp | None:
    """Return the ramp that a field is of x; None if it is not one."""
    op = is_a(field, "Clip", "HardSigmoid", "Mul", "Div")
    if op is None or not depth:
        return None
    inner, *rest = fields_of(op)
    if is_a(op, "HardSigmoid"):
        ramp = _Ramp(op.alpha, op.beta, 0.0, 1.0) if is_same(inner, x) else None
    elif is_a(op, "Clip"):
        low, high = (constant(limit) for limit in (*rest, None, None)[:2])
        ramp = None if low is None or high is None else _find_clipped(inner, x, low, high)
    else:
        ramp = _find_scaled_ramp(op, x, depth)
    known = ramp is not None and ramp.slope > 0 and ramp.low <= ramp.high
    return ramp if known and all(math.isfinite(number) for number in vars(ramp).values()) else None


def _find_clipped(field: Field, x: Field, low: float, high: float) -> _Ramp | None:
    shifted = is_a(field, "Add")
    if shifted is None:
        return None
    for rest, added in pairs(shifted):
        offset, slope = constant(added), _scale_of(rest, x)
        if offset is not None and slope is not None:
            return _Ramp(slope, offset, low, high)
    return None


def _find_scaled_ramp(op: Operation, x: Field, depth: int) -> _Ramp | None:
    for inner, number in pairs(op):
        k = constant(number)
        ramp = None if not k else _find_ramp(inner, x, depth - 1)
        if ramp is not None and k and (is_a(op, "Mul") or inner is fields_of(op)[0]):
            return replace(ramp, k=ramp.k * k if is_a(op, "Mul") else ramp.k / k)
    return None


# Gelu -----------------------------------------------------------------------------------------------------------


def gelu_by_parts(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound k x (1 + erf(s x)), and the same with the usual cubic in tanh, in any grouping of the factors."""
    factors = list(_factors(site.op, _DEPTH))
    numbers = [number for _, number in factors if number is not None]
    fields = [field for field, number in factors if number is None]
    if len(fields) != 2:
        return None
    k = math.prod(numbers)
    for x, raised in (fields, fields[::-1]):
        gate = is_a(find_other(raised, "Add", 1.0), "Erf", "Tanh")
        bounds = site.find_known(x)
        if gate is None or bounds is None or bounds.shape != site.shape or not math.isfinite(k):
            continue
        function = _bound_by_erf if is_a(gate, "Erf") else _bound_by_tanh
        return function(site, fields_of(gate)[0], x, bounds, k)
    return None


def _factors(field: Field, depth: int) -> Iterator[tuple[Field, float | None]]:
    """Yield the factors of a product: each a field, and its number where it is constant."""
    number, product = constant(field), is_a(field, "Mul", "Div")
    if number is not None:
        yield field, number
    elif product is None or not depth:
        yield source(field), None
    else:
        a, b = fields_of(product)
        divisor = constant(b)
        if is_a(product, "Mul"):
            yield from _factors(a, depth - 1)
            yield from _factors(b, depth - 1)
        elif divisor:
            yield from _factors(a, depth - 1)
            yield b, 1 / divisor
        else:
            yield product, None


def _bound_by_erf(site: Site, argument: Field, x: Field, bounds: Interval, k: float) -> Interval | None:
    scale = _scale_of(argument, x)
    if scale is None or not scale > 0:
        return None
    s = scale * math.sqrt(2)
    own, fused = site.envelope("Erf"), site.envelope("Gelu")
    size = abs(k) * _size(bounds)
    error = (own.absolute + own.relative + 4 * unit(bounds.dtype)) * size
    error += 2 * abs(k) / s * fused.absolute + 2 * fused.relative * size
    return _curve(site, bounds, lambda t: 2 * k / s * gelu(s * t), [GELU_TURN / s], error)


def _bound_by_tanh(site: Site, argument: Field, x: Field, bounds: Interval, k: float) -> Interval | None:
    factors = list(_factors(argument, _DEPTH))
    fields = [field for field, number in factors if number is None]
    c = math.prod(number for _, number in factors if number is not None)
    if len(fields) == 2 and any(is_same(field, x) for field in fields):  # c x (1 + 0.044715 x^2)
        rest = next(field for field in fields if not is_same(field, x))
        cubic = _number_times(find_other(rest, "Add", 1.0), lambda field: is_same(square_of(field), x))
    elif len(fields) == 1:  # c (x + 0.044715 x^3)
        cubic = _cubic_beside(fields[0], x)
    else:
        return None
    if cubic is None or abs(c / math.sqrt(2 / math.pi) - 1) > _CLOSE or abs(cubic / _CUBIC - 1) > _CLOSE:
        return None
    own, fused = site.envelope("Tanh"), site.envelope("Gelu tanh")
    size = abs(k) * _size(bounds)
    # The argument errs by a few roundings of itself, and |t| (1 - tanh(t)^2) is at most 0.45.
    error = (own.absolute + own.relative + 16 * unit(bounds.dtype)) * size
    error += 2 * abs(k) * fused.absolute + 2 * fused.relative * size
    # Other constants move the turn a little, which changes the extreme by the square of that.
    error += 4 * abs(k) * _CLOSE * _CLOSE
    return _curve(site, bounds, lambda t: _raised(t, k, c, c * cubic), [GELU_TANH_TURN], error)


def _raised(t: Tensor, k: float, linear: float, cubic: float) -> Tensor:
    return 2 * k * t * torch.sigmoid(2 * (linear * t + cubic * t * t * t))


def _number_times(field: Field, matches: Callable[[Field], bool]) -> float | None:
    """Return the number c of a product c f whose field f matches."""
    op = is_a(field, "Mul")
    if op is None:
        return None
    return next((number for a, b in pairs(op) if (number := constant(b)) is not None and matches(a)), None)


def _cubic_beside(field: Field, x: Field) -> float | None:
    """Return c where a field is x + c x^3."""
    op = is_a(field, "Add")
    if op is None:
        return None
    return next((_multiple_of_cube(b, x) for a, b in pairs(op) if is_same(a, x)), None)


def _multiple_of_cube(field: Field, x: Field) -> float | None:
    factors = list(_factors(field, _DEPTH))
    numbers = [number for _, number in factors if number is not None]
    fields = [field for field, number in factors if number is None]
    if len(fields) == 3 and all(is_same(field, x) for field in fields):
        return math.prod(numbers)
    power = is_a(fields[0], "Pow") if len(fields) == 1 else None
    if power is not None and constant(fields_of(power)[1]) == 3 and is_same(fields_of(power)[0], x):
        return math.prod(numbers)
    return None
