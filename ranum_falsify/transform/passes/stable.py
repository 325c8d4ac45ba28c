"""Functions of exponentials, written such that nothing overflows and no small number is lost.

Each is equal to what it replaces in real arithmetic, and closer to it in floating point: 1 - Sigmoid(x) rounds to 0
where Log(1 - Sigmoid(x)) is -17, and Exp(x) overflows where Log(1 + Exp(x)) is 89.  What else reads an inner tensor of
a match still gets it.

Element types are those for which ONNX Runtime has a kernel.  Of others it may take the operator's definition instead:
Softplus of float64 at opset 18 is Log(Exp(x) + 1) there, and overflows.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from ranum_falsify.transform import verify
from ranum_falsify.transform.operands import (
    attribute,
    axes_of,
    constant_array,
    dtype_of,
    integers,
    node_of,
    opset_at,
    rank_of,
)
from ranum_falsify.transform.registry import register
from ranum_falsify.transform.rewrite import RefusedError, Rewrite

__all__ = [
    "StableLogOneMinusSigmoid",
    "StableLogSigmoid",
    "StableLogSoftmax",
    "StableLogSumExp",
    "StableSoftmax",
    "StableSoftplus",
]

_SINGLE = (ir.DataType.FLOAT,)
_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_SOFTMAX = (*_WIDE, ir.DataType.FLOAT16)
_AXES_ARE_INPUTS = 18  # opset, for reductions other than ReduceSum
_SOFTMAX_ALONG_ONE_AXIS = 13  # opset


@verify.tolerance
@register(
    "stable_log_softmax",
    takes=["Softmax", "Log"],
    gives=["LogSoftmax"],
    needs="float32, float64 or float16",
    needs_shapes=True,
)
class StableLogSoftmax(Rewrite):
    """Log(Softmax(x)) becomes LogSoftmax(x).

    torch.nn.functional.log_softmax, tf.nn.log_softmax; equal in real arithmetic.
    """

    remove_nodes = False

    def pattern(self, op: Any, x: Any) -> Any:
        """Match a logarithm of probabilities."""
        return op.Log(op.Softmax(x, _outputs=["p"]))

    def check(self, context: Any, x: ir.Value, p: ir.Value) -> bool:
        """Check the element type."""
        return dtype_of(x, _SOFTMAX) in _SOFTMAX

    def rewrite(self, op: Any, x: ir.Value, p: ir.Value) -> Any:
        """Keep the axis: both operators have had the same default in each opset."""
        return op.LogSoftmax(x, **dict(node_of(p).attributes))


@verify.tolerance
@register("stable_log_sigmoid", takes=["Sigmoid", "Log"], gives=["Neg", "Softplus"], needs="float32", needs_shapes=True)
class StableLogSigmoid(Rewrite):
    """Log(Sigmoid(x)) becomes -Softplus(-x).

    torch.nn.functional.logsigmoid, tf.math.log_sigmoid; equal in real arithmetic.
    """

    remove_nodes = False

    def pattern(self, op: Any, x: Any) -> Any:
        """Match a logarithm of a probability."""
        return op.Log(op.Sigmoid(x))

    def check(self, context: Any, x: ir.Value) -> bool:
        """Check the element type."""
        return dtype_of(x, _SINGLE) in _SINGLE

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        """Build what replaces it."""
        return op.Neg(op.Softplus(op.Neg(x)))


@verify.tolerance
@register(
    "stable_log_one_minus_sigmoid",
    takes=["Sigmoid", "Sub", "Log"],
    gives=["Neg", "Softplus"],
    needs="float32; a constant 1 that adds no dimension",
    needs_shapes=True,
)
class StableLogOneMinusSigmoid(Rewrite):
    """Log(1 - Sigmoid(x)) becomes -Softplus(x).

    torch.nn.functional.logsigmoid(-x), tf.math.log_sigmoid(-x); equal in real arithmetic.
    """

    remove_nodes = False

    def pattern(self, op: Any, x: Any, one: Any) -> Any:
        """Match a logarithm of the opposite probability."""
        return op.Log(op.Sub(one, op.Sigmoid(x)))

    def check(self, context: Any, x: ir.Value, one: ir.Value) -> bool:
        """Check the constant and the element type."""
        return _is_one(one, x) and dtype_of(x, _SINGLE) in _SINGLE

    def rewrite(self, op: Any, x: ir.Value, one: ir.Value) -> Any:
        """Build what replaces it."""
        return op.Neg(op.Softplus(x))


@verify.tolerance
@register(
    "stable_softplus",
    takes=["Exp", "Add", "Log"],
    gives=["Softplus"],
    needs="float32; a constant 1 that adds no dimension",
    needs_shapes=True,
)
class StableSoftplus(Rewrite):
    """Log(1 + Exp(x)) becomes Softplus(x).

    torch.nn.functional.softplus, tf.math.softplus; equal in real arithmetic.
    """

    remove_nodes = False
    commute = True

    def pattern(self, op: Any, x: Any, one: Any) -> Any:
        """Match a softplus written out, the 1 on either side."""
        return op.Log(op.Add(one, op.Exp(x)))

    def check(self, context: Any, x: ir.Value, one: ir.Value) -> bool:
        """Check the constant and the element type."""
        return _is_one(one, x) and dtype_of(x, _SINGLE) in _SINGLE

    def rewrite(self, op: Any, x: ir.Value, one: ir.Value) -> Any:
        """Build what replaces it."""
        return op.Softplus(x)


@verify.tolerance
@register(
    "stable_log_sum_exp",
    takes=["Exp", "ReduceSum", "Log"],
    gives=["ReduceLogSumExp"],
    needs="float32 or float64; constant axes",
    needs_shapes=True,
)
class StableLogSumExp(Rewrite):
    """Log(ReduceSum(Exp(x))) becomes ReduceLogSumExp(x).

    torch.logsumexp, tf.reduce_logsumexp; equal in real arithmetic.
    """

    remove_nodes = False

    def pattern(self, op: Any, x: Any) -> Any:
        """Match a logarithm of a sum of exponentials."""
        return op.Log(op.ReduceSum(op.Exp(x), _allow_other_inputs=True, _outputs=["total"]))

    def check(self, context: Any, x: ir.Value, total: ir.Value) -> bool:
        """Check that the axes are known, and that there are some."""
        dtype_of(x, _WIDE)
        if not axes_of(node_of(total)):
            self.refuse("it sums along no axis")
        self._opset = opset_at(context)
        return True

    def rewrite(self, op: Any, x: ir.Value, total: ir.Value) -> Any:
        """Give the axes as the opset has them."""
        node = node_of(total)
        keeps, axes = attribute(node, "keepdims", 1), axes_of(node)
        if self._opset < _AXES_ARE_INPUTS:
            return op.ReduceLogSumExp(x, axes=axes, keepdims=keeps)
        return op.ReduceLogSumExp(x, integers(op, axes), keepdims=keeps)


@verify.tolerance
@register(
    "stable_softmax",
    takes=["Exp", "ReduceSum", "Div"],
    gives=["Softmax"],
    needs="float32, float64 or float16; a sum along one constant axis, kept as a dimension, the last before opset 13",
    needs_shapes=True,
)
class StableSoftmax(Rewrite):
    """Exp(x) / ReduceSum(Exp(x)) becomes Softmax(x).

    torch.softmax, tf.nn.softmax; equal in real arithmetic.
    """

    remove_nodes = False

    def pattern(self, op: Any, x: Any) -> Any:
        """Match a softmax written out."""
        weights = op.Exp(x)
        return op.Div(weights, op.ReduceSum(weights, _allow_other_inputs=True, _outputs=["total"]))

    def check(self, context: Any, x: ir.Value, total: ir.Value) -> bool:
        """Check the axis."""
        dtype_of(x, _SOFTMAX)
        node = node_of(total)
        axes, rank = axes_of(node), rank_of(x)
        if len(axes) != 1:
            self.refuse(f"it sums along {len(axes)} axes; Softmax has one")
        if not attribute(node, "keepdims", 1):
            self.refuse("its sum does not keep the dimension")
        if opset_at(context) < _SOFTMAX_ALONG_ONE_AXIS and axes[0] != rank - 1:
            self.refuse(f"Softmax along another axis than the last needs opset {_SOFTMAX_ALONG_ONE_AXIS}")
        return True

    def rewrite(self, op: Any, x: ir.Value, total: ir.Value) -> Any:
        """Build what replaces it."""
        return op.Softmax(x, axis=axes_of(node_of(total))[0])


def _is_one(one: ir.Value, x: ir.Value) -> bool:
    """Tell whether an operand is the constant 1.

    Raises:
        RefusedError: It is, but gives the result another shape than that of the other operand.
    """
    array = constant_array(one)
    if array is None or array.size == 0 or not (array == 1).all():
        return False
    if array.ndim and (array.size > 1 or x.shape is None or len(x.shape) < array.ndim):
        raise RefusedError(f"the constant 1 has shape {list(array.shape)}, which may add dimensions")
    return True
