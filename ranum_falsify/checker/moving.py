"""Operators that choose and move elements, and those that make something of known integers."""

from __future__ import annotations

import numpy as np

from ranum_falsify.checker.bounds import Bounds, Real
from ranum_falsify.checker.node import NodeView, Operands, Results
from ranum_falsify.checker.sums import finish

MOVING = {
    **dict.fromkeys(
        "Reshape Flatten Transpose Squeeze Unsqueeze Slice Gather GatherElements GatherND Split Expand Tile Identity"
        " DepthToSpace SpaceToDepth Trilu Compress ReverseSequence".split(),
        1,
    ),
    **dict.fromkeys("Concat Max Min".split(), 1 << 20),
    "Clip": 3,
}
"""Operators that grow with each of this many operands, and choose among their elements; the others have to be known."""

EXACT = frozenset(
    "Constant ConstantOfShape Shape Size Range Cast Add Sub Mul Equal Where Not And Or Xor Less Greater LessOrEqual"
    " GreaterOrEqual MatMul Neg Abs Sign Max Min Clip ReduceSum ReduceMax ReduceMin ReduceProd CumSum NonZero OneHot"
    " EyeLike ScatterND ScatterElements ArgMax ArgMin Pad".split()
) | (MOVING.keys() - {"ReverseSequence", "Compress"})
"""What is exact on integers."""


def make_exact(node: NodeView, operands: Operands) -> Results:
    """Compute what known integers, or nothing, come to."""
    made = node.run([None if one is None else one.lower for one in operands])
    if node.proto.op_type not in ("Constant", "ConstantOfShape", "EyeLike") and any(
        one.dtype.kind not in "biu" for one in made
    ):
        return None
    return [Bounds(one, one) for one in made]


def make_shape(node: NodeView, operands: Operands) -> Results:
    """Compute a shape."""
    x = operands[0]
    return None if x is None else [Bounds(one, one) for one in node.run([x.lower])]


def move(node: NodeView, operands: Operands) -> Results:
    """Move both ends alike."""
    name = node.proto.op_type
    count = MOVING[name]
    if not all(one is None or one.is_point for one in operands[count:]):
        return gather(node, operands) if name.startswith("Gather") else None
    if name in ("Clip", "Max", "Min") and (any(one is not None and not one.lower.size for one in operands)):
        return None
    if name == "Slice" and not _slices_alike(operands):
        return None
    lows = node.run([None if one is None else one.lower for one in operands])
    highs = node.run([None if one is None else one.upper for one in operands])
    return [Bounds(low, high) for low, high in zip(lows, highs, strict=True)]


def _slices_alike(operands: Operands) -> bool:
    """Tell whether ONNX Runtime cuts as NumPy does.

    Where steps go back, it takes a start from before the front for the front, and the greatest end for the front, too.
    """
    x, starts, ends, axes, steps = [*operands, *[None] * 5][:5]
    if x is None or starts is None or ends is None or steps is None or (steps.lower > 0).all():
        return True
    sizes = np.array(x.lower.shape)[slice(starts.lower.size) if axes is None else axes.lower]
    return bool((-sizes <= starts.lower).all() and (ends.lower <= sizes).all())


def gather(node: NodeView, operands: Operands) -> Results:
    """Bound a choice by indices of which only bounds are known, by all elements that it may choose."""
    x, at = operands
    if x is None or at is None or not x.lower.ndim or not x.lower.size:
        return None
    if node.proto.op_type == "GatherND":
        return _gather_parts(node, x, at)
    axis = int(node.attribute("axis", 0))
    size = x.lower.shape[axis]
    if not ((at.lower >= -size).all() and (at.upper < size).all()):
        return None
    axis %= x.lower.ndim
    least, greatest = x.lower.min(axis, keepdims=True), x.upper.max(axis, keepdims=True)
    if node.proto.op_type == "GatherElements":
        return None if least.shape[:axis] != at.lower.shape[:axis] else _spread(least, greatest, at.lower.shape)
    shape = (*x.lower.shape[:axis], *at.lower.shape, *x.lower.shape[axis + 1 :])
    kept = (*x.lower.shape[:axis], *(1 for _ in at.lower.shape), *x.lower.shape[axis + 1 :])
    return _spread(least.reshape(kept), greatest.reshape(kept), shape)


def _gather_parts(node: NodeView, x: Bounds, at: Bounds) -> Results:
    """Bound GatherND: a row of indices chooses a part."""
    axes = tuple(range(at.lower.shape[-1]))
    sizes = np.array([x.lower.shape[axis] for axis in axes])
    if node.attribute("batch_dims", 0) or not ((at.lower >= -sizes).all() and (at.upper < sizes).all()):
        return None
    return _spread(x.lower.min(axes), x.upper.max(axes), (*at.lower.shape[:-1], *x.lower.shape[len(axes) :]))


def _spread(low: np.ndarray, high: np.ndarray, shape: tuple[int, ...]) -> Results:
    return [Bounds(np.broadcast_to(low, shape), np.broadcast_to(high, shape))]


def pad(node: NodeView, operands: Operands) -> Results:
    """Pad with a constant, or with elements."""
    x, *rest = operands
    if x is None or not all(one is None or one.is_point for one in rest) or not x.lower.size:
        return None
    if rest and rest[0] is not None and (rest[0].lower < 0).any():
        return None
    fixed = [None if one is None else one.lower for one in rest]
    lows, highs = node.run([x.lower, *fixed]), node.run([x.upper, *fixed])
    return [Bounds(lows[0], highs[0])]


def _are_apart(node: NodeView, shape: tuple[int, ...], at: np.ndarray) -> bool:
    """Tell whether no two indices are of the same place, where the order of writing counts."""
    if node.proto.op_type == "ScatterND":
        rows = (at % np.array(shape[: at.shape[-1]])).reshape(-1, at.shape[-1])
        return len(np.unique(rows, axis=0)) == len(rows)
    axis = int(node.attribute("axis", 0))
    return bool((np.diff(np.sort(at % shape[axis], axis), axis=axis) != 0).all())


def scatter(node: NodeView, operands: Operands) -> Results:
    """Write elements over others, at places of which bounds are known."""
    x, at, new = operands
    if x is None or at is None or new is None:
        return None
    reduction = node.attribute("reduction", "none")
    if at.is_point and reduction == "none" and _are_apart(node, x.lower.shape, at.lower):
        lows = node.run([x.lower, at.lower, new.lower])
        highs = node.run([x.upper, at.lower, new.upper])
        return [Bounds(lows[0], highs[0])]
    if node.proto.op_type == "ScatterND" or not new.lower.size or reduction not in ("none", "add"):
        return None
    size = x.lower.shape[int(node.attribute("axis", 0))]
    if not ((at.lower >= -size).all() and (at.upper < size).all()):
        return None
    if reduction == "add":
        zero = np.zeros(())
        added = Real(np.minimum(new.real.low, zero).sum(), np.maximum(new.real.high, zero).sum())
        found = finish(x.real + added, x.real.size + new.real.size.sum(), new.lower.size + 1, x.dtype)
        return None if found is None else [found]
    return [Bounds(np.minimum(x.lower, new.lower.min()), np.maximum(x.upper, new.upper.max()))]
