"""Forms whose logarithms are known: each function reads one, and is a core of `LogReader`."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite.operands import (
    axis_of,
    integers,
    length_of,
    rank_of,
)
from ranum_falsify.rewrite.passes.blocks import reduced
from ranum_falsify.rewrite.passes.expressions import (
    WIDTHS,
    SumTerms,
    made_by,
    read_sum,
    reduction,
    root_of,
    scalar_of,
    sigmoid_of,
    square_of,
    unwrap,
)
from ranum_falsify.rewrite.passes.log_domain import LogReader, between, leaf, limits_of
from ranum_falsify.rewrite.passes.stable_parts import (
    log_add_exp,
    log_sum_exp,
    number,
    softplus,
    times,
)
from ranum_falsify.rewrite.rewrite import Op, Plan, RefusedError, operand

_MOST_CLASSES = 256
_WHERE = 9  # opset
_LEAST_REST = 0.25
"""Less than 1 - tanh(1)^2."""
_HALVED = -math.log(2)
_TAIL = (
    -1.26551223,
    1.00002368,
    0.37409196,
    0.09678418,
    -0.18628806,
    0.27886807,
    -1.13520398,
    1.48851587,
    -0.82215223,
    0.17087277,
)
"""Of log(erfc(z) / t) + z^2 as a polynomial of t = 1 / (1 + z/2), z >= 0: within 1.2e-7.

W. H. Press et al., Numerical Recipes, 2nd edition, 6.2: a Chebyshev fit.
"""


def softmax(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(softmax(x)) = log_softmax(x); the axis stays, of which both operators have had the same default."""
    node = made_by(value, "Softmax")
    if node is None:
        return None
    x = leaf(operand(node, 0), dtype)
    return lambda op: op.LogSoftmax(x(op), **dict(node.attributes))


def sigmoid(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(sigmoid(x)) = -softplus(-x)."""
    return _log_sigmoid(value, dtype, 1)


def _log_sigmoid(value: ir.Value, dtype: ir.DataType, factor: int) -> Plan | None:
    """Read the sigmoid of x as the logarithm of that of a multiple of x."""
    found = sigmoid_of(value)
    if found is None:
        return None
    z, sign = found
    x = leaf(z, dtype)
    return lambda op: op.Neg(softplus(op, times(op, x(op), -factor * sign, dtype), dtype))


def exponential(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(exp(x)) = x."""
    node = made_by(value, "Exp")
    return None if node is None else leaf(operand(node, 0), dtype)


def one_minus_sigmoid(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(1 - sigmoid(x)) = -softplus(x)."""
    return _complement(reader, value, dtype, lambda _, inner, wide: _log_sigmoid(inner, wide, -1))


def one_minus_softmax(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(1 - softmax(x)_i) = logsumexp of all other log_softmax(x)_j."""
    return _complement(reader, value, dtype, _log_one_minus_softmax)


def one_minus_tanh_squared(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)), where that is no small difference."""
    return _complement(reader, value, dtype, _log_one_minus_tanh_squared)


def _complement(reader: LogReader, value: ir.Value, dtype: ir.DataType, of: Any) -> Plan | None:
    """Read a constant of at least 1 less a tensor, which may be moved, cast and kept between constants."""
    total = read_sum(value)
    if len(total.minus) != 1 or total.plus or total.constant < 1:
        return None
    limited = limits_of(total.minus[0])
    x, least, greatest = (total.minus[0], None, None) if limited is None else limited
    wrapped = unwrap(x, dtype)
    inner = of(reader, wrapped.inner, wrapped.dtype)
    if inner is None:
        return None
    total.check_shape()
    upper, lower = (None if limit is None else 1 - limit for limit in (least, greatest))
    kept = between(wrapped.around(inner, dtype), lower, upper, dtype)
    return kept if kept is None or total.constant == 1 else reader.shift(kept, total.constant - 1, dtype)


def _log_one_minus_softmax(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    node = made_by(value, "Softmax")
    if node is None:
        return None
    x, axis = operand(node, 0), softmax_axis(node, reader.opset)
    classes, rank = length_of(x, axis), rank_of(x)
    if not 2 <= classes <= _MOST_CLASSES:
        raise RefusedError(f"Softmax has {classes} classes; 2 to {_MOST_CLASSES} are handled")
    logits = leaf(x, dtype)
    others = np.array([[j for j in range(classes) if j != i] for i in range(classes)])

    def build(op: Op) -> ir.Value:
        logarithms = op.LogSoftmax(logits(op), **dict(node.attributes))
        if classes == 2:
            return opposite(op, logarithms, axis)
        gathered = op.Gather(logarithms, op.Constant(value=ir.tensor(others.astype(np.int64))), axis=axis)
        return log_sum_exp(op, gathered, [axis + 1], keepdims=False, dtype=dtype, opset=reader.opset)

    assert rank > axis
    return build


def softmax_axis(node: ir.Node, opset: int) -> int:
    """Return the only axis along which a Softmax normalises, not negative.

    Raises:
        RefusedError: There are several, as before opset 13, or it is not known.
    """
    x = operand(node, 0)
    axis = axis_of(node, -1 if opset >= 13 else 1)
    if opset < 13 and axis != rank_of(x) - 1:
        raise RefusedError("before opset 13, Softmax has all axes from the given one on; convert the model")
    return axis


def opposite(op: Op, x: ir.Value, axis: int) -> ir.Value:
    """Return a tensor with its two elements along an axis exchanged."""
    return op.Gather(x, integers(op, [1, 0]), axis=axis)


def _log_one_minus_tanh_squared(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    square = square_of(value)
    node = made_by(square, "Tanh")
    if node is None:
        return None
    x = leaf(operand(node, 0), dtype)

    def build(op: Op) -> ir.Value:
        given = x(op)
        tail = softplus(op, times(op, given, -2, dtype), dtype)
        inner = op.Sub(op.Sub(number(op, math.log(2), dtype), given), tail)
        if reader.opset < _WHERE:
            return times(op, inner, 2, dtype)
        height = op.Tanh(given)
        rest = op.Max(op.Sub(number(op, 1, dtype), op.Mul(height, height)), number(op, _LEAST_REST, dtype))
        is_near = op.Less(op.Abs(given), number(op, 1, dtype))
        return op.Where(is_near, op.Log(rest), times(op, inner, 2, dtype))

    return build


def normal_distribution(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(1 + erf(z)), and log(1 - erf(z)), which is that of -z: log 2 and the logarithm of a normal distribution.

    Below 0 that is log(erfc(-z)), above it log(2 - erfc(z)).
    """
    total = read_sum(value)
    sign, node = _only_term(total, "Erf")
    if node is None or total.constant != 1:
        return None
    total.check_shape()
    if dtype == ir.DataType.DOUBLE:
        raise RefusedError("the logarithm of a normal distribution is known to the digits of float32 only")
    given = leaf(operand(node, 0), dtype)

    def build(op: Op) -> ir.Value:
        z = times(op, given(op), sign, dtype)
        size, one = op.Abs(z), number(op, 1, dtype)
        t = op.Div(one, op.Add(times(op, size, 0.5, dtype), one))
        fit = number(op, _TAIL[-1], dtype)
        for coefficient in _TAIL[-2::-1]:
            fit = op.Add(op.Mul(fit, t), number(op, coefficient, dtype))
        tail = op.Sub(op.Add(op.Log(t), fit), op.Mul(size, size))
        rest = op.Max(op.Sub(number(op, 2, dtype), op.Exp(op.Min(tail, number(op, 0, dtype)))), one)
        return op.Where(op.Less(z, number(op, 0, dtype)), tail, op.Log(rest))

    return build


def _only_term(total: SumTerms, op_type: str) -> tuple[int, ir.Node | None]:
    """Return the sign of the only tensor in a sum, and the node of an operator that makes it."""
    terms = [*total.plus, *total.minus]
    return 1 if total.plus else -1, made_by(terms[0], op_type) if len(terms) == 1 else None


def one_plus_exponential(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(c + exp(x)) = log c + softplus(x - log c)."""
    total = read_sum(value)
    if len(total.plus) != 1 or total.minus or total.constant <= 0:
        return None
    node = made_by(total.plus[0], "Exp")
    if node is None:
        return None
    total.check_shape()
    x, shift = leaf(operand(node, 0), dtype), math.log(total.constant)
    if total.constant == 1:
        return lambda op: softplus(op, x(op), dtype)

    def build(op: Op) -> ir.Value:
        offset = number(op, shift, dtype)
        return op.Add(softplus(op, op.Sub(x(op), offset), dtype), offset)

    return build


def one_minus_exponential(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(exp(x) - 1) = log(tanh(x/2)) + softplus(x), and log(1 - exp(x)) = log(-tanh(x/2)) + softplus(x).

    Far below 0, both terms of the latter are as large as their sum, which is -softplus(x - log(1 - exp(x))) there.
    """
    total = read_sum(value)
    sign, node = _only_term(total, "Exp")
    if node is None or total.constant != -sign:
        return None
    total.check_shape()
    x = leaf(operand(node, 0), dtype)

    def build(op: Op) -> ir.Value:
        given = x(op)
        half = op.Tanh(times(op, given, Fraction(sign, 2), dtype))
        near: ir.Value = op.Add(op.Log(half), softplus(op, given, dtype))
        if sign > 0 or reader.opset < _WHERE:
            return near
        end = number(op, _HALVED, dtype)
        rest = op.Sub(number(op, 1, dtype), op.Exp(op.Min(given, end)))
        far = op.Neg(softplus(op, op.Sub(given, op.Log(rest)), dtype))
        return op.Where(op.Less(given, end), far, near)

    return build


def square(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(x^2) = 2 log|x|, and log((x/y)^2) = 2 (log|x| - log|y|), which is finite for 0, too."""
    x = square_of(value)
    if x is None or dtype not in WIDTHS:
        return None
    size = _log_size(x, dtype)
    return lambda op: times(op, size(op), 2, dtype)


def _log_size(x: ir.Value, dtype: ir.DataType) -> Plan:
    node = made_by(x, "Div")
    if node is not None:
        above, below = (_log_size(operand(node, position), dtype) for position in (0, 1))
        return lambda op: op.Sub(above(op), below(op))
    given = leaf(x, dtype)

    def build(op: Op) -> ir.Value:
        # Below the least normal number there are as many orders of magnitude again: 0 is far from that number.
        size, least = op.Abs(given(op)), number(op, float(np.finfo(dtype.numpy()).tiny), dtype)
        rest = op.Max(op.Div(op.Min(size, least), least), least)
        return op.Add(op.Log(op.Max(size, least)), op.Log(rest))

    return build


def sum_of_exponentials(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(sum(p)) = logsumexp(log p), and log(mean(p)), where log p is known."""
    node = made_by(value, "ReduceSum", "ReduceMean")
    if node is None:
        return None
    terms = reader.read(operand(node, 0), dtype)
    if terms is None:
        return None
    found = reduction(node)
    if not found.axes:
        raise RefusedError("it sums along no axis")
    count = math.prod(length_of(found.x, axis) for axis in found.axes) if node.op_type == "ReduceMean" else 1

    def build(op: Op) -> ir.Value:
        made = log_sum_exp(op, terms(op), found.axes, keepdims=found.keepdims, dtype=dtype, opset=reader.opset)
        return made if count == 1 else op.Sub(made, number(op, math.log(count), dtype))

    return build


def sum_of_tensors(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read log(p + q) = logaddexp(log p, log q), where both are known."""
    total = read_sum(value)
    if len(total.plus) < 2 or total.minus or total.constant < 0:
        return None
    plans = [reader.read(term, dtype) for term in total.plus]
    if any(plan is None for plan in plans):
        return None
    total.check_shape()

    def build(op: Op) -> ir.Value:
        return reduce(lambda made, one: log_add_exp(op, made, one, dtype), (plan(op) for plan in plans if plan))

    return build if not total.constant else reader.shift(build, total.constant, dtype)


def terms_of(value: ir.Value) -> int:
    """Return of how many tensors, with or without a constant, a value is the sum."""
    total = read_sum(value)
    return 0 if total.minus else len(total.plus)


def product(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read the logarithm of a product, a quotient, a power or a root: sums and multiples of logarithms."""
    inner, exponent = root_of(value), Fraction(1, 2)
    node = made_by(value, "Pow", "Reciprocal", "Mul", "Div")
    if inner is None and node is not None and node.op_type in ("Pow", "Reciprocal"):
        inner = operand(node, 0)
        found = Fraction(-1) if node.op_type == "Reciprocal" else scalar_of(operand(node, 1), inner)
        if found is None:
            return None
        exponent = found
    if inner is not None:
        plan = reader.read(inner, dtype)
        return None if plan is None else lambda op: times(op, plan(op), exponent, dtype)
    if node is None:
        return None
    return _two_factors(reader, node, dtype)


def _two_factors(reader: LogReader, node: ir.Node, dtype: ir.DataType) -> Plan | None:
    share = _share(reader, node, dtype) if node.op_type == "Div" else None
    if share is not None:
        return share
    factors = [operand(node, 0), operand(node, 1)]
    plans = [reader.read(factor, dtype) for factor in factors]
    constants = [reader.read_constant(factor, dtype) for factor in factors]
    left, right = (plan or known for plan, known in zip(plans, constants, strict=True))
    if left is None or right is None or not any(plans):
        return None
    if node.op_type == "Mul":
        return lambda op: op.Add(left(op), right(op))
    return lambda op: op.Sub(left(op), right(op))


def _share(reader: LogReader, node: ir.Node, dtype: ir.DataType) -> Plan | None:
    """Read log(p / sum(q)) = (log p - m) - log(sum(exp(log q - m))), m being the greatest log q.

    Shares near 1 have small logarithms, which differences of large numbers would lose.
    """
    wrapped = unwrap(operand(node, 1), dtype)
    total = made_by(wrapped.inner, "ReduceSum")
    if total is None or wrapped.dtype != dtype:
        return None
    share, terms = reader.read(operand(node, 0), dtype), reader.read(operand(total, 0), dtype)
    if share is None or terms is None:
        return None
    found, opset = reduction(total), reader.opset
    if not found.axes:
        raise RefusedError("it sums along no axis")

    def build(op: Op) -> ir.Value:
        logarithms = terms(op)
        greatest = reduced(op, "ReduceMax", opset, logarithms, found.axes, keepdims=True)
        weights = op.Exp(op.Sub(logarithms, greatest))
        rest = op.Log(reduced(op, "ReduceSum", opset, weights, found.axes, keepdims=found.keepdims))
        shift = greatest if found.keepdims else reduced(op, "ReduceMax", opset, logarithms, found.axes, keepdims=False)
        return op.Sub(op.Sub(share(op), wrapped.again(op, shift)), wrapped.again(op, rest))

    return build
