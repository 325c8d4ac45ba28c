"""Run models for `lab.kernels.emulator`; imports as little as possible, because emulated imports take long."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import onnxruntime


def load(model: bytes, optimised: bool) -> Any:
    """Load a model as `ranum_falsify.selfcheck.running.native` does."""
    levels, options = onnxruntime.GraphOptimizationLevel, onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def answer(sessions: list[Any], what: Any, argument: Any) -> Any:
    """Load a model and return its number, or run the model with a number; return an error as text."""
    try:
        if isinstance(what, bytes):
            sessions.append(load(what, argument))
            return len(sessions) - 1
        session = sessions[what]
        if isinstance(argument, dict):
            return dict(zip([y.name for y in session.get_outputs()], session.run(None, argument), strict=True))
        return session.run(None, {"x": argument})[0]
    except Exception as error:  # ONNX Runtime names no class
        return str(error)


def main() -> None:
    sessions: list[Any] = []
    while True:
        try:
            what, argument = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(answer(sessions, what, argument), sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
