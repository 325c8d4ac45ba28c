"""Bounds of margins over boxes of inputs, by the circuits that the search evaluates on points."""

from __future__ import annotations

from functools import singledispatch

import numpy as np
import torch
from torch.nn import functional

from ranum_falsify.properties.formula.circuit import Circuit
from ranum_falsify.properties.formula.differences import flattened
from ranum_falsify.properties.formula.leaves import EPS, ArgEquality, ComparisonLeaf, GoalLeaf, Leaf, TruthLeaf
from ranum_falsify.properties.formula.terms import Arg
from ranum_falsify.prove.term_bounds import Bounds, BoundsFrame, possible_choices

__all__ = ["margin_bounds"]


def margin_bounds(circuit: Circuit, frame: BoundsFrame) -> Bounds:
    """Return bounds of the roots' margins (as `Circuit.margins` gives them), each `(batch, roots)`, never NaN."""
    parts = [_leaf_bounds(leaf, frame) for leaf in circuit.leaves]
    low = circuit.through([part[0].nan_to_num(-torch.inf, torch.inf, -torch.inf) for part in parts], frame)
    return low, circuit.through([part[1].nan_to_num(torch.inf, torch.inf, -torch.inf) for part in parts], frame)


@singledispatch
def _leaf_bounds(leaf: Leaf, frame: BoundsFrame) -> Bounds:
    raise AssertionError(f"a leaf of an unknown kind: {leaf}")


@_leaf_bounds.register
def _comparison(leaf: ComparisonLeaf, frame: BoundsFrame) -> Bounds:
    low, high = _equal_index(leaf.arg, frame) if leaf.arg is not None else _signed(leaf, frame)
    if leaf.arg is not None:
        return (-high - EPS, -low - EPS) if leaf.negated else (low, high)
    return (low - EPS, high - EPS) if leaf.strict else (low, high)


def _signed(leaf: ComparisonLeaf, frame: BoundsFrame) -> Bounds:
    """Bound the margin of a comparison of numbers, but for EPS."""
    low, high = (flattened(bound) for bound in frame.value(leaf.difference))
    if leaf.kind != "==":
        return low, high
    farthest = torch.maximum(low.abs(), high.abs())
    nearest = torch.maximum(low, -high).clamp_min(0)
    return (nearest, farthest) if leaf.negated else (-farthest, -nearest)


def _equal_index(equality: ArgEquality, frame: BoundsFrame) -> Bounds:
    """Bound the margin of `argmax(a) == c`: 0 or more where it surely is, below 0 where it surely is not."""
    if equality.lead is not None:
        low, high = frame.value(equality.lead)
        ties = torch.from_numpy(np.where(equality.loses_ties, EPS, 0.0)).to(frame.device)
        return flattened((low - ties).amin(-1)), flattened((high - ties).amin(-1))
    mine = possible_choices(equality.arg, frame)
    if isinstance(equality.other, Arg):
        theirs = possible_choices(equality.other, frame)
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
    return flattened(low), flattened(torch.where(both, torch.inf, -EPS).double())


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
