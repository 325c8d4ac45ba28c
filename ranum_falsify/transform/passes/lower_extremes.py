"""The greatest and the least in terms of Relu, and of comparisons."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.transform import verify
from ranum_falsify.transform.attributes import float_attribute
from ranum_falsify.transform.lowering import Lowering
from ranum_falsify.transform.operands import (
    FLOATS,
    constant,
    constant_array,
    dtype_of,
    element_type,
    first_operand,
    is_finite,
    limits_of,
    operand,
    required_constant,
)
from ranum_falsify.transform.passes.blocks import greater_of, lesser_of, negated
from ranum_falsify.transform.registry import register
from ranum_falsify.transform.rewrite import RefusedError

__all__ = ["LowerClip", "LowerMax", "LowerMin"]

_BOUNDS_ARE_INPUTS = 11  # opset


@verify.tolerance
@register(
    "lower_clip",
    takes=["Clip"],
    gives=["Constant", "Add", "Mul", "Relu", "Sub", "Identity"],
    needs="finite floats; constant bounds to which no difference overflows (below 2^103 in float32, below 16 in "
    "float16)",
    needs_shapes=True,
)
class LowerClip(Lowering):
    """Clip(x, a, b) becomes two Relu for each bound, one for a bound of 0.

    What comes out is never outside the bounds, so that what they guard stays guarded.
    """

    operator = "Clip"

    def accept(self, node: ir.Node) -> None:
        """Check the bounds."""
        x = first_operand(node)
        dtype = dtype_of(x, FLOATS)
        least, most = self._bounds(node, dtype)
        if not least <= most:
            raise RefusedError(f"its bounds are {least:g} and {most:g}; the first must not be above the second")
        limits = limits_of(dtype)
        # Half the distance between the greatest floats: what is smaller changes none of them.
        limit = limits.greatest * limits.epsilon / 4
        for bound in (least, most):
            _check_kept(np.array(bound), dtype)
            if math.isfinite(bound) and abs(bound) >= limit:
                raise RefusedError(f"its bound {bound:g} is so large that a difference to it may overflow")

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Put the bound of the larger magnitude first: the last one holds exactly, and does not move the first."""
        x = first_operand(node)
        dtype = element_type(node)
        least, most = self._bounds(node, dtype)
        steps = [(bound, step) for bound, step in ((least, _above), (most, _below)) if math.isfinite(bound)]
        made = x
        for bound, step in sorted(steps, key=lambda each: abs(each[0]), reverse=True):
            made = step(op, bound, made, dtype)
        return made if steps else op.Identity(x)

    def _bounds(self, node: ir.Node, dtype: ir.DataType) -> tuple[float, float]:
        """Return the bounds, infinite where they bound no finite number."""
        most_finite = limits_of(dtype).greatest
        least, most = -math.inf, math.inf
        if self.opset < _BOUNDS_ARE_INPUTS:
            least, most = float_attribute(node, "min", least), float_attribute(node, "max", most)
        else:
            given = [operand(node, place) for place in (1, 2)]
            least, most = (
                bound if value is None else float(required_constant(value, "its bounds are").reshape(()))
                for value, bound in zip(given, (least, most), strict=True)
            )
        return (
            -math.inf if least <= -most_finite else least,
            math.inf if most >= most_finite else most,
        )


def _above(op: Any, bound: float, x: ir.Value, dtype: ir.DataType) -> Any:
    """Return max(x, bound)."""
    return op.Relu(x) if bound == 0 else greater_of(op, constant(op, bound, dtype), x, dtype)


def _below(op: Any, bound: float, x: ir.Value, dtype: ir.DataType) -> Any:
    """Return min(x, bound)."""
    if bound == 0:
        return negated(op, op.Relu(negated(op, x, dtype)), dtype)
    return lesser_of(op, constant(op, bound, dtype), x, dtype)


def _check_kept(bound: np.ndarray, dtype: ir.DataType) -> None:
    """Check that ONNX Runtime's optimiser keeps what is added to a bound: it leaves out a double that is 0 in float32.

    Raises:
        RefusedError: It does not.
    """
    with np.errstate(over="ignore"):
        narrow = bound.astype(np.float32)
    if dtype == ir.DataType.DOUBLE and bound.size == 1 and bound.any() and not narrow.any():
        raise RefusedError(f"ONNX Runtime's optimiser takes the addition of {float(bound.item()):g} for none")


class _Extreme(Lowering):
    """The greatest or the least of operands."""

    def accept(self, node: ir.Node) -> None:
        """Check the element type, and that constants are finite, and kept."""
        self._dtype = element_type(node)
        for value in node.inputs:
            array = None if value is None else constant_array(value)
            if array is not None and not is_finite(array):
                raise RefusedError("a constant is not finite, and differences to it are none")
            if array is not None:
                _check_kept(array, self._dtype)

    def lower(self, op: Any, node: ir.Node) -> Any:
        """Join two after two; constants are the bounds, which hold exactly."""
        operands = [value for value in node.inputs if value is not None]
        if len(operands) == 1:
            return op.Identity(operands[0])
        operands.sort(key=lambda value: constant_array(value) is None)
        return reduce(lambda bound, x: self._join(op, bound, x), operands)

    @abstractmethod
    def _join(self, op: Any, bound: ir.Value, x: ir.Value) -> Any:
        """Join two operands."""


_NEEDS = (
    "finite floats, of at most half the greatest so that differences are finite; exact where, of two, the lesser "
    "magnitude is at least a millionth of the other (float32)"
)


@verify.tolerance
@register(
    "lower_max",
    takes=["Max"],
    gives=["Constant", "Add", "Mul", "Relu", "Sub", "Identity"],
    needs=_NEEDS,
    needs_shapes=True,
)
class LowerMax(_Extreme):
    """Max(a, b) becomes a + Relu(b - a), in two steps so that rounding loses nothing."""

    operator = "Max"

    def _join(self, op: Any, bound: ir.Value, x: ir.Value) -> Any:
        array = constant_array(bound)
        is_zero = array is not None and array.size == 1 and not array.any()
        if array is not None and is_zero and x.shape is not None and array.ndim <= len(x.shape):
            return op.Relu(x)
        return greater_of(op, bound, x, self._dtype)


@verify.tolerance
@register(
    "lower_min",
    takes=["Min"],
    gives=["Constant", "Add", "Mul", "Relu", "Sub", "Identity"],
    needs=_NEEDS,
    needs_shapes=True,
)
class LowerMin(_Extreme):
    """Min(a, b) becomes a - Relu(a - b), in two steps so that rounding loses nothing."""

    operator = "Min"

    def _join(self, op: Any, bound: ir.Value, x: ir.Value) -> Any:
        return lesser_of(op, bound, x, self._dtype)
