"""Operators that choose and move elements, and those that make something of known integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ranum_falsify.checker.bounds import Bounds, choose, require
from ranum_falsify.checker.elementwise import SIGNS
from ranum_falsify.checker.forms import Form, aligned
from ranum_falsify.checker.node import RULES, NodeView, Rule, rule
from ranum_falsify.checker.sums import roundings

_MOVING: dict[str, Sequence[int]] = {
    **dict.fromkeys(
        "Reshape Flatten Transpose Squeeze Unsqueeze Slice Gather GatherElements GatherND Split Expand Tile Identity"
        " DepthToSpace SpaceToDepth Trilu Compress ReverseSequence".split(),
        (0,),
    ),
    "Concat": range(1 << 20),
    **dict.fromkeys("Pad ScatterElements ScatterND".split(), (0, 2)),
    "Where": (1, 2),
}
"""Operators that move elements of the operands at these places to where the others, which have to be known, say."""

_MADE = ("Constant", "ConstantOfShape", "EyeLike")
_REST = "Shape Size Range Cast Add Sub Mul Equal MatMul Abs ReduceSum ReduceProd CumSum NonZero OneHot ArgMax ArgMin"
EXACT = {*_MADE, *_REST.split(), *_MOVING, *SIGNS} - set("ReverseSequence Compress Relu Floor Ceil Round".split())
"""What is exact on integers."""


@rule(" ".join(_MADE))
def make_exact(node: NodeView, *operands: Bounds | None) -> Any:
    """Compute what known integers, or nothing, come to; of floats that they are made, a rule says it."""
    require(node.op == "EyeLike" or all(one is None or one.is_point for one in operands))  # it reads a shape alone
    made = node.run([None if one is None else one.lower for one in operands])
    is_exact = node.op in _MADE or all(one.dtype.kind in "biu" for one in made)
    return [Bounds.of(one) for one in made] if is_exact else RULES[node.key](node, *operands)


rule("Shape Size")(lambda node, x: [Bounds.of(one) for one in node.run([x.lower])])


@rule(" ".join(_MOVING))
def _move(node: NodeView, *operands: Bounds | None) -> list[Bounds]:
    """Move both ends, and coefficients, to where positions go; 0 is that of what is filled in."""
    moves = [place in _MOVING[node.op] and one is not None for place, one in enumerate(operands)]
    known = all(moved or one is None or one.is_point for moved, one in zip(moves, operands, strict=True))
    if not (known and _is_plain(node, operands[0], *operands[1:])):
        return [_UNKNOWN_PLACES[node.op](node, *operands)]
    moved = [one for one, is_moved in zip(operands, moves, strict=True) if is_moved and one is not None]
    require(len({one.dtype for one in moved}) == 1)
    given, start = [None if one is None else one.lower for one in operands], 1
    for place, one in enumerate(operands):
        if moves[place] and one is not None:
            given[place] = np.arange(start, start + one.lower.size).reshape(one.shape)
            start += one.lower.size
    lower, upper = (
        _join([end[None] for end in ends])[0] for ends in zip(*((x.lower, x.upper) for x in moved), strict=True)
    )
    form = None
    if any(one.form for one in moved):
        forms = [one.linear for one in moved]
        form = Form(_join(aligned(forms)), _join([one.radius[None] for one in forms])[0])
    made = node.run(given)
    return [Bounds(lower[to], upper[to], form and Form(form.planes[:, to], form.radius[to])) for to in made]


def _join(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the elements of arrays beside each other, after 0, for each of a first dimension."""
    rows = len(arrays[0])
    return np.concatenate([np.zeros((rows, 1), arrays[0].dtype), *(one.reshape(rows, -1) for one in arrays)], axis=1)


def _is_plain(node: NodeView, x: Bounds | None, second: Bounds | None = None, *rest: Bounds | None) -> bool:
    """Tell whether ONNX Runtime moves elements as the reference does.

    Where steps of Slice go back, it takes a start from before the front for the front, and the greatest end for the
    front, too.  Where places that are written are not apart, the order of writing counts.
    """
    assert x is not None, "what is moved is given"
    if node.op == "Pad":
        require(x.lower.size, second is None or second.lower >= 0, not node.attribute("value", 0.0))
    elif second is None:
        return True
    elif node.op == "Slice":
        ends, axes, steps = [*rest, None, None][:3]
        if ends is not None and steps is not None and (steps.lower < 0).any():
            sizes = np.array(x.shape)[slice(second.lower.size) if axes is None else axes.lower]
            require(-sizes <= second.lower, ends.lower <= sizes)
    elif node.op.startswith("Scatter"):
        if node.attribute("reduction", "none") != "none":
            return False
        if node.op == "ScatterND":
            rows = (second.lower % np.array(x.shape[: second.shape[-1]])).reshape(-1, second.shape[-1])
            return len(np.unique(rows, axis=0)) == len(rows)
        axis = int(node.attribute("axis", 0))
        return bool((np.diff(np.sort(second.lower % x.shape[axis], axis), axis=axis) != 0).all())
    return True


@rule("Dropout")
def _dropped(node: NodeView, x: Bounds, ratio: Bounds | None = None, training: Bounds | None = None) -> list[Bounds]:
    """Dropout, where it drops nothing."""
    node.ignore("ratio", "seed")
    require(training is None or not training.upper.any())
    return [x, Bounds(np.zeros(x.shape, bool), np.ones(x.shape, bool))][: len(node.proto.output)]


@rule("ArgMax ArgMin")
def _places(node: NodeView, x: Bounds) -> Bounds:
    """ArgMax and ArgMin: any place along the axis."""
    axis, keep = int(node.attribute("axis", 0)) % x.lower.ndim, node.attribute("keepdims", 1)
    node.ignore("select_last_index")
    shape = [1 if i == axis else n for i, n in enumerate(x.shape) if keep or i != axis]
    return Bounds(np.zeros(shape, np.int64), np.full(shape, x.shape[axis] - 1, np.int64))


# places of which only bounds are known --------------------------------------------------------------------------------


def _gather(node: NodeView, x: Bounds, at: Bounds) -> Bounds:
    """Bound a choice by all elements that it may choose."""
    if node.op == "GatherND":  # a row of indices chooses a part
        count = at.shape[-1]
        axes, sizes, kept = tuple(range(count)), np.array(x.shape[:count]), x.shape[count:]
        shape = (*at.shape[:-1], *kept)
        require(not node.attribute("batch_dims", 0))
    else:
        axis = int(node.attribute("axis", 0)) % x.lower.ndim
        axes, sizes, before, after = (axis,), np.array(x.shape[axis]), x.shape[:axis], x.shape[axis + 1 :]
        kept, shape = (*before, *[1] * len(at.shape), *after), (*before, *at.shape, *after)
        if node.op == "GatherElements":
            require(before == at.shape[:axis], after == at.shape[axis + 1 :])
            kept, shape = (*before, 1, *after), at.shape
    require(x.lower.size, at.lower >= -sizes, at.upper < sizes)
    low, high = x.lower.min(axes).reshape(kept), x.upper.max(axes).reshape(kept)
    return Bounds(np.broadcast_to(low, shape), np.broadcast_to(high, shape))


def _scatter(node: NodeView, x: Bounds, at: Bounds, new: Bounds) -> Bounds:
    """Bound elements that may be written over, or added to, anywhere."""
    reduction, size = node.attribute("reduction", "none"), x.shape[int(node.attribute("axis", 0))]
    require(node.op == "ScatterElements", new.lower.size, reduction in ("none", "add"))
    require(at.lower >= -size, at.upper < size)
    if reduction == "add":
        added = Bounds(np.minimum(new.real.lower, 0.0).sum(), np.maximum(new.real.upper, 0.0).sum())
        return roundings(x + added, x.size + new.size.sum(), new.lower.size + 1, x.dtype)
    return Bounds(np.minimum(x.lower, new.lower.min()), np.maximum(x.upper, new.upper.max()))


def _where(node: NodeView, condition: Bounds, a: Bounds, b: Bounds) -> Bounds:
    require(a.dtype == b.dtype)
    return choose(condition.upper, ~condition.lower, a, b)


_UNKNOWN_PLACES: dict[str, Rule] = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), _gather),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _scatter),
    "Where": _where,
}
"""Rules of those that move elements to places of which only bounds are known."""
