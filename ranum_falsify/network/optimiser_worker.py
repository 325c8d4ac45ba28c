"""What runs in the child process of `ranum_falsify.network.optimised`: ONNX Runtime rewrites models, and runs none.

The one command is ``optimise`` ({"source", "target"}, two paths); see `_optimise` for its answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnxruntime as ort

__all__ = ["service"]


_LAYOUTS = ("NchwcTransformer", "NhwcTransformer")
"""Optimisers that only change the layout of tensors, and so the order of sums, into operators that no file may hold."""


def _optimise(source: str, target: str) -> tuple[str, str]:
    """Write the model that ONNX Runtime makes of another.

    It runs at the highest level, the default: only that level, having inserted conversions around half precision, goes
    on to drop some of them and to fuse what is between them.

    Returns:
        The outcome and its reason: ``written``; ``unwritten`` if a full disk, or a result beyond what a file may hold,
        does not keep users from running the model; ``unoptimised`` if only the optimiser does not accept it;
        ``refused`` if no user can run it at any level.
    """
    try:
        _load(source, target)
        return "written", ""
    except Exception as error:
        unwritten = _words(error)
    try:
        _load(source, "")
        return "unwritten", unwritten
    except Exception as error:
        unoptimised = _words(error)
    try:
        # Nothing is folded, so this takes memory in proportion to the model.
        _load(source, "", ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
        return "unoptimised", unoptimised
    except Exception as error:
        return "refused", _words(error)


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _load(source: str, target: str, level: Any = ort.GraphOptimizationLevel.ORT_ENABLE_ALL) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = target
    options.intra_op_num_threads = 1
    # Nothing is run, so weights need not be laid out for it.
    options.add_session_config_entry("session.disable_prepacking", "1")
    ort.InferenceSession(source, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(_LAYOUTS))


def service() -> Callable[[str, Any], Any]:
    """Return the function that answers a command."""
    ort.set_default_logger_severity(4)
    return lambda command, argument: _optimise(**argument)
