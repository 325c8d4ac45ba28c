"""What runs in the child process of `ranum_falsify.network.optimised`: ONNX Runtime rewrites models, and runs none.

The one command is ``optimise`` ({"source", "target", "memory"}, two paths and a number of bytes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnxruntime as ort

__all__ = ["service"]


_LAYOUTS = ("NchwcTransformer", "NhwcTransformer")
"""Optimisers that only change the layout of tensors, and so the order of sums, into operators that no file may hold."""


def _optimise(source: str, target: str, memory: int) -> str:
    """Write the model that ONNX Runtime makes of another; return why it cannot, if it can load that other model.

    It runs at the highest level, the default: only that level, having inserted conversions around half precision, goes
    on to drop some of them and to fuse what is between them.
    """
    _limit_memory(memory)
    try:
        _load(source, target)
    except Exception as error:
        # A full disk, or a result beyond what a file may hold, does not keep users from running the model.
        _load(source, "")
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def _limit_memory(memory: int) -> None:
    """Limit the memory that constants may take when they are folded, where the system can enforce that."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (memory if hard == resource.RLIM_INFINITY else min(memory, hard), hard))


def _load(source: str, target: str) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = target
    options.intra_op_num_threads = 1
    # Nothing is run, so weights need not be laid out for it.
    options.add_session_config_entry("session.disable_prepacking", "1")
    ort.InferenceSession(source, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(_LAYOUTS))


def service() -> Callable[[str, Any], Any]:
    """Return the function that answers a command."""
    ort.set_default_logger_severity(4)
    return lambda command, argument: _optimise(**argument)
