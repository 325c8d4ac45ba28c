"""Bounds of terms over boxes of inputs: everything that `Term.compute` can give there.

A bound is a pair of float64 tensors `(batch, *shape)`, one row per box.  Where a value may be NaN both bounds are NaN,
which torch's functions hand on by themselves; NaN bounds thus say "anything, NaN too".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.properties.formula.differences import flattened
from ranum_falsify.properties.formula.terms import (
    Arg,
    Choice,
    Const,
    Elementwise,
    Gather,
    Output,
    Reduce,
    Term,
    Variable,
)

if TYPE_CHECKING:
    from ranum_falsify.properties.problem.problem import NetworkCall, ValidityGoal

__all__ = ["Bounds", "BoundsFrame", "bounds_of", "possible_choices", "unless_nan"]

Bounds = tuple[Tensor, Tensor]
"""Least and greatest values, float64, `(batch, *shape)`; both NaN where NaN is possible."""

_ULPS = 8 * 2.0**-53
"""Relative error that torch's float64 functions are granted; their documentation promises less."""


class BoundsFrame:
    """The bounds of one evaluation on a batch of boxes, each computed once.

    Args:
        env: Bounds of each input variable.
        outputs: Bounds of the outputs of an application, NaN where its operators are not proved valid.
        valid: For each box, whether a validity goal is proved, `(batch,)`.
        differences: Bounds of `first - second`, `(batch, elements)`, known as a whole; None where they are not.
    """

    def __init__(
        self,
        env: Mapping[str, Bounds],
        outputs: Callable[[NetworkCall], Sequence[Bounds]],
        valid: Callable[[ValidityGoal], Tensor],
        differences: Callable[[Term, Term], Bounds | None] = lambda first, second: None,
    ) -> None:
        self.env = env
        self.outputs = outputs
        self.valid = valid
        self.differences = differences
        self._values: dict[int, Bounds] = {}
        first = next(iter(env.values()))[0]
        self.batch = first.shape[0]
        self.device = first.device

    def value(self, term: Term) -> Bounds:
        """Return the bounds of a term; those of a constant have a batch of 1."""
        key = id(term)
        if key not in self._values:
            self._values[key] = unless_nan(*bounds_of(term, self))
        return self._values[key]


def unless_nan(low: Tensor, high: Tensor) -> Bounds:
    """Return bounds of which both are NaN where one is."""
    nan = low.isnan() | high.isnan()
    return torch.where(nan, torch.nan, low), torch.where(nan, torch.nan, high)


@singledispatch
def bounds_of(term: Term, frame: BoundsFrame) -> Bounds:
    """Return the bounds of a term; of kinds that nothing is known of, NaN."""
    nothing = torch.full((frame.batch, *term.shape), torch.nan, dtype=torch.float64, device=frame.device)
    return nothing, nothing


@bounds_of.register
def _variable(term: Variable, frame: BoundsFrame) -> Bounds:
    return frame.env[term.name]


@bounds_of.register
def _const(term: Const, frame: BoundsFrame) -> Bounds:
    value = torch.from_numpy(term.array.copy()[None]).to(frame.device)
    return value, value


@bounds_of.register
def _output(term: Output, frame: BoundsFrame) -> Bounds:
    return frame.outputs(term.call)[term.index]


@bounds_of.register
def _gather(term: Gather, frame: BoundsFrame) -> Bounds:
    index = torch.from_numpy(term.index.reshape(-1).copy()).to(frame.device)
    low, high = (flattened(bound)[:, index].reshape(-1, *term.shape) for bound in frame.value(term.base))
    return low, high


@bounds_of.register
def _reduce(term: Reduce, frame: BoundsFrame) -> Bounds:
    low, high = frame.value(term.base)
    if not term.axes:
        return low, high
    axes = tuple(axis + 1 for axis in term.axes)
    if term.kind in ("max", "min"):
        extreme = torch.amax if term.kind == "max" else torch.amin
        return extreme(low, axes, term.keepdims), extreme(high, axes, term.keepdims)
    count = math.prod(term.base.shape[axis] for axis in term.axes)
    least, greatest, size = (x.sum(axes, term.keepdims) for x in (low, high, torch.maximum(low.abs(), high.abs())))
    # Any order of summation, and our own: gamma_n of Higham, Accuracy and Stability, section 3.1, twice.
    error = size * (2 * (count + 2) * 2.0**-53)
    if term.kind == "mean":
        least, greatest, error = least / count, greatest / count, error / count
    return least - error, greatest + error


@bounds_of.register
def _arg(term: Arg, frame: BoundsFrame) -> Bounds:
    possible = possible_choices(term, frame)
    index = torch.arange(term.choices, dtype=torch.float64, device=frame.device)
    low = torch.where(possible, index, torch.inf).amin(-1)
    return low, torch.where(possible, index, -torch.inf).amax(-1)


def possible_choices(term: Arg, frame: BoundsFrame) -> Tensor:
    """Return which indices an argmax or argmin may have, `(batch, *shape, choices)`."""
    low, high = (bound.movedim(term.axis + 1, -1) for bound in frame.value(term.base))
    if term.kind == "argmin":
        low, high = -high, -low
    best = low.amax(-1, keepdim=True)
    # Comparisons with NaN are false: then every index is possible.
    return ~(high < best)


@bounds_of.register
def _choice(term: Choice, frame: BoundsFrame) -> Bounds:
    from ranum_falsify.prove.margin_bounds import margin_bounds  # the one needs the other

    rank = len(term.shape)
    (a_low, a_high), (b_low, b_high) = (
        tuple(_aligned(bound, rank) for bound in frame.value(operand)) for operand in term.operands
    )
    least, greatest = (bound[:, 0].reshape(-1, *(1,) * rank) for bound in margin_bounds(term.condition, frame))
    low = torch.where(least >= 0, a_low, torch.where(greatest < 0, b_low, torch.minimum(a_low, b_low)))
    high = torch.where(least >= 0, a_high, torch.where(greatest < 0, b_high, torch.maximum(a_high, b_high)))
    return low, high


def _aligned(value: Tensor, rank: int) -> Tensor:
    missing = rank - (value.dim() - 1)
    return value if missing <= 0 else value.reshape(value.shape[0], *(1,) * missing, *value.shape[1:])


# functions element by element -------------------------------------------------------------------------------------


@bounds_of.register
def _elementwise(term: Elementwise, frame: BoundsFrame) -> Bounds:
    if term.name == "-" and (known := frame.differences(*term.operands)) is not None:
        low, high = (bound.reshape(-1, *term.shape) for bound in known)
        return low, high
    operands = [frame.value(operand) for operand in term.operands]
    rank = len(term.shape)
    pairs = [(_aligned(low, rank), _aligned(high, rank)) for low, high in operands]
    if term.name == "*" and _is_same(*term.operands):
        return _even(torch.square, *pairs[0])
    rule = _RULES.get(term.name)
    if rule is None:
        nothing = torch.full((frame.batch, *term.shape), torch.nan, dtype=torch.float64, device=frame.device)
        return nothing, nothing
    return rule(term, *pairs)


def _is_same(a: Term, b: Term) -> bool:
    if isinstance(a, Gather) and isinstance(b, Gather):
        return a.base is b.base and np.array_equal(a.index, b.index)
    return a is b


_Rule = Callable[..., Bounds]


def _rising(term: Elementwise, x: Bounds) -> Bounds:
    """A non-decreasing function that is exact or rounded correctly."""
    return term.function(x[0]), term.function(x[1])


def _approximated(term: Elementwise, x: Bounds) -> Bounds:
    """A non-decreasing function whose kernel errs; outside its domain it is NaN."""
    low, high = unless_nan(term.function(x[0]), term.function(x[1]))
    return _below(low), _above(high)


def _below(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), x, x - (x.abs() * _ULPS + torch.finfo(x.dtype).tiny))


def _above(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), x, x + (x.abs() * _ULPS + torch.finfo(x.dtype).tiny))


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


def _negated(term: Elementwise, x: Bounds) -> Bounds:
    return -x[1], -x[0]


def _even(function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Bounds:
    """A function that falls until 0 and rises after it, computed exactly."""
    at_low, at_high = function(low), function(high)
    least = torch.where((low <= 0) & (high >= 0), function(torch.zeros_like(low)), torch.minimum(at_low, at_high))
    return least, torch.maximum(at_low, at_high)


def _cosh(term: Elementwise, x: Bounds) -> Bounds:
    low, high = _even(torch.cosh, *x)
    return _below(low), _above(high)


def _wave(term: Elementwise, x: Bounds) -> Bounds:
    """Sine or cosine: of infinity it is NaN."""
    finite = x[0].isfinite() & x[1].isfinite()
    one = torch.where(finite, 1.0, torch.nan).to(x[0].dtype)
    return -one, one


def _power(term: Elementwise, a: Bounds, b: Bounds) -> Bounds:
    """A power is monotone in each operand where the base is positive."""
    low, high = _corners(torch.pow, a, b)
    positive = a[0] > 0
    return _below(torch.where(positive, low, torch.nan)), _above(torch.where(positive, high, torch.nan))


def _extreme(term: Elementwise, a: Bounds, b: Bounds) -> Bounds:
    return term.function(a[0], b[0]), term.function(a[1], b[1])


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("floor", "ceil", "trunc", "sign", "positive", "sqrt"), _rising),
    **dict.fromkeys(
        (*("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"), *("sinh", "tanh", "arcsin", "arctan")),
        _approximated,
    ),
    "square": lambda term, x: _even(torch.square, *x),
    "absolute": lambda term, x: _even(torch.abs, *x),
    "arccos": lambda term, x: (_below(torch.acos(x[1])), _above(torch.acos(x[0]))),
    "cosh": _cosh,
    "sin": _wave,
    "cos": _wave,
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
    "negate": _negated,
    "reciprocal": _reciprocal,
    "power": _power,
    "maximum": _extreme,
    "minimum": _extreme,
}
"""By the name of the term; a function that is missing has no bounds."""
