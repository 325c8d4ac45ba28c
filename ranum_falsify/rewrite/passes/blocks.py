"""Building blocks of lowerings: slices, reshapes, reductions, and the greater of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite.operands import constant, integers, limits_of, new_node
from ranum_falsify.rewrite.rewrite import Op, RefusedError

Dim = int | None
"""A length, None for one that is not fixed."""

_SLICES_ARE_INPUTS = 10  # opset
_CLIP_BOUNDS_ARE_INPUTS = 11  # opset
_SUM_AXES_ARE_INPUTS = _SQUEEZE_AXES_ARE_INPUTS = 13  # opset
_AXES_ARE_INPUTS = 18  # opset, for reductions other than ReduceSum


def negated(op: Op, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return the opposite of a tensor, which is exact."""
    return op.Mul(x, constant(op, -1, dtype))


def greater_of(op: Op, bound: ir.Value, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return the greater of two tensors, and never less than `bound`.

    `bound + Relu(x - bound)` loses what of x is small beside the bound: the greater of -1 and 1e-10 would be 0.  So the
    difference is taken a little smaller, which ends just below x, and the rest is added after that.  Where x is not
    tiny beside the bound, both differences are exact, and so is the result.
    """
    below = op.Add(bound, _reduced_little(op, op.Relu(op.Sub(x, bound)), dtype))
    return op.Add(below, op.Relu(op.Sub(x, below)))


def lesser_of(op: Op, bound: ir.Value, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return the lesser of two tensors, and never more than `bound`; see `greater_of`."""
    above = op.Sub(bound, _reduced_little(op, op.Relu(op.Sub(bound, x)), dtype))
    return op.Sub(above, op.Relu(op.Sub(above, x)))


def _reduced_little(op: Op, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return a tensor times a factor that outweighs the roundings of a difference and of the product with it."""
    _, _, epsilon = limits_of(dtype)
    little = 2 * epsilon
    if dtype == ir.DataType.DOUBLE:
        # ONNX Runtime's optimiser leaves out factors that are 1 in float32.
        return op.Sub(x, op.Mul(x, constant(op, little, dtype)))
    return op.Mul(x, constant(op, 1 - little, dtype))


def clipped(op: Op, opset: int, x: ir.Value, least: float, most: float, dtype: ir.DataType) -> ir.Value:
    """Return a tensor clipped to a range, its bounds attributes or operands as the opset has them."""
    if opset < _CLIP_BOUNDS_ARE_INPUTS:
        return op.Clip(x, min=float(least), max=float(most))
    return op.Clip(x, constant(op, least, dtype), constant(op, most, dtype))


def sliced(op: Op, opset: int, x: ir.Value, axis: int, start: int, stop: int, step: int = 1) -> ir.Value:
    """Return elements of a tensor along an axis, from a start to before a stop.

    Args:
        op: What builds nodes.
        opset: That of the model; a step other than 1 needs opset 10.
        x: The tensor.
        axis: Not negative.
        start: Not negative.
        stop: Greater than the start.
        step: Positive.
    """
    if opset < _SLICES_ARE_INPUTS:
        assert step == 1
        return op.Slice(x, axes=[axis], starts=[start], ends=[stop])
    steps = [integers(op, [step])] if step != 1 else []
    return op.Slice(x, integers(op, [start]), integers(op, [stop]), integers(op, [axis]), *steps)


def runs_of(indices: Sequence[int], *, opset: int) -> list[tuple[int, int, int]]:
    """Return slices (start, stop, step) that give a sequence of indices, none negative, one after the other."""
    longest = None if opset >= _SLICES_ARE_INPUTS else 1  # step
    runs: list[list[int]] = []
    for index in indices:
        run = runs[-1] if runs else []
        step = index - run[-1] if run else 0
        if step > 0 and (longest is None or step <= longest) and (len(run) == 1 or step == run[1] - run[0]):
            run.append(index)
        else:
            runs.append([index])
    return [(run[0], run[-1] + 1, run[1] - run[0] if len(run) > 1 else 1) for run in runs]


def taken(op: Op, opset: int, x: ir.Value, axis: int, indices: Sequence[int]) -> ir.Value:
    """Return the elements of a tensor that have given indices along an axis, as a slice or several, joined."""
    parts = [sliced(op, opset, x, axis, *run) for run in runs_of(indices, opset=opset)]
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis)


def reduced(op: Op, operator: str, opset: int, x: ir.Value, axes: Sequence[int], *, keepdims: bool) -> ir.Value:
    """Return a reduction, its axes an attribute or an operand as the opset has them."""
    since = _SUM_AXES_ARE_INPUTS if operator == "ReduceSum" else _AXES_ARE_INPUTS
    if opset < since:
        return new_node(op, operator, x, axes=list(axes), keepdims=int(keepdims))
    return new_node(op, operator, x, integers(op, axes), keepdims=int(keepdims))


def squeezed(op: Op, opset: int, x: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Return a tensor without axes of length 1."""
    return op.Squeeze(x, axes=list(axes)) if opset < _SQUEEZE_AXES_ARE_INPUTS else op.Squeeze(x, integers(op, axes))


def reshape_sizes(old: Sequence[Dim], new: Sequence[tuple[Dim, int | None]]) -> list[int]:
    """Return the sizes that Reshape takes.

    Args:
        old: The shape before.
        new: The shape after; a length that is not fixed has the axis, if there is one, that it was before.

    Raises:
        RefusedError: They cannot be said, because of several lengths that are not fixed, or because one is 0.
    """
    if 0 in old or any(length == 0 for length, _ in new):
        raise RefusedError("it is empty")
    free = [place for place, (length, _) in enumerate(new) if length is None]
    sizes = [-1 if length is None else length for length, _ in new]
    # Reshape finds one length itself; a 0 copies the one that has the same place.
    copied = [place for place in free if new[place][1] == place] if len(free) > 1 else []
    for place in copied[: len(free) - 1]:
        sizes[place] = 0
    if sizes.count(-1) > 1:
        raise RefusedError(f"{len(free)} of its lengths are not fixed; give the model static shapes")
    return sizes


def product(lengths: Sequence[Dim]) -> Dim:
    """Return the product of lengths; None where one is not fixed."""
    return None if None in lengths else int(np.prod([length for length in lengths if length is not None], dtype=int))
