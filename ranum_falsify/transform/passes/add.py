"""Addition by subtraction."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from ranum_falsify.transform import verify
from ranum_falsify.transform.operands import (
    FLOATS,
    check_integers,
    constant,
    dtype_of,
    opset_at,
)
from ranum_falsify.transform.registry import register
from ranum_falsify.transform.rewrite import Rewrite

__all__ = ["TransformAdd"]

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
