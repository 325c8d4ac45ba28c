"""Divisions of integers that have no result: by zero, and of the least integer by -1.

ONNX Runtime refuses the first with an error; at the second the processor may end the process (SIGFPE), so it must be
found before it is run.  Where an operand asks for both, ONNX Runtime refuses: it looks for zeros first.
"""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Value

_TRAPPING = (np.dtype(np.int32), np.dtype(np.int64))  # C computes shorter ones in 32 bits, where the quotient fits


def find_impossible(node: onnx.NodeProto, dividend: Value, divisor: Value) -> tuple[str, np.ndarray] | None:
    """Return the kind of the finding where a division of integers has no result, and the places in its output."""
    if divisor.dtype.kind not in "iu":
        return None
    shape = np.broadcast_shapes(np.shape(dividend), np.shape(divisor))
    kinds = [("error", divisor == 0)]
    if _overflows(node, divisor):
        kinds.append(("crash", (divisor == -1) & (dividend == np.iinfo(divisor.dtype).min)))
    places = ((kind, np.broadcast_to(bad, shape)) for kind, bad in kinds)
    return next(((kind, bad) for kind, bad in places if bad.any()), None)


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
