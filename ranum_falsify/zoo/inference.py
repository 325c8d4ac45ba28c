"""One inference of a model on ONNX Runtime, with whose time that of an analysis is compared."""

from __future__ import annotations

import statistics
import time

import numpy as np
import onnxruntime

from ranum_falsify.building import BoxedVariable
from ranum_falsify.zoo.builder import Architecture

__all__ = ["draw_plausible_inputs", "inference_seconds"]

_SLOW = 1.0
"""A run that takes this many seconds is not repeated."""

_PART = 0.125
"""Share of a range, around its middle, that plausible inputs fill."""


def draw_plausible_inputs(architecture: Architecture, seed: int = 0) -> dict[str, np.ndarray]:
    """Return inputs on which no program should fail: floats drawn near the middle of their range, integers anywhere.

    Args:
        architecture: The model that takes the inputs.
        seed: Seed of the random numbers.

    Returns:
        An array of its shape and dtype for each input.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    return {v.name: _draw(rng, v) for v in architecture.inputs}


def _draw(rng: np.random.Generator, variable: BoxedVariable) -> np.ndarray:
    dtype = np.dtype(variable.dtype)
    if dtype.kind != "f":
        return rng.integers(int(variable.low), int(variable.high), variable.shape, endpoint=True).astype(dtype)
    middle, reach = (variable.low + variable.high) / 2, _PART * (variable.high - variable.low)
    return np.asarray(rng.uniform(middle - reach, middle + reach, variable.shape), dtype=dtype)


def inference_seconds(architecture: Architecture, *, threads: int = 1, rounds: int = 3) -> float:
    """Return how long ONNX Runtime takes for one inference on the CPU, with its default optimisations.

    Args:
        architecture: The model, weights as initialised.
        threads: Threads of one operator.
        rounds: Number of runs, after one to warm up, whose median counts; a run of seconds is not repeated.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        architecture.model.SerializeToString(), sess_options=options, providers=["CPUExecutionProvider"]
    )
    inputs = draw_plausible_inputs(architecture)

    def run() -> float:
        began = time.perf_counter()
        session.run(None, inputs)
        return time.perf_counter() - began

    first = run()
    return first if first > _SLOW else statistics.median(run() for _ in range(rounds))
