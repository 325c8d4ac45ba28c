"""Arithmetic in terms of Add and Mul."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.expansion import Lowering, is_read
from ranum_falsify.rewrite.operands import (
    FLOATS,
    check_integers,
    constant,
    constant_array,
    dtype_of,
    element_type,
    first_operand,
    limits_of,
    operand,
    opset_at,
    rank_of,
    required_constant,
)
from ranum_falsify.rewrite.passes.blocks import negated
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import RefusedError, Rewrite


@verify.equality
@register("lower_neg", takes=["Neg"], gives=["Constant", "Mul"], needs="float elements", needs_shapes=True)
class LowerNegation(Lowering):
    """-x becomes x * -1."""

    operator = "Neg"

    def accept(self, node: ir.Node) -> None:
        """Check the element type."""
        element_type(node)

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Multiply by -1, which only turns the sign."""
        return negated(op, first_operand(node), element_type(node))


@verify.equality
@register("lower_sub", takes=["Sub"], gives=["Constant", "Add", "Mul"], needs="float elements", needs_shapes=True)
class LowerSubtraction(Lowering):
    """x - y becomes x + y * -1, and x - c, of a constant c, becomes x + -c."""

    operator = "Sub"

    def accept(self, node: ir.Node) -> None:
        """Check the element type."""
        element_type(node)

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Add the opposite, which is exact; a constant is turned here and now."""
        x, y = first_operand(node), operand(node, 1)
        assert y is not None
        dtype, array = element_type(node), constant_array(y)
        return op.Add(x, negated(op, y, dtype) if array is None else constant(op, -array, dtype))


@verify.equality
@register("lower_sum", takes=["Sum"], gives=["Add", "Identity"], needs="float elements", needs_shapes=True)
class LowerSum(Lowering):
    """Sum of several operands becomes additions of two, from the first to the last."""

    operator = "Sum"

    def accept(self, node: ir.Node) -> None:
        """Check the element type."""
        element_type(node)

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Add in the order in which ONNX Runtime does."""
        return op.Identity(node.inputs[0]) if len(node.inputs) == 1 else reduce(op.Add, node.inputs)


@verify.tolerance
@register("lower_mean", takes=["Mean"], gives=["Constant", "Add", "Mul"], needs="float elements", needs_shapes=True)
class LowerMean(Lowering):
    """Mean of n operands becomes the sum of their n-th parts, which overflows nowhere."""

    operator = "Mean"

    def accept(self, node: ir.Node) -> None:
        """Check the element type."""
        element_type(node)

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Divide before adding."""
        share = constant(op, 1 / len(node.inputs), element_type(node))
        return reduce(op.Add, [op.Mul(value, share) for value in node.inputs])


@verify.tolerance
@register(
    "lower_div",
    takes=["Div"],
    gives=["Constant", "Mul"],
    needs="floats; a constant divisor, whose reciprocals are neither infinite nor denormal; quotients below the "
    "greatest float",
    needs_shapes=True,
)
class LowerDivision(Lowering):
    """x / c, of a constant c, becomes x * (1 / c)."""

    operator = "Div"

    def accept(self, node: ir.Node) -> None:
        """Check that the reciprocals are as exact as floats can be."""
        dtype = element_type(node)
        reciprocals = self._reciprocals(node)
        limits = limits_of(dtype)
        size = np.abs(reciprocals)
        if not ((size >= limits.least_normal) & (size <= limits.greatest)).all():
            raise RefusedError(f"a reciprocal of its divisor is no normal number of {dtype.name.lower()}")

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Multiply by the reciprocals."""
        return op.Mul(node.inputs[0], constant(op, self._reciprocals(node), element_type(node)))

    @staticmethod
    def _reciprocals(node: ir.Node) -> np.ndarray:
        divisor = required_constant(node.inputs[1], "its divisor is").astype(np.float64)
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(1 / divisor)


@verify.tolerance
@register(
    "lower_reciprocal", takes=["Reciprocal"], gives=["Constant", "Div"], needs="float elements", needs_shapes=True
)
class LowerReciprocal(Lowering):
    """Reciprocal(x) becomes 1 / x."""

    operator = "Reciprocal"

    def accept(self, node: ir.Node) -> None:
        """Check the element type."""
        element_type(node)

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Divide."""
        return op.Div(constant(op, 1, element_type(node)), node.inputs[0])


@verify.tolerance
@register(
    "lower_pow",
    takes=["Pow"],
    gives=["Identity", "Mul", "Reciprocal", "Sqrt"],
    needs="floats; one constant exponent: -1, 0.5, 1, 2, 3 or 4",
    needs_shapes=True,
)
class LowerPower(Lowering):
    """Pow(x, c), of a constant c, becomes a product, a square root or a reciprocal."""

    operator = "Pow"

    def accept(self, node: ir.Node) -> None:
        """Check the exponent, and that it adds no dimension."""
        base, exponent = node.inputs
        assert base is not None
        dtype_of(base, FLOATS)
        array = required_constant(exponent, "its exponent is")
        if array.size != 1 or array.ndim > rank_of(base):
            raise RefusedError(f"its exponent has shape {list(array.shape)}; a single number is handled")
        if float(array.reshape(())) not in (-1, 0.5, 1, 2, 3, 4):
            raise RefusedError(f"its exponent is {float(array.reshape(())):g}; -1, 0.5, 1, 2, 3 and 4 are handled")

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Build the power; each factor is finite if it is."""
        x = first_operand(node)
        exponent = float(required_constant(node.inputs[1], "its exponent is").reshape(()))
        if exponent == -1:
            return op.Reciprocal(x)
        if exponent in (0.5, 1):
            return op.Sqrt(x) if exponent == 0.5 else op.Identity(x)
        square = op.Mul(x, x)
        if exponent == 2:
            return square
        return op.Mul(square, x if exponent == 3 else square)


@verify.equality
@register("lower_dropout", takes=["Dropout"], gives=["Identity"], needs="inference; no use of the mask")
class LowerDropout(Lowering):
    """Dropout, which does nothing at inference, becomes Identity."""

    operator = "Dropout"

    def accept(self, node: ir.Node) -> None:
        """Check that it does not train."""
        training = operand(node, 2)
        if training is not None and required_constant(training, "its training mode is").any():
            raise RefusedError("it is in training mode")
        if any(is_read(value) for value in node.outputs[1:]):
            raise RefusedError("its mask is used")

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Keep the tensor as it is."""
        return op.Identity(node.inputs[0])


_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)


@verify.equality
@register("transform_add", takes=["Add"], gives=["Constant", "Sub"], needs="a known element type", needs_shapes=True)
class TransformAdd(Rewrite):
    """x + y becomes x - (-0 - y), equal to the bit."""

    def pattern(self, op: Any, x: Any, y: Any) -> Any:
        """Match every addition."""
        return op.Add(x, y)

    def check(self, context: Any, x: ir.Value, y: ir.Value) -> bool:
        """Check that the zero can be given its type."""
        dtype = dtype_of(_pick_typed(x, y), (*FLOATS, *_INTEGERS))
        if dtype in _INTEGERS:
            check_integers(opset_at(context), dtype)
        return True

    def rewrite(self, op: Any, x: ir.Value, y: ir.Value) -> Any:
        """Subtract the opposite: -0 - y has the sign opposite to y even where y is zero, 0 - y has not."""
        dtype = _pick_typed(x, y).dtype
        assert dtype is not None
        return op.Sub(x, op.Sub(constant(op, -0.0 if dtype in FLOATS else 0, dtype), y))


def _pick_typed(x: ir.Value, y: ir.Value) -> ir.Value:
    return y if x.dtype is None else x
