"""Functions that are written with exponentials and have an operator of their own, and small differences from 1.

Each is equal to what it replaces in real arithmetic, and closer to it in floating point: exponentials overflow where
the function is an ordinary number, and 1 - Sigmoid(x) is 0 where Sigmoid(-x) is 1e-8.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import dtype_of, length_of, new_node, rank_of
from ranum_falsify.rewrite.passes.expressions import (
    WIDTHS,
    SumTerms,
    kept_reduction,
    made_by,
    quotient_of,
    read_sum,
    root_of,
    same_tensor,
    sigmoid_of,
    square_of,
    unwrap,
)
from ranum_falsify.rewrite.passes.log_forms import opposite, softmax_axis
from ranum_falsify.rewrite.passes.stable_parts import StableForm, number, softplus, times
from ranum_falsify.rewrite.registry import Counterpart, register
from ranum_falsify.rewrite.rewrite import Op, Plan, RefusedError, operand

_FLOATS = "float32, float64 or float16"
_ONE = f"{_FLOATS}; a constant 1 that adds no dimension"
_SINGLE = (ir.DataType.FLOAT,)
_INVERSES = 9  # opset


@verify.tolerance
@register(
    "stable_softmax",
    takes="Exp ReduceSum Div",
    gives="Softmax",
    needs=f"{_FLOATS}; a sum along one constant axis, broadcast back, the last before opset 13",
    stands_for=Counterpart("softmax", "tf.nn.softmax"),
)
class StableSoftmax(StableForm):
    """Exp(x) / ReduceSum(Exp(x)) becomes Softmax(x)."""

    roots = ("Div", "Mul")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        for weights, divisor in quotient_of(node):
            exponential = made_by(weights, "Exp")
            found = None if exponential is None else kept_reduction(divisor, weights, "ReduceSum")
            if exponential is None or found is None or not same_tensor(found.x, weights):
                continue
            x = operand(exponential, 0)
            dtype_of(x, tuple(WIDTHS))
            axes, rank = found.axes, rank_of(x)
            if len(axes) != 1:
                raise RefusedError(f"it sums along {len(axes)} axes; Softmax has one")
            if opset < 13 and axes[0] != rank - 1:
                raise RefusedError("Softmax along another axis than the last needs opset 13")
            return lambda op, x=x, axis=axes[0]: op.Softmax(x, axis=axis)  # type: ignore[misc]
        return None


@verify.tolerance
@register(
    "stable_sigmoid",
    takes="Exp Add Div Reciprocal",
    gives="Neg Softplus Exp",
    needs=_ONE,
    stands_for=Counterpart("sigmoid", "tf.sigmoid"),
)
class StableSigmoid(StableForm):
    """1 / (1 + Exp(-x)) and Exp(x) / (1 + Exp(x)) become Exp(-Softplus(-x)).

    ONNX Runtime's Sigmoid is off by 7e-8, and 0 below -18, where this is right to the last places.
    """

    roots = ("Div", "Reciprocal")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        found = sigmoid_of(node.outputs[0])
        return None if found is None else _sigmoid(*found)


@verify.tolerance
@register(
    "stable_tanh",
    takes="Exp Sub Add Div",
    gives="Tanh Mul",
    needs=f"{_FLOATS}; constants that add no dimension",
    stands_for=Counterpart("tanh", "tf.tanh"),
)
class StableTanh(StableForm):
    """(Exp(a) - Exp(b)) / (Exp(a) + Exp(b)) becomes Tanh((a - b)/2), for b = -a or 0, too, where Exp(b) is 1."""

    roots = ("Div",)

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        above, below = read_sum(operand(node, 0)), read_sum(operand(node, 1))
        if below.minus or len(above.plus) > 1 or len(above.minus) > 1:
            return None
        terms = _exponents(above, [1, -1]), _exponents(below, [1, 1])
        if terms[0] is None or terms[1] is None:
            return None
        (plus, minus), (first, second) = terms[0], terms[1]
        if not (_same(plus, first) and _same(minus, second)) and not (_same(plus, second) and _same(minus, first)):
            return None
        above.check_shape()
        below.check_shape()
        given = plus if plus is not None else minus
        assert given is not None
        dtype = dtype_of(given, tuple(WIDTHS))
        return lambda op: op.Tanh(_half_difference(op, plus, minus, dtype))


@verify.tolerance
@register(
    "stable_one_minus_sigmoid",
    takes="Sigmoid Sub",
    gives="Softplus Neg Exp",
    needs=_ONE,
    stands_for=Counterpart("sigmoid(-x)", "tf.sigmoid(-x)"),
)
class StableOneMinusSigmoid(StableForm):
    """1 - Sigmoid(x) becomes Exp(-Softplus(x)), which is not 0 for large x."""

    roots = ("Sub", "Add")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        def opposed(value: ir.Value) -> Plan | None:
            found = sigmoid_of(value)
            return None if found is None else _sigmoid(found[0], -found[1])

        return _one_minus(node, opposed)


@verify.tolerance
@register(
    "stable_one_minus_softmax",
    takes="Softmax Sub",
    gives="Softmax Gather",
    needs=f"{_ONE}; two classes",
    stands_for=Counterpart("softmax(x, dim).flip(dim)", "tf.reverse(tf.nn.softmax(x, axis), [axis])"),
)
class StableOneMinusSoftmax(StableForm):
    """1 - Softmax(x) of two classes becomes Softmax(x) with the classes exchanged."""

    roots = ("Sub", "Add")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        def opposed(value: ir.Value) -> Plan | None:
            made = made_by(value, "Softmax")
            if made is None:
                return None
            axis = softmax_axis(made, opset)
            classes = length_of(operand(made, 0), axis)
            if classes != 2:
                self.refuse(f"Softmax has {classes} classes; 1 less one of them is another one only of two")
            return lambda op: opposite(op, value, axis)

        return _one_minus(node, opposed)


@verify.tolerance
@register(
    "stable_expm1",
    takes="Exp Sub",
    gives="Tanh Exp Add Mul",
    needs=_ONE,
    stands_for=Counterpart("expm1", "tf.math.expm1"),
)
class StableExpm1(StableForm):
    """Exp(x) - 1 becomes Tanh(x/2) * (Exp(x) + 1), which is not 0 for small x."""

    roots = ("Sub", "Add")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        total = read_sum(node.outputs[0])
        if len(total.plus) != 1 or total.minus or total.constant != -1:
            return None
        exponential = made_by(total.plus[0], "Exp")
        if exponential is None:
            return None
        total.check_shape()
        x, power = operand(exponential, 0), total.plus[0]
        dtype = dtype_of(x, tuple(WIDTHS))
        return lambda op: op.Mul(op.Tanh(times(op, x, 0.5, dtype)), op.Add(power, number(op, 1, dtype)))


@verify.tolerance
@register(
    "stable_one_minus_cos",
    takes="Cos Sub",
    gives="Sin Mul",
    needs=_ONE,
    stands_for=Counterpart("2 * sin(x / 2) ** 2", "2 * tf.sin(x / 2) ** 2"),
)
class StableOneMinusCos(StableForm):
    """1 - Cos(x) becomes 2 Sin(x/2)^2, which is not 0 for small x."""

    roots = ("Sub", "Add")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        def opposed(value: ir.Value) -> Plan | None:
            made = made_by(value, "Cos")
            if made is None:
                return None
            x = operand(made, 0)
            dtype = dtype_of(x, tuple(WIDTHS))

            def build(op: Op) -> ir.Value:
                sine = op.Sin(times(op, x, 0.5, dtype))
                return times(op, op.Mul(sine, sine), 2, dtype)

            return build

        return _one_minus(node, opposed)


@verify.tolerance
@register(
    "stable_inverse_hyperbolic",
    takes="Mul Sqrt Add Log",
    gives="Asinh Acosh",
    needs="float32; opset 9; a constant 1 that adds no dimension",
    stands_for=Counterpart("asinh, acosh", "tf.asinh, tf.acosh"),
)
class StableInverseHyperbolic(StableForm):
    """Log(x + Sqrt(x^2 + 1)) becomes Asinh(x), and Log(x + Sqrt(x^2 - 1)) becomes Acosh(x): squares overflow early."""

    roots = ("Log",)

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        total = read_sum(operand(node, 0))
        if len(total.plus) != 2 or total.minus or total.constant:
            return None
        for x, root in (total.plus, total.plus[::-1]):
            inner = root_of(root)
            under = None if inner is None else read_sum(inner)
            square = square_of(under.plus[0]) if under and len(under.plus) == 1 and not under.minus else None
            if under is None or square is None or not same_tensor(square, x) or abs(under.constant) != 1:
                continue
            under.check_shape()
            dtype_of(x, _SINGLE)
            if opset < _INVERSES:
                raise RefusedError(f"Asinh and Acosh need opset {_INVERSES}; convert the model")
            name = "Asinh" if under.constant > 0 else "Acosh"
            return lambda op, x=x, name=name: new_node(op, name, x)  # type: ignore[misc]
        return None


def _one_minus(node: ir.Node, opposed: Callable[[ir.Value], Plan | None]) -> Plan | None:
    """Plan 1 less a tensor, which may be moved and cast before it is subtracted."""
    total = read_sum(node.outputs[0])
    if len(total.minus) != 1 or total.plus or total.constant != 1:
        return None
    value = total.minus[0]
    if value.dtype is None:
        return None
    wrapped = unwrap(value, value.dtype)
    inner = opposed(wrapped.inner)
    if inner is None:
        return None
    total.check_shape()
    dtype_of(wrapped.inner, tuple(WIDTHS))
    is_cast = wrapped.inner.dtype != value.dtype

    def plan(op: Op) -> ir.Value:
        moved = wrapped.again(op, inner(op))
        return op.Cast(moved, to=value.dtype) if is_cast else moved

    return plan


def _sigmoid(z: ir.Value, sign: int) -> Plan:
    """Return how to build the sigmoid of z, or of -z."""
    dtype = dtype_of(z, tuple(WIDTHS))
    return lambda op: op.Exp(op.Neg(softplus(op, times(op, z, -sign, dtype), dtype)))


def _exponents(total: SumTerms, signs: list[int]) -> tuple[ir.Value | None, ir.Value | None] | None:
    """Return the operands of the two Exp in a sum, None standing for 0, of which Exp is 1."""
    if abs(total.constant) not in (0, 1):
        return None
    found: list[tuple[int, ir.Value | None]] = []
    for sign, values in ((1, total.plus), (-1, total.minus)):
        for value in values:
            node = made_by(value, "Exp")
            if node is None:
                return None
            found.append((sign, operand(node, 0)))
    if total.constant:
        found.append((int(total.constant), None))
    found.sort(key=lambda one: -one[0])
    if [sign for sign, _ in found] != signs:
        return None
    return found[0][1], found[1][1]


def _same(one: ir.Value | None, other: ir.Value | None) -> bool:
    return one is other if one is None or other is None else same_tensor(one, other)


def _half_difference(op: Op, plus: ir.Value | None, minus: ir.Value | None, dtype: ir.DataType) -> ir.Value:
    """Return half of one exponent less the other."""
    if plus is None or minus is None:
        given, factor = (plus, 0.5) if plus is not None else (minus, -0.5)
        assert given is not None
        return times(op, given, factor, dtype)
    for one, other, sign in ((plus, minus, 1), (minus, plus, -1)):
        negation = made_by(other, "Neg")
        if negation is not None and same_tensor(operand(negation, 0), one):
            return times(op, one, sign, dtype)
    return times(op, op.Sub(plus, minus), 0.5, dtype)
