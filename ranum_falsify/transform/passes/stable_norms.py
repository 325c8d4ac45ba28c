"""Euclidean norms whose squares neither overflow nor make a divisor 0.

The squares of a float32 overflow from 1.8e19 on, those of a float16 from 256; and all squares of a vector below 2^-63
may be 0, so that its norm is.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import onnx_ir as ir

from ranum_falsify.transform import verify
from ranum_falsify.transform.operands import (
    dtype_of,
)
from ranum_falsify.transform.passes.blocks import clipped, reduced, squeezed
from ranum_falsify.transform.passes.expressions import (
    WIDTHS,
    Plan,
    Reduction,
    made_by,
    norm_of,
    operand,
    read_sum,
    reduction,
    root_of,
    same_tensor,
    scalar_of,
    square_of,
    squares_of,
)
from ranum_falsify.transform.passes.kept_reductions import is_kept, kept_value, quotient_of
from ranum_falsify.transform.passes.stable_parts import StableForm, least_scale, number, scaled_norm
from ranum_falsify.transform.registry import Counterpart, register

__all__ = ["StableCosine", "StableHypot", "StableNorm", "StableNormProduct", "StableNormalize"]

_FLOATS = "float32, float64 or float16"
_ROOTS = ("Sqrt", "Pow", "ReduceL2")


@verify.tolerance
@register(
    "stable_norm",
    takes=["ReduceL2", "ReduceSum", "ReduceSumSquare", "Mul", "Pow", "Sqrt"],
    gives=["Abs", "ReduceMax", "Max", "Div", "Clip", "Mul", "ReduceSum", "Sqrt"],
    needs=f"{_FLOATS}; constant axes",
    needs_shapes=True,
    stands_for=Counterpart("linalg.vector_norm(x / scale) * scale", "tf.norm(x / scale) * scale"),
)
class StableNorm(StableForm):
    """ReduceL2(x) and Sqrt(ReduceSum(x^2) + c) become s * Sqrt(ReduceSum((x/s)^2) + c/s^2), s the greatest magnitude.

    It is no less than the least normal number, and than the root of c.
    """

    roots = _ROOTS

    def plan(self, node: ir.Node, opset: int) -> Plan | None:
        """Read the norm."""
        found = norm_of(node.outputs[0])
        if found is None or not found[0].axes or _is_limited(found[0].x):
            return None
        return _norm(*found, opset)


@verify.tolerance
@register(
    "stable_norm_product",
    takes=["ReduceSum", "Mul", "Sqrt"],
    gives=["Abs", "ReduceMax", "Max", "Div", "Clip", "Mul", "ReduceSum", "Sqrt"],
    needs=f"{_FLOATS}; constant axes",
    needs_shapes=True,
    stands_for=Counterpart("norm(x) * norm(y), cosine_similarity", "tf.norm(x) * tf.norm(y)"),
)
class StableNormProduct(StableForm):
    """Sqrt(ReduceSum(x^2) * ReduceSum(y^2)), as in a cosine similarity, becomes the product of two scaled norms."""

    roots = ("Sqrt", "Pow")

    def plan(self, node: ir.Node, opset: int) -> Plan | None:
        """Read the product of two sums of squares."""
        inner = root_of(node.outputs[0])
        product = made_by(inner, "Mul")
        if product is None:
            return None
        found = [squares_of(operand(product, position)) for position in (0, 1)]
        if found[0] is None or found[1] is None or not found[0].axes or not found[1].axes:
            return None
        left, right = (_norm(squares, Fraction(0), opset) for squares in (found[0], found[1]))
        return lambda op: op.Mul(left(op), right(op))


@verify.tolerance
@register(
    "stable_normalize",
    takes=["ReduceL2", "ReduceSum", "Mul", "Pow", "Sqrt", "Reciprocal", "Div"],
    gives=["Abs", "ReduceMax", "Max", "Div", "Clip", "Mul", "ReduceSum", "Sqrt"],
    needs=f"{_FLOATS}; constant axes; no epsilon, as which stable_norm keeps",
    needs_shapes=True,
    stands_for=Counterpart("normalize(x / scale)", "tf.math.l2_normalize(x / scale)"),
)
class StableNormalize(StableForm):
    """x / Sqrt(ReduceSum(x^2)) and x / ReduceL2(x) become x/s divided by its norm, s the greatest magnitude.

    Where x is 0, so is the result: the norm of x/s, which is at least 1 elsewhere, is kept above 1.
    """

    roots = ("Div", "Mul")

    def plan(self, node: ir.Node, opset: int) -> Plan | None:
        """Read the quotient."""
        for x, divisor in quotient_of(node):
            inner = kept_value(divisor, x)
            found = norm_of(inner)
            if found is None or found[1] or not found[0].axes or not same_tensor(found[0].x, x):
                continue
            if not is_kept(divisor, x, inner, found[0]):
                self.refuse("its norm is not broadcast back along the axes that it is of")
            dtype = dtype_of(x, tuple(WIDTHS))
            return _normalized(x, found[0], dtype, opset)
        return None


@verify.tolerance
@register(
    "stable_cosine",
    takes=["ReduceL2", "ReduceSum", "Mul", "Pow", "Sqrt", "Div"],
    gives=["Abs", "ReduceMax", "Max", "Div", "Clip", "Mul", "ReduceSum", "Sqrt"],
    needs=f"{_FLOATS}; constant axes; no epsilon",
    needs_shapes=True,
    stands_for=Counterpart("cosine_similarity(x / scale, y / scale)", "-tf.losses.cosine_similarity(x, y)"),
)
class StableCosine(StableForm):
    """ReduceSum(x y) / (ReduceL2(x) ReduceL2(y)) becomes that of x/s and y/t, the greatest magnitudes; 0 for zeros."""

    roots = ("Div",)

    def plan(self, node: ir.Node, opset: int) -> Plan | None:
        """Read the sum of products, and the norms of both factors."""
        total, divisor = made_by(operand(node, 0), "ReduceSum"), made_by(operand(node, 1), "Mul")
        product = None if total is None else made_by(operand(total, 0), "Mul")
        if total is None or product is None or divisor is None:
            return None
        dot, norms = reduction(total), [norm_of(operand(divisor, position)) for position in (0, 1)]
        found = [norm[0] for norm in norms if norm is not None and not norm[1]]
        if len(found) != 2 or not dot.axes or any(_axes(one) != _axes(dot) for one in found):
            return None
        factors = operand(product, 0), operand(product, 1)
        if not any(all(map(same_tensor, factors, (one.x, two.x))) for one, two in (found, found[::-1])):
            return None
        dtype = dtype_of(factors[0], tuple(WIDTHS))

        def build(op: Any) -> ir.Value:
            parts = [
                scaled_norm(op, x, dot.axes, epsilon=Fraction(0), dtype=dtype, opset=opset)[1:] for x in factors
            ]
            (small, root), (other, length) = parts
            top = reduced(op, "ReduceSum", opset, op.Mul(small, other), dot.axes, keepdims=True)
            one = number(op, 1, dtype)
            made: ir.Value = op.Div(top, op.Mul(op.Max(root, one), op.Max(length, one)))
            return made if dot.keepdims else squeezed(op, opset, made, dot.axes)

        return build


@verify.tolerance
@register(
    "stable_hypot",
    takes=["Mul", "Pow", "Add", "Sqrt"],
    gives=["Abs", "Max", "Div", "Clip", "Mul", "Add", "Sqrt"],
    needs=_FLOATS,
    needs_shapes=True,
    stands_for=Counterpart("hypot", "tf.experimental.numpy.hypot, tf.abs(tf.complex(a, b))"),
)
class StableHypot(StableForm):
    """Sqrt(a^2 + b^2 + c) becomes s * Sqrt((a/s)^2 + (b/s)^2 + c/s^2), s the greatest magnitude, as in stable_norm."""

    roots = ("Sqrt", "Pow")

    def plan(self, node: ir.Node, opset: int) -> Plan | None:
        """Read the sum of squares."""
        inner = root_of(node.outputs[0])
        total = None if inner is None else read_sum(inner)
        if total is None or len(total.plus) < 2 or total.minus or total.constant < 0:
            return None
        squared = [square_of(term) for term in total.plus]
        if any(x is None or _is_limited(x) for x in squared):
            return None
        total.check_shape()
        legs = [x for x in squared if x is not None]
        dtype = dtype_of(legs[0], tuple(WIDTHS))
        constant = total.constant

        def build(op: Any) -> ir.Value:
            scale = op.Max(*(op.Abs(leg) for leg in legs), number(op, least_scale(dtype, constant), dtype))
            made = None
            for leg in legs:
                small = clipped(op, opset, op.Div(leg, scale), -1, 1, dtype)
                square = op.Mul(small, small)
                made = square if made is None else op.Add(made, square)
            if constant:
                made = op.Add(made, op.Div(op.Div(number(op, constant, dtype), scale), scale))
            result: ir.Value = op.Mul(op.Sqrt(made), scale)
            return result

        return build


def _norm(squares: Reduction, epsilon: Fraction, opset: int) -> Plan:
    """Return how to build a scaled norm.

    Raises:
        RefusedError: There is none of the element type.
    """
    dtype = dtype_of(squares.x, tuple(WIDTHS))

    def build(op: Any) -> ir.Value:
        scale, _, root = scaled_norm(op, squares.x, squares.axes, epsilon=epsilon, dtype=dtype, opset=opset)
        norm: ir.Value = op.Mul(root, scale)
        return norm if squares.keepdims else squeezed(op, opset, norm, squares.axes)

    return build


def _axes(found: Reduction) -> tuple[Sequence[int], bool]:
    return list(found.axes), found.keepdims


def _normalized(x: ir.Value, squares: Reduction, dtype: ir.DataType, opset: int) -> Plan:
    def build(op: Any) -> ir.Value:
        _, small, root = scaled_norm(op, x, squares.axes, epsilon=Fraction(0), dtype=dtype, opset=opset)
        made: ir.Value = op.Div(small, op.Max(root, number(op, 1, dtype)))
        return made

    return build


def _is_limited(x: ir.Value) -> bool:
    """Tell whether a tensor is clipped to [-1, 1], as these passes leave it."""
    node = made_by(x, "Clip")
    if node is None:
        return False
    limits = [scalar_of(limit) for limit in node.inputs[1:]]
    return limits == [-1, 1]
