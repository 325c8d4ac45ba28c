"""Bounds of terms and margins over boxes of inputs: they enclose all results of `Term.compute` and of the circuits.

Terms and margins need each other: a choice between terms depends on a margin.

Bounds are float64, `(batch, *shape)`, one row per box.  Where a value may be NaN both bounds are NaN,
which torch's functions pass on by themselves; so NaN bounds say "anything, NaN too".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.error_bounds import FUNCTION_SHARE, unit
from ranum_falsify.properties.formula.circuit import Choice, Circuit
from ranum_falsify.properties.formula.leaves import EPS, ArgEquality, ComparisonLeaf, GoalLeaf, Leaf, TruthLeaf, flatten
from ranum_falsify.properties.formula.terms import (
    Arg,
    Const,
    Elementwise,
    Gather,
    NetworkCall,
    Output,
    Reduce,
    Term,
    ValidityGoal,
    Variable,
)


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


class BoundsFrame:
    """The bounds of one evaluation on a batch of boxes, each computed once.

    Args:
        env: Bounds of each input variable.
        outputs: Bounds of the outputs of an application, NaN if its operators are not proved valid.
        valid: For each box, whether a validity goal is proved, `(batch,)`.
        differences: Bounds of `first - second`, `(batch, elements)`, if known as a whole; else None.
    """

    def __init__(
        self,
        env: Mapping[str, Enclosure],
        outputs: Callable[[NetworkCall], Sequence[Enclosure]],
        valid: Callable[[ValidityGoal], Tensor],
        differences: Callable[[Term, Term], Enclosure | None] = lambda first, second: None,
    ) -> None:
        self.env = env
        self.outputs = outputs
        self.valid = valid
        self.differences = differences
        self._values: dict[int, Enclosure] = {}
        first = next(iter(env.values())).low
        self.batch = first.shape[0]
        self.device = first.device

    def value(self, term: Term) -> Enclosure:
        """Return the bounds of a term; those of a constant have a batch of 1."""
        key = id(term)
        if key not in self._values:
            self._values[key] = propagate_nan(_bounds_of(term, self))
        return self._values[key]


@singledispatch
def _bounds_of(term: Term, frame: BoundsFrame) -> Enclosure:
    """Return the bounds of a term; NaN for kinds of terms about which nothing is known."""
    return _make_unknown(term, frame)


def _make_unknown(term: Term, frame: BoundsFrame) -> Enclosure:
    nothing = torch.full((frame.batch, *term.shape), torch.nan, dtype=torch.float64, device=frame.device)
    return Enclosure(nothing, nothing)


@_bounds_of.register
def _variable(term: Variable, frame: BoundsFrame) -> Enclosure:
    return frame.env[term.name]


@_bounds_of.register
def _const(term: Const, frame: BoundsFrame) -> Enclosure:
    value = torch.from_numpy(term.array.copy()[None]).to(frame.device)
    return Enclosure(value, value)


@_bounds_of.register
def _output(term: Output, frame: BoundsFrame) -> Enclosure:
    return frame.outputs(term.call)[term.index]


@_bounds_of.register
def _gather(term: Gather, frame: BoundsFrame) -> Enclosure:
    index = torch.from_numpy(term.index.reshape(-1).copy()).to(frame.device)
    return frame.value(term.base).map(lambda end: flatten(end).index_select(1, index).reshape(-1, *term.shape))


@_bounds_of.register
def _reduce(term: Reduce, frame: BoundsFrame) -> Enclosure:
    x = frame.value(term.base)
    if not term.axes:
        return x
    axes = tuple(axis + 1 for axis in term.axes)
    if term.kind in ("max", "min"):
        extreme = torch.amax if term.kind == "max" else torch.amin
        return x.map(lambda end: extreme(end, axes, term.keepdims))
    count = math.prod(term.base.shape[axis] for axis in term.axes)
    total, size = x.map(lambda end: end.sum(axes, term.keepdims)), x.size.sum(axes, term.keepdims)
    # For any order of summation, ours too: gamma_n of Higham, Accuracy and Stability, section 3.1, twice.
    error = size * (2 * (count + 2) * unit(torch.float64))
    if term.kind == "mean":
        total, error = total.map(lambda end: end / count), error / count
    return total.widen(error)


@_bounds_of.register
def _arg(term: Arg, frame: BoundsFrame) -> Enclosure:
    possible = _find_possible_choices(term, frame)
    index = torch.arange(term.choices, dtype=torch.float64, device=frame.device)
    low = torch.where(possible, index, torch.inf).amin(-1)
    return Enclosure(low, torch.where(possible, index, -torch.inf).amax(-1))


def _find_possible_choices(term: Arg, frame: BoundsFrame) -> Tensor:
    """Return which indices an argmax or argmin may have, `(batch, *shape, choices)`."""
    x = frame.value(term.base).map(lambda end: end.movedim(term.axis + 1, -1))
    if term.kind == "argmin":
        x = x.negate()
    best = x.low.amax(-1, keepdim=True)
    # Comparisons with NaN are false: then every index is possible.
    return ~(x.high < best)


@_bounds_of.register
def _choice(term: Choice, frame: BoundsFrame) -> Enclosure:
    rank = len(term.shape)
    a, b = (_align(frame.value(operand), rank) for operand in term.operands)
    margin = margin_bounds(term.condition, frame).map(lambda end: end[:, 0].reshape(-1, *(1,) * rank))
    return a.where(margin.low >= 0, b.where(margin.high < 0, a.hull(b)))


def _align(x: Enclosure, rank: int) -> Enclosure:
    missing = rank - (x.low.dim() - 1)
    return x if missing <= 0 else x.map(lambda end: end.reshape(end.shape[0], *(1,) * missing, *end.shape[1:]))


@_bounds_of.register
def _elementwise(term: Elementwise, frame: BoundsFrame) -> Enclosure:
    if term.name == "-" and (known := frame.differences(*term.operands)) is not None:
        return known.map(lambda end: end.reshape(-1, *term.shape))
    operands = [_align(frame.value(operand), len(term.shape)) for operand in term.operands]
    if term.name == "*" and _is_same(*term.operands):
        return operands[0].map_even(torch.square)
    rule = FUNCTION_BOUNDS.get(term.name)
    if rule is None:
        return _make_unknown(term, frame)
    return rule(term, *operands)


def _is_same(a: Term, b: Term) -> bool:
    if isinstance(a, Gather) and isinstance(b, Gather):
        return a.base is b.base and np.array_equal(a.index, b.index)
    return a is b


# margins ---------------------------------------------------------------------------------------------------------


def margin_bounds(circuit: Circuit, frame: BoundsFrame) -> Enclosure:
    """Return bounds of the roots' margins (as `Circuit.margins` computes them), each `(batch, roots)`, never NaN."""
    parts = [_leaf_bounds(leaf, frame) for leaf in circuit.leaves]
    low = circuit.propagate([part.low.nan_to_num(-torch.inf, torch.inf, -torch.inf) for part in parts], frame)
    high = circuit.propagate([part.high.nan_to_num(torch.inf, torch.inf, -torch.inf) for part in parts], frame)
    return Enclosure(low, high)


@singledispatch
def _leaf_bounds(leaf: Leaf, frame: BoundsFrame) -> Enclosure:
    raise AssertionError(f"a leaf of an unknown kind: {leaf}")


@_leaf_bounds.register
def _comparison(leaf: ComparisonLeaf, frame: BoundsFrame) -> Enclosure:
    if leaf.arg is not None:
        margin = _bound_equal_index(leaf.arg, frame)
        return margin.map_falling(lambda end: -end - EPS) if leaf.negated else margin
    margin = _bound_signed(leaf, frame)
    return margin.map(lambda end: end - EPS) if leaf.strict else margin


def _bound_signed(leaf: ComparisonLeaf, frame: BoundsFrame) -> Enclosure:
    """Bound the margin of a comparison of numbers, without regard to EPS."""
    difference = frame.value(leaf.difference).map(flatten)
    if leaf.kind != "==":
        return difference
    distance = Enclosure(torch.maximum(difference.low, -difference.high).clamp_min(0), difference.size)
    return distance if leaf.negated else distance.negate()


def _bound_equal_index(equality: ArgEquality, frame: BoundsFrame) -> Enclosure:
    """Bound the margin of `argmax(a) == c`: 0 or more if it surely holds, below 0 if it surely does not."""
    if equality.lead is not None:
        ties = torch.from_numpy(np.where(equality.loses_ties, EPS, 0.0)).to(frame.device)
        return frame.value(equality.lead).map(lambda end: flatten((end - ties).amin(-1)))
    mine = _find_possible_choices(equality.arg, frame)
    if isinstance(equality.other, Arg):
        theirs = _find_possible_choices(equality.other, frame)
        known = theirs.sum(-1) == 1
    else:
        least, greatest = frame.value(equality.other).map(lambda end: end[..., None])
        index = torch.arange(equality.arg.choices, device=frame.device)
        theirs = ~((index < least) | (index > greatest))
        known = (least == greatest).squeeze(-1)
    width = max(mine.shape[-1], theirs.shape[-1])
    mine, theirs = (functional.pad(side, (0, width - side.shape[-1])) for side in (mine, theirs))
    both = (mine & theirs).any(-1)
    low = torch.where(both & known & (mine.sum(-1) == 1), 0.0, -torch.inf).double()
    return Enclosure(low, torch.where(both, torch.inf, -EPS).double()).map(flatten)


@_leaf_bounds.register
def _goal(leaf: GoalLeaf, frame: BoundsFrame) -> Enclosure:
    proved = frame.valid(leaf.goal.goal)[:, None]
    sign = -1.0 if leaf.goal.negated else 1.0
    low, high = (torch.where(proved, sign, end).double() for end in (-torch.inf, torch.inf))
    return Enclosure(low, high)


@_leaf_bounds.register
def _truth(leaf: TruthLeaf, frame: BoundsFrame) -> Enclosure:
    sign = torch.full((frame.batch, 1), 1.0 if leaf.truth.value else -1.0, dtype=torch.float64, device=frame.device)
    return Enclosure(sign, sign)
