"""Where kernels round, overflow or lose small numbers on the way: bounds enclose what they give there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import numpy_helper

from tests.domain.soundness import Subject, faults_in, sweep_case
from tests.domain.subjects import Setting
from tests.network.building import Array, parse
from tests.operators.harness import OperatorCase, Spread

SIZES = {"a": 2, "b": 3, "i": 12, "j": 3, "k": 2}


def faults_at(text: str, opset: int = 17, **feeds: Array) -> list[str]:
    """Return what is unsound at one point, in the bounds of that point."""
    tally = faults_in(Subject(parse(text, opset)), (feeds, feeds), samples=2, rounds=1, rng=np.random.default_rng(0))
    assert tally.samples
    return tally.faults


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("equation", ["ij,jk->k", "i,j->", "aij,bjk->k", "ij,kj->", "i,j,k->", "ij,jk,k->"])
def test_sums_before_products_are_rounded_and_may_overflow(equation: str, dtype: Any) -> None:
    parts = equation.split("->")[0].split(",")
    inputs = [Spread(tuple(SIZES[label] for label in part), dtype) for part in parts]
    case = OperatorCase(op_type="Einsum", inputs=inputs, attributes={"equation": equation}, opset=21)
    faults = [fault for seed in range(10) for fault in sweep_case(case, seed=seed, boxes=2, samples=8).faults]
    assert not faults, faults


def test_sums_of_nothing_meet_infinities() -> None:
    text = 'g (float[2, 1] x, float[0, 1] w) => (float[2, 1] y) { y = Einsum<equation = "ij,jk->ik">(x, w) }'
    assert not faults_at(text, x=np.array([[-np.inf], [-1]], np.float32), w=np.zeros((0, 1), np.float32))


@pytest.mark.parametrize("sign", [1, -1])
def test_large_numbers_are_added_to_products_of_zeros(sign: int) -> None:
    model = parse("g (float[1, 2, 3] x, float[4, 2, 2] w, float[4] b) => (float[1, 4, 2] y) { y = Conv(x, w, b) }")
    zeros = {"x": np.zeros((1, 2, 3), np.float32), "w": np.zeros((4, 2, 2), np.float32), "b": np.zeros(4, np.float32)}
    large = zeros | {"b": np.full(4, sign * np.finfo(np.float32).max, np.float32)}
    y = Subject(model).analyse(*((zeros, large) if sign > 0 else (large, zeros))).bounds["y"]
    assert y is not None and y.extremes[0 if sign < 0 else 1] * sign >= np.finfo(np.float32).max


def test_products_of_sums_count_each_element_once() -> None:
    text = 'g (float16[12] x, float16[3] w) => (float16 y) { y = Einsum<equation = "i,j->">(x, w) }'
    feeds = {"x": np.full(12, 2, np.float16), "w": np.full(3, 1.5, np.float16)}
    y = Subject(parse(text)).analyse(feeds, feeds).bounds["y"]
    assert y is not None and 107 < y.extremes[0] <= 108 <= y.extremes[1] < 109


def test_means_in_half_precision_overflow_beside_infinities() -> None:
    text = "g (float16[2] x, float16[2] z, float16[2] w) => (float16[2] y) { y = Mean(x, z, w) }"
    x, z, w = (np.array(values, np.float16) for values in ([-8480, 0], [0, 0], [-65504, -np.inf]))
    assert not faults_at(text, x=x, z=z, w=w)


def test_statistics_of_nothing_have_their_own_type() -> None:
    for kind, dtype in (("double", np.float64), ("float", np.float32), ("float16", np.float16)):
        text = f"""g ({kind}[0, 3] x, {kind}[3] w) => ({kind}[0, 3] y, float[0, 1] m, float[0, 1] v) {{
            y, m, v = LayerNormalization(x, w)
        }}"""
        assert not faults_at(text, x=np.zeros((0, 3), dtype), w=np.ones(3, dtype)), kind


def test_statistics_of_rows_without_elements_are_no_numbers() -> None:
    text = "g (float[2, 0] x, float[0] w) => (float[2, 0] y, float[2, 1] m) { y, m = LayerNormalization(x, w) }"
    empty = {"x": np.zeros((2, 0), np.float32), "w": np.zeros(0, np.float32)}
    subject = Subject(parse(text))
    assert not subject.analyse(empty, empty).proves(subject.places[0].op.name)


def test_an_epsilon_of_minus_zero_keeps_the_sign_of_inverse_deviations() -> None:
    text = """g (double[2, 3] x, double[3] w) => (double[2, 3] y, float[2, 1] m, float[2, 1] v) {
        y, m, v = LayerNormalization<epsilon = -0.0>(x, w)
    }"""
    assert not faults_at(text, x=np.full((2, 3), 1.2253956794738770), w=np.ones(3))


def test_means_of_denormal_numbers_may_vanish() -> None:
    least = float(np.finfo(np.float32).smallest_subnormal)
    x = np.array([[least, 0, 0, 0], [-least, least, 0, -least]], np.float32)
    text = "g (float[2, 4] x, float[4] w) => (float[2, 4] y) { y = LayerNormalization(x, w) }"
    assert not faults_at(text, x=x, w=np.full(4, 1e20, np.float32))


def test_norms_of_one_number_are_its_size_or_the_root_of_its_square() -> None:
    text = "g (double[4] x) => (double[4] y) { y = ReduceL2<noop_with_empty_axes = 1>(x) }"
    assert not faults_at(text, 18, x=np.array([1e-200, 9e305, -3e-170, 1.0]))


@pytest.mark.parametrize("high", [70.0, 3.0])
def test_two_pairs_of_quantisers_may_become_one_of_a_finer_scale(high: float) -> None:
    """ONNX Runtime merges them: what the coarse scale rounds to 0 comes through."""
    text = """g (float[8] x) => (float[8] y)
        <float coarse = {2}, float fine = {0.1}, uint8 zero = {0}, uint8 third = {3}> {
            a = QuantizeLinear(x, coarse, zero) b = DequantizeLinear(a, coarse, zero)
            c = QuantizeLinear(b, fine, third) y = DequantizeLinear(c, fine, third)
        }"""
    subject = Subject(parse(text))
    values = np.linspace(0, 0.9, 8, dtype=np.float32)
    assert subject.runtimes["onnxruntime-optimised"]({"x": values})["y"].any()
    assert not subject.runtimes["onnxruntime"]({"x": values})["y"].any()
    assert not faults_at(text, x=values)
    ends = {"x": np.zeros(8, np.float32)}, {"x": np.full(8, high, np.float32)}
    assert not faults_in(subject, ends, samples=20, rounds=3, rng=np.random.default_rng(1)).faults
    y = subject.analyse(*ends).bounds["y"]
    assert y is not None and y.extremes[1] < 26


def test_products_scattered_anywhere_may_overflow_beside_an_element_of_0() -> None:
    text = """g (double[3] x, int64[4] i, double[4] u) => (double[3] y) {
        y = ScatterElements<axis = 0, reduction = "mul">(x, i, u)
    }"""
    low = {"x": np.zeros(3), "i": np.zeros(4, np.int64), "u": np.full(4, 1e200)}
    high = low | {"i": np.full(4, 2, np.int64)}
    tally = faults_in(Subject(parse(text, 18)), (low, high), samples=5, rounds=1, rng=np.random.default_rng(0))
    assert tally.samples and not tally.faults, tally.faults


def test_losses_of_logarithms_beyond_half_precision_may_be_finite() -> None:
    text = """g (float16[2, 2] x, int64[2] t) => (float16 y, float16[2, 2] p) {
        y, p = SoftmaxCrossEntropyLoss<reduction = "mean">(x, t)
    }"""
    x, t = np.array([[60000, -60000], [1, 2]], np.float16), np.array([1, 0])
    y = Subject(parse(text)).analyse({"x": x, "t": t}, {"x": x, "t": t}).bounds["y"]
    # The mean of 120000 and about 1: only kernels that round in between lose it.
    assert y is not None and y.extremes[1] >= 60000
    assert not faults_at(text, x=x, t=t)


@pytest.mark.parametrize(("kind", "proved"), [("float16", False), ("float", True)])
def test_the_tangent_overflows_around_its_poles_in_half_precision_alone(kind: str, proved: bool) -> None:
    subject = Subject(parse(f"g ({kind}[1] x) => ({kind}[1] y) {{ y = Tan(x) }}"))
    dtype = np.float16 if kind == "float16" else np.float32
    worst = subject.runtimes["onnxruntime"]({"x": np.array([177.5], dtype)})["y"]
    assert np.isfinite(worst).all() == proved
    found = subject.analyse({"x": np.array([177], dtype)}, {"x": np.array([178], dtype)})
    assert found.proves(subject.places[0].op.name) is proved


@pytest.mark.parametrize(
    ("kind", "moves", "proved"),
    [
        ("float", "p = Squeeze(v, last) t = Unsqueeze(p, last)", True),
        ("float16", "p = Squeeze(v, last) t = Unsqueeze(p, last)", False),
        ("float16", "p = Gather<axis = 1>(v, first) t = Unsqueeze(p, last)", False),
        ("float16", "", True),
    ],
)
def test_a_threshold_that_was_moved_may_be_rounded_where_what_it_is_compared_with_is_not(
    kind: str, moves: str, proved: bool
) -> None:
    text = f"""g ({kind}[2, 4] a, {kind}[2, 4] b) => ({kind}[2, 4] y)
        <int64[1] last = {{1}}, int64[1] count = {{1}}, int64 first = {{0}}, {kind} low = {{0}}> {{
        x = Div(a, b) v, i = TopK(x, count) {moves} c = Less(x, {"t" if moves else "v"})
        w = Where(c, low, x) [y] y = Softmax(w)
    }}"""
    model = parse(text, 17)
    low = next(tensor for tensor in model.graph.initializer if tensor.name == "low")
    dtype = np.float16 if kind == "float16" else np.float32
    low.CopyFrom(numpy_helper.from_array(np.array(-np.inf, dtype), "low"))
    box = tuple({name: np.full((2, 4), end, dtype) for name in "ab"} for end in (1, 2))
    assert Subject(model).analyse(box[0], box[1]).proves("y") is proved


@pytest.mark.parametrize(("high", "proved"), [(1.6e38, True), (2e38, False)])
def test_the_kernel_of_gelu_may_double_its_operand_before_it_halves_it(high: float, proved: bool) -> None:
    subject = Subject(parse("g (float[8] x) => (float[8] y) { y = Gelu(x) }", 20))
    ends = {"x": np.zeros(8, np.float32)}, {"x": np.full(8, high, np.float32)}
    assert subject.analyse(*ends).proves(subject.places[0].op.name) is proved
    assert not faults_in(subject, ends, samples=8, rounds=1, rng=np.random.default_rng(0)).faults


@pytest.mark.parametrize(("op_type", "proved"), [("MaxPool", False), ("AveragePool", True), ("LpPool", True)])
def test_windows_of_padding_alone_have_no_maximum(op_type: str, proved: bool) -> None:
    window = "<kernel_shape = [2], dilations = [2], pads = [1, 1]>"
    subject = Subject(parse(f"g (float[1, 1, 1] x) => (float[1, 1, 1] y) {{ y = {op_type}{window}(x) }}", 22))
    low, high = ({"x": np.full((1, 1, 1), end, np.float32)} for end in (-1, 1))
    assert subject.analyse(low, high).proves(subject.places[0].op.name) is proved
    one = np.ones((1, 1, 1), np.float32)
    assert subject.runtimes["onnxruntime"]({"x": one})["y"] == (0 if proved else np.finfo(np.float32).min)


@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "ReduceMean"])
def test_the_mean_of_nothing_is_no_number_to_pytorch(op_type: str) -> None:
    axes = "<axes = [2]>" if op_type == "ReduceMean" else ""
    subject = Subject(parse(f"g (float[1, 2, 0] x) => (float[1, 2, 1] y) {{ y = {op_type}{axes}(x) }}"))
    empty = {"x": np.zeros((1, 2, 0), np.float32)}
    reduced = subject.analyse(empty, empty).proves(subject.places[0].op.name)
    assert torch.zeros(1, 2, 0).mean(2).isnan().all() and not reduced


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("op_type", ["Relu", "Floor", "Ceil", "Round", "Neg"])
def test_a_rounding_to_half_precision_may_be_left_out(op_type: str, kind: str) -> None:
    number = {"float": 1, "double": 11}[kind]
    subject = Subject(
        parse(f"""g ({kind}[4] x) => ({kind}[4] y) {{
            a = Cast<to = 10>(x)
            b = {op_type}(a)
            y = Cast<to = {number}>(b)
        }}""")
    )
    x = np.array([0.99999, 1.00001, 2.50001, 2.49999], np.float32 if kind == "float" else np.float64)
    point = {"x": x}
    assert not faults_in(subject, (point, point), samples=1, rounds=0, rng=np.random.default_rng(0)).faults
    bounds = subject.analyse(point, point, Setting(runtimes=("torch",))).bounds["y"]
    assert bounds is not None and torch.equal(bounds.lower, bounds.upper)


def test_numbers_of_half_precision_stay_what_they_are() -> None:
    text = "g (float[2] x) => (float16[2] y) { y = Cast<to = 10>(x) }"
    point = {"x": np.array([1.5, -np.inf], np.float32)}
    bounds = Subject(parse(text)).analyse(point, point).bounds["y"]
    assert bounds is not None and bounds.lower.tolist() == bounds.upper.tolist() == [1.5, -np.inf]


@pytest.mark.parametrize(
    "body",
    [
        "b = Identity(a) y = Sub(a, b)",
        "b = Identity(a) y = Div(b, a)",
        "m = ReduceMax<axes = [0], keepdims = 0>(a) u = Unsqueeze(m, zero) d = Sub(a, u) y = Exp(d)",
    ],
)
def test_one_tensor_is_rounded_for_some_of_those_that_read_it(body: str) -> None:
    subject = Subject(
        parse(f"""g (float[4] x) => (float16[4] y) <int64[1] zero = {{0}}> {{
            a = Cast<to = 10>(x)
            {body}
        }}""")
    )
    for high in (0.9997, 3.0007, 1000.2, 2047.6):
        point = {"x": (high - np.arange(4)).clip(0.1).astype(np.float32)}
        assert not faults_in(subject, (point, point), samples=1, rounds=0, rng=np.random.default_rng(0)).faults


@pytest.mark.parametrize(("node", "hazard"), [("Div", True), ("Mod", True), ("Mod<fmod = 1>", False)])
@pytest.mark.parametrize("kind", ["int32", "int64", "int8"])
def test_the_least_integer_divided_by_minus_one_stops_the_process(kind: str, node: str, hazard: bool) -> None:
    # ONNX Runtime's own process would end, by the signal SIGFPE.
    graph = Subject(parse(f"g ({kind}[2] a, {kind}[2] b) => ({kind}[2] y) {{ y = {node}(a, b) }}"))
    dtype = np.dtype(kind)
    least = int(np.iinfo(dtype).min)
    trap = hazard and kind != "int8"
    for first, divisor, proved in ((least, -1, not trap), (least + 1, -1, True), (least, 1, True), (least, 2, True)):
        low = {"a": np.array([first, 3], dtype), "b": np.full(2, divisor, dtype)}
        assert graph.analyse(low, low | {"a": np.full(2, 5, dtype)}).proves(graph.places[0].op.name) is proved
    with torch.no_grad():
        (y,) = graph.graph.evaluate(
            [torch.tensor([least, 3]).to(getattr(torch, kind)), torch.tensor([-1, -1]).to(getattr(torch, kind))]
        )
    assert y[0] == (least if node == "Div" else 0)


@pytest.mark.parametrize(("number", "kind"), [(2, "uint8"), (6, "int32"), (7, "int64"), (12, "uint32")])
def test_floats_that_no_integer_holds_become_any(number: int, kind: str) -> None:
    text = f"g (float[4] x) => ({kind}[4] y) {{ y = Cast<to = {number}>(x) }}"
    assert not faults_at(text, x=np.array([1e30, -1e30, 3e9, np.inf], np.float32))
