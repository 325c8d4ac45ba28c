"""The positions of greatest and least elements, by comparing each pair of elements.

For element i, an element j beats it if x_j > x_i, or if x_j = x_i and j comes first (last, with select_last_index).
With s = Sign(x_j - x_i), j beats i exactly if Sign(Relu(s + w)) is 1, where w is 1/2 for those j that win ties against
i, and 0 for the others.  The one element that nothing beats is the position looked for; all numbers on the way are
small integers and halves, so that nothing is rounded but x_j - x_i, whose sign is exact with gradual underflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.transform import verify
from ranum_falsify.transform.attributes import integer_attribute
from ranum_falsify.transform.operands import (
    FLOATS,
    axis_of,
    constant,
    constant_array,
    dtype_of,
    is_finite,
    length_of,
    node_of,
    opset_at,
)
from ranum_falsify.transform.passes.reduce_sum import axis_last, transposed, weighted_sum
from ranum_falsify.transform.registry import register
from ranum_falsify.transform.rewrite import Rewrite

__all__ = ["TransformArgMax", "TransformArgMin"]

_SIGN = 9  # opset
# Up to here every integer has a float of its own.
_MOST_EXACT = {ir.DataType.FLOAT16: 2048, ir.DataType.BFLOAT16: 256}
# Operators that infinities of an operand go through.
_PASSING = (
    "Add",
    "Concat",
    "Identity",
    "Mul",
    "Neg",
    "Reshape",
    "Slice",
    "Squeeze",
    "Sub",
    "Transpose",
    "Unsqueeze",
    "Where",
)
_LONGEST = 4096
_MOST_PAIRS = 2**26


@verify.equality(everywhere=False)
@register(
    "transform_arg_max",
    takes=["ArgMax"],
    gives=["Constant", "Add", "Sub", "Mul", "MatMul", "Relu", "Transpose", "Sign", "Cast"],
    needs=f"an axis of fixed length, at most {_LONGEST:,} (2,048 in float16, 256 in bfloat16); opset {_SIGN}; finite "
    "elements, whose differences are finite",
    needs_shapes=True,
)
class TransformArgMax(Rewrite):
    """ArgMax becomes comparisons of pairs; the first of equal elements wins, or the last where the node says so."""

    def pattern(self, op: Any, x: Any) -> Any:
        """Match every ArgMax."""
        return op.ArgMax(x, _outputs=["index"])

    def check(self, context: Any, x: ir.Value, index: ir.Value) -> bool:
        """Check that pairs can be built, and counted exactly."""
        if opset_at(context) < _SIGN:
            self.refuse(f"Sign needs opset {_SIGN}; convert the model")
        dtype = dtype_of(x, FLOATS)
        for name in ("keepdims", "select_last_index"):
            integer_attribute(context.root, name, 0)
        length = length_of(x, axis_of(context.root))
        most = _MOST_EXACT.get(dtype, _LONGEST)
        if length > most:
            self.refuse(f"its axis has {length:,} elements; at most {most:,} of {dtype.name.lower()} are compared")
        assert x.shape is not None
        pairs = length * int(np.prod([dim for dim in x.shape if isinstance(dim, int)]))
        if pairs > _MOST_PAIRS:
            self.refuse(f"it would take {pairs:,} comparisons; at most {_MOST_PAIRS:,} are made")
        infinite = _infinite_constant(x)
        if infinite is not None:
            self.refuse(f"{infinite.name!r} is a constant that is not finite")
        return True

    def rewrite(self, op: Any, x: ir.Value, index: ir.Value) -> Any:
        """Build the comparisons."""
        assert x.dtype is not None and x.shape is not None
        node = node_of(index)
        rank, dtype, axis = len(x.shape), x.dtype, axis_of(node)
        length = length_of(x, axis)
        there, back = axis_last(rank, axis)
        # The product has one more axis, in front, which the transpositions put after and before the elements.
        lifted = op.Mul(transposed(op, x, there), constant(op, np.ones((1,) * (rank + 1)), dtype))
        column = transposed(op, lifted, [*range(1, rank + 1), 0])
        row = transposed(op, lifted, [*range(1, rank), 0, rank])
        sign = op.Sign(op.Sub(row, column))
        wins = _wins_ties(length, last=bool(integer_attribute(node, "select_last_index", 0)))
        beaten = op.Sign(op.Relu(op.Add(sign, constant(op, wins / 2, dtype))))
        times = weighted_sum(op, beaten, np.ones(length), dtype, keeps=False)
        chosen = op.Relu(op.Sub(constant(op, 1, dtype), times))
        keeps = bool(integer_attribute(node, "keepdims", 1))
        position = weighted_sum(op, chosen, np.arange(length), dtype, keeps=keeps)
        return op.Cast(transposed(op, position, back) if keeps else position, to=ir.DataType.INT64)


@verify.equality(everywhere=False)
@register(
    "transform_arg_min",
    takes=["ArgMin"],
    gives=["Constant", "Sub", "ArgMax"],
    needs="float elements",
    needs_shapes=True,
)
class TransformArgMin(Rewrite):
    """ArgMin(x) becomes ArgMax(0 - x)."""

    def pattern(self, op: Any, x: Any) -> Any:
        """Match every ArgMin."""
        return op.ArgMin(x, _outputs=["index"])

    def check(self, context: Any, x: ir.Value, index: ir.Value) -> bool:
        """Check that every element has an opposite."""
        dtype_of(x, FLOATS)
        return True

    def rewrite(self, op: Any, x: ir.Value, index: ir.Value) -> Any:
        """Negate; opposites are exact, so that ties stay ties."""
        assert x.dtype is not None
        return op.ArgMax(op.Sub(constant(op, 0, x.dtype), x), **dict(node_of(index).attributes))


def _infinite_constant(value: ir.Value) -> ir.Value | None:
    """Return a constant that is not finite and reaches a tensor as it is, as masks do; None where there is none."""
    array = constant_array(value)
    if array is not None:
        return None if is_finite(array) else value
    node = value.producer()
    if node is None or node.op_type not in _PASSING:
        return None
    sources = (_infinite_constant(operand) for operand in node.inputs if operand is not None)
    return next((found for found in sources if found is not None), None)


def _wins_ties(length: int, *, last: bool) -> np.ndarray:
    """Return which elements (columns) win ties against which (rows)."""
    ones = np.ones((length, length))
    return np.triu(ones, 1) if last else np.tril(ones, -1)
