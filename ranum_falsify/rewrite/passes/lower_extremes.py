"""The greatest and the least, and their positions, in terms of Relu and of comparisons."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import (
    FLOATS,
    axis_of,
    constant,
    constant_array,
    dtype_of,
    element_type,
    float_attribute,
    integer_attribute,
    is_finite,
    length_of,
    limits_of,
    node_of,
    opset_at,
    optional,
    rank_of,
    required_constant,
)
from ranum_falsify.rewrite.passes.blocks import greater_of, lesser_of, negated, reduced, sliced, squeezed
from ranum_falsify.rewrite.passes.lower_reduction import axis_last, transposed, weighted_sum
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import Lowering, Op, RefusedError, Rewrite

_BOUNDS_ARE_INPUTS = 11  # opset


@verify.tolerance
@register(
    "lower_clip",
    takes="Clip",
    gives="Constant Add Mul Relu Sub Identity",
    needs="finite floats; constant bounds to which no difference overflows (below 2^103 in float32, below 16 in "
    "float16)",
)
class LowerClip(Lowering):
    """Clip(x, a, b) becomes two Relu for each bound, one for a bound of 0.

    What comes out is never outside the bounds, so that what they guard stays guarded.
    """

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        dtype = dtype_of(x, FLOATS)
        least, most = self._bounds(node, dtype)
        if not least <= most:
            raise RefusedError(f"its bounds are {least:g} and {most:g}; the first must not be above the second")
        greatest, _, epsilon = limits_of(dtype)
        # Half the distance between the greatest floats: what is smaller changes none of them.
        limit = greatest * epsilon / 4
        for bound in (least, most):
            _check_kept(np.array(bound), dtype)
            if math.isfinite(bound) and abs(bound) >= limit:
                raise RefusedError(f"its bound {bound:g} is so large that a difference to it may overflow")

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        """Put the bound of the larger magnitude first: the last one holds exactly, and does not move the first."""
        dtype = element_type(node)
        least, most = self._bounds(node, dtype)
        steps = [(bound, step) for bound, step in ((least, _above), (most, _below)) if math.isfinite(bound)]
        made = x
        for bound, step in sorted(steps, key=lambda each: abs(each[0]), reverse=True):
            made = step(op, bound, made, dtype)
        return made if steps else op.Identity(x)

    def _bounds(self, node: ir.Node, dtype: ir.DataType) -> tuple[float, float]:
        """Return the bounds, infinite where they bound no finite number."""
        most_finite, *_ = limits_of(dtype)
        least, most = -math.inf, math.inf
        if self.opset < _BOUNDS_ARE_INPUTS:
            least, most = float_attribute(node, "min", least), float_attribute(node, "max", most)
        else:
            given = [optional(node, place) for place in (1, 2)]
            least, most = (
                bound if value is None else float(required_constant(value, "its bounds are").reshape(()))
                for value, bound in zip(given, (least, most), strict=True)
            )
        return (
            -math.inf if least <= -most_finite else least,
            math.inf if most >= most_finite else most,
        )


def _above(op: Op, bound: float, x: ir.Value, dtype: ir.DataType) -> Any:
    """Return max(x, bound)."""
    return op.Relu(x) if bound == 0 else greater_of(op, constant(op, bound, dtype), x, dtype)


def _below(op: Op, bound: float, x: ir.Value, dtype: ir.DataType) -> Any:
    """Return min(x, bound)."""
    if bound == 0:
        return negated(op, op.Relu(negated(op, x, dtype)), dtype)
    return lesser_of(op, constant(op, bound, dtype), x, dtype)


def _check_kept(bound: np.ndarray, dtype: ir.DataType) -> None:
    """Check that ONNX Runtime's optimiser keeps what is added to a bound: not so a double that is 0 in float32."""
    with np.errstate(over="ignore"):
        narrow = bound.astype(np.float32)
    if dtype == ir.DataType.DOUBLE and bound.size == 1 and bound.any() and not narrow.any():
        raise RefusedError(f"ONNX Runtime's optimiser takes the addition of {float(bound.item()):g} for none")


class _Extreme(Lowering):
    """The greatest or the least of operands."""

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        self._dtype = element_type(node)
        for value in node.inputs:
            array = None if value is None else constant_array(value)
            if array is not None and not is_finite(array):
                raise RefusedError("a constant is not finite, and differences to it are none")
            if array is not None:
                _check_kept(array, self._dtype)

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        """Join two after two; constants are the bounds, which hold exactly."""
        operands = [value for value in node.inputs if value is not None]
        if len(operands) == 1:
            return op.Identity(operands[0])
        operands.sort(key=lambda value: constant_array(value) is None)
        return reduce(lambda bound, x: self._join(op, bound, x), operands)

    @abstractmethod
    def _join(self, op: Op, bound: ir.Value, x: ir.Value) -> Any:
        """Join two operands."""


_NEEDS = (
    "finite floats, of at most half the greatest so that differences are finite; exact where, of two, the lesser "
    "magnitude is at least a millionth of the other (float32)"
)


@verify.tolerance
@register("lower_max", takes="Max", gives="Constant Add Mul Relu Sub Identity", needs=_NEEDS)
class LowerMax(_Extreme):
    """Max(a, b) becomes a + Relu(b - a), in two steps so that rounding loses nothing."""

    def _join(self, op: Op, bound: ir.Value, x: ir.Value) -> Any:
        array = constant_array(bound)
        is_zero = array is not None and array.size == 1 and not array.any()
        if array is not None and is_zero and x.shape is not None and array.ndim <= len(x.shape):
            return op.Relu(x)
        return greater_of(op, bound, x, self._dtype)


@verify.tolerance
@register("lower_min", takes="Min", gives="Constant Add Mul Relu Sub Identity", needs=_NEEDS)
class LowerMin(_Extreme):
    """Min(a, b) becomes a - Relu(a - b), in two steps so that rounding loses nothing."""

    def _join(self, op: Op, bound: ir.Value, x: ir.Value) -> Any:
        return lesser_of(op, bound, x, self._dtype)


_SIGN = 9  # opset
# Up to here every integer has a float of its own.
_MOST_EXACT = {ir.DataType.FLOAT16: 2048, ir.DataType.BFLOAT16: 256}
# Operators that infinities of an operand go through.
_PASSING = (
    "Add",
    "Concat",
    "Identity",
    "Mul",
    "Neg",
    "Reshape",
    "Slice",
    "Squeeze",
    "Sub",
    "Transpose",
    "Unsqueeze",
    "Where",
)
_LONGEST = 4096
_MOST_PAIRS = 2**26


@verify.equality(everywhere=False)
@register(
    "transform_arg_max",
    takes="ArgMax",
    gives="Constant Add Sub Mul MatMul Relu Transpose Sign Cast",
    needs=f"an axis of fixed length, at most {_LONGEST:,} (2,048 in float16, 256 in bfloat16); opset {_SIGN}; finite "
    "elements, whose differences are finite",
    needs_shapes=True,
)
class TransformArgMax(Rewrite):
    """ArgMax becomes comparisons of pairs; the first of equal elements wins, or the last where the node says so."""

    def pattern(self, op: Any, x: Any) -> Any:
        """Match every ArgMax."""
        return op.ArgMax(x, _outputs=["index"])

    def check(self, context: Any, x: ir.Value, index: ir.Value) -> bool:
        """Check that pairs can be built, and counted exactly."""
        if opset_at(context) < _SIGN:
            self.refuse(f"Sign needs opset {_SIGN}; convert the model")
        dtype = dtype_of(x, FLOATS)
        for name in ("keepdims", "select_last_index"):
            integer_attribute(context.root, name, 0)
        length = length_of(x, axis_of(context.root))
        most = _MOST_EXACT.get(dtype, _LONGEST)
        if length > most:
            self.refuse(f"its axis has {length:,} elements; at most {most:,} of {dtype.name.lower()} are compared")
        assert x.shape is not None
        pairs = length * int(np.prod([dim for dim in x.shape if isinstance(dim, int)]))
        if pairs > _MOST_PAIRS:
            self.refuse(f"it would take {pairs:,} comparisons; at most {_MOST_PAIRS:,} are made")
        infinite = _infinite_constant(x)
        if infinite is not None:
            self.refuse(f"{infinite.name!r} is a constant that is not finite")
        return True

    def rewrite(self, op: Op, x: ir.Value, index: ir.Value) -> Any:
        """Build the comparisons."""
        assert x.dtype is not None and x.shape is not None
        node = node_of(index)
        rank, dtype, axis = len(x.shape), x.dtype, axis_of(node)
        length = length_of(x, axis)
        there, back = axis_last(rank, axis)
        # The product has one more axis, in front, which the transpositions put after and before the elements.
        lifted = op.Mul(transposed(op, x, there), constant(op, np.ones((1,) * (rank + 1)), dtype))
        column = transposed(op, lifted, [*range(1, rank + 1), 0])
        row = transposed(op, lifted, [*range(1, rank), 0, rank])
        sign = op.Sign(op.Sub(row, column))
        wins = _wins_ties(length, last=bool(integer_attribute(node, "select_last_index", 0)))
        beaten = op.Sign(op.Relu(op.Add(sign, constant(op, wins / 2, dtype))))
        times = weighted_sum(op, beaten, np.ones(length), dtype, keeps=False)
        chosen = op.Relu(op.Sub(constant(op, 1, dtype), times))
        keeps = bool(integer_attribute(node, "keepdims", 1))
        position = weighted_sum(op, chosen, np.arange(length), dtype, keeps=keeps)
        return op.Cast(transposed(op, position, back) if keeps else position, to=ir.DataType.INT64)


@verify.equality(everywhere=False)
@register("transform_arg_min", takes="ArgMin", gives="Constant Sub ArgMax", needs="float elements", needs_shapes=True)
class TransformArgMin(Rewrite):
    """ArgMin(x) becomes ArgMax(0 - x)."""

    def pattern(self, op: Any, x: Any) -> Any:
        """Match every ArgMin."""
        return op.ArgMin(x, _outputs=["index"])

    def check(self, context: Any, x: ir.Value, index: ir.Value) -> bool:
        """Check that every element has an opposite."""
        dtype_of(x, FLOATS)
        return True

    def rewrite(self, op: Op, x: ir.Value, index: ir.Value) -> Any:
        """Negate; opposites are exact, so that ties stay ties."""
        assert x.dtype is not None
        return op.ArgMax(op.Sub(constant(op, 0, x.dtype), x), **dict(node_of(index).attributes))


def _infinite_constant(value: ir.Value) -> ir.Value | None:
    """Return a constant that is not finite and reaches a tensor as it is, as masks do; None where there is none."""
    array = constant_array(value)
    if array is not None:
        return None if is_finite(array) else value
    node = value.producer()
    if node is None or node.op_type not in _PASSING:
        return None
    sources = (_infinite_constant(operand) for operand in node.inputs if operand is not None)
    return next((found for found in sources if found is not None), None)


def _wins_ties(length: int, *, last: bool) -> np.ndarray:
    """Return which elements (columns) win ties against which (rows)."""
    ones = np.ones((length, length))
    return np.triu(ones, 1) if last else np.tril(ones, -1)


@verify.equality(everywhere=False)
@register(
    "lower_arg_max_equal",
    takes="ArgMax Equal",
    gives="Constant And Greater Less Not ReduceMax Slice Squeeze",
    needs="floats, none of them NaN; an axis of fixed length; a comparison with one constant position",
    needs_shapes=True,
)
class LowerArgMaxEqual(Rewrite):
    """Equal(ArgMax(x), k) becomes: x[k] is greater than what is before it, and not less than what is after it.

    With select_last_index, it is the other way round.
    """

    remove_nodes = False

    def pattern(self, op: Any, x: Any, k: Any) -> Any:
        """Match a position that is compared."""
        return op.Equal(op.ArgMax(x, _outputs=["index"]), k)

    def patterns(self, model: ir.Model) -> Sequence[Callable[..., Any]]:
        """Match the position on either side."""
        return [self.pattern, lambda op, x, k: op.Equal(k, op.ArgMax(x, _outputs=["index"]))]

    def check(self, context: Any, x: ir.Value, k: ir.Value, index: ir.Value) -> bool:
        """Check the axis and the constant."""
        dtype_of(x, FLOATS)
        self._opset = opset_at(context)
        node = node_of(index)
        for name in ("keepdims", "select_last_index"):
            integer_attribute(node, name, 0)
        length, position = length_of(x, axis_of(node)), constant_array(k)
        if position is None:
            self.refuse("the position that it is compared with is not constant")
        rank = rank_of(x) - (0 if integer_attribute(node, "keepdims", 1) else 1)
        if position.size != 1 or position.ndim > rank:
            self.refuse(f"it is compared with a tensor of shape {list(position.shape)}; one position is handled")
        if not 0 <= int(position.reshape(())) < length:
            self.refuse(f"position {int(position.reshape(()))} is none of an axis of length {length}")
        return True

    def rewrite(self, op: Op, x: ir.Value, k: ir.Value, index: ir.Value) -> Any:
        """Compare with the greatest elements before and after."""
        node, array = node_of(index), constant_array(k)
        assert array is not None
        axis, place = axis_of(node), int(array.reshape(()))
        length, wins_last = length_of(x, axis), bool(integer_attribute(node, "select_last_index", 0))
        chosen = sliced(op, self._opset, x, axis, place, place + 1)
        parts = []
        for start, stop, is_strict in ((0, place, not wins_last), (place + 1, length, wins_last)):
            if start < stop:
                other = self._greatest(op, x, axis, start, stop)
                parts.append(op.Greater(chosen, other) if is_strict else op.Not(op.Less(chosen, other)))
        if not parts:
            parts = [op.Not(op.Less(chosen, chosen))]
        made = parts[0] if len(parts) == 1 else op.And(*parts)
        return made if integer_attribute(node, "keepdims", 1) else squeezed(op, self._opset, made, [axis])

    def _greatest(self, op: Op, x: ir.Value, axis: int, start: int, stop: int) -> Any:
        part = sliced(op, self._opset, x, axis, start, stop)
        return part if stop - start == 1 else reduced(op, "ReduceMax", self._opset, part, [axis], keepdims=True)
