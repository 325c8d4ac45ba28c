"""Bounds of the functions that a property applies element by element, given bounds of their operands."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ranum_falsify.domain.slack import FUNCTION_SHARE
from ranum_falsify.properties.formula.terms import Elementwise

__all__ = ["FUNCTION_BOUNDS", "Bounds", "even", "propagate_nan"]

Bounds = tuple[Tensor, Tensor]
"""Least and greatest values, float64, `(batch, *shape)`; both are NaN where NaN is possible."""


def propagate_nan(low: Tensor, high: Tensor) -> Bounds:
    """Return bounds, with both NaN where one is."""
    nan = low.isnan() | high.isnan()
    return torch.where(nan, torch.nan, low), torch.where(nan, torch.nan, high)


def _rising(term: Elementwise, x: Bounds) -> Bounds:
    """A non-decreasing function that is exact or rounded correctly."""
    return term.function(x[0]), term.function(x[1])


def _approximated(term: Elementwise, x: Bounds) -> Bounds:
    """A non-decreasing function whose kernel has errors; outside its domain it is NaN."""
    low, high = propagate_nan(term.function(x[0]), term.function(x[1]))
    return _step_below(low), _step_above(high)


def _step_below(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), x, x - (x.abs() * FUNCTION_SHARE + torch.finfo(x.dtype).tiny))


def _step_above(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), x, x + (x.abs() * FUNCTION_SHARE + torch.finfo(x.dtype).tiny))


def _corners(function: Callable[[Tensor, Tensor], Tensor], a: Bounds, b: Bounds) -> Bounds:
    points = [function(p, q) for p in a for q in b]
    low, high = points[0], points[0]
    for point in points[1:]:
        low, high = torch.minimum(low, point), torch.maximum(high, point)
    return low, high


def _product(term: Elementwise, a: Bounds, b: Bounds) -> Bounds:
    return _corners(torch.mul, a, b)


def _sum(term: Elementwise, a: Bounds, b: Bounds) -> Bounds:
    return a[0] + b[0], a[1] + b[1]


def _difference(term: Elementwise, a: Bounds, b: Bounds) -> Bounds:
    return a[0] - b[1], a[1] - b[0]


def _quotient(term: Elementwise, a: Bounds, b: Bounds) -> Bounds:
    low, high = _corners(torch.div, a, b)
    nonzero = (b[0] > 0) | (b[1] < 0)
    return torch.where(nonzero, low, torch.nan), torch.where(nonzero, high, torch.nan)


def _reciprocal(term: Elementwise, x: Bounds) -> Bounds:
    nonzero = (x[0] > 0) | (x[1] < 0)
    low, high = (torch.where(nonzero, 1 / bound, torch.nan) for bound in (x[1], x[0]))
    return low, high


def _negate(term: Elementwise, x: Bounds) -> Bounds:
    return -x[1], -x[0]


def even(function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Bounds:
    """A function that falls until 0 and rises after it, computed exactly."""
    at_low, at_high = function(low), function(high)
    least = torch.where((low <= 0) & (high >= 0), function(torch.zeros_like(low)), torch.minimum(at_low, at_high))
    return least, torch.maximum(at_low, at_high)


def _cosh(term: Elementwise, x: Bounds) -> Bounds:
    low, high = even(torch.cosh, *x)
    return _step_below(low), _step_above(high)


def _wave(term: Elementwise, x: Bounds) -> Bounds:
    """Sine or cosine; at infinity it is NaN."""
    finite = x[0].isfinite() & x[1].isfinite()
    one = torch.where(finite, 1.0, torch.nan).to(x[0].dtype)
    return -one, one


def _power(term: Elementwise, a: Bounds, b: Bounds) -> Bounds:
    """A power is monotone in each operand where the base is positive."""
    low, high = _corners(torch.pow, a, b)
    positive = a[0] > 0
    return _step_below(torch.where(positive, low, torch.nan)), _step_above(torch.where(positive, high, torch.nan))


def _extreme(term: Elementwise, a: Bounds, b: Bounds) -> Bounds:
    return term.function(a[0], b[0]), term.function(a[1], b[1])


FUNCTION_BOUNDS: dict[str, Callable[..., Bounds]] = {
    **dict.fromkeys(("floor", "ceil", "trunc", "sign", "positive", "sqrt"), _rising),
    **dict.fromkeys(
        (*("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"), *("sinh", "tanh", "arcsin", "arctan")),
        _approximated,
    ),
    "square": lambda term, x: even(torch.square, *x),
    "absolute": lambda term, x: even(torch.abs, *x),
    "arccos": lambda term, x: (_step_below(torch.acos(x[1])), _step_above(torch.acos(x[0]))),
    "cosh": _cosh,
    "sin": _wave,
    "cos": _wave,
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
    "negate": _negate,
    "reciprocal": _reciprocal,
    "power": _power,
    "maximum": _extreme,
    "minimum": _extreme,
}
"""By the term's name: `rule(term, *bounds of the operands, aligned)`; a function without an entry has no bounds."""
