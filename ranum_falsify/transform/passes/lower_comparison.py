"""Questions about positions of greatest elements, as comparisons of the elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from ranum_falsify.transform import verify
from ranum_falsify.transform.attributes import integer_attribute
from ranum_falsify.transform.operands import (
    FLOATS,
    axis_of,
    constant_array,
    dtype_of,
    length_of,
    node_of,
    opset_at,
    rank_of,
)
from ranum_falsify.transform.passes.blocks import reduced, sliced, squeezed
from ranum_falsify.transform.registry import register
from ranum_falsify.transform.rewrite import Rewrite

__all__ = ["LowerArgMaxEqual"]


@verify.equality(everywhere=False)
@register(
    "lower_arg_max_equal",
    takes=["ArgMax", "Equal"],
    gives=["Constant", "And", "Greater", "Less", "Not", "ReduceMax", "Slice", "Squeeze"],
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

    def rewrite(self, op: Any, x: ir.Value, k: ir.Value, index: ir.Value) -> Any:
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

    def _greatest(self, op: Any, x: ir.Value, axis: int, start: int, stop: int) -> Any:
        part = sliced(op, self._opset, x, axis, start, stop)
        return part if stop - start == 1 else reduced(op, "ReduceMax", self._opset, part, [axis], keepdims=True)
