"""The table of kernels against the libraries that are installed, and what proofs make of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import RUNTIMES, Interval, IntervalAnalysis, Runtime
from ranum_falsify.domain.kernels.envelopes import EXACT, VERSIONS, Envelope, envelope
from ranum_falsify.domain.kernels.table import MEASURED
from ranum_falsify.domain.rounding import outward, outward_numbers, tiny
from ranum_falsify.domain.rules import functions
from ranum_falsify.network import Graph, read, spec_of

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


def node(op_type: str, dtype: str = "float32", count: int = SAMPLES) -> Graph:
    graph = read(model(op_type, dtype, count))
    assert isinstance(graph, Graph)
    return graph


def model(*op_types: str | int) -> onnx.ModelProto:
    *names, dtype, count = op_types
    tensors = ["x", *(f"t{i}" for i in range(len(names) - 1)), "y"]
    nodes = [
        helper.make_node(str(name), [a], [b], f"n_{name}")
        for name, a, b in zip(names, tensors, tensors[1:], strict=False)
    ]
    ends = [helper.make_tensor_value_info(end, ELEMENTS[str(dtype)], [count]) for end in ("x", "y")]
    graph = helper.make_graph(nodes, "kernel", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def run_onnxruntime(of: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    levels = onnxruntime.GraphOptimizationLevel
    results = []
    for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(of.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results.append(session.run(None, {"x": x})[0])
    return results


def operands(dtype: str, low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    limits = np.finfo(DTYPES[dtype])
    sizes = np.exp2(rng.uniform(-40, 14 if dtype == "float16" else 40, SAMPLES))
    near = np.concatenate([rng.uniform(-20, 20, SAMPLES // 2), rng.uniform(-1, 1, SAMPLES - SAMPLES // 2)])
    x = np.where(rng.random(SAMPLES) < 0.5, near, sizes * rng.choice([-1.0, 1.0], SAMPLES))
    x = np.clip(x, max(low, float(limits.min)), min(high, float(limits.max))).astype(DTYPES[dtype])
    x[(np.abs(x) < limits.tiny)] = DTYPES[dtype](0)
    return np.clip(x, max(low, float(limits.min)), min(high, float(limits.max))).astype(DTYPES[dtype])


def assert_within(kind: Envelope, result: np.ndarray, x: np.ndarray, value: np.ndarray, what: str) -> None:
    dtype = torch.from_numpy(result).dtype
    result64, room = result.astype(np.float64), kind.relative * np.abs(value) + kind.absolute + 1e-300
    small = (np.abs(value) < tiny(dtype)) & (np.abs(result64) < tiny(dtype))
    fits = (np.abs(result64 - value) <= room) | small | (np.abs(value) > float(np.finfo(result.dtype).max))
    assert fits.all(), f"{what}: {result64[~fits][:3]} at {x[~fits][:3]}, in truth {value[~fits][:3]}"
    finite = result64[np.isfinite(result64)]
    assert finite.min() >= kind.lowest and finite.max() <= kind.highest, f"{what}: {finite.min()}, {finite.max()}"
    if kind.keeps_sign:
        assert not (result64 * value < 0).any(), what


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", REFERENCES)
def test_installed_kernels_lie_within_the_table(function: str, dtype: str) -> None:
    reference, (low, high) = REFERENCES[function]
    if dtype == "float16":
        low, high = max(low, -9.0) if high == 88.0 else low, min(high, 9.0) if high == 88.0 else high
    graph, x = node(function, dtype), operands(dtype, low, high)
    value = reference(torch.from_numpy(x).double()).numpy()
    for runtime in ("onnxruntime", "torch"):
        if runtime not in MEASURED[function][dtype]:
            continue
        measured = envelope(function, torch.from_numpy(x).dtype, (runtime,))
        if runtime == "torch":
            results = [graph(x, squeeze=False)[0]]
        else:
            results = run_onnxruntime(model(function, dtype, SAMPLES), x)
        for result in results:
            # The table's margin for float64 covers the error of the reference itself, as it does in rules.
            assert_within(measured, np.asarray(result), x, value, f"{function}, {dtype}, {runtime}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential_keeps_to_its_side_of_1(dtype: str) -> None:
    x = np.exp2(np.linspace(-30, -2, SAMPLES)).astype(DTYPES[dtype])
    graph, of = node("Exp", dtype), model("Exp", dtype, SAMPLES)
    for operand, above in ((x, True), (-x, False)):
        for y in (graph(operand, squeeze=False)[0], *run_onnxruntime(of, operand)):
            assert (np.asarray(y) >= 1).all() if above else (np.asarray(y) <= 1).all()


def test_table_is_of_the_installed_versions() -> None:
    installed = {"onnxruntime": onnxruntime.__version__, "torch": torch.__version__.split("+")[0]}
    if installed != VERSIONS:
        pytest.skip(f"measured with {VERSIONS}, installed are {installed}: the sampled test still checks")


def proves_logarithm(lower: float, upper: float, runtimes: tuple[Runtime, ...]) -> bool:
    graph = read(model("Sigmoid", "Log", "float32", 1))
    assert isinstance(graph, Graph)
    found: list[bool] = []

    def observe(visited: object) -> None:
        spec = spec_of(visited.op)  # type: ignore[attr-defined]
        bounds = spec.named(visited.operands)  # type: ignore[attr-defined]
        found.extend(constraint.holds(visited.op, bounds) for constraint in spec.valid)  # type: ignore[attr-defined]

    box = Interval.box(np.full(1, lower, np.float32), np.full(1, upper, np.float32))
    IntervalAnalysis(graph, runtimes=runtimes).run([box], observe)
    assert found
    return all(found)


def test_logarithm_of_sigmoid_is_proved_only_where_the_kernel_stays_positive() -> None:
    assert not proves_logarithm(-20, 20, RUNTIMES)
    assert not proves_logarithm(-20, 20, ("onnxruntime",))
    assert proves_logarithm(-20, 20, ("torch",))
    assert proves_logarithm(-20, 20, ("exact",))
    assert proves_logarithm(-14, 20, RUNTIMES)
    assert not proves_logarithm(-200, 0, ("torch",))


@pytest.mark.parametrize(
    ("function", "turn"),
    [
        (functions.gelu, functions.GELU_TURN),
        (functions.gelu_tanh, functions.GELU_TANH_TURN),
        (functions.mish, functions.MISH_TURN),
        (functions.swish, functions.SWISH_TURN),
    ],
)
def test_turns_are_minima(function: Callable[[torch.Tensor], torch.Tensor], turn: float) -> None:
    at = function(torch.tensor(turn, dtype=torch.float64))
    around = turn + torch.linspace(-1, 1, 2001, dtype=torch.float64)
    assert bool((function(around) >= at - 1e-16).all())
    rising = function(torch.linspace(turn, 50, 5000, dtype=torch.float64)).diff() >= 0
    falling = function(torch.linspace(-50, turn, 5000, dtype=torch.float64)).diff() <= 0
    assert bool(rising.all()) and bool(falling.all())


@given(st.floats(-30, 30))
@settings(max_examples=60, deadline=None)
def test_real_functions_do_not_cancel(x: float) -> None:
    with mpmath.workprec(120):
        truths = {
            functions.softplus: mpmath.log1p(mpmath.exp(x)),
            functions.gelu: mpmath.mpf(x) * mpmath.ncdf(x),
            functions.swish: mpmath.mpf(x) / (1 + mpmath.exp(-x)),
            functions.mish: mpmath.mpf(x) * mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
        }
    for function, truth in truths.items():
        value = float(function(torch.tensor(x, dtype=torch.float64)))
        # Rounding the argument of an exponential of -x^2 / 2 costs x^2 units.
        assert abs(value - float(truth)) <= 2e-16 * (8 + x * x) * abs(float(truth)) + 1e-300


def test_union_covers_both_and_unknown_functions_are_refused() -> None:
    one, other = Envelope(1e-7, 0.0, 0.0, 1.0), Envelope(1e-8, 1e-9, -1.0, 0.5, False)
    assert one.union(other) == Envelope(1e-7, 1e-9, -1.0, 1.0, False)
    everywhere = envelope("Tanh", torch.float32, RUNTIMES)
    assert everywhere.highest > 1 == envelope("Tanh", torch.float32, ("torch",)).highest
    assert envelope("Tanh", torch.float32, ("exact",)).relative == 0
    with pytest.raises(KeyError):
        envelope("Identity", torch.float32, RUNTIMES)


MAGNITUDES = [0.1, 1.0, 88.7, 3.4028235e38, 3.5e38, 1e300, math.inf, 1.2e-38, 1.1e-38, 1e-45, 1e-60, 0.0]
NUMBERS = sorted({sign * number for number in MAGNITUDES for sign in (-1.0, 1.0)})


@pytest.mark.parametrize("function", [None, "Exp", "Tanh", "Sigmoid", "Log"])
def test_one_number_is_rounded_like_many(function: str | None) -> None:
    kernel = EXACT if function is None else envelope(function, torch.float32, RUNTIMES)
    for low, high in itertools.combinations_with_replacement(NUMBERS, 2):
        low64, high64 = (torch.tensor([[end]], dtype=torch.float64) for end in (low, high))
        one = outward(low64, high64, torch.float32, (2, 3), kernel)
        many = outward(low64.repeat(2, 3), high64.repeat(2, 3), torch.float32, (2, 3), kernel)
        assert one.shape == many.shape and one.extremes == many.extremes, (low, high)


def test_numbers_that_a_dtype_lacks_are_rounded_outward() -> None:
    for low, high in ((0.1, 0.1), (-0.1, 0.7), (1e-60, 1 / 3), (-1 / 3, -1e-60)):
        least, greatest = outward_numbers(low, high, (2,), torch.float32).extremes
        assert least <= low and high <= greatest
