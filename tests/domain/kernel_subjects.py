"""Kernels against their records: what to run, in which runtime, and what to demand of the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain.error_bounds import tiny
from ranum_falsify.domain.kernels import Envelope, find_envelope
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import Graph, read
from ranum_falsify.selfcheck.subjects import SUBJECTS
from tests.network.building import Array, session

SAMPLES = 20_001  # odd: the last elements fill no vector
DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "float64": np.float64}
ELEMENTS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE}
_NARROWER = {
    "Exp": (-np.inf, 88.0),
    "Log": (1e-30, np.inf),
    "Reciprocal": (1e-30, np.inf),
    "Sinh": (-88.0, 88.0),
    "Cosh": (-88.0, 88.0),
    "HardSwish": (-1e30, 1e30),
}
REFERENCES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[float, float]]] = {
    subject.key: (subject.reference, _NARROWER.get(subject.key, subject.domain))
    for subject in SUBJECTS
    if subject.exponent is None and not subject.op_type and subject.opset == 22
}
"""Functions that are the only operator of a model, with the operands to run."""


def model(*op_types: str | int) -> onnx.ModelProto:
    """Return a model of a chain of operators; the last arguments are the element type and the size."""
    *names, dtype, count = op_types
    g = ModelBuilder("kernel", opset=22, ir_version=10)
    y = g.input("x", [int(count)], dtype=str(dtype))
    for name in names:
        y = g.node(str(name), y)
    g.output(y, [int(count)], str(dtype))
    return g.build()


def run_onnxruntime(of: onnx.ModelProto, x: Array) -> list[Array]:
    """Run a model without optimisations and with all of them."""
    return [np.asarray(session(of, optimised=level).run(None, {"x": x})[0]) for level in (False, True)]


def run_torch(of: onnx.ModelProto, x: Array) -> list[Array]:
    """Run a model in PyTorch, on operands that are contiguous in memory, and on operands that are not."""
    graph = read(of)
    assert isinstance(graph, Graph)
    apart = np.stack([x, x], -1)[..., 0]
    return [np.asarray(graph(operand, squeeze=False)[0]) for operand in (x, apart)]


RUNS: dict[str, Callable[[onnx.ModelProto, Array], list[Array]]] = {
    "onnxruntime": run_onnxruntime,
    "torch": run_torch,
}
"""How to run a model, by runtime."""


def operands(dtype: str, low: float, high: float) -> Array:
    """Return samples of a range: many of moderate size, some large, some tiny."""
    rng = np.random.default_rng(0)
    limits = np.finfo(DTYPES[dtype])
    sizes = np.exp2(rng.uniform(-40, 14 if dtype == "float16" else 40, SAMPLES))
    near = np.concatenate([rng.uniform(-20, 20, SAMPLES // 2), rng.uniform(-1, 1, SAMPLES - SAMPLES // 2)])
    x = np.where(rng.random(SAMPLES) < 0.5, near, sizes * rng.choice([-1.0, 1.0], SAMPLES))
    x = np.clip(x, max(low, float(limits.min)), min(high, float(limits.max))).astype(DTYPES[dtype])
    x[(np.abs(x) < limits.tiny)] = DTYPES[dtype](0)
    return np.clip(x, max(low, float(limits.min)), min(high, float(limits.max))).astype(DTYPES[dtype])


def assert_within(kind: Envelope, result: Array, x: Array, value: Array, what: str) -> None:
    """Assert that results lie around the values as closely as an envelope says."""
    dtype = torch.from_numpy(result).dtype
    result64, room = result.astype(np.float64), kind.relative * np.abs(value) + kind.absolute + 1e-300
    small = (np.abs(value) < tiny(dtype)) & (np.abs(result64) < tiny(dtype))
    fits = (np.abs(result64 - value) <= room) | small | (np.abs(value) > float(np.finfo(result.dtype).max))
    assert fits.all(), f"{what}: {result64[~fits][:3]} at {x[~fits][:3]}, in truth {value[~fits][:3]}"
    finite = result64[np.isfinite(result64)]
    assert finite.min() >= kind.lowest and finite.max() <= kind.highest, f"{what}: {finite.min()}, {finite.max()}"
    if kind.keeps_sign:
        assert not (result64 * value < 0).any(), what


def check_errors(function: str, dtype: str, runtime: str, run: Callable[[onnx.ModelProto, Array], list[Array]]) -> bool:
    """Compare samples of one function with its record; return whether it has one."""
    reference, (low, high) = REFERENCES[function]
    if dtype == "float16":
        low, high = max(low, -9.0) if high == 88.0 else low, min(high, 9.0) if high == 88.0 else high
    x = operands(dtype, low, high)
    kernel = find_envelope(function, torch.from_numpy(x).dtype, runtime)
    if kernel is None:
        return False
    value = reference(torch.from_numpy(x).double()).numpy()
    for result in run(model(function, dtype, SAMPLES), x):
        # The records' margin for float64 covers the error of the reference itself, as in rules.
        assert_within(kernel, result, x, value, f"{function}, {dtype}, {runtime}")
    return True
