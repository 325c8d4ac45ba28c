"""Products of a number with a function of itself, in several nodes: Swish, HardSwish, Gelu; and ramps, their gates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.attributes import has_denormals
from ranum_falsify.domain.error_bounds import GATED_ROUNDINGS, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear import curves
from ranum_falsify.domain.linear.declarations import Affine, UnivariateOf
from ranum_falsify.domain.linear.relaxations import Relaxation
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import in_parts, piecewise
from ranum_falsify.domain.rules.support.real_functions import (
    GELU_TANH_TURN,
    GELU_TURN,
    SWISH_TURN,
    gelu,
    swish,
)
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.matching import (
    Field,
    constant,
    fields_of,
    find_other,
    find_scale,
    is_a,
    is_same,
    pairs,
    source,
    square_of,
)


@dataclass(frozen=True)
class Ramp:
    """The function k clip(slope x + offset, low, high), with slope > 0 and finite limits.

    Its gain is the most by which its factors, limits and constants, enlarge what others make.
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


_DEPTH = 4
"""How deep products of products are searched."""

_PARTS = 16
"""More products than these have."""

_CUBIC = 0.044715
_CLOSE = 1e-3
"""Relative tolerance of constants, which may have been rounded to half precision."""


@dataclass(frozen=True)
class _SelfGated:
    """A product of x with a function of x.

    Attributes:
        x: The field x.
        function: The product as a function of x, on float64.
        turns: Where it turns.
        error: Bounds by how much kernels may stray from it, given bounds of x, where nothing underflows.
        curve: Its linear relaxation, where there is one.
        gain: The most by which factors besides x enlarge what others make.
    """

    x: Field
    function: Callable[[Tensor], Tensor]
    turns: Sequence[float]
    error: Callable[[Site, Interval], float]
    curve: Relaxation | None
    gain: float = 1.0

    def stray(self, site: Site, *operands: object) -> Interval:
        """Return bounds of the error."""
        bounds = site.find_known(self.x)
        most = math.inf if bounds is None else self.error(site, bounds) + _lost(bounds, self.gain)
        return Interval.fill(-most, most, (), torch.float64)


_Finder = Callable[[Operation], _SelfGated | None]


def _bounding(find: _Finder) -> Callable[[Site, Interval, Interval], Interval | None]:
    """Return the pattern that bounds what a function finds."""

    def pattern(site: Site, a: Interval, b: Interval) -> Interval | None:
        gated = find(site.op)
        bounds = None if gated is None else site.find_known(gated.x)
        if gated is None or bounds is None or bounds.shape != site.shape:
            return None
        return _curve(site, bounds, gated.function, gated.turns, gated.error(site, bounds), gated.gain)

    return pattern


def _curve(
    site: Site,
    x: Interval,
    function: Callable[[Tensor], Tensor],
    turns: Sequence[float],
    error: float,
    gain: float = 1.0,
) -> Interval | None:
    """Bound a function of x that is computed with an absolute error and a few roundings."""
    if not x.is_floating or not x.size or x.may_be_infinite:
        return None
    y = piecewise(function, turns=turns, entry=None)(site, x)
    assert isinstance(y, Interval)
    if not all(map(math.isfinite, y.extremes)):  # of float64 numbers whose parts overflow here
        return None
    relative, error = GATED_ROUNDINGS * unit(x.dtype), error + _lost(x, gain)

    def widen(part: Interval) -> Interval:
        low, high = part.doubles()
        ends = low - error - relative * low.abs(), high + error + relative * high.abs()
        return round_outward(*ends, x.dtype, part.shape)

    return in_parts(widen, y)


def _lost(x: Interval, gain: float) -> float:
    """Return the most that a product loses where one of its parts underflows, which other factors enlarge again."""
    return _PARTS * tiny(x.dtype) * max(_size(x), 1.0) * gain


def _size(x: Interval) -> float:
    least, greatest = x.extremes
    return float(max(-least, greatest, 0))


def _find_swish(op: Operation) -> _SelfGated | None:
    """Return x sigmoid(c x) for a constant c > 0."""
    for x, factor in pairs(op):
        gate = is_a(factor, "Sigmoid")
        scale = None if gate is None else find_scale(fields_of(gate)[0], x)
        if scale is not None and scale > 0:
            turns, curve = [SWISH_TURN / scale], curves.stretch(curves.SWISH, 1 / scale, scale)
            return _SelfGated(x, partial(_scaled_swish, scale), turns, partial(_swish_error, scale), curve)
    return None


def _swish_error(c: float, site: Site, bounds: Interval) -> float:
    kernels = [site.envelope(name) for name in ("Sigmoid", "Swish")]
    # Rounding c x changes the sigmoid by |c x| u of itself, and x^2 sigmoid(x) is at most 0.6 where x < 0.
    error = max(k.absolute for k in kernels) * _size(bounds) + 2 * unit(bounds.dtype) / c
    return error + sum(k.relative for k in kernels) * _size(bounds)


def _scaled_swish(c: float, t: Tensor) -> Tensor:
    return swish(c * t) / c


# HardSwish ------------------------------------------------------------------------------------------------------


def _find_hard_swish(op: Operation) -> _SelfGated | None:
    """Return x k clip(s x + c, l, h), of which x clip(x + 3, 0, 6) / 6 is the usual one."""
    for x, factor in pairs(op):
        ramp = find_ramp(factor, x, _DEPTH)
        if ramp is not None:
            return _SelfGated(x, ramp.times_operand, ramp.turns, ramp.error, ramp.curve, ramp.gain)
    return None


# Gelu -----------------------------------------------------------------------------------------------------------


def _find_gelu(op: Operation) -> _SelfGated | None:
    """Return k x (1 + erf(s x)), and the same with the usual cubic in tanh, in any grouping of the factors."""
    factors = list(_factors(op, _DEPTH))
    numbers = [number for _, number in factors if number is not None]
    fields = [field for field, number in factors if number is None]
    k = math.prod(numbers)
    if len(fields) != 2 or not math.isfinite(k):
        return None
    for x, raised in (fields, fields[::-1]):
        gate = is_a(find_other(raised, "Add", 1.0), "Erf", "Tanh")
        if gate is not None:
            found = (_by_erf if is_a(gate, "Erf") else _by_tanh)(fields_of(gate)[0], x, k)
            gain = 2 * math.prod(max(abs(number), 1.0) for number in numbers)  # the raised gate is at most 2
            return found and replace(found, gain=gain)
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


def _by_erf(argument: Field, x: Field, k: float) -> _SelfGated | None:
    scale = find_scale(argument, x)
    if scale is None or not scale > 0:
        return None
    s = scale * math.sqrt(2)

    def error(site: Site, bounds: Interval) -> float:
        own, fused = site.envelope("Erf"), site.envelope("Gelu")
        size = abs(k) * _size(bounds)
        found = (own.absolute + own.relative + 4 * unit(bounds.dtype)) * size
        return found + 2 * abs(k) / s * fused.absolute + 2 * fused.relative * size

    curve = curves.stretch(curves.GELU, 2 * k / s, s)
    return _SelfGated(x, lambda t: 2 * k / s * gelu(s * t), [GELU_TURN / s], error, curve)


def _by_tanh(argument: Field, x: Field, k: float) -> _SelfGated | None:
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

    def error(site: Site, bounds: Interval) -> float:
        own, fused = site.envelope("Tanh"), site.envelope("Gelu tanh")
        size = abs(k) * _size(bounds)
        # The argument errs by a few roundings of itself, and |t| (1 - tanh(t)^2) is at most 0.45.
        found = (own.absolute + own.relative + 16 * unit(bounds.dtype)) * size
        found += 2 * abs(k) * fused.absolute + 2 * fused.relative * size
        # Other constants move the turn a little, which changes the extreme by the square of that.
        return found + 4 * abs(k) * _CLOSE * _CLOSE

    return _SelfGated(x, lambda t: _raised(t, k, c, c * cubic), [GELU_TANH_TURN], error, None)


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


swish_by_parts, hard_swish_by_parts, gelu_by_parts = map(_bounding, (_find_swish, _find_hard_swish, _find_gelu))

_PRODUCT = Affine(factors=("a", "b"))


def product_form(op: Operation) -> Affine | UnivariateOf:
    """Return how a product depends linearly on its operands: as a curve, if both are functions of one tensor."""
    for find in (_find_swish, _find_hard_swish, _find_gelu):
        gated = find(op)
        operand = None if gated is None else source(gated.x)
        if gated is not None and gated.curve is not None and isinstance(operand, Operation):
            return UnivariateOf(operand=operand, curve=gated.curve, stray=gated.stray, otherwise=_PRODUCT)
    return _PRODUCT
