"""Lines about functions, element by element, by which what they make of a linear form is one, too."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ranum_falsify.checker.bounds import Bounds
from ranum_falsify.checker.forms import Form, add_up
from ranum_falsify.checker.node import NodeView, Rule

_MOST_PIECES, _MOST_POINTS = 256, 1 << 20


def lined(rule: Rule) -> Rule:
    """Return a rule, element by element, that follows forms of one operand by lines."""
    return functools.wraps(rule)(lambda node, *operands: _follow(rule, node, *operands))


def _follow(rule: Rule, node: NodeView, *operands: Bounds | None) -> Bounds:
    """Keep what a rule makes of one operand that has a form between two parallel lines.

    Lines of any slope do.  How far results stray from them comes of the rule itself, for pieces of what the operand
    ranges over, or for the points between which the function is straight.
    """
    found: Bounds = only(rule(node, *operands))
    formed = {name for name, one in zip(node.proto.input, operands, strict=False) if one is not None and one.form}
    varying = [one is not None and name in formed for name, one in zip(node.proto.input, operands, strict=False)]
    x = next((one for one in operands if one is not None and one.form), None)
    if len(formed) != 1 or x is None or x.form is None or found.form or x.shape != found.shape or not x.lower.size:
        return found
    others = [one for one, varies in zip(operands, varying, strict=True) if one is not None and not varies]
    pieces = _cut_up(node.op, x, others).flushed()
    y = only(rule(node, *(pieces if varies else one for one, varies in zip(operands, varying, strict=True)))).real
    width = x.real.upper - x.real.lower
    slope = np.where(width > 0, (y.upper[-1] - y.lower[0]) / np.where(width > 0, width, 1.0), 0.0)
    gap = y - Bounds.of(slope) * pieces
    rest = Form.between(gap.lower.min(0), gap.upper.max(0))
    form = add_up(
        [(x.form, lambda plane: plane * slope, lambda size: size * np.abs(slope)), (rest, np.asarray, np.asarray)]
    )
    return Bounds(found.lower, found.upper, form)


def only(found: Bounds | list[Bounds]) -> Bounds:
    """Return the first of some results."""
    return found if isinstance(found, Bounds) else found[0]


def _cut_up(op: str, x: Bounds, others: Sequence[Bounds]) -> Bounds:
    """Return pieces of an interval, one after another along a new first axis."""
    kinks: list[np.ndarray] | None = None
    if op in ("Relu", "LeakyRelu", "PRelu", "Abs"):
        kinks = [np.zeros((), x.dtype)]
    elif op in ("Clip", "Max", "Min") and others and all(one.is_point for one in others):
        kinks = [one.lower for one in others]
    if kinks is not None:
        points = np.stack([x.lower, *(np.clip(kink, x.lower, x.upper) for kink in kinks), x.upper])
        return Bounds(points, points)
    count = int(np.clip(_MOST_POINTS // x.lower.size, 4, _MOST_PIECES))
    shares = np.linspace(0, 1, count + 1).reshape(-1, *[1] * x.lower.ndim)
    inner = (x.real.lower + (x.real.upper - x.real.lower) * shares).astype(x.dtype)
    points = np.clip(inner, x.lower, x.upper)
    points[0], points[-1] = x.lower, x.upper
    return Bounds(points[:-1], points[1:])
