"""Results as linear functions of directions, made of the rules themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ranum_falsify.checker.bounds import MOST_ELEMENTS, Bounds, Form, least, unit
from ranum_falsify.checker.node import NodeView, Rule

_MOST_PIECES, _MOST_POINTS = 256, 1 << 20
_STRAIGHT = ("Relu", "LeakyRelu", "PRelu", "Abs", "Clip", "Max", "Min")
_PRODUCTS = ("Mul", "MatMul", "Gemm", "FusedMatMul", "Conv", "ConvTranspose")


def lined(rule: Rule) -> Rule:
    """Return a rule, element by element, that follows forms of one operand by lines."""
    return functools.wraps(rule)(lambda node, *operands: _follow_lines(rule, node, *operands))


def affine(rule: Rule) -> Rule:
    """Return a rule that follows forms of operands of which sums come to sums, or products with others."""
    return functools.wraps(rule)(lambda node, *operands: _follow_planes(rule, node, *operands))


def _follow_lines(rule: Rule, node: NodeView, *operands: Bounds | None) -> Bounds:
    """Keep what a rule makes of one operand that has a form between two parallel lines.

    Lines of any slope do.  How far results stray from them comes of the rule itself, for pieces of what the operand
    ranges over, or for the points between which the function is straight.
    """
    found: Bounds = rule(node, *operands)
    formed = {name for name, one in zip(node.proto.input, operands, strict=False) if one is not None and one.form}
    x = next((one for one in operands if one is not None and one.form), None)
    if len(formed) != 1 or x is None or x.form is None or x.shape != found.shape or not x.lower.size:
        return found
    varies = [name in formed for name, _ in zip(node.proto.input, operands, strict=False)]
    others = [one for one, of in zip(operands, varies, strict=True) if one is not None and not of]
    pieces = _cut_up(node.op, x, others).flushed()
    y = rule(node, *(pieces if of else one for one, of in zip(operands, varies, strict=True))).real
    width = x.real.upper - x.real.lower
    slope = np.where(width > 0, (y.upper[-1] - y.lower[0]) / np.where(width > 0, width, 1.0), 0.0)
    gap = y - Bounds.of(slope) * pieces
    planes = x.form.planes * slope
    rest = Bounds.of(slope) * x.form.rest + Bounds(gap.lower.min(0), gap.upper.max(0))
    return Bounds(found.lower, found.upper, Form(planes, rest.widen(np.abs(planes).sum(0) * 2.0**-52)))


def _cut_up(op: str, x: Bounds, others: Sequence[Bounds]) -> Bounds:
    """Return pieces of an interval, one after another along a new first axis."""
    is_straight = op in _STRAIGHT and (others or op != "Clip") and all(one.is_point for one in others)
    if is_straight:  # between 0 and where another operand is chosen; of old, Clip had attributes for operands
        inner = [np.clip(kink, x.lower, x.upper) for kink in (x.dtype.type(0), *(one.lower for one in others))]
        points = np.sort(np.stack([x.lower, *inner, x.upper]), axis=0)
        return Bounds(points, points)
    count = int(np.clip(_MOST_POINTS // x.lower.size, 4, _MOST_PIECES))
    shares = np.linspace(0, 1, count + 1).reshape(-1, *[1] * x.lower.ndim)
    points = (x.real.lower + (x.real.upper - x.real.lower) * shares).astype(x.dtype)
    points[0], points[-1] = x.lower, x.upper
    points = np.clip(points, x.lower, x.upper)
    return Bounds(points[:-1], points[1:])


def _follow_planes(rule: Rule, node: NodeView, *operands: Bounds | None) -> Any:
    """Apply a rule in float64 to what is left of operands, and to each of their planes.

    A product of two that have forms, about their middles n and m, is n b + a m + (a - n) (b - m) - n m.
    """
    forms = {place: one.form for place, one in enumerate(operands) if one is not None and one.form}
    if node.op in ("Div", "BatchNormalization"):
        forms = {place: one for place, one in forms.items() if place == 0}
    is_square = node.op == "Mul" and node.proto.input[0] == node.proto.input[1]
    if is_square or (node.op == "Div" and not forms):
        return _follow_lines(rule, node, *operands)
    found = rule(node, *operands)
    results: list[Bounds] = [found] if isinstance(found, Bounds) else found
    count = max((len(one.planes) for one in forms.values()), default=0)
    if not count or count * sum(one.lower.size for one in results) > MOST_ELEMENTS:
        return found

    def apply(parts: Mapping[int, Bounds]) -> list[Bounds]:
        reals = [one and (one.real if one.is_float else one) for one in operands]
        made = rule(node, *(parts.get(place, one) for place, one in enumerate(reals)))
        return [one.widen() for one in ([made] if isinstance(made, Bounds) else made)]

    a, b = [*operands, None][:2]
    if node.op in _PRODUCTS and forms.keys() >= {0, 1} and a is not None and b is not None:
        n, m = Bounds.of(a.middle), Bounds.of(b.middle)
        (right,) = _apply_to_forms(lambda parts: apply({0: n, **parts}), {1: forms.pop(1)}, count)
        (made,) = _apply_to_forms(lambda parts: apply({1: m, **parts}), forms, count)
        (crossed,), (bias,), (middle,) = map(apply, ({0: a - n, 1: b - m}, {0: n - n, 1: m - m}, {0: n, 1: m}))
        planes = made.planes + right.planes
        rest = made.rest + right.rest + crossed - bias - middle
        followed = [Form(planes, rest.widen(np.abs(planes).sum(0) * 2.0**-52))]
    else:
        followed = _apply_to_forms(apply, forms, count)
    margins = [one.stray + 2 * unit(one.dtype) * one.size + least(one.dtype) for one in results]
    return [
        Bounds(one.lower, one.upper, Form(form.planes, form.rest.widen(margin)))
        for one, form, margin in zip(results, followed, margins, strict=True)
    ]


def _apply_to_forms(
    apply: Callable[[Mapping[int, Bounds]], list[Bounds]], forms: Mapping[int, Form], count: int
) -> list[Form]:
    """Return what an affine function makes of forms, of so many directions."""
    nothing = {place: Bounds.of(np.zeros_like(one.rest.lower)) for place, one in forms.items()}
    zeros, rests = apply(nothing), apply({place: one.rest for place, one in forms.items()})
    planes, errors = [np.zeros((count, *one.shape)) for one in zeros], [np.zeros(one.shape) for one in zeros]
    for row in range(count):
        parts = {place: Bounds.of(one.planes[row]) for place, one in forms.items() if row < len(one.planes)}
        for made, zero, plane, error in zip(apply({**nothing, **parts}), zeros, planes, errors, strict=True):
            plane[row] = (made - zero).middle
            error += (made - zero).radius
    wide = [rest.widen(error * (1 + 1e-6)) for rest, error in zip(rests, errors, strict=True)]
    return [Form(*one) for one in zip(planes, wide, strict=True)]
