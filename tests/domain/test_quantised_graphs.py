"""What ONNX Runtime makes of quantised networks: operators on integers, whose rows bound what it computes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.rules import quantisation as requantising
from ranum_falsify.network import Graph, read, spec_of
from tests.domain.boxes import Array
from tests.network.building import parse, rewritten, session
from tests.operators.cases.microsoft_quantised import case as operator_case
from tests.operators.harness import OperatorCase, model_of, run_runtime

Run = Callable[[dict[str, Array]], list[Array]]

X = "float[2,4,6,6] x"
KERNEL = ", ".join(map(str, np.random.default_rng(0).integers(0, 256, 48)))
MATRIX = ", ".join(map(str, np.random.default_rng(1).integers(-128, 128, 20)))
IMAGE = f"""<uint8[3,4,2,2] k = {{{KERNEL}}}, int8[4,5] v = {{{MATRIX}}}, int32[3] bias = {{300, -50, 0}},
    float s = {{0.05}}, float t = {{0.021}}, float u = {{0.00390625}}, float st = {{0.00105}}, uint8 z = {{128}},
    uint8 low = {{0}}, uint8 other = {{77}}, int8 none = {{0}}, int32 nothing = {{0}},
    bool[6] mask = {{1, 0, 1, 1, 0, 0}}>"""


def pair(name: str, of: str, scale: str = "s", zero: str = "z") -> str:
    """Return the text of a pair of nodes, to integers and back."""
    return f"{name}_q = QuantizeLinear({of}, {scale}, {zero}) {name} = DequantizeLinear({name}_q, {scale}, {zero}) "


A, B = pair("a", "x"), pair("b", "x", "t", "other")
ROWS = "r_1 = ReduceMax <axes = [2, 3], keepdims = 0> (a) " + pair("r", "r_1")
W = "w = DequantizeLinear(v, t, none) "
NETWORKS: dict[str, tuple[str, str]] = {
    "QLinearAdd": (A + B + "c = Add(a, b)", "t"),
    "QLinearMul": (A + B + "c = Mul(a, b)", "s"),
    "QLinearSigmoid": (A + "c = Sigmoid(a)", "u"),
    "QLinearLeakyRelu": (A + "c = LeakyRelu <alpha = 0.3> (a)", "t"),
    "QLinearSoftmax": (A + "c = Softmax(a)", "u"),
    "QLinearAveragePool": (A + "c = AveragePool <kernel_shape = [3, 2], pads = [1, 0, 1, 1]> (a)", "t"),
    "QLinearGlobalAveragePool": (A + "c = GlobalAveragePool(a)", "t"),
    "QLinearConcat": (A + B + "c = Concat <axis = 1> (a, b)", "t"),
    "QLinearWhere": (A + B + "c = Where(mask, a, b)", "s"),
    "QLinearConv": (
        A + "w = DequantizeLinear(k, t, other) d = DequantizeLinear(bias, st, nothing) "
        "c = Conv <pads = [1, 0, 1, 0]> (a, w, d)",
        "s",
    ),
    "QLinearMatMul": (A + ROWS + W + "c = MatMul(r, w)", "t"),
    "MatMulIntegerToFloat": (A + ROWS + W + "y = MatMul(r, w)", ""),
    "QGemm": (A + ROWS + W + "c = Gemm <alpha = 0.5> (r, w)", "t"),
    "MatMulNBits": ("r = ReduceMax <axes = [2, 3], keepdims = 0> (x) " + W + "y = MatMul(r, w)", ""),
    "DynamicQuantizeMatMul": (
        "r = ReduceMax <axes = [2, 3], keepdims = 0> (x) q, f, g = DynamicQuantizeLinear(r) "
        "m = MatMulInteger(q, v, g, none) n = Cast <to = 1> (m) h = Mul(f, t) y = Mul(n, h)",
        "",
    ),
}


def text_of(body: str, scale: str) -> str:
    last = pair("y", "c", scale, "low" if scale == "u" else "z") if scale else ""
    return f"g ({X}) => (float[N] y) {IMAGE} {{ {body} {last} }}"


def default_run(text: str) -> Run:
    """Return how ONNX Runtime runs a model by default."""
    made = session(_parsed(text), optimised=True)
    return lambda feeds: list(made.run(None, feeds))


def _parsed(text: str) -> Any:
    model = parse(text)
    # The rank of the output differs by network.
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def bounds(graph: Graph, lower: Array, upper: Array) -> Interval:
    (y,) = IntervalAnalysis(graph, runtimes=("onnxruntime",)).run([Interval.box(lower, upper)])
    assert y is not None
    return y


def outside(graph: Graph, run: Run, seed: int) -> int:
    """Return how many results lie outside the bounds, at random points and vertices of a random box."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(0, 10.0 ** rng.uniform(-2, 1), (2, 4, 6, 6))
    radius = 10.0 ** rng.uniform(-4, 1) * rng.random(centre.shape) * (seed % 4 > 0)
    lower, upper = (centre - radius).astype(np.float32), (centre + radius).astype(np.float32)
    y, found = bounds(graph, lower, upper), 0
    for number in range(6):
        share = rng.random(centre.shape) if number % 2 else rng.integers(0, 2, centre.shape)
        x = np.clip((lower + share * (upper - lower)).astype(np.float32), lower, upper)
        found += int((~y.encloses(torch.from_numpy(run({"x": x})[0]))).sum())
    return found


@pytest.mark.parametrize("op_type", NETWORKS)
def test_default_runs_of_quantised_networks_are_enclosed(op_type: str) -> None:
    text = text_of(*NETWORKS[op_type])
    graph, run = rewritten(_parsed(text)), default_run(text)
    assert op_type in {spec_of(op).op_type for op in graph.nodes}
    assert [outside(graph, run, seed) for seed in range(8)] == [0] * 8


def test_bounds_that_are_a_step_too_tight_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def tighter(*args: Any, **rest: Any) -> Interval:
        y = requantising.requantise(*args, **rest)
        return replace(y, upper=torch.maximum(y.lower, y.upper - (y.upper > 0).to(y.upper.dtype)))

    text = text_of(*NETWORKS["QLinearMul"])
    graph, run = rewritten(_parsed(text)), default_run(text)
    monkeypatch.setattr("ranum_falsify.operators.rows.microsoft.quantised_elements.requantise", tighter)
    assert any(outside(graph, run, seed) for seed in range(8))


# kernels of sums and products -----------------------------------------------------------------------------------


def every_pair(op_type: str, seed: int) -> OperatorCase:
    """Return a case of all pairs of integers, with scales and zero points that are drawn."""
    rng = np.random.default_rng(seed)
    dtype = (np.uint8, np.int8)[seed % 2]
    limits = np.iinfo(dtype)
    integers = np.arange(limits.min, limits.max + 1).astype(dtype)
    base = 10.0 ** rng.uniform(-8, 8)
    scales = [np.float32(base * 10.0 ** rng.uniform(-3, 3)) for _ in range(3)]
    if op_type == "QLinearMul":
        scales[2] = np.float32(float(scales[0]) * float(scales[1]) * 10.0 ** rng.uniform(-4, 4))
    zeros = rng.choice([limits.min, limits.max, 0, int(rng.integers(limits.min, limits.max))], 3).astype(dtype)
    operands = ((np.repeat(integers, 256), scales[0], zeros[0]), (np.tile(integers, 256), scales[1], zeros[1]))
    inputs = [np.asarray(x) for x in (*operands[0], *operands[1], scales[2], zeros[2])]
    return operator_case(op_type, "every pair", inputs, [1, 2, 4, 5, 6, 7])


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("seed", range(8))
def test_all_pairs_of_integers_are_enclosed(op_type: str, seed: int) -> None:
    case = every_pair(op_type, seed)
    model, feeds = model_of(case, case.arrays())
    points = [Interval.point(x) for x in feeds.values()]
    (y,) = IntervalAnalysis(read(model), runtimes=("onnxruntime",)).run(points)
    assert y is not None
    assert bool(y.encloses(torch.from_numpy(run_runtime(model, feeds)[0])).all())


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
def test_moderate_scales_leave_at_most_two_integers(op_type: str) -> None:
    case = every_pair(op_type, 0)
    inputs = [*case.inputs]
    inputs[1], inputs[4], inputs[6] = (np.array(s, np.float32) for s in (0.05, 0.021, 0.033))
    model, feeds = model_of(replace(case, inputs=inputs), [np.asarray(x) for x in inputs])
    (y,) = IntervalAnalysis(read(model), runtimes=("onnxruntime",)).run([Interval.point(x) for x in feeds.values()])
    assert y is not None
    assert int((y.upper.int() - y.lower.int()).max()) <= 1
