"""Operators that choose and move elements, and those that make something of known integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ranum_falsify.checker.bounds import Bounds, require
from ranum_falsify.checker.elementwise import choose, rise
from ranum_falsify.checker.forms import affine
from ranum_falsify.checker.node import NodeView, Rule, rule
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

_EXACT = frozenset(
    "Shape Size Range Add Sub Mul Equal MatMul Abs ReduceSum ReduceProd CumSum NonZero OneHot ArgMax ArgMin Max Min"
    " Clip Sign And Or Neg Not ReduceMax ReduceMin Greater GreaterOrEqual Less LessOrEqual".split()
)
"""What is exact on integers, beside what moves them."""


def is_exact(node: NodeView, operands: Sequence[Bounds]) -> bool:
    """Tell whether a node makes something of known integers alone."""
    return node.key in _EXACT and all(one.dtype.kind in "biu" and one.is_point for one in operands)


@rule("Constant ConstantOfShape EyeLike Shape Size")
def make_exact(node: NodeView, *operands: Bounds | None) -> list[Bounds]:
    """Compute what known integers, or shapes alone, come to."""
    require(node.op != "ConstantOfShape" or all(one is not None and one.is_point for one in operands))
    return [Bounds.of(one) for one in node.run(*(None if one is None else one.lower for one in operands))]


@rule(" ".join(_MOVING))
@affine
def _move(node: NodeView, *operands: Bounds | None) -> list[Bounds]:
    moves = [place in _MOVING[node.op] for place, _ in enumerate(operands)]
    known = all(moved or one is None or one.is_point for moved, one in zip(moves, operands, strict=True))
    if not (known and _is_plain(node, operands[0], *operands[1:])):
        return [_UNKNOWN_PLACES[node.op](node, *operands)]
    require(len({one.dtype for one, moved in zip(operands, moves, strict=True) if moved and one is not None}) == 1)
    return rise(node, *operands)


def _is_plain(node: NodeView, x: Bounds | None, second: Bounds | None = None, *rest: Bounds | None) -> bool:
    """Tell whether ONNX Runtime moves elements as the reference does.

    Where steps of Slice go back, it takes a start from before the front for the front, and the greatest end for the
    front, too.  Where places that are written are not apart, the order of writing counts.
    """
    assert x is not None, "what is moved is given"
    if node.op == "Pad":
        require(x.lower.size, second is None or second.lower >= 0, not node.attribute("value", 0.0))
    elif node.op == "Slice" and second is not None:
        ends, axes, steps = [*rest, None, None][:3]
        if ends is not None and steps is not None and (steps.lower < 0).any():
            sizes = np.array(x.shape)[slice(second.lower.size) if axes is None else axes.lower]
            require(-sizes <= second.lower, ends.lower <= sizes)
    elif node.op.startswith("Scatter") and second is not None:
        axis, depth = int(node.attribute("axis", 0)), second.shape[-1] if node.op == "ScatterND" else 1
        if node.op == "ScatterND":
            rows = (second.lower % np.array(x.shape[:depth])).reshape(-1, depth)
            is_apart = len(np.unique(rows, axis=0)) == len(rows)
        else:
            is_apart = bool((np.diff(np.sort(second.lower % x.shape[axis], axis), axis=axis) != 0).all())
        return is_apart and node.attribute("reduction", "none") == "none"
    return True


@rule("Dropout")
def _dropped(node: NodeView, x: Bounds, ratio: Bounds | None = None, training: Bounds | None = None) -> list[Bounds]:
    """Keep what goes through Dropout, where it drops nothing."""
    require(training is None or not training.upper.any())
    return [x, Bounds(np.zeros(x.shape, bool), np.ones(x.shape, bool))][: len(node.proto.output)]


@rule("ArgMax ArgMin")
def _places(node: NodeView, x: Bounds) -> Bounds:
    made = node.run(x.lower)[0]
    return Bounds(np.zeros_like(made), np.full_like(made, x.shape[node.attribute("axis", 0)] - 1))


@rule("Mod")
def _modulo(node: NodeView, x: Bounds, by: Bounds) -> Bounds:
    require(x.dtype.kind in "iu", by.lower > 0)
    high = by.upper - 1 + np.zeros_like(x.upper)
    return Bounds(np.zeros_like(high), high)


def _gather(node: NodeView, x: Bounds, at: Bounds) -> Bounds:
    """Bound a choice by all elements that it may choose."""
    axes = range(at.shape[-1]) if node.op == "GatherND" else [int(node.attribute("axis", 0)) % x.lower.ndim]
    sizes = np.array([x.shape[axis] for axis in axes])
    require(x.lower.size, at.lower >= -sizes, at.upper < sizes, not node.attribute("batch_dims", 0))
    least, greatest = x.lower.min(tuple(axes), keepdims=True), x.upper.max(tuple(axes), keepdims=True)
    spread = Bounds(np.broadcast_to(least, x.shape), np.broadcast_to(greatest, x.shape))
    return spread.map(lambda end: node.run(end, np.zeros_like(at.lower))[0])


def _scatter(node: NodeView, x: Bounds, at: Bounds, new: Bounds) -> Bounds:
    """Bound elements that may be written over, or added to, anywhere."""
    reduction, size = node.attribute("reduction", "none"), x.shape[int(node.attribute("axis", 0))]
    require(node.op == "ScatterElements", new.lower.size, reduction in ("none", "add"))
    require(at.lower >= -size, at.upper < size)
    if reduction == "add":
        added = Bounds(np.minimum(new.real.lower, 0.0).sum(), np.maximum(new.real.upper, 0.0).sum())
        return roundings(x + added, x.size + new.size.sum(), new.lower.size + 1, x.dtype)
    return Bounds(np.minimum(x.lower, new.lower.min()), np.maximum(x.upper, new.upper.max()))


_UNKNOWN_PLACES: dict[str, Rule] = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), _gather),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _scatter),
    "Where": choose,
}
"""Rules of those that move elements to places of which only bounds are known."""
