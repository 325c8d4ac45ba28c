"""Boxes that surely make an operator fail: every point of them does, on the runtimes that are covered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
import onnxruntime
import pytest
import torch
from dnnv.nn import Operation
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.config import RUNTIMES
from ranum_falsify.domain import Interval
from ranum_falsify.network import Graph, read, spec_of
from ranum_falsify.operators.support.conditions import conditions_of
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.prove.failing import AnalysisUpTo, surely_fails
from tests.network import building
from tests.network.building import Array, parse
from tests.verify.prove.failing_graphs import sweep_failing

POINTS = 24
SOFTMAX_LOG = (
    "(float[2,3] x, float[3,4] w, float[4] b) => (float[2,n] y) { m = MatMul(x, w) z = Add(m, b) %s y = Log(p) }"
)
MODELS = {
    "log_softmax": SOFTMAX_LOG % "p = Softmax<axis=-1>(z)",
    "log_sigmoid": SOFTMAX_LOG % "p = Sigmoid(z)",
    "log_one_less_softmax": SOFTMAX_LOG % "one = Constant<value_float=1.0>() s = Softmax<axis=-1>(z) p = Sub(one, s)",
    "log_one_less_sigmoid": SOFTMAX_LOG % "one = Constant<value_float=1.0>() s = Sigmoid(z) p = Sub(one, s)",
    "log_exp": SOFTMAX_LOG % "p = Exp(z)",
    "log_labelled": SOFTMAX_LOG
    % "one = Constant<value_floats=[1.0,0.0,1.0,1.0]>() s = Softmax<axis=-1>(z) t = Mul(s, one) "
    "ax = Constant<value_ints=[1]>() p = ReduceSum(t, ax)",
}
EXP = "(float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y) { m = MatMul(x, w) z = Add(m, b) y = Exp(z) }"
NORMALISED = (
    "(float[3,4] w) => (float[3,4] y) { a = Abs(w) ax = Constant<value_ints=[0]>() s = ReduceSum(a, ax) y = Div(w, s) }"
)
ROOT = "(float[4] x) => (float[4] y) { r = Relu(x) y = Sqrt(r) }"


@cache
def graph_of(text: str) -> Graph:
    return read(parse(f"g {text}"))


def node(graph: Graph, op_type: str) -> Operation:
    (op,) = (op for op in graph.nodes if spec_of(op).op_type == op_type)
    return op


def box(point: Array, radius: float) -> Interval:
    low, high = point - np.float32(radius), point + np.float32(radius)
    return Interval.of(torch.from_numpy(low), torch.from_numpy(high), point.shape)


def fails(
    graph: Graph,
    op: Operation,
    boxes: Sequence[Interval],
    runtimes: Sequence[str] = RUNTIMES,
    conditions: Sequence[Constraint] | None = None,
) -> bool:
    chosen = conditions_of(op) if conditions is None else conditions
    return surely_fails(AnalysisUpTo(graph, op, runtimes=runtimes), boxes, chosen)


@cache
def session(text: str) -> onnxruntime.InferenceSession:
    return building.session(parse(f"g {text}"))


def points(boxes: Sequence[Interval], rng: np.random.Generator) -> list[Array]:
    """Return a corner, or a point within."""
    corner = rng.random() < 0.5
    found = []
    for bounds in boxes:
        low, high = (end.numpy() for end in bounds.expand())
        share = rng.integers(0, 2, low.shape) if corner else rng.random(low.shape)
        found.append(np.clip(low + (high - low) * share, low, high).astype(np.float32))
    return found


def assert_every_point_fails(text: str, boxes: Sequence[Interval], rng: np.random.Generator) -> None:
    run = session(text)
    names = [value.name for value in run.get_inputs()]
    graph = graph_of(text)
    for _ in range(POINTS):
        arrays = points(boxes, rng)
        (y,) = run.run(None, dict(zip(names, arrays, strict=True)))
        assert not np.isfinite(y).all()
        assert not np.isfinite(np.asarray(graph(*arrays))).all()


def logits_box(seed: int, scale: float, radius: float, shift: float) -> tuple[list[Interval], np.random.Generator]:
    rng = np.random.default_rng(seed)
    shapes = ((2, 3), (3, 4), (4,))
    arrays = [rng.uniform(-1, 1, shape).astype(np.float32) * np.float32(scale) for shape in shapes]
    arrays[2][seed % 4] += np.float32(shift)
    return [box(array, radius) for array in arrays], rng


@pytest.mark.few(3)
@pytest.mark.parametrize("name", MODELS)
@given(
    seed=st.integers(0, 10_000),
    scale=st.floats(0.1, 12),
    radius=st.sampled_from([0.0, 1e-3, 0.05, 0.3]),
    shift=st.floats(-250, 250),
    runtimes=st.sampled_from([RUNTIMES, ("onnxruntime", "torch"), ("torch", "onnxruntime", "exact")]),
)
@settings(deadline=None)
def test_every_point_of_a_failing_box_fails(
    name: str, seed: int, scale: float, radius: float, shift: float, runtimes: tuple[str, ...]
) -> None:
    boxes, rng = logits_box(seed, scale, radius, shift)
    graph = graph_of(MODELS[name])
    if fails(graph, node(graph, "Log"), boxes, runtimes):
        assert_every_point_fails(MODELS[name], boxes, rng)


@given(seed=st.integers(0, 10_000), shift=st.floats(60, 130), radius=st.sampled_from([0.0, 0.01, 0.3]))
@settings(deadline=None)
def test_every_point_of_a_failing_box_overflows(seed: int, shift: float, radius: float) -> None:
    boxes, rng = logits_box(seed, 2.0, radius, shift)
    graph = graph_of(EXP)
    if fails(graph, node(graph, "Exp"), boxes):
        assert_every_point_fails(EXP, boxes, rng)


FAR = {
    "log_softmax": 200.0,
    "log_sigmoid": -150.0,
    "log_one_less_softmax": 200.0,
    "log_one_less_sigmoid": 60.0,
    "log_exp": -150.0,
    "log_labelled": 200.0,
}


@pytest.mark.parametrize("name", MODELS)
def test_far_out_boxes_surely_fail(name: str) -> None:
    boxes, rng = logits_box(1, 1.0, 0.1, FAR[name])
    graph = graph_of(MODELS[name])
    op = node(graph, "Log")
    assert fails(graph, op, boxes)
    assert_every_point_fails(MODELS[name], boxes, rng)
    near, _ = logits_box(1, 0.1, 0.1, 0.0)
    assert not fails(graph, op, near)


def test_onnxruntime_alone_fails_earlier_than_all_runtimes() -> None:
    boxes, _ = logits_box(1, 0.1, 0.01, -30.0)
    graph = graph_of(MODELS["log_sigmoid"])
    op = node(graph, "Log")
    assert fails(graph, op, boxes, ("onnxruntime",))
    assert not fails(graph, op, boxes)


def test_overflow_of_an_exponential() -> None:
    graph = graph_of(EXP)
    boxes, rng = logits_box(2, 1.0, 0.1, 100.0)
    assert fails(graph, node(graph, "Exp"), boxes)
    assert_every_point_fails(EXP, boxes, rng)


def test_division_by_the_sizes_of_a_column_of_zeros() -> None:
    graph, rng = graph_of(NORMALISED), np.random.default_rng(0)
    centre = rng.uniform(-1, 1, (3, 4)).astype(np.float32)
    low, high = centre - np.float32(0.1), centre + np.float32(0.1)
    op = node(graph, "Div")
    assert not fails(graph, op, [Interval.box(low, high)])
    low[:, 2] = high[:, 2] = 0
    assert fails(graph, op, [Interval.box(low, high)])
    assert_every_point_fails(NORMALISED, [Interval.box(low, high)], rng)
    high[0, 2] = np.float32(1e-30)
    assert not fails(graph, op, [Interval.box(low, high)])


def test_derivative_of_the_root_of_what_relu_cuts_off() -> None:
    graph = graph_of(ROOT)
    op = node(graph, "Sqrt")
    gradient: tuple[Constraint, ...] = spec_of(op).gradient_valid  # type: ignore[assignment]
    low, high = np.array([-2, 1, 1, 1], np.float32), np.array([-1, 2, 2, 2], np.float32)
    region = [Interval.box(low, high)]
    assert fails(graph, op, region, conditions=gradient)
    assert not fails(graph, op, region)
    rng = np.random.default_rng(0)
    for _ in range(POINTS):
        cut = torch.relu(torch.from_numpy(points(region, rng)[0])).requires_grad_()
        torch.sqrt(cut).sum().backward()
        assert cut.grad is not None and not bool(cut.grad.isfinite().all())
    high[0] = 0.5
    assert not fails(graph, op, [Interval.box(low, high)], conditions=gradient)


def one_operand(op_type: str, low: float, high: float) -> bool:
    graph = graph_of(f"(float[2] x) => (float[2] y) {{ y = {op_type}(x) }}")
    region = Interval.box(np.array([0.5, low], np.float32), np.array([0.5, high], np.float32))
    return fails(graph, node(graph, op_type), [region])


@pytest.mark.parametrize(
    ("op_type", "inside", "touching"),
    [
        ("Log", (-1.0, 0.0), (-1.0, 1e-30)),
        ("Sqrt", (-1.0, -1e-6), (-1.0, 0.0)),
        ("Reciprocal", (0.0, 0.0), (0.0, 1.0)),
        ("Acos", (1.0001, 2.0), (1.0, 2.0)),
        ("Asin", (-2.0, -1.0001), (-2.0, -1.0)),
        ("Atanh", (1.0, 2.0), (0.999, 2.0)),
        ("Exp", (88.8, 200.0), (88.7, 200.0)),
    ],
)
def test_an_element_beyond_the_border_fails(
    op_type: str, inside: tuple[float, float], touching: tuple[float, float]
) -> None:
    assert one_operand(op_type, *inside)
    assert not one_operand(op_type, *touching)


@pytest.mark.parametrize(
    ("op_type", "a", "b", "expected"),
    [
        ("Div", (-1.0, 1.0), (0.0, 0.0), True),
        ("Div", (-1.0, 1.0), (0.0, 1e-20), False),
        ("Div", (1.0, np.inf), (0.0, 0.0), False),
        ("Mod", (1.0, 2.0), (0.0, 0.0), True),
        ("Pow", (-2.0, -1.0), (0.3, 0.7), True),
        ("Pow", (-2.0, -1.0), (0.7, 1.3), False),
        ("Pow", (-2.0, 1.0), (0.3, 0.7), False),
        ("Pow", (0.0, 0.0), (-2.0, -0.5), True),
        ("Pow", (0.0, 0.0), (-2.0, 0.5), False),
        ("Add", (3e38, 3.1e38), (3e38, 3.1e38), True),
        ("Add", (1e38, 3.1e38), (1e38, 3.1e38), False),
        ("Mul", (-1e30, -1e25), (1e20, 1e25), True),
    ],
)
def test_operators_of_two_operands(
    op_type: str, a: tuple[float, float], b: tuple[float, float], expected: bool
) -> None:
    options = "<fmod=1>" if op_type == "Mod" else ""
    text = f"(float[1] a, float[1] b) => (float[1] y) {{ y = {op_type}{options}(a, b) }}"
    graph = graph_of(text)
    boxes = [Interval.box(np.full(1, low, np.float32), np.full(1, high, np.float32)) for low, high in (a, b)]
    assert fails(graph, node(graph, op_type), boxes) is expected
    if expected:
        assert_every_point_fails(text, boxes, np.random.default_rng(0))


def test_an_operator_that_may_fail_earlier_keeps_the_answer_open() -> None:
    graph = graph_of("(float[1] x) => (float[1] y) { s = Sqrt(x) n = Neg(s) y = Log(n) }")
    op = node(graph, "Log")
    assert not fails(graph, op, [Interval.box(np.full(1, -1, np.float32), np.full(1, 4, np.float32))])
    assert fails(graph, op, [Interval.box(np.full(1, 1, np.float32), np.full(1, 4, np.float32))])


def test_constants_that_operators_make_and_several_outputs() -> None:
    text = (
        "(float[4] x) => (float[2] y, float[2] z) { c = Constant<value_floats=[0.0,1.0]>() e = Exp(c) d = Sub(e, e) "
        "a, b = Split(x) p = Mul(a, d) y = Log(p) z = Neg(b) }"
    )
    graph = graph_of(text)
    op = node(graph, "Log")
    assert fails(graph, op, [Interval.fill(1, 2, (4,), torch.float32)])
    assert not fails(graph, node(graph, "Split"), [Interval.fill(1, 2, (4,), torch.float32)])


@pytest.mark.slow
def test_points_of_failing_boxes_of_random_models_fail() -> None:
    found = Counter[str]()
    for seed in range(30):
        failing, faults = sweep_failing(seed, size=12, samples=6)
        assert not faults
        found += failing
    assert sum(found.values()) >= 6 and len(found) >= 3


def test_operators_beside_and_after_do_not_matter() -> None:
    graph = graph_of("(float[1] x) => (float[1] y, float[1] z) { a = Sqrt(x) r = Relu(x) y = Log(r) z = Exp(a) }")
    op = node(graph, "Log")
    boxes = [Interval.box(np.full(1, -2, np.float32), np.full(1, -1, np.float32))]
    assert fails(graph, op, boxes)
