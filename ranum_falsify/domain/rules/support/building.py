"""Rules by their mathematics: monotone and piecewise monotone functions, selections, movement of elements.

Each returns a rule (see :data:`ranum_falsify.domain.site.IntervalRule`) that stands in an operator's row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeVar, cast

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.kernels.envelopes import EXACT, Envelope
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.network.tensors import torch_dtype

_AWARE, _SHAPED, _KEEPING = "aware_of_infinity", "aware_of_shape", "keeps_infinity"

Rule = TypeVar("Rule", bound=IntervalRule)

_PART = 1 << 16
"""Elements of a part of a large tensor: what is computed of it in float64 fits into a near cache."""


def infinity_aware(rule: Rule) -> Rule:
    """Mark a rule that accepts infinite bounds and states itself whether infinities may give NaN.

    For other rules, the analysis assumes that the result may be anything and NaN if an operand may be infinite.
    """
    setattr(rule, _AWARE, True)
    return rule


def is_infinity_aware(rule: IntervalRule | None) -> bool:
    """Tell whether a rule is marked by :func:`infinity_aware`."""
    return bool(getattr(rule, _AWARE, False))


_ALL = range(1 << 30)


def _always(op: Operation) -> bool:
    return True


def keeping_infinity(
    rule: Rule, operands: Container[int] = _ALL, *, when: Callable[[Operation], bool] = _always
) -> Rule:
    """Mark a rule that is aware of infinity: a finite result comes of finite elements only.

    So does a sum, a product or a choice, but no exponential, which is 0 of -inf, and no maximum.

    Args:
        rule: The rule.
        operands: Positions of the operands of which that is true.
        when: Tells of which nodes it is true.
    """
    setattr(rule, _KEEPING, (operands, when))
    return infinity_aware(rule)


def keeps_infinity(rule: IntervalRule, op: Operation, operand: int) -> bool:
    """Tell whether a rule is marked by :func:`keeping_infinity` for an operand of a node, by position."""
    operands, when = getattr(rule, _KEEPING, ((), _always))
    return operand in operands and when(op)


def inherit_marks(wrapper: Rule, rule: IntervalRule) -> Rule:
    """Mark a rule as the one that it refines."""
    for name in (_AWARE, _KEEPING):
        if hasattr(rule, name):
            setattr(wrapper, name, getattr(rule, name))
    return wrapper


def shape_aware(rule: Callable[..., Interval | tuple[Interval, ...] | None]) -> IntervalRule:
    """Mark a rule that states itself whether the shape of the output depends on the input, by returning None.

    For other rules, the analysis goes by the row.
    """
    setattr(rule, _SHAPED, True)
    return cast(IntervalRule, rule)


def is_shape_aware(rule: IntervalRule | None) -> bool:
    """Tell whether a rule is marked by :func:`shape_aware`."""
    return bool(getattr(rule, _SHAPED, False))


def along_any_axis(rule: IntervalRule) -> IntervalRule:
    """Let a rule of an operand and one axis take all axes that inputs may choose; the results have its shape."""

    def chosen(site: Site, x: Interval, axis: np.ndarray | Interval) -> Interval | None:
        if not isinstance(axis, Interval):
            return cast(Interval, rule(site, x, axis))
        rank, (low, high) = len(x.shape), axis.extremes
        if not -rank <= low <= high < rank:
            return None
        dims = {dim % rank for dim in range(int(low), int(high) + 1)}
        found = [cast(Interval, rule(site, x, np.array(dim))) for dim in sorted(dims)]
        nan, overflows = any(y.nan for y in found), any(y.overflows for y in found)
        return replace(reduce(Interval.hull, found), nan=nan, overflows=overflows)

    return inherit_marks(shape_aware(chosen), rule)


def result_shape(*operands: Interval) -> tuple[int, ...]:
    """Return the shape that operands broadcast to."""
    return tuple(np.broadcast_shapes(*(x.shape for x in operands)))


# functions of one operand ---------------------------------------------------------------------------------------


def in_parts(bound: Callable[[Interval], Interval], x: Interval, along: Sequence[int] = ()) -> Interval:
    """Return the bounds of a function, of a large operand part by part: whole, it may take many times the operand.

    Args:
        bound: Bounds the function; the results have the stored shape of the operand.
        x: The operand.
        along: Dimensions that are not cut, because the function reads more than one element along them.
    """
    stored, rank = x.lower.shape, len(x.shape)
    whole = {dim % rank for dim in along} if rank else set()
    dim = max((dim for dim in range(rank) if dim not in whole), key=lambda dim: stored[dim], default=-1)
    if x.lower.numel() <= 2 * _PART or dim < 0 or stored[dim] == 1:
        return bound(x)
    count = min(stored[dim], x.lower.numel() // _PART)
    lows = x.lower.tensor_split(count, dim)
    highs = lows if x.upper is x.lower else x.upper.tensor_split(count, dim)
    shapes = [(*x.shape[:dim], low.shape[dim], *x.shape[dim + 1 :]) for low in lows]
    parts = zip(lows, highs, shapes, strict=True)
    found = [bound(replace(x, lower=low, upper=high, shape=shape)) for low, high, shape in parts]
    low, high = torch.cat([y.lower for y in found], dim), torch.cat([y.upper for y in found], dim)
    return Interval(low, high, x.shape, any(y.nan for y in found), any(y.overflows for y in found))


def part_by_part(rule: Callable[[Site, Interval], Interval]) -> IntervalRule:
    """Return the rule of an elementwise function, which knows infinity and computes in float64, part by part."""
    return infinity_aware(lambda site, x: in_parts(lambda part: rule(site, part), x))


def corner_products(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest products of numbers between the bounds `a` and numbers between `b`."""
    corners = torch.stack(torch.broadcast_tensors(*(p * q for p in a for q in b)))
    return corners.amin(0), corners.amax(0)


def exactly(function: Callable[[Tensor], Tensor], *, increasing: bool = True) -> IntervalRule:
    """Return the rule of a monotone elementwise function that every runtime computes exactly (`Relu`, `Neg`)."""

    def rule(site: Site, x: Interval) -> Interval:
        y = x.map(function)
        return y if increasing else Interval(y.upper, y.lower, y.shape)

    return infinity_aware(rule)


def monotone(
    function: Callable[[Tensor], Tensor],
    *,
    above: float = -math.inf,
    below: float = math.inf,
    increasing: bool = True,
) -> IntervalRule:
    """Return the rule of a monotone elementwise function, which the row's kernel approximates.

    Args:
        function: The function, on float64.
        above: Where the valid part begins; operands below count as this number.
        below: Where it ends.
        increasing: Whether it rises.
    """

    def rule(site: Site, x: Interval) -> Interval:
        low, high = (bound.clamp(above, below) for bound in x.doubles())
        ends = (function(low), function(high)) if increasing else (function(high), function(low))
        envelope = site.own_envelope()
        y = round_outward(*ends, site.dtype, x.shape, envelope)
        return saturate(y, x, function, envelope) if increasing else y

    return part_by_part(rule)


def saturate(y: Interval, x: Interval, function: Callable[[Tensor], Tensor], kernel: Envelope) -> Interval:
    """Return bounds of a rising function; where its kernel returns exactly the function's limits, so do the bounds.

    Args:
        y: Bounds of the results.
        x: Bounds of the operands, of the same stored shape.
        function: The function, on float64 with infinities.
        kernel: What is known about its kernel.
    """
    least, greatest = x.extremes
    low, high = y.lower, y.upper
    if least <= kernel.floor_until > -math.inf:
        high = torch.where(x.upper <= kernel.floor_until, high.clamp(max=_limit(function, -math.inf)), high)
    if greatest >= kernel.ceiling_from < math.inf:
        low = torch.where(x.lower >= kernel.ceiling_from, low.clamp(min=_limit(function, math.inf)), low)
    return y if low is y.lower and high is y.upper else replace(y, lower=low, upper=high)


def _limit(function: Callable[[Tensor], Tensor], end: float) -> float:
    return float(function(torch.tensor(end, dtype=torch.float64)))


def antitone(function: Callable[[Tensor], Tensor], **limits: float) -> IntervalRule:
    """Return the rule of a falling elementwise function; see :func:`monotone`."""
    return monotone(function, increasing=False, **limits)


def piecewise(
    function: Callable[[Tensor], Tensor],
    *,
    turns: Sequence[float],
    above: float = -math.inf,
    below: float = math.inf,
    entry: int | None = 0,
) -> IntervalRule:
    """Return the rule of an elementwise function that is monotone between given points (`Abs`, `Gelu`).

    Args:
        function: The function, on float64; it must take infinite numbers or the limits must exclude them.
        turns: Where it turns.  A turn known only to rounding must have a flat neighbourhood, as extremes have: the
            error is of second order, below that of `round_outward`.
        above: See :func:`monotone`.
        below: See :func:`monotone`.
        entry: Which of the row's kernels approximates it; None for a part of a node, whose error comes on top.
    """

    def rule(site: Site, x: Interval) -> Interval:
        low, high = (bound.clamp(above, below) for bound in x.doubles())
        at_low, at_high = function(low), function(high)
        least, greatest = torch.minimum(at_low, at_high), torch.maximum(at_low, at_high)
        for turn in turns:
            value = function(torch.tensor(turn, dtype=torch.float64))
            inside = (low <= turn) & (high >= turn)
            least = torch.where(inside, torch.minimum(least, value), least)
            greatest = torch.where(inside, torch.maximum(greatest, value), greatest)
        return round_outward(least, greatest, site.dtype, x.shape, EXACT if entry is None else site.own_envelope(entry))

    return part_by_part(rule)


# movement, choice, ignorance ------------------------------------------------------------------------------------


def moving(function: Callable[..., Tensor]) -> IntervalRule:
    """Return the rule of an operator that only moves, repeats or drops elements of its first operand.

    Args:
        function: The row's torch function, `fn(op, x, *static)`.
    """

    def rule(site: Site, x: Interval, *rest: object) -> Interval:
        return x.move(lambda bound: function(site.op, bound, *rest))

    return keeping_infinity(rule)


def unknown(site: Site) -> tuple[Interval, ...]:
    """Return bounds that say nothing: every value of each output's dtype, and perhaps an overflow or NaN."""
    tops = (_none() if d is None else Interval.top(tuple(d.shape), torch_dtype(d.dtype)) for d in site.details)
    return tuple(replace(y, nan=True, overflows=True) if y.is_floating else y for y in tops)


def without_elements(site: Site) -> tuple[Interval, ...]:
    """Return bounds of outputs none of which has an element, for which many rules fail; of others, nothing."""
    known = [d for d in site.details if d is not None]
    if not known or not all(0 in d.shape for d in known):
        return ()
    return tuple(replace(y, nan=False, overflows=False) for y in unknown(site))


def _none() -> Interval:
    """Return bounds of an output that nothing reads."""
    return Interval.fill(0, 0, (0,), torch.float32)


def within(low: float, high: float) -> IntervalRule:
    """Return the rule of an operator whose results lie in a fixed range whatever the operands."""

    def rule(site: Site, *operands: object) -> Interval:
        least, greatest = dtype_range(site.dtype)
        return Interval.fill(max(low, least), min(high, greatest), site.shape, site.dtype)

    return infinity_aware(rule)
