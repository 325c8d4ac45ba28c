"""Sums along axes, as products with ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.transform import verify
from ranum_falsify.transform.attributes import integer_attribute
from ranum_falsify.transform.operands import FLOATS, axes_of, constant, dtype_of, length_of, node_of, rank_of
from ranum_falsify.transform.registry import register
from ranum_falsify.transform.rewrite import Rewrite

__all__ = ["TransformReduceSum", "axis_last", "transposed", "weighted_sum"]

_MATRIX = 2  # axes
_CRASH = "ONNX Runtime's optimiser crashes on MatMul after Transposes that move batches of it"


@verify.tolerance
@register(
    "transform_reduce_sum",
    takes=["ReduceSum"],
    gives=["Constant", "MatMul", "Transpose", "Mul"],
    needs="float elements; constant axes, of fixed length; in float16, neither the first of three or more, nor any "
    "after a Transpose",
    needs_shapes=True,
)
class TransformReduceSum(Rewrite):
    """ReduceSum becomes, for each axis, Transpose, MatMul with ones, Transpose; the order of the sums changes."""

    def pattern(self, op: Any, x: Any) -> Any:
        """Match every sum, its axes an attribute or an operand."""
        return op.ReduceSum(x, _allow_other_inputs=True, _outputs=["total"])

    def check(self, context: Any, x: ir.Value, total: ir.Value) -> bool:
        """Check that the axes and their lengths are known."""
        # Sums of integers that overflow end at the greatest on ONNX Runtime, products wrap around.
        dtype = dtype_of(x, FLOATS)
        integer_attribute(context.root, "keepdims", 1)
        axes = axes_of(context.root)
        for axis in axes:
            length_of(x, axis)
        producer = x.producer()
        if dtype == ir.DataType.FLOAT16 and axes and producer is not None and producer.op_type == "Transpose":
            self.refuse(f"{x.name!r} is transposed, and holds float16: {_CRASH}")
        if dtype == ir.DataType.FLOAT16 and 0 in axes and rank_of(x) > _MATRIX:
            self.refuse(f"it sums float16 along the first of several axes: {_CRASH}")
        return True

    def rewrite(self, op: Any, x: ir.Value, total: ir.Value) -> Any:
        """Multiply by ones along each axis."""
        assert x.dtype is not None
        node = node_of(total)
        axes, rank = axes_of(node), rank_of(x)
        keeps = bool(integer_attribute(node, "keepdims", 1))
        if not axes:
            return op.Mul(x, constant(op, 1, x.dtype))
        partial: Any = x
        for axis in reversed(axes):
            length = length_of(x, axis)
            there, back = axis_last(rank, axis)
            partial = weighted_sum(op, transposed(op, partial, there), np.ones(length), x.dtype, keeps=keeps)
            if keeps:
                partial = transposed(op, partial, back)
            else:
                rank -= 1
        return partial


def weighted_sum(op: Any, x: Any, weights: np.ndarray, dtype: ir.DataType, *, keeps: bool) -> Any:
    """Return the sums of elements times their weights along the last axis, which stays with length 1 or goes.

    MatMul with a vector would do it.  But where a Transpose comes before it, which may be one of the model's own, ONNX
    Runtime makes a FusedMatMul of both, whose kernel ignores the transposition if the other operand is a vector.  So
    the vector is a column, and a vector of one 1 removes the axis.
    """
    column = op.MatMul(x, constant(op, weights[:, None], dtype))
    return column if keeps else op.MatMul(column, constant(op, np.ones(1), dtype))


def axis_last(rank: int, axis: int) -> tuple[list[int], list[int]]:
    """Return the permutation that puts an axis last, and its inverse."""
    there = [*(other for other in range(rank) if other != axis), axis]
    return there, [int(position) for position in np.argsort(there)]


def transposed(op: Any, x: Any, permutation: list[int]) -> Any:
    """Return a transposed tensor, or the tensor itself where nothing moves."""
    return x if permutation == sorted(permutation) else op.Transpose(x, perm=permutation)
