"""Activations in terms of Relu, arithmetic and few other functions."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.expansion import Lowering
from ranum_falsify.rewrite.operands import (
    FLOATS,
    WIDE_FLOATS,
    constant,
    constant_array,
    dtype_of,
    first_operand,
    float_attribute,
    is_finite,
    text_attribute,
)
from ranum_falsify.rewrite.passes.blocks import clipped, negated
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import RefusedError

# The attributes' defaults, as the ONNX specification has them.
_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875
_LEAST_CLIP = 12  # opset, from which ONNX Runtime clips float64


class _Activation(Lowering):
    """An activation of floats."""

    dtypes: ClassVar[tuple[ir.DataType, ...]] = FLOATS

    def accept(self, node: ir.Node) -> None:
        """Check the element type."""
        self._dtype(node)

    def _dtype(self, node: ir.Node) -> ir.DataType:
        x = first_operand(node)
        return dtype_of(x, self.dtypes)


@verify.equality
@register(
    "lower_abs", takes=["Abs"], gives=["Constant", "Add", "Mul", "Relu"], needs="float elements", needs_shapes=True
)
class LowerAbsolute(_Activation):
    """|x| becomes Relu(x) + Relu(-x), of which one is always 0."""

    operator = "Abs"

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Add the positive part and the negative part."""
        x = first_operand(node)
        return op.Add(op.Relu(x), op.Relu(negated(op, x, self._dtype(node))))


@verify.equality(signed_zero=False)
@register(
    "lower_leaky_relu",
    takes=["LeakyRelu"],
    gives=["Constant", "Add", "Mul", "Relu"],
    needs="floats; a slope that is finite, and a number of the element type",
    needs_shapes=True,
)
class LowerLeakyRelu(_Activation):
    """LeakyRelu(x) becomes Relu(x) + -alpha * Relu(-x), of which one term is always 0."""

    operator = "LeakyRelu"

    def accept(self, node: ir.Node) -> None:
        """Check that the slope is exact: ONNX Runtime takes it in float32 whatever the element type."""
        dtype, alpha = self._dtype(node), self._slope(node)
        if not math.isfinite(alpha) or float(np.asarray(alpha).astype(dtype.numpy())) != alpha:
            raise RefusedError(f"its slope, {alpha:g}, is no number of {dtype.name.lower()}")

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Add the positive part and the scaled negative part."""
        x, dtype = first_operand(node), self._dtype(node)
        return op.Add(op.Relu(x), op.Mul(op.Relu(negated(op, x, dtype)), constant(op, -self._slope(node), dtype)))

    @staticmethod
    def _slope(node: ir.Node) -> float:
        return float_attribute(node, "alpha", 0.01)


@verify.equality(signed_zero=False, everywhere=False)
@register(
    "lower_prelu",
    takes=["PRelu"],
    gives=["Constant", "Add", "Mul", "Relu"],
    needs="floats; finite slopes",
    needs_shapes=True,
)
class LowerPRelu(_Activation):
    """PRelu(x, slope) becomes Relu(x) + -slope * Relu(-x)."""

    operator = "PRelu"

    def accept(self, node: ir.Node) -> None:
        """Check that constant slopes are finite: they meet 0 where x is positive."""
        self._dtype(node)
        slope = node.inputs[1]
        assert slope is not None
        array = constant_array(slope)
        if array is not None and not is_finite(array):
            raise RefusedError("a slope is not finite")

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Add the positive part and the scaled negative part."""
        x, slope = node.inputs
        dtype = self._dtype(node)
        assert x is not None and slope is not None
        array = constant_array(slope)
        opposite = negated(op, slope, dtype) if array is None else constant(op, -array, dtype)
        return op.Add(op.Relu(x), op.Mul(op.Relu(negated(op, x, dtype)), opposite))


@verify.tolerance
@register(
    "lower_hard_sigmoid",
    takes=["HardSigmoid"],
    gives=["Constant", "Add", "Clip", "Mul"],
    needs="floats (float64 from opset 12 on); alpha and beta of at most 1",
    needs_shapes=True,
)
class LowerHardSigmoid(_Activation):
    """HardSigmoid(x) becomes Clip(alpha * x + beta, 0, 1)."""

    operator = "HardSigmoid"

    def accept(self, node: ir.Node) -> None:
        """Check that what is clipped cannot overflow."""
        if self._dtype(node) == ir.DataType.DOUBLE and self.opset < _LEAST_CLIP:
            raise RefusedError(f"Clip of double needs opset {_LEAST_CLIP}; convert the model")
        if not all(abs(factor) <= 1 for factor in self._factors(node)):
            raise RefusedError("alpha or beta is beyond 1, so that alpha * x + beta may overflow")

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Clip the line."""
        dtype = self._dtype(node)
        alpha, beta = (constant(op, factor, dtype) for factor in self._factors(node))
        return clipped(op, self.opset, op.Add(op.Mul(node.inputs[0], alpha), beta), 0.0, 1.0, dtype)

    @staticmethod
    def _factors(node: ir.Node) -> tuple[float, float]:
        return float_attribute(node, "alpha", 0.2), float_attribute(node, "beta", 0.5)


@verify.tolerance
@register(
    "lower_hard_swish", takes=["HardSwish"], gives=["HardSigmoid", "Mul"], needs="float elements", needs_shapes=True
)
class LowerHardSwish(_Activation):
    """HardSwish(x) becomes x * HardSigmoid(x)."""

    operator = "HardSwish"

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Multiply by the gate."""
        x = first_operand(node)
        return op.Mul(x, op.HardSigmoid(x, alpha=1 / 6, beta=0.5))


@verify.tolerance
@register(
    "lower_softsign",
    takes=["Softsign"],
    gives=["Constant", "Abs", "Add", "Div"],
    needs="float elements",
    needs_shapes=True,
)
class LowerSoftsign(_Activation):
    """Softsign(x) becomes x / (1 + |x|)."""

    operator = "Softsign"

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Divide by what is never less than 1."""
        x = first_operand(node)
        return op.Div(x, op.Add(op.Abs(x), constant(op, 1, self._dtype(node))))


class _Exponential(_Activation):
    """An activation that is linear above 0, and an exponential below; its Exp is never taken of what is positive."""

    dtypes = WIDE_FLOATS

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Add both parts, of which one is always 0: Exp(0) - 1 is."""
        x, dtype = first_operand(node), self._dtype(node)
        above, below, rate = self._factors(node)
        negative = op.Mul(op.Relu(negated(op, x, dtype)), constant(op, -rate, dtype))
        decay = op.Sub(op.Exp(negative), constant(op, 1, dtype))
        part = op.Relu(x) if above == 1 else op.Mul(op.Relu(x), constant(op, above, dtype))
        return op.Add(part, decay if below == 1 else op.Mul(decay, constant(op, below, dtype)))

    @abstractmethod
    def _factors(self, node: ir.Node) -> tuple[float, float, float]:
        """Return the slope above 0, the factor of the exponential, and what x is multiplied by inside it."""


@verify.tolerance
@register(
    "lower_elu",
    takes=["Elu"],
    gives=["Constant", "Add", "Exp", "Mul", "Relu", "Sub"],
    needs="float32 or float64",
    needs_shapes=True,
)
class LowerElu(_Exponential):
    """Elu(x) becomes Relu(x) + alpha * (Exp(-Relu(-x)) - 1), whose Exp cannot overflow."""

    operator = "Elu"

    def _factors(self, node: ir.Node) -> tuple[float, float, float]:
        return 1.0, float_attribute(node, "alpha", 1.0), 1.0


@verify.tolerance
@register(
    "lower_selu",
    takes=["Selu"],
    gives=["Constant", "Add", "Exp", "Mul", "Relu", "Sub"],
    needs="float32 or float64",
    needs_shapes=True,
)
class LowerSelu(_Exponential):
    """Selu(x) becomes gamma * Relu(x) + gamma * alpha * (Exp(-Relu(-x)) - 1)."""

    operator = "Selu"

    def _factors(self, node: ir.Node) -> tuple[float, float, float]:
        gamma = float_attribute(node, "gamma", _SELU_GAMMA)
        return gamma, gamma * float_attribute(node, "alpha", _SELU_ALPHA), 1.0


@verify.tolerance
@register(
    "lower_celu",
    takes=["Celu"],
    gives=["Constant", "Add", "Exp", "Mul", "Relu", "Sub"],
    needs="float32; alpha of at least 1",
    needs_shapes=True,
)
class LowerCelu(_Exponential):
    """Celu(x) becomes Relu(x) + alpha * (Exp(-Relu(-x) / alpha) - 1)."""

    operator = "Celu"

    def accept(self, node: ir.Node) -> None:
        """Check that x / alpha cannot overflow."""
        super().accept(node)
        alpha = float_attribute(node, "alpha", 1.0)
        if not (math.isfinite(alpha) and alpha >= 1):
            raise RefusedError(f"alpha is {alpha:g}, so that x / alpha may overflow; 1 and more are handled")

    def _factors(self, node: ir.Node) -> tuple[float, float, float]:
        alpha = float_attribute(node, "alpha", 1.0)
        return 1.0, alpha, 1 / alpha


@verify.tolerance
@register(
    "lower_gelu",
    takes=["Gelu"],
    gives=["Constant", "Add", "Erf", "Mul"],
    needs="float32; the exact form, not that by Tanh, whose x^3 overflows",
    needs_shapes=True,
)
class LowerGelu(_Activation):
    """Gelu(x) becomes x / 2 * (1 + Erf(x / Sqrt(2)))."""

    operator = "Gelu"
    dtypes = (ir.DataType.FLOAT,)

    def accept(self, node: ir.Node) -> None:
        """Check that it is the exact form."""
        super().accept(node)
        form = text_attribute(node, "approximate", "none")
        if form != "none":
            raise RefusedError(f"it is approximated ({form}), which takes x^3, and that may overflow")

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Halve first, so that nothing overflows."""
        x, dtype = first_operand(node), self._dtype(node)
        share = op.Add(op.Erf(op.Mul(x, constant(op, math.sqrt(0.5), dtype))), constant(op, 1, dtype))
        return op.Mul(op.Mul(x, constant(op, 0.5, dtype)), share)
