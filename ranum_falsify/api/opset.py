"""ONNX's operators as functions, for translations of PyTorch's; they need onnxscript, which is imported late."""

from __future__ import annotations

from typing import Any

import numpy as np


def operators() -> Any:
    """Return ONNX's operators, which onnxscript offers as functions."""
    from onnxscript import opset18

    return opset18


def constant(values: np.ndarray[Any, np.dtype[Any]]) -> Any:
    """Return a constant of the type and the shape of an array."""
    from onnxscript import ir

    return operators().Constant(value=ir.tensor(values))
