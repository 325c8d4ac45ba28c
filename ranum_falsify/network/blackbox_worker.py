"""The worker of `ranum_falsify.network.blackbox`: ONNX Runtime evaluates single nodes in a child process.

The commands are ``load`` ({"key", "model"}), which returns type and shape of each output, and ``run`` ({"key",
"samples", "seconds"}), which returns the outputs of each sample, or why ONNX Runtime refuses it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort


class _Sessions:
    """The nodes that were loaded, by key."""

    def __init__(self) -> None:
        self._sessions: dict[str, ort.InferenceSession] = {}

    def answer(self, command: str, argument: Mapping[str, Any]) -> Any:
        """Answer a command."""
        return self._load(**argument) if command == "load" else self._run(**argument)

    def _load(self, key: str, model: bytes) -> list[tuple[str, list[Any]]]:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(model, sess_options=options, providers=["CPUExecutionProvider"])
        self._sessions[key] = session
        return [(output.type, list(output.shape)) for output in session.get_outputs()]

    def _run(
        self, key: str, samples: Sequence[Mapping[str, np.ndarray]], seconds: float
    ) -> list[list[np.ndarray] | str]:
        """Run a node; a sample on which it does not end, as a loop may not, leaves half of the time to the others."""
        end = time.monotonic() + seconds
        parts = [0.5] * (len(samples) - 1) + [1.0]
        session = self._sessions[key]
        return [
            self._evaluate(session, feeds, part * (end - time.monotonic()))
            for feeds, part in zip(samples, parts, strict=True)
        ]

    def _evaluate(
        self, session: ort.InferenceSession, feeds: Mapping[str, np.ndarray], seconds: float
    ) -> list[np.ndarray] | str:
        run = ort.RunOptions()
        watch = threading.Timer(max(seconds, 0.0), setattr, (run, "terminate", True))
        watch.start()
        try:
            outputs: list[np.ndarray] = session.run(None, dict(feeds), run)
            return outputs
        except Exception as error:
            return " ".join(str(error).split())
        finally:
            watch.cancel()


def service() -> Callable[[str, Any], Any]:
    """Return the function that answers a command."""
    ort.set_default_logger_severity(4)
    return _Sessions().answer
