"""Reductions in terms of ReduceSum, of products with ones, and of slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import (
    FLOATS,
    WIDE_FLOATS,
    axes_of,
    check_double,
    constant,
    dtype_of,
    element_type,
    integer_attribute,
    length_of,
    limits_of,
    new_node,
    node_of,
    rank_of,
)
from ranum_falsify.rewrite.passes.blocks import reduced, sliced, squeezed
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import Lowering, Op, RefusedError, Rewrite, operand


@verify.tolerance
@register(
    "lower_reduce_mean",
    takes="ReduceMean",
    gives="Constant Mul ReduceSum",
    needs="floats; constant axes, of fixed length",
)
class LowerReduceMean(Lowering):
    """ReduceMean of n elements becomes the sum of their n-th parts, which overflows nowhere."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        dtype = dtype_of(x, FLOATS)
        integer_attribute(node, "keepdims", 1)
        count = self._count(node)
        _, least_normal, _ = limits_of(dtype)
        if 1 / count < least_normal:
            raise RefusedError(f"it takes the mean of {count:,} elements, too many for {dtype.name.lower()}")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        part = op.Mul(x, constant(op, 1 / self._count(node), element_type(node)))
        keeps = bool(integer_attribute(node, "keepdims", 1))
        axes = axes_of(node)
        return reduced(op, "ReduceSum", self.opset, part, axes, keepdims=keeps) if axes else part

    @staticmethod
    def _count(node: ir.Node) -> int:
        x = operand(node, 0)
        return int(np.prod([length_of(x, axis) for axis in axes_of(node)], dtype=object))


class _SumOf(Lowering):
    """A reduction that is a sum of a function of the elements."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        dtype_of(x, WIDE_FLOATS)
        integer_attribute(node, "keepdims", 1)
        if not axes_of(node):
            raise RefusedError("it reduces no axis")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        keeps = bool(integer_attribute(node, "keepdims", 1))
        return reduced(op, "ReduceSum", self.opset, self._term(op, x), axes_of(node), keepdims=keeps)

    def _term(self, op: Op, x: ir.Value) -> Any:
        return op.Mul(x, x)


@verify.tolerance
@register(
    "lower_reduce_l1", takes="ReduceL1", gives="Constant Abs ReduceSum", needs="float32 or float64; constant axes"
)
class LowerReduceL1(_SumOf):
    """ReduceL1 becomes the sum of magnitudes."""

    def _term(self, op: Op, x: ir.Value) -> Any:
        return op.Abs(x)


@verify.tolerance
@register(
    "lower_reduce_sum_square",
    takes="ReduceSumSquare",
    gives="Constant Mul ReduceSum",
    needs="float32 or float64; constant axes",
)
class LowerReduceSumSquare(_SumOf):
    """ReduceSumSquare becomes the sum of squares."""


@verify.tolerance
@register(
    "lower_reduce_l2",
    takes="ReduceL2",
    gives="Constant Mul ReduceSum Sqrt",
    needs="float32 or float64, whose squares neither overflow nor vanish; constant axes",
)
class LowerReduceL2(_SumOf):
    """ReduceL2 becomes the square root of the sum of squares."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        return op.Sqrt(super()._lower(op, node, x))


class _ExtremeAlong(Lowering):
    """The greatest or least along axes, as Max or Min of halves."""

    joins: str

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        check_double(self.joins, dtype_of(x, FLOATS), self.opset)
        integer_attribute(node, "keepdims", 1)
        for axis in axes_of(node):
            length_of(x, axis)

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        made, axes = x, axes_of(node)
        for axis in axes:
            length = length_of(x, axis)
            while length > 1:
                # The middle one of an odd number is in both halves, which changes no maximum.
                half = -(-length // 2)
                parts = (sliced(op, self.opset, made, axis, start, start + half) for start in (0, length - half))
                made, length = new_node(op, self.joins, *parts), half
        if axes and not integer_attribute(node, "keepdims", 1):
            return squeezed(op, self.opset, made, axes)
        return op.Identity(made) if made is x else made


_EXTREME_NEEDS = "floats, none of them NaN; constant axes, of fixed length"


@verify.equality(signed_zero=False, everywhere=False)
@register("lower_reduce_max", takes="ReduceMax", gives="Constant Identity Max Slice Squeeze", needs=_EXTREME_NEEDS)
class LowerReduceMax(_ExtremeAlong):
    """ReduceMax becomes, for each axis, Max of its halves, of their halves, and so on."""

    joins = "Max"


@verify.equality(signed_zero=False, everywhere=False)
@register("lower_reduce_min", takes="ReduceMin", gives="Constant Identity Min Slice Squeeze", needs=_EXTREME_NEEDS)
class LowerReduceMin(_ExtremeAlong):
    """ReduceMin becomes, for each axis, Min of its halves, of their halves, and so on."""

    joins = "Min"


_MATRIX = 2  # axes
_CRASH = "ONNX Runtime's optimiser crashes on MatMul after Transposes that move batches of it"


@verify.tolerance
@register(
    "transform_reduce_sum",
    takes="ReduceSum",
    gives="Constant MatMul Transpose Mul",
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

    def rewrite(self, op: Op, x: ir.Value, total: ir.Value) -> Any:
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


def weighted_sum(op: Op, x: Any, weights: np.ndarray, dtype: ir.DataType, *, keeps: bool) -> Any:
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


def transposed(op: Op, x: Any, permutation: list[int]) -> Any:
    """Return a transposed tensor, or the tensor itself where nothing moves."""
    return x if permutation == sorted(permutation) else op.Transpose(x, perm=permutation)
