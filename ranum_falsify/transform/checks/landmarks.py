"""Values at which a model may change what it does: its small constants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

__all__ = ["landmarks_of"]

_LARGEST = 16
"""Elements of a constant that may be a threshold; larger ones are weights."""
_MOST = 256


def landmarks_of(model: ir.Model) -> list[float]:
    """Return the finite elements of a model's small constants of floats, each once, in order."""
    found = {
        float(element)
        for tensor in _constants(model)
        if tensor.size <= _LARGEST and tensor.dtype.is_floating_point()
        for element in tensor.numpy().astype(np.float64).reshape(-1)
        if np.isfinite(element)
    }
    return sorted(found)[:_MOST]


def _constants(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value
        for node in graph:
            tensor = None if node.inputs or not node.outputs else ir.convenience.get_const_tensor(node.outputs[0])
            if tensor is not None:
                yield tensor
