"""Euclidean norms whose squares neither overflow nor make a divisor 0.

The squares of a float32 overflow from 1.8e19 on, those of a float16 from 256; and all squares of a vector below 2^-63
may be 0, so that its norm is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import dtype_of, length_of
from ranum_falsify.rewrite.passes.blocks import clipped, reduced, squeezed
from ranum_falsify.rewrite.passes.expressions import (
    WIDTHS,
    Reduction,
    is_kept,
    kept_value,
    made_by,
    norm_of,
    quotient_of,
    read_sum,
    reduction,
    root_of,
    same_tensor,
    scalar_of,
    scaled_of,
    square_of,
    squares_of,
)
from ranum_falsify.rewrite.passes.stable_parts import (
    StableForm,
    cast,
    narrowed,
    number,
    scaled,
    scaled_norm,
    single_or_wider,
    times,
)
from ranum_falsify.rewrite.registry import Counterpart, register
from ranum_falsify.rewrite.rewrite import Op, Plan, operand

_FLOATS = "float32, float64 or float16"
_ROOTS = ("Sqrt", "Pow", "ReduceL2")


@verify.tolerance
@register(
    "stable_norm",
    takes="ReduceL2 ReduceSum ReduceSumSquare Mul Pow Sqrt",
    gives="Abs ReduceMax Max Div Clip Mul ReduceSum Sqrt",
    needs=f"{_FLOATS}; constant axes",
    stands_for=Counterpart("linalg.vector_norm(x / scale) * scale", "tf.norm(x / scale) * scale"),
)
class StableNorm(StableForm):
    """ReduceL2(x) and Sqrt(ReduceSum(x^2) + c) become s * Sqrt(ReduceSum((x/s)^2) + c/s^2), s the greatest magnitude.

    Where that is below 1 and c is not 0, s is 1; in float16, it is 1 and the squares are float32.
    """

    roots = _ROOTS

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        found = norm_of(node.outputs[0])
        if found is None or not found[0].axes or _is_limited(found[0].x):
            return None
        return _norm(*found, opset)


@verify.tolerance
@register(
    "stable_norm_product",
    takes="ReduceSum Mul Sqrt",
    gives="Abs ReduceMax Max Div Clip Mul ReduceSum Sqrt",
    needs=f"{_FLOATS}; constant axes",
    stands_for=Counterpart("norm(x) * norm(y), cosine_similarity", "tf.norm(x) * tf.norm(y)"),
)
class StableNormProduct(StableForm):
    """Sqrt(ReduceSum(x^2) * ReduceSum(y^2)), as in a cosine similarity, becomes the product of two scaled norms."""

    roots = ("Sqrt", "Pow")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        found = _two_norms(node.outputs[0])
        if found is None or not all(one.axes for one in found):
            return None
        left, right = (_norm(squares, Fraction(0), opset) for squares in found)
        return lambda op: op.Mul(left(op), right(op))


@verify.tolerance
@register(
    "stable_normalize",
    takes="ReduceL2 ReduceSum ReduceMean Mul Pow Sqrt Reciprocal Div",
    gives="Abs ReduceMax Max Div Clip Mul ReduceSum Sqrt",
    needs=f"{_FLOATS}; constant axes; where squares are averaged, of fixed length",
    stands_for=Counterpart("normalize(x / scale)", "tf.math.l2_normalize(x / scale)"),
)
class StableNormalize(StableForm):
    """x / Sqrt(ReduceSum(x^2) + c) becomes x/s / Sqrt(ReduceSum((x/s)^2) + c/s^2), s the greatest magnitude.

    So does x / ReduceL2(x); and x / Sqrt(ReduceMean(x^2) + c), or with a power of -1/2, as of differences from a mean,
    or with a factor, as of those over n - 1.
    Where x is 0, so is the result: the divisor, which is no less elsewhere, is kept from 0.
    """

    roots = ("Div", "Mul")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        for x, divisor, inner, found in _quotients(node):
            if not found.squares.axes or not same_tensor(found.squares.x, x) or _is_limited(x):
                continue
            if not is_kept(divisor, x, inner, found.squares):
                self.refuse("its norm is not broadcast back along the axes that it is of")
            return _normalized(x, found, dtype_of(x, tuple(WIDTHS)), opset)
        return None


@verify.tolerance
@register(
    "stable_normalize_range",
    takes="ReduceL1 ReduceSum ReduceMax ReduceMin Abs Sub Div",
    gives="Abs ReduceMax Max Div Clip ReduceSum",
    needs=f"{_FLOATS}; constant axes",
    stands_for=Counterpart("normalize(x / scale, p=1)", "x / scale / tf.reduce_sum(tf.abs(x / scale))"),
)
class StableNormalizeRange(StableForm):
    """x / ReduceL1(x) becomes x/s / ReduceL1(x/s), s the greatest magnitude, and x / ReduceMax(Abs(x)) becomes x/s.

    So does (x - ReduceMin(x)) / (ReduceMax(x) - ReduceMin(x)).  Where the dividend is 0, so is the result.
    """

    roots = ("Div", "Mul")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        for x, divisor in quotient_of(node):
            inner = kept_value(divisor, x)
            found = _sizes_of(inner) or _range_of(inner, x)
            if found is None or not found[0].axes or not same_tensor(found[0].x, x) or _is_limited(x):
                continue
            (sizes, is_sum), dtype = found, dtype_of(x, tuple(WIDTHS))
            if not is_kept(divisor, x, inner, sizes):
                self.refuse("its norm is not broadcast back along the axes that it is of")
            return _shares(x, sizes.axes, dtype, opset, is_sum=is_sum)
        return None


@verify.tolerance
@register(
    "stable_cosine",
    takes="ReduceL2 ReduceSum Mul Pow Sqrt Div",
    gives="Abs ReduceMax Max Div Clip Mul ReduceSum Sqrt",
    needs=f"{_FLOATS}; constant axes; no epsilon",
    stands_for=Counterpart("cosine_similarity(x / scale, y / scale)", "-tf.losses.cosine_similarity(x, y)"),
)
class StableCosine(StableForm):
    """ReduceSum(x y) / (ReduceL2(x) ReduceL2(y)) becomes that of x/s and y/t, the greatest magnitudes; 0 for zeros.

    The product of the norms may be written as the root of a product of sums of squares.
    """

    roots = ("Div",)

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        total = made_by(operand(node, 0), "ReduceSum")
        product = None if total is None else made_by(operand(total, 0), "Mul")
        found = _two_norms(operand(node, 1))
        if total is None or product is None or found is None:
            return None
        dot = reduction(total)
        if not dot.axes or not all(one.is_along(dot) for one in found):
            return None
        factors = operand(product, 0), operand(product, 1)
        if not any(all(map(same_tensor, factors, (one.x, two.x))) for one, two in (found, found[::-1])):
            return None
        dtype = dtype_of(factors[0], tuple(WIDTHS))

        def build(op: Op) -> ir.Value:
            units = [_unit(op, x, dot.axes, Fraction(0), dtype, opset) for x in factors]
            made = narrowed(op, reduced(op, "ReduceSum", opset, op.Mul(*units), dot.axes, keepdims=True), dtype)
            return made if dot.keepdims else squeezed(op, opset, made, dot.axes)

        return build


@verify.tolerance
@register(
    "stable_hypot",
    takes="Mul Pow Add Sqrt",
    gives="Abs Max Div Clip Mul Add Sqrt",
    needs=_FLOATS,
    stands_for=Counterpart("hypot", "tf.experimental.numpy.hypot, tf.abs(tf.complex(a, b))"),
)
class StableHypot(StableForm):
    """Sqrt(a^2 + b^2 + c) becomes s * Sqrt((a/s)^2 + (b/s)^2 + c/s^2), s the greatest magnitude, at least 1."""

    roots = ("Sqrt", "Pow")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
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

        def build(op: Op) -> ir.Value:
            scale = op.Max(*(op.Abs(leg) for leg in legs), number(op, 1, dtype))
            made = None
            for leg in legs:
                small = clipped(op, opset, op.Div(leg, scale), -1, 1, dtype)
                square = op.Mul(small, small)
                made = square if made is None else op.Add(made, square)
            if constant:
                made = op.Add(made, op.Div(op.Div(number(op, constant, dtype), scale), scale))
            return op.Mul(op.Sqrt(made), scale)

        return build


def _norm(squares: Reduction, epsilon: Fraction, opset: int) -> Plan:
    """Return how to build a scaled norm."""
    dtype = dtype_of(squares.x, tuple(WIDTHS))

    def build(op: Op) -> ir.Value:
        found = scaled_norm(op, squares.x, squares.axes, epsilon=epsilon, dtype=dtype, opset=opset)
        norm = narrowed(op, found.norm(op), dtype)
        return norm if squares.keepdims else squeezed(op, opset, norm, squares.axes)

    return build


def _two_norms(value: ir.Value) -> tuple[Reduction, Reduction] | None:
    """Return x and y of the product of the norms of x and y, or of the root of the product of their squares."""
    inner = root_of(value)
    product = made_by(value if inner is None else inner, "Mul")
    if product is None:
        return None
    factors = [operand(product, position) for position in (0, 1)]
    norms = [norm_of(factor) for factor in factors] if inner is None else [(squares_of(one), 0) for one in factors]
    found = [norm[0] for norm in norms if norm is not None and not norm[1]]
    left, right = (*found, None, None)[:2]
    return None if left is None or right is None else (left, right)


@dataclass(frozen=True)
class _Norm:
    """The root of a sum, or of a mean, of squares times a factor, and a constant."""

    squares: Reduction
    epsilon: Fraction
    factor: Fraction = Fraction(1)
    is_mean: bool = False


def _quotients(node: ir.Node) -> Iterator[tuple[ir.Value, ir.Value, ir.Value, _Norm]]:
    """Yield dividend, divisor or its inverse, what of it is not broadcast, and the norm that it is."""
    for x, divisor in quotient_of(node):
        inner = kept_value(divisor, x)
        total = root_of(inner)
        found = norm_of(inner)
        norm = _Norm(*found) if found is not None else None if total is None else _root_mean(total)
        if norm is not None:
            yield x, divisor, inner, norm
    for position in (0, 1) if node.op_type == "Mul" else ():
        x, inverse = operand(node, 1 - position), operand(node, position)
        inner = kept_value(inverse, x)
        power = made_by(inner, "Pow")
        if power is not None and scalar_of(operand(power, 1), operand(power, 0)) == Fraction(-1, 2):
            norm = _root_mean(operand(power, 0))
            if norm is not None:
                yield x, inverse, inner, norm


def _root_mean(value: ir.Value) -> _Norm | None:
    """Return a mean, or a sum, of squares, with its factor and what is added to it."""
    total = read_sum(value)
    if len(total.plus) != 1 or total.minus or total.constant < 0 or total.obstacle:
        return None
    inner, factor = scaled_of(total.plus[0])
    if factor <= 0:
        return None
    squares = squares_of(inner)
    if squares is not None:
        return _Norm(squares, total.constant, factor)
    mean = squares_of(inner, "ReduceMean")
    return None if mean is None else _Norm(mean, total.constant, factor, is_mean=True)


def _normalized(x: ir.Value, found: _Norm, dtype: ir.DataType, opset: int) -> Plan:
    axes = found.squares.axes
    share = found.factor / (math.prod(length_of(x, axis) for axis in axes) if found.is_mean else 1)

    def build(op: Op) -> ir.Value:
        # The root of a share of a sum of squares is that of the sum, with as much more added, times that of the share.
        made = _unit(op, x, axes, found.epsilon / share, dtype, opset)
        wide = single_or_wider(dtype)
        return narrowed(op, times(op, made, math.sqrt(1 / share), wide), dtype)

    return build


def _unit(op: Op, x: ir.Value, axes: Sequence[int], epsilon: Fraction, dtype: ir.DataType, opset: int) -> ir.Value:
    """Return a tensor over its norm, in a type that is no narrower than float32."""
    found = scaled_norm(op, x, axes, epsilon=epsilon, dtype=dtype, opset=opset)
    return clipped(op, opset, op.Div(found.small, found.divisor(op)), -1, 1, found.dtype)


def _sizes_of(value: ir.Value) -> tuple[Reduction, bool] | None:
    """Return x of the sum of the magnitudes of x, or of the greatest of them, and whether it is the sum."""
    node = made_by(value, "ReduceL1", "ReduceSum", "ReduceMax")
    if node is None:
        return None
    inner = operand(node, 0) if node.op_type == "ReduceL1" else made_by(operand(node, 0), "Abs")
    x = operand(inner, 0) if isinstance(inner, ir.Node) else inner
    return None if x is None else (reduction(node, x), node.op_type != "ReduceMax")


def _range_of(value: ir.Value, x: ir.Value) -> tuple[Reduction, bool] | None:
    """Return x of the greatest number of y less the least one, x being the differences of y from either."""
    spread, off = made_by(value, "Sub"), made_by(x, "Sub")
    if spread is None or off is None:
        return None
    ends = made_by(operand(spread, 0), "ReduceMax"), made_by(operand(spread, 1), "ReduceMin")
    if ends[0] is None or ends[1] is None or not same_tensor(operand(ends[0], 0), operand(ends[1], 0)):
        return None
    y, most, least = operand(ends[0], 0), *(reduction(end, x) for end in ends if end is not None)
    terms = operand(off, 0), operand(off, 1)
    pairs = ((y, ends[1].outputs[0]), (ends[0].outputs[0], y))
    if not most.is_along(least) or not any(all(map(same_tensor, terms, pair)) for pair in pairs):
        return None
    return most, False


def _shares(x: ir.Value, axes: Sequence[int], dtype: ir.DataType, opset: int, *, is_sum: bool) -> Plan:
    """Return how to build a tensor over the sum of its magnitudes, or over the greatest of them."""
    wide = single_or_wider(dtype)

    def build(op: Op) -> ir.Value:
        _, made = scaled(op, cast(op, x, wide), axes, dtype=wide, opset=opset, up=True)
        if is_sum:
            sizes = reduced(op, "ReduceSum", opset, op.Abs(made), axes, keepdims=True)
            made = clipped(op, opset, op.Div(made, op.Max(sizes, number(op, 1, wide))), -1, 1, wide)
        return narrowed(op, made, dtype)

    return build


def _is_limited(x: ir.Value) -> bool:
    """Tell whether a tensor is clipped to [-1, 1], as these passes leave it."""
    node = made_by(x, "Clip")
    if node is None:
        return False
    limits = [scalar_of(limit) for limit in node.inputs[1:]]
    return limits == [-1, 1]
