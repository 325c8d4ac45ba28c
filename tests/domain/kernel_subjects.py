"""Kernels against their records: what to run, in which runtime, and what to ask of the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain.kernels import Envelope, measured
from ranum_falsify.domain.rounding import tiny
from ranum_falsify.domain.rules import functions
from ranum_falsify.network import Graph, read
from tests.network.building import Array

SAMPLES = 20_001  # odd: the last elements are no vector's
DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "float64": np.float64}
ELEMENTS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE}
EVERYWHERE = (-np.inf, np.inf)
REFERENCES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[float, float]]] = {
    "Sigmoid": (functions.sigmoid, EVERYWHERE),
    "Tanh": (torch.tanh, EVERYWHERE),
    "Exp": (torch.exp, (-np.inf, 88.0)),
    "Log": (torch.log, (1e-30, np.inf)),
    "Erf": (torch.erf, EVERYWHERE),
    "Softplus": (functions.softplus, EVERYWHERE),
    "Sqrt": (torch.sqrt, (0, np.inf)),
    "Reciprocal": (torch.reciprocal, (1e-30, np.inf)),
    "Sin": (torch.sin, EVERYWHERE),
    "Cos": (torch.cos, EVERYWHERE),
    "Tan": (torch.tan, EVERYWHERE),
    "Atan": (torch.atan, EVERYWHERE),
    "Asin": (torch.asin, (-1, 1)),
    "Acos": (torch.acos, (-1, 1)),
    "Sinh": (torch.sinh, (-88.0, 88.0)),
    "Cosh": (torch.cosh, (-88.0, 88.0)),
    "Asinh": (torch.asinh, EVERYWHERE),
    "Acosh": (torch.acosh, (1, np.inf)),
    "Atanh": (torch.atanh, (-1, 1)),
    "Gelu": (functions.gelu, EVERYWHERE),
    "HardSwish": (functions.hard_swish, (-1e30, 1e30)),
    "Mish": (functions.mish, EVERYWHERE),
    "Softsign": (functions.softsign, EVERYWHERE),
}


def model(*op_types: str | int) -> onnx.ModelProto:
    """Return a model of a chain of operators; the last arguments are the element type and the size."""
    *names, dtype, count = op_types
    tensors = ["x", *(f"t{i}" for i in range(len(names) - 1)), "y"]
    nodes = [
        helper.make_node(str(name), [a], [b], f"n_{name}")
        for name, a, b in zip(names, tensors, tensors[1:], strict=False)
    ]
    ends = [helper.make_tensor_value_info(end, ELEMENTS[str(dtype)], [count]) for end in ("x", "y")]
    graph = helper.make_graph(nodes, "kernel", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def run_onnxruntime(of: onnx.ModelProto, x: Array) -> list[Array]:
    """Run a model without optimisations and with all of them."""
    return [session(of.SerializeToString(), level)(x) for level in (False, True)]


def session(of: bytes, optimised: bool) -> Callable[[Array], Array]:
    """Load a model in ONNX Runtime."""
    levels, options = onnxruntime.GraphOptimizationLevel, onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    loaded = onnxruntime.InferenceSession(of, options, providers=["CPUExecutionProvider"])
    return lambda x: np.asarray(loaded.run(None, {"x": x})[0])


def run_torch(of: onnx.ModelProto, x: Array) -> list[Array]:
    """Run a model in PyTorch, on operands that lie side by side in memory, and on those that do not."""
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
    """Assert that results lie around the values as an envelope says."""
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
    """Hold samples of one function against what was measured; return whether it was measured."""
    reference, (low, high) = REFERENCES[function]
    if dtype == "float16":
        low, high = max(low, -9.0) if high == 88.0 else low, min(high, 9.0) if high == 88.0 else high
    x = operands(dtype, low, high)
    kernel = measured(function, torch.from_numpy(x).dtype, runtime)
    if kernel is None:
        return False
    value = reference(torch.from_numpy(x).double()).numpy()
    for result in run(model(function, dtype, SAMPLES), x):
        # The records' margin for float64 covers the error of the reference itself, as it does in rules.
        assert_within(kernel, result, x, value, f"{function}, {dtype}, {runtime}")
    return True
