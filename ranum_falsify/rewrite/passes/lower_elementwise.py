"""Arithmetic and activations, element by element, in terms of Add, Mul, Relu and few other functions."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import (
    FLOATS,
    WIDE_FLOATS,
    check_integers,
    constant,
    constant_array,
    dtype_of,
    element_type,
    float_attribute,
    is_finite,
    limits_of,
    opset_at,
    optional,
    rank_of,
    required_constant,
    text_attribute,
)
from ranum_falsify.rewrite.passes.blocks import clipped, negated
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import Lowering, Op, RefusedError, Rewrite, is_read, operand

# The attributes' defaults, as the ONNX specification has them.
_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875
_LEAST_CLIP = 12  # opset, from which ONNX Runtime clips float64


class _Elementwise(Lowering):
    """A function of floats, element by element."""

    dtypes: ClassVar[tuple[ir.DataType, ...]] = FLOATS

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        self._dtype(node)

    def _dtype(self, node: ir.Node) -> ir.DataType:
        return element_type(node, self.dtypes)


@verify.equality
@register("lower_abs", takes="Abs", gives="Constant Add Mul Relu", needs="float elements")
class LowerAbsolute(_Elementwise):
    """|x| becomes Relu(x) + Relu(-x), of which one is always 0."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        return op.Add(op.Relu(x), op.Relu(negated(op, x, self._dtype(node))))


@verify.equality(signed_zero=False)
@register(
    "lower_leaky_relu",
    takes="LeakyRelu",
    gives="Constant Add Mul Relu",
    needs="floats; a slope that is finite, and a number of the element type",
)
class LowerLeakyRelu(_Elementwise):
    """LeakyRelu(x) becomes Relu(x) + -alpha * Relu(-x), of which one term is always 0."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        """Check that the slope is exact: ONNX Runtime takes it in float32 whatever the element type."""
        dtype, alpha = self._dtype(node), self._slope(node)
        if not math.isfinite(alpha) or float(np.asarray(alpha).astype(dtype.numpy())) != alpha:
            raise RefusedError(f"its slope, {alpha:g}, is no number of {dtype.name.lower()}")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        dtype = self._dtype(node)
        return op.Add(op.Relu(x), op.Mul(op.Relu(negated(op, x, dtype)), constant(op, -self._slope(node), dtype)))

    @staticmethod
    def _slope(node: ir.Node) -> float:
        return float_attribute(node, "alpha", 0.01)


@verify.equality(signed_zero=False, everywhere=False)
@register("lower_prelu", takes="PRelu", gives="Constant Add Mul Relu", needs="floats; finite slopes")
class LowerPRelu(_Elementwise):
    """PRelu(x, slope) becomes Relu(x) + -slope * Relu(-x)."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        """Check that constant slopes are finite: they meet 0 where x is positive."""
        dtype_of(x, FLOATS)
        array = constant_array(operand(node, 1))
        if array is not None and not is_finite(array):
            raise RefusedError("a slope is not finite")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        slope, dtype = operand(node, 1), self._dtype(node)
        array = constant_array(slope)
        opposite = negated(op, slope, dtype) if array is None else constant(op, -array, dtype)
        return op.Add(op.Relu(x), op.Mul(op.Relu(negated(op, x, dtype)), opposite))


@verify.tolerance
@register(
    "lower_hard_sigmoid",
    takes="HardSigmoid",
    gives="Constant Add Clip Mul",
    needs="floats (float64 from opset 12 on); alpha and beta of at most 1",
)
class LowerHardSigmoid(_Elementwise):
    """HardSigmoid(x) becomes Clip(alpha * x + beta, 0, 1)."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        if self._dtype(node) == ir.DataType.DOUBLE and self.opset < _LEAST_CLIP:
            raise RefusedError(f"Clip of double needs opset {_LEAST_CLIP}; convert the model")
        if not all(abs(factor) <= 1 for factor in self._factors(node)):
            raise RefusedError("alpha or beta is beyond 1, so that alpha * x + beta may overflow")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        dtype = self._dtype(node)
        alpha, beta = (constant(op, factor, dtype) for factor in self._factors(node))
        return clipped(op, self.opset, op.Add(op.Mul(node.inputs[0], alpha), beta), 0.0, 1.0, dtype)

    @staticmethod
    def _factors(node: ir.Node) -> tuple[float, float]:
        return float_attribute(node, "alpha", 0.2), float_attribute(node, "beta", 0.5)


@verify.tolerance
@register("lower_hard_swish", takes="HardSwish", gives="HardSigmoid Mul", needs="float elements")
class LowerHardSwish(_Elementwise):
    """HardSwish(x) becomes x * HardSigmoid(x)."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        return op.Mul(x, op.HardSigmoid(x, alpha=1 / 6, beta=0.5))


@verify.tolerance
@register("lower_softsign", takes="Softsign", gives="Constant Abs Add Div", needs="float elements")
class LowerSoftsign(_Elementwise):
    """Softsign(x) becomes x / (1 + |x|)."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        """Divide by what is never less than 1."""
        return op.Div(x, op.Add(op.Abs(x), constant(op, 1, self._dtype(node))))


class _Exponential(_Elementwise):
    """An activation that is linear above 0, and an exponential below; its Exp is never taken of what is positive."""

    dtypes = WIDE_FLOATS

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        """Add both parts, of which one is always 0: Exp(0) - 1 is."""
        dtype = self._dtype(node)
        above, below, rate = self._factors(node)
        negative = op.Mul(op.Relu(negated(op, x, dtype)), constant(op, -rate, dtype))
        decay = op.Sub(op.Exp(negative), constant(op, 1, dtype))
        part = op.Relu(x) if above == 1 else op.Mul(op.Relu(x), constant(op, above, dtype))
        return op.Add(part, decay if below == 1 else op.Mul(decay, constant(op, below, dtype)))

    @abstractmethod
    def _factors(self, node: ir.Node) -> tuple[float, float, float]:
        """Return the slope above 0, the factor of the exponential, and what x is multiplied by inside it."""


@verify.tolerance
@register("lower_elu", takes="Elu", gives="Constant Add Exp Mul Relu Sub", needs="float32 or float64")
class LowerElu(_Exponential):
    """Elu(x) becomes Relu(x) + alpha * (Exp(-Relu(-x)) - 1), whose Exp cannot overflow."""

    def _factors(self, node: ir.Node) -> tuple[float, float, float]:
        return 1.0, float_attribute(node, "alpha", 1.0), 1.0


@verify.tolerance
@register("lower_selu", takes="Selu", gives="Constant Add Exp Mul Relu Sub", needs="float32 or float64")
class LowerSelu(_Exponential):
    """Selu(x) becomes gamma * Relu(x) + gamma * alpha * (Exp(-Relu(-x)) - 1)."""

    def _factors(self, node: ir.Node) -> tuple[float, float, float]:
        gamma = float_attribute(node, "gamma", _SELU_GAMMA)
        return gamma, gamma * float_attribute(node, "alpha", _SELU_ALPHA), 1.0


@verify.tolerance
@register("lower_celu", takes="Celu", gives="Constant Add Exp Mul Relu Sub", needs="float32; alpha of at least 1")
class LowerCelu(_Exponential):
    """Celu(x) becomes Relu(x) + alpha * (Exp(-Relu(-x) / alpha) - 1)."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        """Check that x / alpha cannot overflow."""
        super()._accept(node, x)
        alpha = float_attribute(node, "alpha", 1.0)
        if not (math.isfinite(alpha) and alpha >= 1):
            raise RefusedError(f"alpha is {alpha:g}, so that x / alpha may overflow; 1 and more are handled")

    def _factors(self, node: ir.Node) -> tuple[float, float, float]:
        alpha = float_attribute(node, "alpha", 1.0)
        return 1.0, alpha, 1 / alpha


@verify.tolerance
@register(
    "lower_gelu",
    takes="Gelu",
    gives="Constant Add Erf Mul",
    needs="float32; the exact form, not that by Tanh, whose x^3 overflows",
)
class LowerGelu(_Elementwise):
    """Gelu(x) becomes x / 2 * (1 + Erf(x / Sqrt(2)))."""

    dtypes = (ir.DataType.FLOAT,)

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        super()._accept(node, x)
        form = text_attribute(node, "approximate", "none")
        if form != "none":
            raise RefusedError(f"it is approximated ({form}), which takes x^3, and that may overflow")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        """Halve first, so that nothing overflows."""
        dtype = self._dtype(node)
        share = op.Add(op.Erf(op.Mul(x, constant(op, math.sqrt(0.5), dtype))), constant(op, 1, dtype))
        return op.Mul(op.Mul(x, constant(op, 0.5, dtype)), share)


@verify.equality
@register("lower_neg", takes="Neg", gives="Constant Mul", needs="float elements")
class LowerNegation(_Elementwise):
    """-x becomes x * -1."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        return negated(op, x, self._dtype(node))


@verify.equality
@register("lower_sub", takes="Sub", gives="Constant Add Mul", needs="float elements")
class LowerSubtraction(_Elementwise):
    """x - y becomes x + y * -1, and x - c, of a constant c, becomes x + -c."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        y, dtype = operand(node, 1), self._dtype(node)
        array = constant_array(y)
        return op.Add(x, negated(op, y, dtype) if array is None else constant(op, -array, dtype))


@verify.equality
@register("lower_sum", takes="Sum", gives="Add Identity", needs="float elements")
class LowerSum(_Elementwise):
    """Sum of several operands becomes additions of two, from the first to the last."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        """Add in the order in which ONNX Runtime does."""
        return op.Identity(node.inputs[0]) if len(node.inputs) == 1 else reduce(op.Add, node.inputs)


@verify.tolerance
@register("lower_mean", takes="Mean", gives="Constant Add Mul", needs="float elements")
class LowerMean(_Elementwise):
    """Mean of n operands becomes the sum of their n-th parts, which overflows nowhere."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        share = constant(op, 1 / len(node.inputs), self._dtype(node))
        return reduce(op.Add, [op.Mul(value, share) for value in node.inputs])


@verify.tolerance
@register(
    "lower_div",
    takes="Div",
    gives="Constant Mul",
    needs="floats; a constant divisor, whose reciprocals are neither infinite nor denormal; quotients below the "
    "greatest float",
)
class LowerDivision(Lowering):
    """x / c, of a constant c, becomes x * (1 / c)."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        """Check that the reciprocals are as exact as floats can be."""
        dtype = element_type(node)
        reciprocals = self._reciprocals(node)
        greatest, least_normal, _ = limits_of(dtype)
        size = np.abs(reciprocals)
        if not ((size >= least_normal) & (size <= greatest)).all():
            raise RefusedError(f"a reciprocal of its divisor is no normal number of {dtype.name.lower()}")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        return op.Mul(node.inputs[0], constant(op, self._reciprocals(node), element_type(node)))

    @staticmethod
    def _reciprocals(node: ir.Node) -> np.ndarray:
        divisor = required_constant(node.inputs[1], "its divisor is").astype(np.float64)
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(1 / divisor)


@verify.tolerance
@register("lower_reciprocal", takes="Reciprocal", gives="Constant Div", needs="float elements")
class LowerReciprocal(_Elementwise):
    """Reciprocal(x) becomes 1 / x."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        return op.Div(constant(op, 1, self._dtype(node)), node.inputs[0])


@verify.tolerance
@register(
    "lower_pow",
    takes="Pow",
    gives="Identity Mul Reciprocal Sqrt",
    needs="floats; one constant exponent: -1, 0.5, 1, 2, 3 or 4",
)
class LowerPower(Lowering):
    """Pow(x, c), of a constant c, becomes a product, a square root or a reciprocal."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        dtype_of(x, FLOATS)
        array = required_constant(node.inputs[1], "its exponent is")
        if array.size != 1 or array.ndim > rank_of(x):
            raise RefusedError(f"its exponent has shape {list(array.shape)}; a single number is handled")
        if float(array.reshape(())) not in (-1, 0.5, 1, 2, 3, 4):
            raise RefusedError(f"its exponent is {float(array.reshape(())):g}; -1, 0.5, 1, 2, 3 and 4 are handled")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
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
@register("lower_dropout", takes="Dropout", gives="Identity", needs="inference; no use of the mask", needs_shapes=False)
class LowerDropout(Lowering):
    """Dropout, which does nothing at inference, becomes Identity."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        training = optional(node, 2)
        if training is not None and required_constant(training, "its training mode is").any():
            raise RefusedError("it is in training mode")
        if any(is_read(value) for value in node.outputs[1:]):
            raise RefusedError("its mask is used")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        return op.Identity(node.inputs[0])


_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)


@verify.equality
@register("transform_add", takes="Add", gives="Constant Sub", needs="a known element type", needs_shapes=True)
class TransformAdd(Rewrite):
    """x + y becomes x - (-0 - y), equal to the bit."""

    def pattern(self, op: Any, x: Any, y: Any) -> Any:
        """Match every addition."""
        return op.Add(x, y)

    def check(self, context: Any, x: ir.Value, y: ir.Value) -> bool:
        """Check that the zero can be given its type."""
        dtype = self._dtype(x, y)
        if dtype in _INTEGERS:
            check_integers(opset_at(context), dtype)
        return True

    def rewrite(self, op: Op, x: ir.Value, y: ir.Value) -> Any:
        """Subtract the opposite: -0 - y has the sign opposite to y even where y is zero, 0 - y has not."""
        dtype = self._dtype(x, y)
        return op.Sub(x, op.Sub(constant(op, -0.0 if dtype in FLOATS else 0, dtype), y))

    @staticmethod
    def _dtype(x: ir.Value, y: ir.Value) -> ir.DataType:
        return dtype_of(y if x.dtype is None else x, (*FLOATS, *_INTEGERS))
