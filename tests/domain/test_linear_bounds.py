"""Backward linear bounds enclose what runtimes compute, and are tighter than intervals where tensors are related."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.config import RUNTIMES
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.kernels import envelope
from ranum_falsify.domain.linear import curves
from ranum_falsify.domain.linear.backsubstitution import BoxBatch, descend
from ranum_falsify.domain.linear.bounds import LinearAnalysis, bound_functional, refine
from ranum_falsify.domain.linear.relaxations import Relaxation, Slopes
from ranum_falsify.domain.rules.support.real_functions import gelu, gelu_tanh, swish
from ranum_falsify.network import Graph, read
from tests.domain import random_graphs, soundness
from tests.domain.linear_subject import LinearSubject
from tests.network.building import parse
from tests.operators.harness import OperatorCase
from tests.operators.test_operators import CASES

_FORMS = {
    *("Add", "Sub", "Mul", "Div", "MatMul", "Gemm", "Conv", "ConvTranspose", "BatchNormalization", "AveragePool"),
    *("Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "Tanh", "Elu", "Exp", "Log", "Sqrt", "Pow", "Sin", "Cos"),
    *("HardSwish", "Gelu", "Swish", "QuickGelu", "BiasGelu", "FastGelu"),
    *("Concat", "Split", "Slice", "Gather", "Pad", "ReduceSum", "ReduceMean", "Transpose", "Where"),
    *("MaxPool", "GlobalMaxPool", "Max", "Min", "ReduceMax", "ReduceMin", "Softmax", "LogSoftmax"),
    *("LayerNormalization", "RMSNormalization", "InstanceNormalization", "SimplifiedLayerNormalization"),
    *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
}


_CASES = {
    (case.domain, case.op_type, case.name): case
    for case in sorted(CASES, key=lambda case: case.opset)
    if case.oracle == "onnxruntime" and case.op_type in _FORMS
}
"""Forms do not depend on the opset: of each case, the one of the newest."""


@pytest.mark.few(130)
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in _CASES.values()])
def test_one_node_is_enclosed(case: OperatorCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness, "Subject", LinearSubject)
    tally = soundness.sweep_case(case, seed=1, samples=6, rounds=1)
    assert not tally.faults, "\n".join(tally.faults)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_models_are_enclosed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_graphs, "Subject", LinearSubject)
    tally = random_graphs.sweep_graph(seed, size=15, boxes=2, samples=6, rounds=2)
    assert tally.samples
    assert not tally.faults, "\n".join(tally.faults)


# lines ------------------------------------------------------------------------------------------------------------

_CURVES: dict[str, tuple[Relaxation | None, float, float]] = {
    "relu": (curves.RELU, -9, 9),
    "leaky": (curves.leaky(0.1), -9, 9),
    "abs": (curves.ABS, -9, 9),
    "exp": (curves.EXP, -80, 80),
    "log": (curves.LOG, 1e-6, 90),
    "sqrt": (curves.SQRT, 0, 90),
    "square": (curves.SQUARE, -9, 9),
    "softplus": (curves.SOFTPLUS, -40, 40),
    "sigmoid": (curves.SIGMOID, -40, 40),
    "tanh": (curves.TANH, -20, 20),
    "atan": (curves.ATAN, -40, 40),
    "erf": (curves.ERF, -6, 6),
    "asinh": (curves.ASINH, -40, 40),
    "softsign": (curves.SOFTSIGN, -40, 40),
    "cosh": (curves.COSH, -9, 9),
    "sinh": (curves.SINH, -9, 9),
    "hard swish": (curves.HARD_SWISH, -9, 9),
    "swish": (curves.SWISH, -9, 9),
    "stretched swish": (curves.stretch(curves.SWISH, 0.5, 1.7), -9, 9),
    "far swish": (curves.SWISH, -800, 800),
    "gelu": (curves.GELU, -6, 6),
    "gelu by tanh": (curves.GELU_TANH, -6, 6),
    "sin": (curves.SIN, -6.2, 6.2),
    "cos": (curves.COS, -6.2, 6.2),
    "reciprocal": (curves.RECIPROCAL, 1e-3, 90),
    "negative reciprocal": (curves.RECIPROCAL, -90, -1e-3),
    "clip": (curves.clip(-1.0, 2.0), -9, 9),
    "clip below": (curves.clip(-1.0, float("inf")), -9, 9),
    "elu": (curves.elu(1.0), -9, 9),
    "steep elu": (curves.elu(2.5), -9, 9),
    "cube": (curves.power(3.0), -9, 9),
    "fourth power": (curves.power(4.0), -9, 9),
    "root": (curves.power(0.5), 0, 90),
}

_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "leaky": lambda x: torch.where(x > 0, x, 0.1 * x),
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "atan": torch.atan,
    "erf": torch.erf,
    "asinh": torch.asinh,
    "softsign": lambda x: x / (1 + x.abs()),
    "cosh": torch.cosh,
    "sinh": torch.sinh,
    "hard swish": lambda x: x * (x + 3).clamp(0, 6) / 6,
    "swish": swish,
    "stretched swish": lambda x: 0.5 * swish(1.7 * x),
    "far swish": swish,
    "gelu": gelu,
    "gelu by tanh": gelu_tanh,
    "sin": torch.sin,
    "cos": torch.cos,
    "reciprocal": torch.reciprocal,
    "negative reciprocal": torch.reciprocal,
    "clip": lambda x: x.clamp(-1, 2),
    "clip below": lambda x: x.clamp(min=-1),
    "elu": lambda x: torch.where(x > 0, x, torch.expm1(x)),
    "steep elu": lambda x: torch.where(x > 0, x, 2.5 * torch.expm1(x)),
    "cube": lambda x: x**3,
    "fourth power": lambda x: x**4,
    "root": torch.sqrt,
}


@pytest.mark.parametrize("name", _CURVES)
def test_lines_enclose_the_curve(name: str) -> None:
    relaxation, least, greatest = _CURVES[name]
    assert relaxation is not None
    rng = np.random.default_rng(0)
    ends = np.sort(rng.uniform(least, greatest, (2, 2000)), axis=0)
    ends[1, ::4] = np.minimum(ends[0, ::4] + 10.0 ** rng.uniform(-12, 0, 500), greatest)
    low, high = torch.from_numpy(ends)
    y = relaxation.lines(low, high)
    for share in torch.linspace(0, 1, 101, dtype=torch.float64):
        x = torch.minimum(low + share * (high - low), high)
        value = _FUNCTIONS[name](x)
        room = 1e-13 * value.abs()
        assert bool((y.lower_slope * x + y.lower_offset <= value + room).all())
        assert bool((y.upper_slope * x + y.upper_offset >= value - room).all())


def test_a_line_above_a_curve_finds_its_extreme_where_squares_overflow() -> None:
    low, high, slope = (torch.tensor([[number]], dtype=torch.float64) for number in (1.2e154, 1e156, 4e-155))
    lines = curves.ASINH.tilt(low, high, Slopes(slope, slope))
    x = torch.logspace(154.08, 156, 1000, dtype=torch.float64)
    assert (slope * x + lines.upper_offset >= x.asinh()).all()


@pytest.mark.few(22)
@pytest.mark.parametrize("name", _CURVES)
@pytest.mark.parametrize("wild", [False, True])
def test_lines_of_any_slope_enclose_the_curve(name: str, wild: bool) -> None:
    relaxation, least, greatest = _CURVES[name]
    assert relaxation is not None
    rng = np.random.default_rng(1)
    low, high = torch.from_numpy(np.sort(rng.uniform(least, greatest, (2, 2000)), axis=0))
    first, last = relaxation.find_range(low, high)
    share = torch.from_numpy(rng.normal(0, 9, 2000) if wild else rng.uniform(0, 1, 2000))
    lower, upper = ((1 - share) * a + share * b for a, b in ((first.lower, last.lower), (first.upper, last.upper)))
    y = relaxation.tilt(low, high, Slopes(lower, upper))
    assert bool(y.lower_offset.isfinite().all()) and bool(y.upper_offset.isfinite().all())
    for part in torch.linspace(0, 1, 101, dtype=torch.float64):
        x = torch.minimum(low + part * (high - low), high)
        value = _FUNCTIONS[name](x)
        room = 1e-13 * (value.abs() + (y.lower_slope * x).abs() + (y.upper_slope * x).abs())
        assert bool((y.lower_slope * x + y.lower_offset <= value + room).all())
        assert bool((y.upper_slope * x + y.upper_offset >= value - room).all())


@pytest.mark.parametrize("name", _CURVES)
def test_lines_are_close_on_narrow_operands(name: str) -> None:
    relaxation, least, greatest = _CURVES[name]
    assert relaxation is not None
    low = torch.linspace(least + 0.05 * (greatest - least), greatest - 0.1, 50, dtype=torch.float64)
    high = low + 1e-4 * low.abs().clamp(min=1e-2)
    y = relaxation.lines(low, high)
    middle = (low + high) / 2
    gap = (y.upper_slope - y.lower_slope) * middle + y.upper_offset - y.lower_offset
    change = (_FUNCTIONS[name](high) - _FUNCTIONS[name](low)).abs()
    assert bool((gap <= 0.6 * change + 1e-7 * (1 + _FUNCTIONS[name](middle).abs())).all())


def test_there_are_no_lines_over_a_pole() -> None:
    y = curves.RECIPROCAL.lines(torch.tensor([-1.0], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64))
    assert not bool(y.lower_offset.isfinite().any() and y.upper_offset.isfinite().any())


# relations --------------------------------------------------------------------------------------------------------


def _graph(nodes: Sequence[onnx.NodeProto], shape: Sequence[int] = (1, 4), **constants: np.ndarray) -> Graph:
    model = helper.make_model(
        helper.make_graph(
            list(nodes),
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [onnx.numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    return read(model)


def _run(graph: Graph, low: float, high: float) -> LinearAnalysis:
    analysis = LinearAnalysis(graph)
    shape = graph.input_details[0].shape
    analysis.run([Interval.box(np.full(shape, low, np.float32), np.full(shape, high, np.float32))])
    return analysis


def test_a_difference_of_equals_is_nothing() -> None:
    graph = _graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Neg", ["a"], ["b"]),
            helper.make_node("Add", ["a", "b"], ["y"]),
        ],
        w=np.random.default_rng(0).normal(size=(4, 3)),
    )
    bounds = _run(graph, -1, 1).bound(graph.output_operations)
    assert float(bounds.upper.max()) < 1e-4
    assert float(bounds.lower.min()) > -1e-4


def test_parts_without_elements_take_nothing_from_the_others() -> None:
    cut = [("first", "zero", "one"), ("rest", "one", "end"), ("before", "zero", "last")]
    nodes = [
        *(helper.make_node("Slice", ["x", start, end, "zero"], [name]) for name, start, end in cut),
        helper.make_node("Sub", ["rest", "before"], ["differences"]),
        helper.make_node("Concat", ["first", "differences"], ["all"], axis=-1),
        helper.make_node("Mul", ["all", "all"], ["square"]),
        helper.make_node("Sub", ["square", "all"], ["difference"]),
        helper.make_node("Add", ["difference", "c"], ["y"]),
    ]
    whole = {"zero": 0, "one": 1, "end": 2**31, "last": -1}
    graph = _graph(nodes, (1,), c=np.array(0.9), **{name: np.array([number]) for name, number in whole.items()})
    plain = IntervalAnalysis(graph, keep=True)
    plain.run([Interval.box(np.zeros(1, np.float32), np.ones(1, np.float32))])
    assert 0.6499 < float(refine(plain, graph.output_operations[0]).lower.min()) <= 0.65


def test_an_operand_is_narrowed_before_the_curve_that_reads_it() -> None:
    # On [0, 1] an interval of x^2 - x + 0.9 begins at -0.1, though x^2 >= x - 0.25.
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Sub", ["square", "x"], ["difference"]),
        helper.make_node("Add", ["difference", "c"], ["sum"]),
        helper.make_node("Log", ["sum"], ["y"]),
    ]
    graph = _graph(nodes, c=np.array(0.9))
    plain = IntervalAnalysis(graph, keep=True)
    plain.run([Interval.box(np.zeros((1, 4), np.float32), np.ones((1, 4), np.float32))])
    operand = graph.nodes[-1].x
    known = plain.bounds_of(operand)
    assert known is not None
    assert float(known.lower.min()) < 0
    assert 0.6499 < float(refine(plain, operand).lower.min()) <= 0.65
    narrowed = _run(graph, 0, 1).bounds_of(operand)
    assert narrowed is not None
    assert float(narrowed.lower.min()) > 0.6499


def test_rows_are_functionals_of_all_outputs() -> None:
    graph = _graph([helper.make_node("MatMul", ["x", "w"], ["y"])], w=np.array([[1, 2], [3, 4], [0, 1], [1, 1]]))
    analysis = _run(graph, -1, 1)
    bounds = bound_functional(analysis, graph.output_operations, torch.tensor([[1.0, -1.0]]))
    assert float(bounds.lower[0]) == pytest.approx(-3, abs=1e-4)
    assert float(bounds.upper[0]) == pytest.approx(3, abs=1e-4)
    coefficients = bounds.lower_coefficients[0]
    assert coefficients is not None
    assert torch.allclose(coefficients.flatten(), torch.tensor([-1.0, -1.0, -1.0, 0.0], dtype=torch.float64))


def test_operations_without_bounds_are_refused() -> None:
    graph = _graph([helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Cast", ["i"], ["y"], to=1)])
    with pytest.raises(ValueError, match="no bounds"):
        _run(graph, -1, 1).bound(graph.output_operations)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.floats(1e-4, 2.0),
    activation=st.sampled_from(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "Softplus", "Abs"]),
)
def test_functionals_of_small_networks_are_enclosed(seed: int, width: float, activation: str) -> None:
    rng = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    size = 3
    for layer in range(3):
        wide = int(rng.integers(2, 7))
        constants |= {f"w{layer}": rng.normal(size=(size, wide)), f"b{layer}": rng.normal(size=wide)}
        before = "x" if layer == 0 else f"h{layer - 1}"
        nodes.append(helper.make_node("Gemm", [before, f"w{layer}", f"b{layer}"], [f"z{layer}"]))
        nodes.append(helper.make_node(activation, [f"z{layer}"], [f"h{layer}" if layer < 2 else "y"]))
        size = wide
    graph = _graph(nodes, (1, 3), **constants)
    centre = rng.normal(size=(1, 3))
    low, high = (centre - width).astype(np.float32), (centre + width).astype(np.float32)
    analysis = LinearAnalysis(graph)
    analysis.run([Interval.box(low, high)])
    rows = torch.from_numpy(rng.normal(size=(3, size)))
    bounds = analysis.bound(graph.output_operations, rows)
    x = rng.uniform(low, high, (64, 1, 3)).astype(np.float32)
    x[:8] = np.where(rng.random((8, 1, 3)) < 0.5, low, high)
    values = torch.stack([rows @ torch.from_numpy(np.asarray(graph(point))).double().reshape(-1) for point in x])
    assert bool((values >= bounds.lower).all())
    assert bool((values <= bounds.upper).all())


def test_coefficients_that_vanish_in_float64_leave_the_bounds_wide() -> None:
    nodes = [
        helper.make_node("Div", ["x", "c"], ["a"]),
        helper.make_node("Div", ["a", "d"], ["b"]),
        helper.make_node("Sub", ["b", "e"], ["f"]),
        helper.make_node("Sqrt", ["f"], ["y"]),
    ]
    constants = {"c": 1e154, "d": 1e179, "e": 1e-115}
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "vanishing",
            [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [1])],
            [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [1])],
            [numpy_helper.from_array(np.array([value]), name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    lower, upper = (np.array([end]) for end in (1.5e218, 1.6e218))
    analysis = LinearAnalysis(read(model))
    y = analysis.run([Interval.box(lower, upper)])[0]
    assert y is not None
    least, greatest = (math.sqrt(end / 1e154 / 1e179 - 1e-115) for end in (1.5e218, 1.6e218))
    assert y.lower.item() <= least < greatest <= y.upper.item()


def test_a_curve_errs_as_the_kernel_of_its_row_does() -> None:
    # Kernels of powers err more than a rounding, that of 1 / x too.
    graph = read(parse("g (float[1] x) => (float[1] y) <float k = {-1}> { y = Pow(x, k) }"))
    analysis = LinearAnalysis(graph)
    low = np.array([3], np.float32)
    high = np.nextafter(low, np.float32(4))
    analysis.run([Interval.box(low, high)])
    weights = {analysis.program.numbers[id(graph.output_operations[0])]: torch.ones(1, 1, 1, dtype=torch.float64)}
    stray = envelope("Pow", torch.float32, RUNTIMES).relative
    # Of the steps alone, without what the interval says.
    assert descend(weights, BoxBatch(analysis.program, {}))[0].item() <= (1 - stray) / float(high[0])


_GATES = {
    "swish": "s = Sigmoid(h) g = Mul(h, s)",
    "scaled swish": "c = Mul(rate, h) s = Sigmoid(c) i = Identity(h) g = Mul(s, i)",
    "hard swish": "a = Add(h, three) c = Clip(a, zero, six) p = Mul(h, c) g = Div(p, six)",
    "hard swish by its gate": "s = HardSigmoid<alpha = 0.25, beta = 0.5>(h) g = Mul(s, h)",
    "gelu": "a = Div(h, root) e = Erf(a) f = Add(e, one) p = Mul(h, half) g = Mul(p, f)",
}


@pytest.mark.few(3)
@pytest.mark.parametrize("gate", _GATES.values(), ids=_GATES)
@pytest.mark.parametrize("width", [1e-3, 0.3, 3.0])
def test_a_number_times_a_function_of_itself_is_one_curve(gate: str, width: float) -> None:
    rng = np.random.default_rng(0)
    first, last = (", ".join(map(str, np.round(rng.normal(size=96), 4))) for _ in range(2))
    constants = (
        f"<float[4, 24] w = {{{first}}}, float[24, 4] v = {{{last}}}, float rate = {{1.702}}, float three = {{3}}, "
        "float zero = {0}, float six = {6}, float root = {1.4142135}, float one = {1}, float half = {0.5}>"
    )
    body = f"h = MatMul(x, w) {gate} y = MatMul(g, v)"
    model = parse(f"g (float[1,4] x) => (float[1,4] y) {constants} {{ {body} }}")
    subject = LinearSubject(model)
    low, high = ({"x": np.full((1, 4), end, np.float32)} for end in (-width, width))
    tally = soundness.faults_in(subject, (low, high), samples=6, rounds=2, rng=rng)
    assert tally.samples and not tally.faults, "\n".join(tally.faults)
    graph = read(model)
    plain = IntervalAnalysis(graph)
    (known,) = plain.run([Interval.box(low["x"], high["x"])])
    assert known is not None
    bounds = _run(graph, -width, width).bound(graph.output_operations)
    # As the product of its parts, it gains less than a tenth on the widest box.
    assert float((bounds.upper - bounds.lower).sum()) < 0.75 * float((known.upper - known.lower).double().sum())


def test_parameters_with_fewer_digits_than_the_operand_leave_intervals_alone() -> None:
    model = parse(
        """g (float[1, 4] x) => (float[1, 4] y) <float[4] s = {0.3331, 1.777, 0.123, 2.001},
        float[4] b = {0.25, 0.1, 1, 2}, float[4] m = {0.1, 0.2, 0.3, 0.4}, float[4] v = {0.7, 1.3, 0.9, 0.11}>
        { y = BatchNormalization(x, s, b, m, v) }""",
        opset=15,
    )
    for tensor in model.graph.initializer:
        half = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    graph, x = read(model), np.array([[0.3, -0.7, 1.9, 2.3]], np.float32)
    analysis = LinearAnalysis(graph)
    analysis.run([Interval.box(x - np.float32(1e-6), x + np.float32(1e-6))])
    bounds = analysis.tighten(graph.output_operations[0])
    (given,) = graph.evaluate([torch.from_numpy(x)])
    assert bool(bounds.encloses(given).all())
