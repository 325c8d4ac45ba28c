"""Normalisations in terms of arithmetic, or folded into the product before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import (
    WIDE_FLOATS,
    axis_of,
    check_images,
    check_integers,
    constant,
    constant_array,
    dtype_of,
    element_type,
    float_attribute,
    integer_attribute,
    integers,
    is_finite,
    new_node,
    node_of,
    optional,
    rank_of,
    required_constant,
)
from ranum_falsify.rewrite.passes.blocks import reduced
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import Lowering, Op, RefusedError, Rewrite, is_read, operand

_EPSILON = 1e-5
_SOFTMAX_ALONG_ONE_AXIS = 13  # opset


@verify.tolerance
@register(
    "lower_batch_normalization",
    takes="BatchNormalization",
    gives="Constant Add Mul",
    needs="floats; inference; constant scale, bias, mean and variance; a known rank; scaled operands that do not "
    "overflow",
)
class LowerBatchNormalization(Lowering):
    """BatchNormalization becomes Mul and Add."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        _check_inference(node)
        if rank_of(x) < 2:
            raise RefusedError("its operand has no channels")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        dtype = element_type(node)
        column = (-1, *(1,) * (rank_of(x) - 2))
        factor, offset = (constant(op, each.reshape(column), dtype) for each in _factor_and_offset(node))
        return op.Add(op.Mul(x, factor), offset)


@verify.tolerance
@register(
    "fold_batch_normalization",
    takes="BatchNormalization",
    gives="Constant Add Conv Gemm MatMul",
    needs="floats; inference; a Conv, a Gemm, or a MatMul of a matrix before it, whose weights are constant, and which "
    "nothing else reads; scaled sums that do not overflow",
    needs_shapes=True,
)
class FoldBatchNormalization(Rewrite):
    """BatchNormalization after Conv, Gemm or MatMul becomes a part of its weights."""

    def pattern(self, op: Any, x: Any) -> Any:
        """Match every normalisation, to say why it is not folded."""
        return op.BatchNormalization(x, _allow_other_inputs=True, _outputs=["y"])

    def patterns(self, model: ir.Model) -> Sequence[Callable[..., Any]]:
        """Return what it is folded into, and last, for those that it cannot be, the operator alone."""
        return [
            lambda op, x: self._after(op, op.Conv(x, _allow_other_inputs=True, _outputs=["before"])),
            lambda op, x: self._after(op, op.Gemm(x, _allow_other_inputs=True, _outputs=["before"])),
            lambda op, x, w: self._after(op, op.MatMul(x, w, _outputs=["before"])),
            self.pattern,
        ]

    @staticmethod
    def _after(op: Op, before: Any) -> Any:
        return op.BatchNormalization(before, _allow_other_inputs=True, _outputs=["y"])

    def check(self, context: Any, **operands: Any) -> bool:
        """Check that something is before it, and that its new weights are known and finite."""
        node = context.root
        _check_inference(node)
        if operands.get("before") is None:
            self.refuse("nothing that it could be folded into is before it, or something else reads that")
        before = node_of(operands["before"])
        if before.op_type == "MatMul" and rank_of(before.outputs[0]) != 2:
            self.refuse("the product before it is none of two matrices")
        _check_finite(_folded(node, before), element_type(node))
        return True

    def rewrite(self, op: Op, y: ir.Value, before: ir.Value, **operands: Any) -> Any:
        """Build the product with its new weights."""
        node, product = node_of(y), node_of(before)
        weights, bias = (constant(op, each, element_type(node)) for each in _folded(node, product))
        x = product.inputs[0]
        if product.op_type == "MatMul":
            return op.Add(op.MatMul(x, weights), bias)
        attributes = {name: value for name, value in product.attributes.items() if name != "beta"}
        return new_node(op, product.op_type, x, weights, bias, **attributes)


def _check_inference(node: ir.Node) -> None:
    """Check that batch normalisation multiplies and adds what is known and finite."""
    dtype = element_type(node)
    if integer_attribute(node, "training_mode", 0) or any(is_read(value) for value in node.outputs[1:]):
        raise RefusedError("it is in training mode")
    if not integer_attribute(node, "spatial", 1):
        raise RefusedError("it has statistics for each place (spatial=0)")
    _check_finite(_factor_and_offset(node), dtype)


def _folded(node: ir.Node, before: ir.Node) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights and the bias of a product, batch normalisation included."""
    factor, offset = _factor_and_offset(node)
    weights = required_constant(before.inputs[1], f"the weights of {before.op_type} are").astype(np.float64)
    given = optional(before, 2)
    bias = np.zeros(()) if given is None else required_constant(given, f"the bias of {before.op_type} is")
    if bias.ndim == 2 and bias.shape[0] != 1:
        raise RefusedError("the addend of Gemm is no bias")
    is_by_row = before.op_type == "Conv" or bool(integer_attribute(before, "transB", 0))
    along = factor.reshape((-1, *(1,) * (weights.ndim - 1))) if is_by_row else factor
    scale = float_attribute(before, "beta", 1.0)
    return weights * along, (scale * bias.astype(np.float64)).reshape(-1) * factor + offset


def _factor_and_offset(node: ir.Node) -> tuple[np.ndarray, np.ndarray]:
    """Return what batch normalisation multiplies each channel by, and what it adds; in float64."""
    scale, bias, mean, variance = (
        required_constant(optional(node, place), f"its {what} is").astype(np.float64)
        for place, what in enumerate(("scale", "bias", "mean", "variance"), 1)
    )
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + float_attribute(node, "epsilon", _EPSILON))
        return factor, bias - mean * factor


def _check_finite(arrays: Sequence[np.ndarray], dtype: ir.DataType) -> None:
    """Check that numbers are finite as an element type."""
    if not all(is_finite(array, dtype) for array in arrays):
        raise RefusedError(f"what it multiplies by, or adds, is not finite as {dtype.name.lower()}")


class _Centred(Lowering):
    """A normalisation by mean and variance of the operand itself."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        dtype_of(x, WIDE_FLOATS)
        rank_of(x)
        if any(is_read(value) for value in node.outputs[1:]):
            raise RefusedError("its statistics are used")

    def _normalised(self, op: Op, node: ir.Node, axes: Sequence[int]) -> Any:
        """Return the operand less its mean, divided by its standard deviation."""
        x = operand(node, 0)
        centred = op.Sub(x, reduced(op, "ReduceMean", self.opset, x, axes, keepdims=True))
        variance = reduced(op, "ReduceMean", self.opset, op.Mul(centred, centred), axes, keepdims=True)
        epsilon = constant(op, float_attribute(node, "epsilon", _EPSILON), element_type(node))
        return op.Div(centred, op.Sqrt(op.Add(variance, epsilon)))


_SQUARES = "float32 or float64; a known rank; deviations from the mean whose squares do not overflow"


@verify.tolerance
@register(
    "lower_layer_normalization",
    takes="LayerNormalization",
    gives="Constant Add Div Mul ReduceMean Sqrt Sub",
    needs=_SQUARES,
)
class LowerLayerNormalization(_Centred):
    """LayerNormalization becomes mean, variance and arithmetic."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        rank = rank_of(x)
        made = self._normalised(op, node, range(axis_of(node, -1), rank))
        made = op.Mul(made, node.inputs[1])
        bias = optional(node, 2)
        return made if bias is None else op.Add(made, bias)


@verify.tolerance
@register(
    "lower_instance_normalization",
    takes="InstanceNormalization",
    gives="Constant Add Div Mul ReduceMean Reshape Sqrt Sub",
    needs=_SQUARES,
)
class LowerInstanceNormalization(_Centred):
    """InstanceNormalization becomes mean, variance and arithmetic."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        super()._accept(node, x)
        check_images(x)
        if any(value is not None and constant_array(value) is None for value in node.inputs[1:]):
            check_integers(self.opset)

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        rank = rank_of(x)
        factor, offset = (self._column(op, operand(node, at), rank - 2, element_type(node)) for at in (1, 2))
        return op.Add(op.Mul(self._normalised(op, node, range(2, rank)), factor), offset)

    @staticmethod
    def _column(op: Op, value: ir.Value, spatial: int, dtype: Any) -> Any:
        array, shape = constant_array(value), (-1, *(1,) * spatial)
        if array is not None:
            return constant(op, array.reshape(shape), dtype)
        return op.Reshape(value, integers(op, shape))


class _Softmax(Lowering):
    """Softmax or its logarithm, by exponentials of what is never positive."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        dtype_of(x, WIDE_FLOATS)
        self._axes(node)

    def _axes(self, node: ir.Node) -> list[int]:
        """Return the axes along which the results sum up to 1: before opset 13, all from the one given on."""
        is_one = self.opset >= _SOFTMAX_ALONG_ONE_AXIS
        axis = axis_of(node, -1 if is_one else 1)
        return [axis] if is_one else list(range(axis, rank_of(operand(node, 0))))

    def _shifted(self, op: Op, node: ir.Node) -> Any:
        x = operand(node, 0)
        return op.Sub(x, reduced(op, "ReduceMax", self.opset, x, self._axes(node), keepdims=True))

    def _total(self, op: Op, node: ir.Node, weights: Any) -> Any:
        return reduced(op, "ReduceSum", self.opset, weights, self._axes(node), keepdims=True)


_SOFTMAX_NEEDS = "float32 or float64; a known rank; operands whose differences do not overflow"


@verify.tolerance
@register("lower_softmax", takes="Softmax", gives="Constant Div Exp ReduceMax ReduceSum Sub", needs=_SOFTMAX_NEEDS)
class LowerSoftmax(_Softmax):
    """Softmax(x) becomes e / ReduceSum(e) with e = Exp(x - ReduceMax(x)), which cannot overflow."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        weights = op.Exp(self._shifted(op, node))
        return op.Div(weights, self._total(op, node, weights))


@verify.tolerance
@register(
    "lower_log_softmax", takes="LogSoftmax", gives="Constant Exp Log ReduceMax ReduceSum Sub", needs=_SOFTMAX_NEEDS
)
class LowerLogSoftmax(_Softmax):
    """LogSoftmax(x) becomes d - Log(ReduceSum(Exp(d))) with d = x - ReduceMax(x), which cannot overflow."""

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        shifted = self._shifted(op, node)
        return op.Sub(shifted, op.Log(self._total(op, node, op.Exp(shifted))))
