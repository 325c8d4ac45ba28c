"""Unit tests: what they find triggers on ONNX Runtime, every point of a span does, and what is proved does not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.config import ConfirmConfig
from ranum_falsify.errors import PropertyError
from ranum_falsify.network import read
from ranum_falsify.verify.replay.replayer import Replayer
from ranum_falsify.witness.maker import Question, TestMaker
from ranum_falsify.witness.oracle import Oracle
from ranum_falsify.witness.unit_test import OperatorTests, Trigger, UnitTest
from tests.network.building import parse
from tests.verify.search.search_kit import natural, problem
from tests.witness.confirm_kit import SQRT_OF_EXP, Array, made, posed, run

pytestmark = pytest.mark.usefixtures("one_thread")

# Text, bounds of the inputs, and the operator that fails.
DEFECTS = {
    "log": ("g (float[1,3] x) => (float[1,3] y) { [hit] y = Log(x) }", [(-1.0, 1.0)]),
    "exp": ("g (float[1,3] x) => (float[1,3] y) { [hit] y = Exp(x) }", [(0.0, 100.0)]),
    "div": ("g (float[3] a, float[3] b) => (float[3] y) { c = Relu(b) [hit] y = Div(a, c) }", [(-1.0, 1.0)] * 2),
    "log_softmax": (
        "g (float[1,3] x, float[3,4] w) => (float[1,4] y) { m = MatMul(x, w) p = Softmax(m) [hit] y = Log(p) }",
        [(0.0, 1.0), (-100.0, 100.0)],
    ),
    "log_sigmoid": (
        "g (float[1,3] x, float[3,4] w) => (float[1,4] y) { m = MatMul(x, w) p = Sigmoid(m) [hit] y = Log(p) }",
        [(-1.0, 1.0), (-50.0, 50.0)],
    ),
    "double": ("g (double[2] x) => (double[2] y) { e = Exp(x) [hit] y = Mul(e, e) }", [(0.0, 500.0)]),
    "half": ("g (float16[2] x) => (float16[2] y) { [hit] y = Log(x) }", [(-1.0, 1.0)]),
    "integers": ("g (int32[3] a, int32[3] b) => (int32[3] y) { [hit] y = Div(a, b) }", [(-3.0, 3.0)] * 2),
}


@cache
def found(name: str) -> tuple[Question, OperatorTests]:
    text, bounds = DEFECTS[name]
    ((question, tests),) = made(posed(text, bounds)).values()
    return question, tests


def is_invalid(question: Question, feeds: dict[str, Array]) -> bool:
    """Whether the operator in question reads good operands and writes NaN or infinity."""
    tensors = run(question.call.graph, feeds)
    node = next(node for node in question.call.graph.model.graph.node if node.name == "hit")
    reads, output = [tensors[name] for name in node.input], tensors[node.output[0]]
    if any(np.isnan(x).any() for x in reads):
        return False
    return bool(np.isnan(output).any() or (np.isinf(output).any() and all(np.isfinite(x).all() for x in reads)))


@pytest.mark.parametrize("name", DEFECTS)
def test_every_run_triggers_in_the_box(name: str) -> None:
    question, tests = found(name)
    assert question.op.name == "hit" and len(tests.tests) == tests.runs == 2
    bounds = DEFECTS[name][1]
    for test in tests.tests:
        assert test.alone and not test.flushed
        for array, (low, high) in zip(test.feeds.values(), bounds, strict=True):
            assert (low <= array).all() and (array <= high).all()
        if name == "integers":
            assert (test.feeds["b"] == 0).any()
        else:
            assert is_invalid(question, dict(test.feeds))


@pytest.mark.parametrize("name", sorted(DEFECTS.keys() - {"integers"}))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_point_of_a_span_triggers(name: str, data: st.DataObject) -> None:
    question, tests = found(name)
    test = data.draw(st.sampled_from(tests.tests))
    assert test.span is not None and test.span.radius > 0
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    feeds = {}
    for key, value in test.feeds.items():
        low, high = test.span.lower[key], test.span.upper[key]
        assert (low <= value).all() and (value <= high).all()
        share = random.integers(2, size=value.shape) if data.draw(st.booleans()) else random.random(value.shape)
        feeds[key] = np.clip((low * (1 - share) + high * share).astype(value.dtype), low, high)
    assert is_invalid(question, feeds)


@pytest.mark.parametrize(
    ("x", "shown"), [(0.5, ()), (-1.0, ("y", "both")), (1.0, ())], ids=["on the edge", "inside", "finite"]
)
def test_outputs_count_as_shown_if_they_do_not_hang_on_the_last_bits(x: float, shown: tuple[str, ...]) -> None:
    text = """g (float[2] x) => (float[2] y, bool[2] sign, float[2] both, bfloat16[2] wide) <float h = {0.5}> {
        d = Sub(x, h) [log] y = Log(d) sign = IsNaN(y) both = Add(y, x) wide = Cast<to = 16>(y) }"""
    asked = posed(text, [(-1.0, 1.0)])
    feeds = {"x": np.array([x, 1.0], np.float32)}
    trigger = Trigger(feeds=feeds, kind="inf", tensor="y", index=(0,), alone=True, oracle="onnxruntime")
    with Oracle(asked) as oracle:
        found = oracle.find_shown(asked.calls[0], trigger)
        loud = oracle.confirmer.run_default(asked.calls[0].graph, feeds)
    assert found == shown
    assert np.isfinite(loud["y"]).all() == (x == 1.0)


def test_spans_stay_in_the_box_and_move() -> None:
    _, tests = found("log_softmax")
    for test in tests.tests:
        assert test.span is not None
        assert all((low <= x).all() for low, x in zip((0.0, -100.0), test.span.lower.values(), strict=True))
        assert all((x <= high).all() for high, x in zip((1.0, 100.0), test.span.upper.values(), strict=True))
        assert any((test.span.lower[name] < test.span.upper[name]).any() for name in test.feeds)


@pytest.mark.parametrize("kind", ["bool", "uint16"])
def test_inputs_that_are_no_floats_stay_in_a_span(kind: str) -> None:
    text = f"g ({kind}[3] k, float[3] x) => (float[3] y) {{ c = Cast<to = 1>(k) r = Relu(x) m = Mul(c, r) y = Log(m) }}"
    ((_, tests),) = made(posed(text, [(0.0, 1.0), (-1.0, 1.0)])).values()
    assert len(tests.tests) == tests.runs
    for test in tests.tests:
        assert test.span is not None
        assert (test.span.lower["k"] == test.feeds["k"]).all() and (test.span.upper["k"] == test.feeds["k"]).all()


def test_a_seed_gives_the_same_test_again() -> None:
    text, bounds = DEFECTS["log_softmax"]
    (_, first), (_, again), (_, later) = (
        made(posed(text, bounds), seed=seed, runs=2, span=False)["hit"] for seed in (3, 3, 4)
    )

    def points(tests: OperatorTests) -> list[tuple[int, list[bytes]]]:
        return [(test.seed, [x.tobytes() for x in test.feeds.values()]) for test in tests.tests]

    assert points(first) == points(again)
    assert points(first)[1] == points(later)[0] and points(first)[0] != points(later)[0]
    assert all(test.span is None for test in first.tests)


def test_proved_operators_are_no_questions_and_do_not_trigger() -> None:
    safe = natural("softmax_regression_safe")
    assert made(safe) == {}
    with TestMaker(safe, ConfirmConfig(runs=1, timeout=0.5, processors=1, nodes=("log_softmax",))) as maker:
        asked = [question.op.name for question in maker.questions()]
        assert asked == ["log_softmax"]
        assert [maker.tests_of(question).tests for question in maker.questions()] == [()]


def test_unknown_nodes_are_refused() -> None:
    text, bounds = DEFECTS["log"]
    with pytest.raises(PropertyError, match="'nowhere'"):
        made(posed(text, bounds), nodes=("nowhere",))


def test_other_properties_are_refused() -> None:
    robust = problem("Forall(x, Implies(0 <= x <= 1, N(x)[0, 0] > 0))")
    with pytest.raises(PropertyError, match="no_invalid_input"):
        TestMaker(robust, ConfirmConfig())


def test_side_conditions_are_met() -> None:
    text, _ = DEFECTS["div"]
    asked = posed(text, [(-1.0, 1.0)] * 2, extra="v0[0] + v1[1] >= 1.5")
    ((_, tests),) = made(asked).values()
    assert tests.tests
    for test in tests.tests:
        assert float(test.feeds["a"][0]) + float(test.feeds["b"][1]) >= 1.5


def test_each_network_has_its_own_questions() -> None:
    networks = {
        "N": read(parse("g (float[2] x) => (float[2] y) { [one] y = Log(x) }")),
        "M": read(parse("g (float[2] x) => (float[2] y) { [two] y = Sqrt(x) }")),
    }
    both = problem(
        "Forall(x, Implies(-1 <= x <= 1, And(no_invalid_input(N(x)), no_invalid_input(M(x)))))", networks=networks
    )
    tests = made(both)
    assert {name: question.network for name, (question, _) in tests.items()} == {"one": "N", "two": "M"}
    assert all(len(of_one.tests) == 2 for _, of_one in tests.values())


class TestDerivatives:
    @pytest.mark.slow
    def test_flushed_denormals_are_said(self) -> None:
        ((_, tests),) = made(posed(SQRT_OF_EXP, [(-200.0, 200.0)], options="gradient=True")).values()
        assert len(tests.tests) == 2
        for test in tests.tests:
            assert (test.kind, test.tensor, test.flushed, test.oracle) == ("gradient", "e", True, "autograd-flushed")
            assert self.roots(test, flush=True).min() == 0 < self.roots(test, flush=False).min()
            assert test.span is not None

    def test_without_gradient_there_is_nothing(self) -> None:
        assert made(posed(SQRT_OF_EXP, [(-200.0, 200.0)])) == {}

    @staticmethod
    def roots(test: UnitTest, *, flush: bool) -> Array:
        with Replayer(parse(SQRT_OF_EXP), flush=flush) as replayer:
            roots: Array = replayer.outputs(test.feeds)["y"]
            return roots


class TestDraws:
    TEXT = (
        "g (float[2] x) => (float[2] y) { r = RandomUniformLike<low=-1.0, high=1.0>(x) s = Add(x, r) [hit] y = Log(s) }"
    )

    def test_what_is_drawn_is_fed(self) -> None:
        ((question, tests),) = made(posed(self.TEXT, [(0.5, 1.0)])).values()
        assert question.call.graph.input_names == ("x", "r")
        for test in tests.tests:
            assert (-1 <= test.feeds["r"]).all() and (test.feeds["r"] < 1).all()
            assert is_invalid(question, dict(test.feeds))
            assert test.span is not None

    def test_a_draw_that_cannot_fail_is_proved(self) -> None:
        assert made(posed(self.TEXT, [(1.5, 2.0)])) == {}
