"""Variances and distances, as sums of squares of differences instead of differences of sums of squares.

Where numbers are large beside their differences, both sums are equal, or the second one is greater: then a variance is
0 or negative, and its root NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import axis_of, dtype_of, float_attribute, integers, length_of, new_node, rank_of
from ranum_falsify.rewrite.passes.blocks import reduced
from ranum_falsify.rewrite.passes.expressions import (
    WIDTHS,
    Reduction,
    SumTerms,
    made_by,
    read_sum,
    reduction,
    same_tensor,
    scalar_of,
    scaled_of,
    square_of,
    squares_of,
)
from ranum_falsify.rewrite.passes.stable_parts import StableForm, cast, narrowed, plus, scaled, single_or_wider
from ranum_falsify.rewrite.registry import Counterpart, register
from ranum_falsify.rewrite.rewrite import Op, Plan, operand

_VANISHING = 1.2e-38
"""Up to this epsilon, it keeps no variance from 0; above, it does."""
_EPSILON = 2.0**-60
"""Of a normalisation of numbers up to 1, one of them 1: nothing beside their variance."""
_MOST_DIFFERENCES = 2**24
_FLOATS = "float32, float64 or float16"


@verify.tolerance
@register(
    "stable_variance",
    takes="Mul Pow ReduceMean ReduceSum Div Sub",
    gives="ReduceMean Sub Mul ReduceSum",
    needs=f"{_FLOATS}; constant axes, of fixed length where sums are divided by it",
    stands_for=Counterpart("var(x, correction=0)", "tf.math.reduce_variance"),
)
class StableVariance(StableForm):
    """ReduceMean(x^2) - ReduceMean(x)^2 becomes ReduceMean((x - ReduceMean(x))^2).

    ReduceSum(x^2) - ReduceSum(x)^2 / n becomes ReduceSum((x - ReduceMean(x))^2).
    """

    roots = ("Sub", "Add")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        total = read_sum(node.outputs[0])
        if len(total.plus) != 1 or len(total.minus) != 1 or total.constant < 0:
            return None
        squares = squares_of(total.plus[0], "ReduceMean") or squares_of(total.plus[0])
        if squares is None or not squares.axes:
            return None
        is_mean = made_by(total.plus[0], "ReduceMean") is not None
        subtracted = square_of(total.minus[0]) if is_mean else _square_over_length(total.minus[0], squares)
        centre = made_by(subtracted, "ReduceMean" if is_mean else "ReduceSum")
        if centre is None:
            return None
        same = reduction(centre)
        if not (same_tensor(same.x, squares.x) and same.is_along(squares)):
            return None
        total.check_shape()
        dtype = dtype_of(squares.x, tuple(WIDTHS))
        constant, name = total.constant, "ReduceMean" if is_mean else "ReduceSum"

        def build(op: Op) -> ir.Value:
            mean = reduced(op, "ReduceMean", opset, squares.x, squares.axes, keepdims=True)
            off = op.Sub(squares.x, mean)
            made = reduced(op, name, opset, op.Mul(off, off), squares.axes, keepdims=squares.keepdims)
            return plus(op, made, constant, dtype)

        return build


@verify.tolerance
@register(
    "stable_squared_distance",
    takes="ReduceSum Mul Pow Add Sub",
    gives="Sub Mul ReduceSum",
    needs=f"{_FLOATS}; constant axes",
    stands_for=Counterpart("((x - y) ** 2).sum()", "tf.reduce_sum(tf.math.squared_difference(x, y))"),
)
class StableSquaredDistance(StableForm):
    """ReduceSum(x^2) + ReduceSum(y^2) - 2 ReduceSum(x y) becomes ReduceSum((x - y)^2)."""

    roots = ("Sub", "Add")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        total = read_sum(node.outputs[0])
        signed = [*((term, 1) for term in total.plus), *((term, -1) for term in total.minus)]
        mixed = [term for term, sign in signed if sign * scaled_of(term)[1] == -2]
        added = [term for term in total.plus if term not in mixed]
        if len(signed) != 3 or len(added) != 2 or len(mixed) != 1 or total.constant < 0:
            return None
        inner, _ = scaled_of(mixed[0])
        matrix = made_by(inner, "MatMul")
        if matrix is not None:
            return self._pairwise(total, added, matrix, opset)
        squares = [squares_of(term) for term in added]
        product = _products(inner)
        if squares[0] is None or squares[1] is None or product is None or not squares[0].axes:
            return None
        x, y = squares[0].x, squares[1].x
        found, factors = product
        if not (squares[0].is_along(squares[1]) and squares[0].is_along(found)):
            return None
        if not any(same_tensor(a, x) and same_tensor(b, y) for a, b in (factors, factors[::-1])):
            return None
        if x.shape is None or x.shape != y.shape:
            self.refuse("the shapes of the two tensors are not known, or differ")
        total.check_shape()
        dtype = dtype_of(x, tuple(WIDTHS))
        axes, keeps, constant = found.axes, found.keepdims, total.constant

        def build(op: Op) -> ir.Value:
            off = op.Sub(x, y)
            made = reduced(op, "ReduceSum", opset, op.Mul(off, off), axes, keepdims=keeps)
            return plus(op, made, constant, dtype)

        return build

    def _pairwise(self, total: SumTerms, added: Sequence[ir.Value], matrix: ir.Node, opset: int) -> Plan | None:
        """Return how to build the distances of all rows of two matrices, of which one is multiplied transposed."""
        moved = made_by(operand(matrix, 1), "Transpose")
        if moved is None:
            return None
        x, y = operand(matrix, 0), operand(moved, 0)
        found = [_moved_squares(term) for term in added]
        if any(one is None or list(one.axes) != [1] for one in found):
            return None
        if not any(same_tensor(a.x, x) and same_tensor(b.x, y) for a, b in (found, found[::-1]) if a and b):
            return None
        lengths = [length_of(x, 0), length_of(y, 0), length_of(x, 1)]
        rows, columns = ((lengths[0], 1), (1, lengths[1]))
        placed = {tuple(term.shape or ()): one for term, one in zip(added, found, strict=True)}
        if rank_of(x) != 2 or rank_of(y) != 2 or set(placed) - {rows, columns, columns[1:]} or len(placed) != 2:
            self.refuse("sums of squares are no column and row beside the product of two matrices")
        if math.prod(lengths) > _MOST_DIFFERENCES:
            self.refuse(f"{math.prod(lengths)} differences are more than {_MOST_DIFFERENCES}")
        total.check_shape()
        dtype, constant = dtype_of(x, tuple(WIDTHS)), total.constant

        def build(op: Op) -> ir.Value:
            off = op.Sub(_row(op, x, lengths[::2], 1), _row(op, y, lengths[1:], 0))
            made = reduced(op, "ReduceSum", opset, op.Mul(off, off), [2], keepdims=False)
            return plus(op, made, constant, dtype)

        return build


@verify.tolerance
@register(
    "stable_layer_normalization",
    takes="LayerNormalization InstanceNormalization RMSNormalization",
    gives="ReduceMean Sub Abs ReduceMax Max Div Clip",
    needs=f"{_FLOATS}; no epsilon; a known rank; no statistics that are read",
    stands_for=Counterpart("layer_norm((x - mean) / scale, ...)", "LayerNormalization of (x - mean) / scale"),
)
class StableLayerNormalization(StableForm):
    """Normalisations without epsilon read (x - mean) / s in place of x, s the greatest magnitude of the differences.

    They make the same of all multiples of x.  The variance of this one is not small, unless x is constant: then the
    result is 0.  RMSNormalization reads x / s.
    """

    roots = ("LayerNormalization", "InstanceNormalization", "RMSNormalization")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        if not 0 <= float_attribute(node, "epsilon", 1e-5) <= _VANISHING:
            return None
        if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
            self.refuse("its statistics are read, too")
        x = operand(node, 0)
        dtype, rank = dtype_of(x, tuple(WIDTHS)), rank_of(x)
        first = 2 if node.op_type == "InstanceNormalization" else axis_of(node, -1)
        axes, wide = range(first, rank), single_or_wider(dtype)

        def build(op: Op) -> ir.Value:
            given = cast(op, x, wide)
            off = given
            if node.op_type != "RMSNormalization":
                off = op.Sub(given, reduced(op, "ReduceMean", opset, given, axes, keepdims=True))
            small = narrowed(op, scaled(op, off, axes, dtype=wide, opset=opset, up=True)[1], dtype)
            attributes = {**dict(node.attributes), "epsilon": _EPSILON}
            return new_node(op, node.op_type, small, *node.inputs[1:], **attributes)

        return build


@verify.tolerance
@register(
    "stable_division_by_square",
    takes="Mul Pow Div",
    gives="Div",
    needs=_FLOATS,
    stands_for=Counterpart("a / b / b, the derivative of a / b", "a / b / b"),
)
class StableDivisionBySquare(StableForm):
    """a / (b * b) becomes (a / b) / b: the square of 1e-23 is 0, and that of 1e20 infinite."""

    roots = ("Div",)

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        b = square_of(operand(node, 1))
        if b is None or scalar_of(b) is not None:
            return None
        a = operand(node, 0)
        dtype_of(b, tuple(WIDTHS))
        return lambda op: op.Div(op.Div(a, b), b)


def _square_over_length(value: ir.Value, squares: Reduction) -> ir.Value | None:
    """Return x of x^2 / n, n being how many elements are summed."""
    square, factor = scaled_of(value)
    x = square_of(square)
    if x is None or factor <= 0:
        return None
    length = math.prod(length_of(squares.x, axis) for axis in squares.axes)
    return x if abs(1 / factor - length) <= Fraction(length, 10**6) else None


def _moved_squares(value: ir.Value) -> Reduction | None:
    """Return x of the sum of the squares of x, whatever moves its elements after it."""
    while (node := made_by(value, "Transpose", "Reshape", "Unsqueeze", "Squeeze")) is not None:
        value = operand(node, 0)
    return squares_of(value)


def _row(op: Op, x: ir.Value, lengths: Sequence[int], axis: int) -> ir.Value:
    """Return a matrix with another dimension, of length 1, before an axis."""
    return op.Reshape(x, integers(op, [*lengths[:axis], 1, *lengths[axis:]]))


def _products(value: ir.Value) -> tuple[Reduction, tuple[ir.Value, ir.Value]] | None:
    """Return what is summed up in ReduceSum(x y), and x and y."""
    summed = made_by(value, "ReduceSum")
    product = None if summed is None else made_by(operand(summed, 0), "Mul")
    if summed is None or product is None:
        return None
    return reduction(summed), (operand(product, 0), operand(product, 1))
