"""Divisions of integers that have no result: by zero, and of the least integer by -1.

ONNX Runtime refuses the first with an error; at the second the processor may end the process (SIGFPE), so it must be
found before it is run.
"""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Value

__all__ = ["find_impossible", "may_trap"]

_TRAPPING = (np.dtype(np.int32), np.dtype(np.int64))  # C computes shorter ones in 32 bits, where the quotient fits


def find_impossible(node: onnx.NodeProto, dividend: Value, divisor: Value) -> np.ndarray:
    """Return where a division of integers has no result, in the shape of its output; nowhere for floats."""
    shape = np.broadcast_shapes(np.shape(dividend), np.shape(divisor))
    if divisor.dtype.kind not in "iu":
        return np.zeros(shape, bool)
    bad = divisor == 0
    if _overflows(node, divisor):
        bad = bad | ((divisor == -1) & (dividend == np.iinfo(divisor.dtype).min))
    return np.broadcast_to(bad, shape)


def may_trap(node: onnx.NodeProto, dividend: Value, divisor: Value) -> bool:
    """Tell whether a division may end the process, given those of its operands that are known (None if not)."""
    for value, fatal in ((dividend, None), (divisor, -1)):
        if value is None:
            continue
        if not _overflows(node, value):
            return False
        if not (value == (np.iinfo(value.dtype).min if fatal is None else fatal)).any():
            return False
    return True


def _overflows(node: onnx.NodeProto, value: Value) -> bool:
    # When the remainder takes the dividend's sign, it is computed in floating point.
    by_value = any(a.name == "fmod" and a.i for a in node.attribute)
    return value.dtype in _TRAPPING and not by_value
