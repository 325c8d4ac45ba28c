"""Bounds of terms and margins over boxes of inputs: they enclose all results of `Term.compute` and of the circuits.

Terms and margins need each other: a choice between terms depends on a margin.

A bound is a pair of float64 tensors `(batch, *shape)`, one row per box.  Where a value may be NaN both bounds are NaN,
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

from ranum_falsify.domain.slack import unit
from ranum_falsify.properties.formula.applications import NetworkCall, ValidityGoal
from ranum_falsify.properties.formula.circuit import Circuit
from ranum_falsify.properties.formula.differences import flatten
from ranum_falsify.properties.formula.leaves import EPS, ArgEquality, ComparisonLeaf, GoalLeaf, Leaf, TruthLeaf
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
from ranum_falsify.prove.function_bounds import FUNCTION_BOUNDS, Bounds, even, propagate_nan

__all__ = ["BoundsFrame", "margin_bounds"]


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
            self._values[key] = propagate_nan(*_bounds_of(term, self))
        return self._values[key]


@singledispatch
def _bounds_of(term: Term, frame: BoundsFrame) -> Bounds:
    """Return the bounds of a term; NaN for kinds of terms about which nothing is known."""
    nothing = torch.full((frame.batch, *term.shape), torch.nan, dtype=torch.float64, device=frame.device)
    return nothing, nothing


@_bounds_of.register
def _variable(term: Variable, frame: BoundsFrame) -> Bounds:
    return frame.env[term.name]


@_bounds_of.register
def _const(term: Const, frame: BoundsFrame) -> Bounds:
    value = torch.from_numpy(term.array.copy()[None]).to(frame.device)
    return value, value


@_bounds_of.register
def _output(term: Output, frame: BoundsFrame) -> Bounds:
    return frame.outputs(term.call)[term.index]


@_bounds_of.register
def _gather(term: Gather, frame: BoundsFrame) -> Bounds:
    index = torch.from_numpy(term.index.reshape(-1).copy()).to(frame.device)
    low, high = (flatten(bound)[:, index].reshape(-1, *term.shape) for bound in frame.value(term.base))
    return low, high


@_bounds_of.register
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
    # For any order of summation, ours too: gamma_n of Higham, Accuracy and Stability, section 3.1, twice.
    error = size * (2 * (count + 2) * unit(torch.float64))
    if term.kind == "mean":
        least, greatest, error = least / count, greatest / count, error / count
    return least - error, greatest + error


@_bounds_of.register
def _arg(term: Arg, frame: BoundsFrame) -> Bounds:
    possible = _find_possible_choices(term, frame)
    index = torch.arange(term.choices, dtype=torch.float64, device=frame.device)
    low = torch.where(possible, index, torch.inf).amin(-1)
    return low, torch.where(possible, index, -torch.inf).amax(-1)


def _find_possible_choices(term: Arg, frame: BoundsFrame) -> Tensor:
    """Return which indices an argmax or argmin may have, `(batch, *shape, choices)`."""
    low, high = (bound.movedim(term.axis + 1, -1) for bound in frame.value(term.base))
    if term.kind == "argmin":
        low, high = -high, -low
    best = low.amax(-1, keepdim=True)
    # Comparisons with NaN are false: then every index is possible.
    return ~(high < best)


@_bounds_of.register
def _choice(term: Choice, frame: BoundsFrame) -> Bounds:
    rank = len(term.shape)
    (a_low, a_high), (b_low, b_high) = (
        tuple(_align(bound, rank) for bound in frame.value(operand)) for operand in term.operands
    )
    least, greatest = (bound[:, 0].reshape(-1, *(1,) * rank) for bound in margin_bounds(term.condition, frame))
    low = torch.where(least >= 0, a_low, torch.where(greatest < 0, b_low, torch.minimum(a_low, b_low)))
    high = torch.where(least >= 0, a_high, torch.where(greatest < 0, b_high, torch.maximum(a_high, b_high)))
    return low, high


def _align(value: Tensor, rank: int) -> Tensor:
    missing = rank - (value.dim() - 1)
    return value if missing <= 0 else value.reshape(value.shape[0], *(1,) * missing, *value.shape[1:])


@_bounds_of.register
def _elementwise(term: Elementwise, frame: BoundsFrame) -> Bounds:
    if term.name == "-" and (known := frame.differences(*term.operands)) is not None:
        low, high = (bound.reshape(-1, *term.shape) for bound in known)
        return low, high
    operands = [frame.value(operand) for operand in term.operands]
    rank = len(term.shape)
    pairs = [(_align(low, rank), _align(high, rank)) for low, high in operands]
    if term.name == "*" and _is_same(*term.operands):
        return even(torch.square, *pairs[0])
    rule = FUNCTION_BOUNDS.get(term.name)
    if rule is None:
        nothing = torch.full((frame.batch, *term.shape), torch.nan, dtype=torch.float64, device=frame.device)
        return nothing, nothing
    return rule(term, *pairs)


def _is_same(a: Term, b: Term) -> bool:
    if isinstance(a, Gather) and isinstance(b, Gather):
        return a.base is b.base and np.array_equal(a.index, b.index)
    return a is b


# margins ---------------------------------------------------------------------------------------------------------


def margin_bounds(circuit: Circuit, frame: BoundsFrame) -> Bounds:
    """Return bounds of the roots' margins (as `Circuit.margins` computes them), each `(batch, roots)`, never NaN."""
    parts = [_leaf_bounds(leaf, frame) for leaf in circuit.leaves]
    low = circuit.propagate([part[0].nan_to_num(-torch.inf, torch.inf, -torch.inf) for part in parts], frame)
    return low, circuit.propagate([part[1].nan_to_num(torch.inf, torch.inf, -torch.inf) for part in parts], frame)


@singledispatch
def _leaf_bounds(leaf: Leaf, frame: BoundsFrame) -> Bounds:
    raise AssertionError(f"a leaf of an unknown kind: {leaf}")


@_leaf_bounds.register
def _comparison(leaf: ComparisonLeaf, frame: BoundsFrame) -> Bounds:
    low, high = _bound_equal_index(leaf.arg, frame) if leaf.arg is not None else _bound_signed(leaf, frame)
    if leaf.arg is not None:
        return (-high - EPS, -low - EPS) if leaf.negated else (low, high)
    return (low - EPS, high - EPS) if leaf.strict else (low, high)


def _bound_signed(leaf: ComparisonLeaf, frame: BoundsFrame) -> Bounds:
    """Bound the margin of a comparison of numbers, without regard to EPS."""
    low, high = (flatten(bound) for bound in frame.value(leaf.difference))
    if leaf.kind != "==":
        return low, high
    farthest = torch.maximum(low.abs(), high.abs())
    nearest = torch.maximum(low, -high).clamp_min(0)
    return (nearest, farthest) if leaf.negated else (-farthest, -nearest)


def _bound_equal_index(equality: ArgEquality, frame: BoundsFrame) -> Bounds:
    """Bound the margin of `argmax(a) == c`: 0 or more if it surely holds, below 0 if it surely does not."""
    if equality.lead is not None:
        low, high = frame.value(equality.lead)
        ties = torch.from_numpy(np.where(equality.loses_ties, EPS, 0.0)).to(frame.device)
        return flatten((low - ties).amin(-1)), flatten((high - ties).amin(-1))
    mine = _find_possible_choices(equality.arg, frame)
    if isinstance(equality.other, Arg):
        theirs = _find_possible_choices(equality.other, frame)
        known = theirs.sum(-1) == 1
    else:
        least, greatest = (bound[..., None] for bound in frame.value(equality.other))
        index = torch.arange(equality.arg.choices, device=frame.device)
        theirs = ~((index < least) | (index > greatest))
        known = (least == greatest).squeeze(-1)
    width = max(mine.shape[-1], theirs.shape[-1])
    mine, theirs = (functional.pad(side, (0, width - side.shape[-1])) for side in (mine, theirs))
    both = (mine & theirs).any(-1)
    low = torch.where(both & known & (mine.sum(-1) == 1), 0.0, -torch.inf).double()
    return flatten(low), flatten(torch.where(both, torch.inf, -EPS).double())


@_leaf_bounds.register
def _goal(leaf: GoalLeaf, frame: BoundsFrame) -> Bounds:
    proved = frame.valid(leaf.goal.goal)[:, None]
    sign = -1.0 if leaf.goal.negated else 1.0
    low, high = torch.where(proved, sign, -torch.inf).double(), torch.where(proved, sign, torch.inf).double()
    return low, high


@_leaf_bounds.register
def _truth(leaf: TruthLeaf, frame: BoundsFrame) -> Bounds:
    sign = torch.full((frame.batch, 1), 1.0 if leaf.truth.value else -1.0, dtype=torch.float64, device=frame.device)
    return sign, sign
