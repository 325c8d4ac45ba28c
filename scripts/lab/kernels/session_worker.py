"""Run models for `lab.kernels.emulator`; imports as little as possible, because emulated imports take long."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any


def load_torch(model: bytes, strided: bool | None) -> Any:
    """Load a model of one operator in PyTorch, or where the flag is None any model."""
    import onnx
    import torch

    from ranum_falsify.network import read
    from ranum_falsify.network.tensors import to_numpy, to_torch
    from ranum_falsify.selfcheck.running import native_torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    if strided is not None:
        return native_torch(model, strided)
    graph = read(onnx.load_from_string(model))

    def run(feeds: dict[str, Any]) -> dict[str, Any]:
        outputs = graph.evaluate([to_torch(feeds[name]) for name in graph.input_names])
        return {name: to_numpy(y) for name, y in zip(graph.output_names, outputs, strict=True)}

    return run


def load(model: bytes, optimised: bool) -> Any:
    """Load a model in ONNX Runtime as `ranum_falsify.selfcheck.running.native` does."""
    import onnxruntime

    levels, options = onnxruntime.GraphOptimizationLevel, onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def answer(sessions: list[Any], what: Any, argument: Any, loads: Callable[[bytes, bool], Any]) -> Any:
    """Load a model and return its number, or run the model with a number; return an error as text."""
    try:
        if isinstance(what, bytes):
            sessions.append(loads(what, argument))
            return len(sessions) - 1
        session = sessions[what]
        if callable(session):
            return session(argument)
        if isinstance(argument, dict):
            return dict(zip([y.name for y in session.get_outputs()], session.run(None, argument), strict=True))
        return session.run(None, {"x": argument})[0]
    except Exception as error:  # libraries name no class
        return str(error)


def main() -> None:
    sessions: list[Any] = []
    loads = load_torch if sys.argv[1] == "torch" else load
    while True:
        try:
            what, argument = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(answer(sessions, what, argument, loads), sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
