"""Losses: terms p log p at p = 0, and binary cross entropies from logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import dtype_of, new_node
from ranum_falsify.rewrite.passes.expressions import (
    WIDTHS,
    made_by,
    read_sum,
    same_tensor,
    scalar_of,
    scaled_of,
    sigmoid_of,
)
from ranum_falsify.rewrite.passes.stable_parts import StableForm, number, softplus
from ranum_falsify.rewrite.registry import Counterpart, register
from ranum_falsify.rewrite.rewrite import Op, Plan, operand

_FLOATS = "float32, float64 or float16"
_EQUAL_OF_FLOATS = 11  # opset
_CLAMP = -100  # torch's
_MOST_WEIGHTS = 3


@verify.tolerance
@register(
    "stable_x_log_x",
    takes="Log Sub Add Neg Mul",
    gives="Equal Where Log Mul",
    needs=f"{_FLOATS}; opset {_EQUAL_OF_FLOATS}",
    stands_for=Counterpart("xlogy(p, p)", "tf.math.xlogy(p, p)"),
)
class StableXLogX(StableForm):
    """p * Log(p) becomes p * Log(Where(p = 0, 1, p)), 0 at p = 0; so do p * (Log(p) - q), and (1 - p) * Log(1 - p)."""

    roots = ("Mul",)

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        for position in (0, 1):
            factor, other = operand(node, position), operand(node, 1 - position)
            p, _ = scaled_of(factor)
            logarithm = _logarithm_of(other, p)
            if logarithm is None:
                continue
            if opset < _EQUAL_OF_FLOATS:
                self.refuse(f"Equal of floats needs opset {_EQUAL_OF_FLOATS}; convert the model")
            return _guarded(factor, other, logarithm, p, dtype_of(p, tuple(WIDTHS)))
        return None


def _guarded(factor: ir.Value, other: ir.Value, logarithm: ir.Value, p: ir.Value, dtype: ir.DataType) -> Plan:
    """Return how to build a product with the logarithm of p, and with 0 instead where p is 0."""

    def build(op: Op) -> ir.Value:
        is_zero = op.Equal(p, number(op, 0, dtype))
        guarded = op.Log(op.Where(is_zero, number(op, 1, dtype), p))
        return op.Mul(factor, _rebuilt(op, other, logarithm, guarded))

    return build


def _logarithm_of(value: ir.Value, p: ir.Value) -> ir.Value | None:
    """Return the logarithm of p among the terms of a sum."""
    total = read_sum(value)
    for term in (*total.plus, *total.minus):
        node = made_by(term, "Log")
        if node is not None and same_tensor(operand(node, 0), p):
            return term
    return None


def _rebuilt(op: Op, value: ir.Value, old: ir.Value, new: ir.Value) -> ir.Value:
    """Return a sum with one of its terms replaced."""
    if value is old:
        return new
    node = made_by(value, "Add", "Sub", "Neg", "Identity")
    if node is None:
        return value
    return new_node(op, node.op_type, *(_rebuilt(op, one, old, new) for one in node.inputs if one is not None))


@dataclass(frozen=True)
class _Term:
    """A signed product of weights and the logarithm of a probability.

    Attributes:
        sign: 1 or -1.
        weights: The target, or 1 less the target, and perhaps others.
        logit: Of which the probability is the sigmoid, or 1 less that.
        is_opposite: Whether it is 1 less that.
        is_clamped: Whether the logarithm is kept above -100.
    """

    sign: int
    weights: Sequence[ir.Value]
    logit: ir.Value
    is_opposite: bool
    is_clamped: bool

    def loss(self, op: Op, dtype: ir.DataType) -> ir.Value:
        """Return the product with the logarithm's negative, which no number is subtracted from."""
        made = softplus(op, self.logit if self.is_opposite else op.Neg(self.logit), dtype)
        for weight in self.weights:
            made = op.Mul(weight, made)
        return made


class _CrossEntropy(StableForm):
    """A cross entropy of a target and a sigmoid."""

    roots = ("Add", "Sub")
    is_clamped = False

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        total = read_sum(node.outputs[0])
        signed = [(1, term) for term in total.plus] + [(-1, term) for term in total.minus]
        if len(signed) != 2 or total.constant:
            return None
        (first_sign, first), (second_sign, second) = signed
        for one in _terms(first, first_sign):
            for other in _terms(second, second_sign):
                plan = self._joined(one, other) or self._joined(other, one)
                if plan is not None:
                    return plan
        return None

    def _joined(self, one: _Term, other: _Term) -> Plan | None:
        """Return a softplus(-x) + b softplus(x), with its signs, for a log p and b log(1 - p)."""
        if one.is_opposite or not other.is_opposite or not same_tensor(one.logit, other.logit):
            return None
        if one.is_clamped != self.is_clamped or other.is_clamped != self.is_clamped:
            return None
        dtype = dtype_of(one.logit, tuple(WIDTHS))
        for weight in (*one.weights, *other.weights):
            dtype_of(weight, (dtype,))

        def build(op: Op) -> ir.Value:
            first, second = one.loss(op, dtype), other.loss(op, dtype)
            if one.sign != other.sign:
                return op.Sub(first, second) if one.sign < 0 else op.Sub(second, first)
            made = op.Add(first, second)
            return made if one.sign < 0 else op.Neg(made)

        return build


@verify.tolerance
@register(
    "stable_bce_with_logits",
    takes="Sigmoid Log Mul Sub Add",
    gives="Neg Softplus Mul Add",
    needs=f"{_FLOATS}; constants that add no dimension",
    stands_for=Counterpart("binary_cross_entropy_with_logits", "tf.nn.sigmoid_cross_entropy_with_logits"),
)
class StableBceWithLogits(_CrossEntropy):
    """t Log(p) + (1 - t) Log(1 - p) with p = Sigmoid(x) becomes -(t Softplus(-x) + (1 - t) Softplus(x)).

    That is t x - Softplus(x) without a difference of large numbers; t and 1 - t may have weights.
    """


@verify.tolerance
@register(
    "stable_bce_loss",
    takes="Sigmoid Log Max Mul Sub Add",
    gives="Neg Softplus Mul Add",
    needs=f"{_FLOATS}; logarithms kept above {_CLAMP}; constants that add no dimension",
    stands_for=Counterpart(
        "binary_cross_entropy_with_logits", "tf.nn.sigmoid_cross_entropy_with_logits", is_equal=False
    ),
)
class StableBceLoss(_CrossEntropy):
    """The loss that torch.nn.BCELoss computes of a sigmoid becomes t Softplus(-x) + (1 - t) Softplus(x).

    BCELoss keeps logarithms above -100; the new loss differs where logits are beyond 100, and has a derivative there.
    """

    is_clamped = True


def _terms(value: ir.Value, sign: int, weights: Sequence[ir.Value] = ()) -> Iterator[_Term]:
    """Yield the ways to read a product of weights and a logarithm."""
    node = made_by(value, "Mul", "Neg")
    if node is None:
        return
    if node.op_type == "Neg":
        yield from _terms(operand(node, 0), -sign, weights)
        return
    for position in (0, 1):
        weight, inner, signed = operand(node, position), operand(node, 1 - position), sign
        while (negation := made_by(weight, "Neg")) is not None:
            weight, signed = operand(negation, 0), -signed
        found = _logarithm(inner)
        if found is not None:
            yield _Term(signed, (weight, *weights), *found)
        elif len(weights) < _MOST_WEIGHTS:
            yield from _terms(inner, signed, (weight, *weights))


def _logarithm(value: ir.Value) -> tuple[ir.Value, bool, bool] | None:
    """Return the logit of the logarithm of a sigmoid, or of 1 less that; which of them; and whether it is clamped."""
    inner = _unclamped(value)
    node = made_by(value if inner is None else inner, "Log")
    if node is None:
        return None
    p, is_opposite = operand(node, 0), False
    total = read_sum(p)
    if total.constant == 1 and len(total.minus) == 1 and not total.plus and not total.obstacle:
        p, is_opposite = total.minus[0], True
    found = sigmoid_of(p)
    return None if found is None or found[1] < 0 else (found[0], is_opposite, inner is not None)


def _unclamped(value: ir.Value) -> ir.Value | None:
    """Return x of Max(x, -100) or Clip(x, -100)."""
    node = made_by(value, "Max", "Clip")
    if node is None or len(node.inputs) < 2:
        return None
    for position in (0, 1) if node.op_type == "Max" else (0,):
        x, limit = node.inputs[position], node.inputs[1 - position]
        others = [one for one in node.inputs[2:] if one is not None]
        if x is not None and not others and scalar_of(limit, x) == _CLAMP:
            return x
    return None
