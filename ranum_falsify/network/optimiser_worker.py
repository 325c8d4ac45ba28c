"""The worker of `ranum_falsify.network.optimised`: ONNX Runtime rewrites models, or runs them, in a child process.

The commands are ``optimise`` ({"source", "target"}, two paths; see `_optimise` for the answers), ``load`` ({"name",
"source", "plain"}), ``run`` ({"name", "points", "seconds"}), which runs what was loaded by that name, and ``unload``.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

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


_BFLOAT16 = 16
"""Number of the type in ONNX, which NumPy does not have: its numbers are handed over as their bits."""
_INTEGERS = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_SHOWN = {f"tensor({kind})" for kind in ("float", "double", "float16", "bool", *_INTEGERS)}


Feeds = Mapping[str, tuple[np.ndarray, tuple[int, ...]]]
"""The inputs of one run, by name; each is broadcast to a shape."""


class _Runner:
    """Runs models that were loaded, by name: as users do, or as they are, without optimisations."""

    def __init__(self) -> None:
        self._sessions: dict[str, ort.InferenceSession] = {}

    def load(self, name: str, source: str, plain: bool) -> float:
        """Load a model, and return the seconds of processor time that this took."""
        began = time.process_time()
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        if plain:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._sessions[name] = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        return time.process_time() - began

    def run(self, name: str, points: Sequence[Feeds], seconds: float) -> tuple[dict[str, Any], int, str, float]:
        """Run a model on one point after the other, after the first only within so much processor time.

        Returns:
            The outputs that are tensors of numbers, by name: those of all points stacked, or a list of them where
            shapes differ; on how many points it ran; why it did not run on the next, if it refused; and the seconds of
            processor time.
        """
        session = self._sessions[name]
        types = {value.name: value.type for value in (*session.get_inputs(), *session.get_overridable_initializers())}
        shown = {value.name: value.type for value in session.get_outputs()}
        found: dict[str, list[np.ndarray]] = {key: [] for key in shown}
        refusal, count, began = "", 0, time.process_time()
        for feeds in points:
            if count and time.process_time() - began >= seconds:
                break
            arrays = {key: np.asarray(np.broadcast_to(*feed), order="C") for key, feed in feeds.items()}
            try:
                values = session.run_with_ort_values(None, {key: _feed(types.get(key), x) for key, x in arrays.items()})
            except Exception as error:
                refusal = str(error) or type(error).__name__
                break
            count += 1
            for (key, kind), value in zip(shown.items(), values, strict=True):
                array = _show(kind, value)
                if array is not None:
                    found[key].append(array)
        stacks = {key: _stack(arrays) for key, arrays in found.items() if count and len(arrays) == count}
        return stacks, count, refusal, time.process_time() - began

    def unload(self) -> None:
        self._sessions.clear()


def _stack(arrays: Sequence[np.ndarray]) -> Any:
    if len(arrays) == 1:
        return arrays[0][None]
    return np.stack(arrays) if len({array.shape for array in arrays}) == 1 else arrays


def _feed(kind: str | None, array: np.ndarray) -> ort.OrtValue:
    if kind == "tensor(bfloat16)":
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), _BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(array)


def _show(kind: str, value: ort.OrtValue) -> np.ndarray | None:
    if kind == "tensor(bfloat16)":
        bits = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
        return np.frombuffer(bits, np.uint16).reshape(value.shape())
    return value.numpy() if kind in _SHOWN else None


def service() -> Callable[[str, Any], Any]:
    """Return the function that answers a command."""
    ort.set_default_logger_severity(4)
    runner = _Runner()
    commands: Mapping[str, Callable[..., Any]] = {
        "optimise": _optimise,
        "load": runner.load,
        "run": runner.run,
        "unload": runner.unload,
    }
    return lambda command, argument: commands[command](**argument)
