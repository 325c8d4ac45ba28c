"""Variances and distances, as sums of squares of differences instead of differences of sums of squares.

Where numbers are large beside their differences, both sums are equal, or the second one is greater: then a variance is
0 or negative, and its root NaN.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import onnx_ir as ir

from ranum_falsify.transform import verify
from ranum_falsify.transform.operands import dtype_of, length_of
from ranum_falsify.transform.passes.blocks import reduced
from ranum_falsify.transform.passes.expressions import (
    WIDTHS,
    Plan,
    Reduction,
    made_by,
    operand,
    read_sum,
    reduction,
    same_tensor,
    scalar_of,
    square_of,
    squares_of,
)
from ranum_falsify.transform.passes.stable_parts import StableForm, number
from ranum_falsify.transform.registry import Counterpart, register

__all__ = ["StableDivisionBySquare", "StableSquaredDistance", "StableVariance"]

_FLOATS = "float32, float64 or float16"


@verify.tolerance
@register(
    "stable_variance",
    takes=["Mul", "Pow", "ReduceMean", "ReduceSum", "Div", "Sub"],
    gives=["ReduceMean", "Sub", "Mul", "ReduceSum"],
    needs=f"{_FLOATS}; constant axes, of fixed length where sums are divided by it",
    needs_shapes=True,
    stands_for=Counterpart("var(x, correction=0)", "tf.math.reduce_variance"),
)
class StableVariance(StableForm):
    """ReduceMean(x^2) - ReduceMean(x)^2 becomes ReduceMean((x - ReduceMean(x))^2).

    ReduceSum(x^2) - ReduceSum(x)^2 / n becomes ReduceSum((x - ReduceMean(x))^2).
    """

    roots = ("Sub", "Add")

    def plan(self, node: ir.Node, opset: int) -> Plan | None:
        """Read the mean of squares, and the square of the mean."""
        total = read_sum(node.outputs[0])
        if len(total.plus) != 1 or len(total.minus) != 1 or total.constant < 0:
            return None
        squares = _mean_of_squares(total.plus[0]) or squares_of(total.plus[0])
        if squares is None or not squares.axes:
            return None
        is_mean = made_by(total.plus[0], "ReduceMean") is not None
        subtracted = square_of(total.minus[0]) if is_mean else _square_over_length(total.minus[0], squares)
        centre = made_by(subtracted, "ReduceMean" if is_mean else "ReduceSum")
        if centre is None:
            return None
        same = reduction(centre)
        if not (same_tensor(same.x, squares.x) and _same_axes(same, squares)):
            return None
        total.check_shape()
        dtype = dtype_of(squares.x, tuple(WIDTHS))
        constant, name = total.constant, "ReduceMean" if is_mean else "ReduceSum"

        def build(op: Any) -> ir.Value:
            mean = reduced(op, "ReduceMean", opset, squares.x, squares.axes, keepdims=True)
            off = op.Sub(squares.x, mean)
            made = reduced(op, name, opset, op.Mul(off, off), squares.axes, keepdims=squares.keepdims)
            return op.Add(made, number(op, constant, dtype)) if constant else made

        return build


@verify.tolerance
@register(
    "stable_squared_distance",
    takes=["ReduceSum", "Mul", "Pow", "Add", "Sub"],
    gives=["Sub", "Mul", "ReduceSum"],
    needs=f"{_FLOATS}; constant axes",
    needs_shapes=True,
    stands_for=Counterpart("((x - y) ** 2).sum()", "tf.reduce_sum(tf.math.squared_difference(x, y))"),
)
class StableSquaredDistance(StableForm):
    """ReduceSum(x^2) + ReduceSum(y^2) - 2 ReduceSum(x y) becomes ReduceSum((x - y)^2)."""

    roots = ("Sub", "Add")

    def plan(self, node: ir.Node, opset: int) -> Plan | None:
        """Read the sums of squares, and twice the sum of products."""
        total = read_sum(node.outputs[0])
        if len(total.plus) != 2 or len(total.minus) != 1 or total.constant < 0:
            return None
        squares = [squares_of(term) for term in total.plus]
        product = _twice_products(total.minus[0])
        if squares[0] is None or squares[1] is None or product is None or not squares[0].axes:
            return None
        x, y = squares[0].x, squares[1].x
        found, factors = product
        if not (_same_axes(squares[0], squares[1]) and _same_axes(squares[0], found)):
            return None
        if not any(same_tensor(a, x) and same_tensor(b, y) for a, b in (factors, factors[::-1])):
            return None
        if x.shape is None or x.shape != y.shape:
            self.refuse("the shapes of the two tensors are not known, or differ")
        total.check_shape()
        dtype = dtype_of(x, tuple(WIDTHS))
        axes, keeps, constant = found.axes, found.keepdims, total.constant

        def build(op: Any) -> ir.Value:
            off = op.Sub(x, y)
            made = reduced(op, "ReduceSum", opset, op.Mul(off, off), axes, keepdims=keeps)
            return op.Add(made, number(op, constant, dtype)) if constant else made

        return build


@verify.tolerance
@register(
    "stable_division_by_square",
    takes=["Mul", "Pow", "Div"],
    gives=["Div"],
    needs=_FLOATS,
    needs_shapes=True,
    stands_for=Counterpart("a / b / b, the derivative of a / b", "a / b / b"),
)
class StableDivisionBySquare(StableForm):
    """a / (b * b) becomes (a / b) / b: the square of 1e-23 is 0, and that of 1e20 infinite."""

    roots = ("Div",)

    def plan(self, node: ir.Node, opset: int) -> Plan | None:
        """Read the divisor."""
        b = square_of(operand(node, 1))
        if b is None or scalar_of(b) is not None:
            return None
        a = operand(node, 0)
        dtype_of(b, tuple(WIDTHS))
        return lambda op: op.Div(op.Div(a, b), b)


def _mean_of_squares(value: ir.Value) -> Reduction | None:
    node = made_by(value, "ReduceMean")
    x = None if node is None else square_of(operand(node, 0))
    return None if node is None or x is None else reduction(node, x)


def _square_over_length(value: ir.Value, squares: Reduction) -> ir.Value | None:
    """Return x of x^2 / n, n being how many elements are summed."""
    node = made_by(value, "Div", "Mul")
    if node is None:
        return None
    for position in (0, 1) if node.op_type == "Mul" else (0,):
        square, other = operand(node, position), operand(node, 1 - position)
        x, count = square_of(square), scalar_of(other, square)
        if x is None or not count:
            continue
        length = 1
        for axis in squares.axes:
            length *= length_of(squares.x, axis)
        times = 1 / count if node.op_type == "Mul" else count
        return x if abs(times - length) <= Fraction(length, 10**6) else None
    return None


def _twice_products(value: ir.Value) -> tuple[Reduction, tuple[ir.Value, ir.Value]] | None:
    """Return what is summed up in 2 ReduceSum(x y), and x and y."""
    node = made_by(value, "Mul")
    if node is None:
        return None
    for position in (0, 1):
        total = operand(node, position)
        if scalar_of(operand(node, 1 - position), total) != 2:
            continue
        summed = made_by(total, "ReduceSum")
        product = None if summed is None else made_by(operand(summed, 0), "Mul")
        if summed is not None and product is not None:
            return reduction(summed), (operand(product, 0), operand(product, 1))
    return None


def _same_axes(one: Reduction, other: Reduction) -> bool:
    return list(one.axes) == list(other.axes) and one.keepdims == other.keepdims
