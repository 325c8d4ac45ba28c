"""Sessions of ONNX Runtime that run a model as it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx
    import onnxruntime

__all__ = ["plain_session"]


def plain_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Return a session without optimisations, on one thread."""
    import onnxruntime  # after the package, which keeps it from sending telemetry

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options)
