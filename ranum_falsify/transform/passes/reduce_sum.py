"""Sums along axes, as products with ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.transform import verify
from ranum_falsify.transform.attributes import integer_attribute
from ranum_falsify.transform.operands import FLOATS, axes_of, constant, dtype_of, length_of, node_of
from ranum_falsify.transform.registry import register
from ranum_falsify.transform.rewrite import Rewrite

__all__ = ["TransformReduceSum", "axis_last", "transposed"]


@verify.tolerance
@register(
    "transform_reduce_sum",
    takes=["ReduceSum"],
    gives=["Constant", "MatMul", "Transpose", "Mul"],
    needs="float elements; constant axes, of fixed length",
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
        dtype_of(x, FLOATS)
        integer_attribute(context.root, "keepdims", 1)
        for axis in axes_of(context.root):
            length_of(x, axis)
        return True

    def rewrite(self, op: Any, x: ir.Value, total: ir.Value) -> Any:
        """Multiply by ones along each axis; a vector of ones removes the axis, a column keeps it."""
        assert x.dtype is not None and x.shape is not None
        node = node_of(total)
        axes, rank = axes_of(node), len(x.shape)
        keeps = bool(integer_attribute(node, "keepdims", 1))
        if not axes:
            return op.Mul(x, constant(op, 1, x.dtype))
        partial: Any = x
        for axis in reversed(axes):
            length = length_of(x, axis)
            there, back = axis_last(rank, axis)
            ones = constant(op, np.ones((length, 1) if keeps else length), x.dtype)
            partial = op.MatMul(transposed(op, partial, there), ones)
            if keeps:
                partial = transposed(op, partial, back)
            else:
                rank -= 1
        return partial


def axis_last(rank: int, axis: int) -> tuple[list[int], list[int]]:
    """Return the permutation that puts an axis last, and its inverse."""
    there = [*(other for other in range(rank) if other != axis), axis]
    return there, [int(position) for position in np.argsort(there)]


def transposed(op: Any, x: Any, permutation: list[int]) -> Any:
    """Return a transposed tensor, or the tensor itself where nothing moves."""
    return x if permutation == sorted(permutation) else op.Transpose(x, perm=permutation)
