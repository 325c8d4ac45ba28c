"""Logarithms of expressions, computed without the expressions: log(p) from what p is computed from.

`LogReader.read` goes up from p.  What is written around probabilities (casts, moves, clips, epsilons) has a rule of its
own for logarithms, so that log(p) is read whatever stands in between:

    log(move(p))          = move(log p)
    log(clip(p, a, b))    = clip(log p, log a, log b)
    log(p + c)            = logaddexp(log p, log c)

What p is in the end is for the cores, functions that know one form each: log(softmax(x)) = log_softmax(x).  All rules
are equal in real arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite.operands import constant, constant_array
from ranum_falsify.rewrite.passes.expressions import (
    WIDTHS,
    SumTerms,
    made_by,
    read_sum,
    scalar_of,
    unwrap,
)
from ranum_falsify.rewrite.passes.stable_parts import cast, is_representable, log_add_exp, number
from ranum_falsify.rewrite.rewrite import Op, Plan, RefusedError, operand

_IDENTITIES = ("Abs", "Relu", "LeakyRelu")  # of positive numbers

Core = Callable[["LogReader", ir.Value, ir.DataType], Plan | None]
"""Reads the logarithm of a value of one form, in an element type; None if it is not of that form."""


class LogReader:
    """Reads logarithms of values.

    Args:
        cores: The forms that it knows, besides what is around them.
        opset: The model's.
        drops_epsilons: Whether what is added to keep a logarithm from 0 is left out, which changes the function.

    Attributes:
        opset: The model's.
        epsilons: How many were left out.
    """

    def __init__(self, cores: Sequence[Core], opset: int, *, drops_epsilons: bool = False) -> None:
        self._cores = cores
        self._drops = drops_epsilons
        self.opset = opset
        self.epsilons = 0

    def read(self, value: ir.Value, dtype: ir.DataType) -> Plan | None:
        """Return how to build the logarithm of a value in an element type; None where it is not known.

        Raises:
            RefusedError: Its form is known, but not what the form needs.
        """
        wrapped = unwrap(value, dtype)
        plan = self._read_inner(wrapped.inner, wrapped.dtype)
        return None if plan is None else wrapped.around(plan, dtype)

    def read_constant(self, value: ir.Value, dtype: ir.DataType) -> Plan | None:
        """Return how to build the logarithm of a constant, None if that is no finite number."""
        array = constant_array(value)
        if array is None or array.dtype.kind == "b":
            return None
        numbers = array.astype(np.float64)
        if not (np.isfinite(numbers) & (numbers > 0)).all():
            return None
        return lambda op: constant(op, np.log(numbers), dtype)

    def _read_inner(self, value: ir.Value, dtype: ir.DataType) -> Plan | None:
        for rule in (*self._cores, _magnitude, _limits, _shifted):
            plan = rule(self, value, dtype)
            if plan is not None:
                return plan
        return None

    def shift(self, plan: Plan, constant_term: Fraction, dtype: ir.DataType) -> Plan:
        """Return the logarithm of a value plus a positive constant, from that of the value.

        Raises:
            RefusedError: Numbers of the element type are none.
        """
        if self._drops:
            self.epsilons += 1
            return plan
        if dtype not in WIDTHS or not is_representable(constant_term, ir.DataType.DOUBLE):
            raise RefusedError(f"the constant {float(constant_term):g} has no logarithm that can be written down")
        logarithm = math.log(constant_term)
        return lambda op: log_add_exp(op, plan(op), number(op, logarithm, dtype), dtype)


def leaf(x: ir.Value, dtype: ir.DataType) -> Plan:
    """Return how to build a tensor of the model in an element type.

    Raises:
        RefusedError: Stable forms do not exist for it.
    """
    if x.dtype is None:
        raise RefusedError(f"the element type of {x.name!r} is not known")
    if x.dtype not in WIDTHS or dtype not in WIDTHS:
        names = ", ".join(one.name.lower() for one in WIDTHS)
        raise RefusedError(f"{x.name!r} holds {x.dtype.name.lower()}; {names} are handled")
    return lambda op: cast(op, x, dtype)


def _magnitude(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read the magnitude, or the positive part, of what has a logarithm, and so is positive itself."""
    node = made_by(value, *_IDENTITIES)
    return None if node is None else reader.read(operand(node, 0), dtype)


def _limits(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read a value that is kept between constants."""
    limited = limits_of(value)
    if limited is None:
        return None
    x, least, greatest = limited
    plan = reader.read(x, dtype)
    return None if plan is None else between(plan, least, greatest, dtype)


def between(plan: Plan, least: Fraction | None, greatest: Fraction | None, dtype: ir.DataType) -> Plan | None:
    """Return the logarithm of what is kept between constants, from that of the value; None where there is none."""
    if greatest is not None and greatest <= 0:
        return None

    def build(op: Op) -> ir.Value:
        made = plan(op)
        if least is not None and least > 0:
            made = op.Max(made, number(op, math.log(least), dtype))
        if greatest is not None:
            made = op.Min(made, number(op, math.log(greatest), dtype))
        return made

    return build


def limits_of(value: ir.Value) -> tuple[ir.Value, Fraction | None, Fraction | None] | None:
    """Return x, least and greatest of Clip, or of Max or Min of x and a constant on either side."""
    node = made_by(value, "Clip", "Max", "Min")
    if node is None:
        return None
    x = operand(node, 0)
    if node.op_type == "Clip":
        given = [*node.inputs[1:], None, None][:2]
        limits = [scalar_of(one, x) for one in given]
        if any(one is not None and found is None for one, found in zip(given, limits, strict=True)):
            return None
        attributes = [node.attributes.get(name) for name in ("min", "max")]
        if any(found is not None and found.is_ref() for found in attributes):
            return None
        least, greatest = (
            found if one is None else Fraction(one.as_float()) if math.isfinite(one.as_float()) else None
            for found, one in zip(limits, attributes, strict=True)
        )
        return x, least, greatest
    if len(node.inputs) != 2:
        return None
    for position in (0, 1):
        x, other = operand(node, position), operand(node, 1 - position)
        limit = scalar_of(other, x)
        if limit is not None:
            return (x, limit, None) if node.op_type == "Max" else (x, None, limit)
    return None


def inside(value: ir.Value) -> ir.Value | None:
    """Return the tensor that a magnitude, a clip or an epsilon is put around, None if there is nothing of that."""
    node = made_by(value, *_IDENTITIES)
    if node is not None:
        return operand(node, 0)
    limited = limits_of(value)
    if limited is not None:
        return limited[0]
    total = read_sum(value)
    return total.plus[0] if _is_shifted(total, value) else None


def _shifted(reader: LogReader, value: ir.Value, dtype: ir.DataType) -> Plan | None:
    """Read a value to which a positive constant is added."""
    total = read_sum(value)
    if not _is_shifted(total, value):
        return None
    plan = reader.read(total.plus[0], dtype)
    if plan is None:
        return None
    total.check_shape()
    return reader.shift(plan, total.constant, dtype)


def _is_shifted(total: SumTerms, value: ir.Value) -> bool:
    """Tell whether a sum is one tensor and a positive constant."""
    return len(total.plus) == 1 and not total.minus and total.constant > 0 and total.plus[0] is not value
