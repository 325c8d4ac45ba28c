"""Bounds of the functions that a property applies element by element, given bounds of their operands."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.slack import FUNCTION_SHARE
from ranum_falsify.properties.formula.terms import Elementwise

__all__ = ["FUNCTION_BOUNDS", "propagate_nan"]


def propagate_nan(x: Enclosure) -> Enclosure:
    """Return bounds, with both NaN where one is."""
    nan = x.low.isnan() | x.high.isnan()
    return x.map(lambda end: torch.where(nan, torch.nan, end))


def _keep_where(condition: Tensor, x: Enclosure) -> Enclosure:
    return x.map(lambda end: torch.where(condition, end, torch.nan))


def _step_outward(x: Enclosure) -> Enclosure:
    """Include the errors of a function's kernel."""
    return Enclosure(_step_below(x.low), _step_above(x.high))


def _step_below(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), x, x - (x.abs() * FUNCTION_SHARE + torch.finfo(x.dtype).tiny))


def _step_above(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), x, x + (x.abs() * FUNCTION_SHARE + torch.finfo(x.dtype).tiny))


def _rising(term: Elementwise, *operands: Enclosure) -> Enclosure:
    """A function that falls in no operand and is exact or rounded correctly."""
    first, *others = operands
    return first.map(term.function, *others)


def _approximated(term: Elementwise, x: Enclosure) -> Enclosure:
    """A non-decreasing function whose kernel has errors; outside its domain it is NaN."""
    return _step_outward(propagate_nan(x.map(term.function)))


def _is_nonzero(x: Enclosure) -> Tensor:
    return (x.low > 0) | (x.high < 0)


def _wave(term: Elementwise, x: Enclosure) -> Enclosure:
    """Sine or cosine; at infinity it is NaN."""
    finite = x.low.isfinite() & x.high.isfinite()
    one = torch.where(finite, 1.0, torch.nan).to(x.low.dtype)
    return Enclosure(-one, one)


def _power(term: Elementwise, a: Enclosure, b: Enclosure) -> Enclosure:
    """A power is monotone in each operand where the base is positive."""
    return _step_outward(_keep_where(a.low > 0, Enclosure.hull_of(a.corners(torch.pow, b))))


FUNCTION_BOUNDS: dict[str, Callable[..., Enclosure]] = {
    **dict.fromkeys(
        ("floor", "ceil", "trunc", "sign", "positive", "sqrt", "maximum", "minimum"),
        _rising,
    ),
    **dict.fromkeys(
        (*("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"), *("sinh", "tanh", "arcsin", "arctan")),
        _approximated,
    ),
    "square": lambda term, x: x.map_even(torch.square),
    "absolute": lambda term, x: x.map_even(torch.abs),
    "arccos": lambda term, x: _step_outward(x.map_falling(torch.acos)),
    "cosh": lambda term, x: _step_outward(x.map_even(torch.cosh, least=1.0)),
    "sin": _wave,
    "cos": _wave,
    "+": lambda term, a, b: a.add(b),
    "-": lambda term, a, b: a.subtract(b),
    "*": lambda term, a, b: a.multiply(b),
    "/": lambda term, a, b: _keep_where(_is_nonzero(b), a.divide(b)),
    "negate": lambda term, x: x.negate(),
    "reciprocal": lambda term, x: _keep_where(_is_nonzero(x), x.map_falling(lambda end: 1 / end)),
    "power": _power,
}
"""By the term's name: `rule(term, *bounds of the operands, aligned)`; a function without an entry has no bounds.

Bounds are float64, `(batch, *shape)`; both are NaN where NaN is possible.
"""
