"""Training data: exact zeros, logarithms of exponentials, and several operators of which any may fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ranum_falsify.network import read
from ranum_falsify.process.deadline import NEVER
from ranum_falsify.properties.formula.terms import Trainable
from ranum_falsify.properties.problem.targets import targets_of
from ranum_falsify.verify.search.converter import convert
from ranum_falsify.witness.exposed import make_repeatable
from ranum_falsify.witness.training.hitting import AimSearch, HitSearch, ZeroSearch
from ranum_falsify.witness.training.running import Recipe
from ranum_falsify.witness.training.search import DataSearch, Found
from ranum_falsify.witness.training.strategies import Aimed, Bisecting, Hitting, LogarithmicUnrolling, Strategy
from ranum_falsify.witness.training.task import Judge, TrainingTask
from tests.network.building import parse
from tests.witness.confirm_kit import Array, posed, run
from tests.witness.test_training import task

pytestmark = pytest.mark.usefixtures("one_thread")


def hunt(
    given: TrainingTask, recipe: Recipe, strategy: Strategy, initial: Array, kind: type[DataSearch] = DataSearch
) -> Found | None:
    """Search one round from other weights than zeros."""
    with Judge(given) as judge:
        return kind(
            given,
            recipe,
            [torch.from_numpy(initial.copy())],
            strategy,
            judge,
            torch.Generator().manual_seed(0),
            point=[None] * len(given.data),
            deadline=NEVER,
            rounds=3,
        ).run()


# The gradient of each weight is a product of two data; `hit` fails where their magnitudes add up to 0.
NORM = """g (float[1,12] x, float[1,1] y, float[12,1] w) => (float cost) {
    m = MatMul(x, w) t = Mul(m, y) c = ReduceSum<keepdims=0>(t)
    a = Abs(w) s = ReduceSum<keepdims=0>(a) [hit] cost = Div(c, s) }"""


def test_all_weights_of_a_norm_become_zero_to_the_last_bit() -> None:
    given = task(NORM, [(-50.0, 50.0), (-50.0, 50.0), (-10.0, 10.0)], loss="c")
    initial = np.random.default_rng(0).uniform(-10, 10, (12, 1)).astype(np.float32)
    found = hunt(given, Recipe(), Hitting(), initial, HitSearch)
    assert found is not None and found.strategy == "hitting zeros"
    assert (found.trained[0] == 0).all()
    (x, y) = found.batches[0]
    np.testing.assert_array_equal(initial, x.T * y)


def picking(wanted: float) -> str:
    """Return a model of which `hit` fails only where the sigmoid, a multiple of 2^-24, is a certain number."""
    return f"""g (float[1,1] x, float[1,1] y, float[1,1] w) => (float c, float[1,1] l)
        <float tiny = {{3e-4}}, float middle = {{0.30005}}, float many = {{16777216.0}}, float wanted = {{{wanted!r}}},
         float small = {{1e-6}}> {{
        m = MatMul(x, w) t = Mul(m, y) c = ReduceSum<keepdims=0>(t) k = Mul(m, tiny) h = Add(k, middle)
        p = Sigmoid(h) f = Mul(p, many) r = Floor(f) e = Equal(r, wanted) n = Not(e) b = Cast<to=1>(n)
        g = Mul(b, small) [hit] l = Log(g) }}"""


def test_a_number_is_met_at_which_the_kernel_fails() -> None:
    sigmoid = read(parse("g (float[1] x) => (float[1] y) { y = Sigmoid(x) }"))
    (number,) = run(sigmoid, {"x": np.array([0.3], np.float32)})["y"]
    given = task(picking(float(np.floor(number * np.float32(2**24)))), [(-1.0, 1.0)] * 3, loss="c")
    found = hunt(given, Recipe(), Aimed(), np.zeros((1, 1), np.float32), AimSearch)
    assert found is not None and found.strategy == "aiming at numbers"
    tensors = run(given.graph, {"x": found.point[0], "y": found.point[1], "w": found.trained[0]})
    assert np.isneginf(tensors["l"]).all() and tensors["g"] == 0
    (x, y) = found.batches[0]
    np.testing.assert_array_equal(found.trained[0], -x * y)


def test_data_whose_sign_keeps_weights_from_zero_are_not_found() -> None:
    given = task(NORM, [(0.0, 50.0), (0.0, 50.0), (-10.0, 10.0)], loss="c")
    initial = np.linspace(-5, 5, 12, dtype=np.float32).reshape(12, 1)
    assert hunt(given, Recipe(), Hitting(), initial, HitSearch) is None


def test_a_weight_that_divides_becomes_exactly_zero() -> None:
    text = """g (float[1,40] x, float[1,4] y, float[1] w) => (float cost, float c) {
        a = ReduceSum<keepdims=0>(x) b = ReduceSum<keepdims=0>(y) e = Mul(a, b) f = Mul(e, w)
        c = ReduceSum<keepdims=0>(f) [hit] d = Div(e, w) cost = ReduceSum<keepdims=0>(d) }"""
    given = task(text, [(-4.0, 4.0), (0.0, 1.0), (-10.0, 10.0)], loss="c")
    found = hunt(given, Recipe(), Bisecting(), np.array([7.3], np.float32), ZeroSearch)
    assert found is not None and found.strategy == "bisection" and found.trained[0] == 0


def test_logarithms_lead_where_exponentials_overflow() -> None:
    # A sum of exponentials of logits far above 88 is infinite, and has no slope; past the limit there is none either.
    text = """g (float[1,40] x, float[40,4] w) => (float cost) <float[1] top = {87.0}> {
        m = MatMul(x, w) c = Min(m, top) e = Exp(c) s = ReduceSum<keepdims=0>(e) [hit] d = Div(m, s)
        cost = ReduceSum<keepdims=0>(d) }"""
    given = task(text, [(-9.0, 9.0), (-99.0, 99.0)])
    initial = np.random.default_rng(0).normal(0, 50, (40, 4)).astype(np.float32)
    untrained = Recipe(steps=0)
    found = hunt(given, untrained, LogarithmicUnrolling(), initial)
    assert found is not None and (found.point[0] @ initial < -100).all()


def test_any_of_several_operators_may_fail() -> None:
    text = """g (float[1,2] x, float[2,2] w) => (float cost, float[1,2] l) {
        m = MatMul(x, w) [first] l = Log(m) [second] r = Sqrt(m) cost = ReduceSum<keepdims=0>(r) }"""
    problem = make_repeatable(posed(text, [(1.0, 2.0), (-1.0, 3.0)]))
    goal = problem.goals[0]
    targets = [target for target in targets_of(0, goal) if target.op.name in ("first", "second")]
    given = TrainingTask(problem, targets, convert(goal.call.graph), Trainable(loss=("cost",), weights=("w",)))
    with Judge(given) as judge:
        zero = judge.judge([np.zeros((2, 2), np.float32)], [np.ones((1, 2), np.float32)])
        assert zero is not None and {target.op.name for target in zero.targets} == {"first"}
        assert given.narrow_to(zero.targets).op.name == "first"
        assert judge.judge([np.ones((2, 2), np.float32)], [np.ones((1, 2), np.float32)]) is None
    second = given.narrow_to([target for target in targets if target.op.name == "second"])
    with Judge(second) as judge:
        assert judge.judge([np.zeros((2, 2), np.float32)], [np.ones((1, 2), np.float32)]) is None
