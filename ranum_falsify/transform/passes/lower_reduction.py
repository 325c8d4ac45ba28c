"""Reductions in terms of ReduceSum, and of slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.transform import verify
from ranum_falsify.transform.attributes import integer_attribute
from ranum_falsify.transform.lowering import Lowering
from ranum_falsify.transform.operands import (
    FLOATS,
    WIDE_FLOATS,
    axes_of,
    check_double,
    constant,
    dtype_of,
    element_type,
    first_operand,
    length_of,
    limits_of,
)
from ranum_falsify.transform.passes.blocks import reduced, sliced, squeezed
from ranum_falsify.transform.registry import register
from ranum_falsify.transform.rewrite import RefusedError

__all__ = [
    "LowerReduceL1",
    "LowerReduceL2",
    "LowerReduceMax",
    "LowerReduceMean",
    "LowerReduceMin",
    "LowerReduceSumSquare",
]


@verify.tolerance
@register(
    "lower_reduce_mean",
    takes=["ReduceMean"],
    gives=["Constant", "Mul", "ReduceSum"],
    needs="floats; constant axes, of fixed length",
    needs_shapes=True,
)
class LowerReduceMean(Lowering):
    """ReduceMean of n elements becomes the sum of their n-th parts, which overflows nowhere."""

    operator = "ReduceMean"

    def accept(self, node: ir.Node) -> None:
        """Check that the number of elements is known, and that its reciprocal is exact enough."""
        x = first_operand(node)
        dtype = dtype_of(x, FLOATS)
        integer_attribute(node, "keepdims", 1)
        count = self._count(node)
        if 1 / count < limits_of(dtype).least_normal:
            raise RefusedError(f"it takes the mean of {count:,} elements, too many for {dtype.name.lower()}")

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Divide before adding."""
        x = first_operand(node)
        part = op.Mul(x, constant(op, 1 / self._count(node), element_type(node)))
        keeps = bool(integer_attribute(node, "keepdims", 1))
        axes = axes_of(node)
        return reduced(op, "ReduceSum", self.opset, part, axes, keepdims=keeps) if axes else part

    @staticmethod
    def _count(node: ir.Node) -> int:
        x = first_operand(node)
        return int(np.prod([length_of(x, axis) for axis in axes_of(node)], dtype=object))


class _SumOf(Lowering):
    """A reduction that is a sum of a function of the elements."""

    def accept(self, node: ir.Node) -> None:
        """Check that the axes are known, and that there are some."""
        x = first_operand(node)
        dtype_of(x, WIDE_FLOATS)
        integer_attribute(node, "keepdims", 1)
        if not axes_of(node):
            raise RefusedError("it reduces no axis")

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Sum terms."""
        x = first_operand(node)
        keeps = bool(integer_attribute(node, "keepdims", 1))
        return reduced(op, "ReduceSum", self.opset, self._term(op, x), axes_of(node), keepdims=keeps)

    def _term(self, op: Any, x: ir.Value) -> Any:
        return op.Mul(x, x)


@verify.tolerance
@register(
    "lower_reduce_l1",
    takes=["ReduceL1"],
    gives=["Constant", "Abs", "ReduceSum"],
    needs="float32 or float64; constant axes",
    needs_shapes=True,
)
class LowerReduceL1(_SumOf):
    """ReduceL1 becomes the sum of magnitudes."""

    operator = "ReduceL1"

    def _term(self, op: Any, x: ir.Value) -> Any:
        return op.Abs(x)


@verify.tolerance
@register(
    "lower_reduce_sum_square",
    takes=["ReduceSumSquare"],
    gives=["Constant", "Mul", "ReduceSum"],
    needs="float32 or float64; constant axes",
    needs_shapes=True,
)
class LowerReduceSumSquare(_SumOf):
    """ReduceSumSquare becomes the sum of squares."""

    operator = "ReduceSumSquare"


@verify.tolerance
@register(
    "lower_reduce_l2",
    takes=["ReduceL2"],
    gives=["Constant", "Mul", "ReduceSum", "Sqrt"],
    needs="float32 or float64, whose squares neither overflow nor vanish; constant axes",
    needs_shapes=True,
)
class LowerReduceL2(_SumOf):
    """ReduceL2 becomes the square root of the sum of squares."""

    operator = "ReduceL2"

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Take the root."""
        return op.Sqrt(super().lower(op, node))


class _ExtremeAlong(Lowering):
    """The greatest or least along axes, as Max or Min of halves."""

    joins: str

    def accept(self, node: ir.Node) -> None:
        """Check that the axes and their lengths are known."""
        x = first_operand(node)
        check_double(self.joins, dtype_of(x, FLOATS), self.opset)
        integer_attribute(node, "keepdims", 1)
        for axis in axes_of(node):
            length_of(x, axis)

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Join the halves of one axis after the other."""
        x = first_operand(node)
        made, axes = x, axes_of(node)
        for axis in axes:
            length = length_of(x, axis)
            while length > 1:
                # The middle one of an odd number is in both halves, which changes no maximum.
                half = -(-length // 2)
                parts = (sliced(op, self.opset, made, axis, start, start + half) for start in (0, length - half))
                made, length = getattr(op, self.joins)(*parts), half
        if axes and not integer_attribute(node, "keepdims", 1):
            return squeezed(op, self.opset, made, axes)
        return op.Identity(made) if made is x else made


_EXTREME_NEEDS = "floats, none of them NaN; constant axes, of fixed length"


@verify.equality(signed_zero=False, everywhere=False)
@register(
    "lower_reduce_max",
    takes=["ReduceMax"],
    gives=["Constant", "Identity", "Max", "Slice", "Squeeze"],
    needs=_EXTREME_NEEDS,
    needs_shapes=True,
)
class LowerReduceMax(_ExtremeAlong):
    """ReduceMax becomes, for each axis, Max of its halves, of their halves, and so on."""

    operator = "ReduceMax"
    joins = "Max"


@verify.equality(signed_zero=False, everywhere=False)
@register(
    "lower_reduce_min",
    takes=["ReduceMin"],
    gives=["Constant", "Identity", "Min", "Slice", "Squeeze"],
    needs=_EXTREME_NEEDS,
    needs_shapes=True,
)
class LowerReduceMin(_ExtremeAlong):
    """ReduceMin becomes, for each axis, Min of its halves, of their halves, and so on."""

    operator = "ReduceMin"
    joins = "Min"
