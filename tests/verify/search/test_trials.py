"""Points run in ONNX Runtime one by one, where PyTorch shows nothing, or shows what ONNX Runtime does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ranum_falsify.network import Graph, read
from ranum_falsify.verify.replay.replayer import Replayer
from ranum_falsify.verify.search import scan
from ranum_falsify.verify.search.operator_search import OperatorSearch
from ranum_falsify.verify.search.scan import find_revealing
from tests.network.building import parse
from tests.verify.search.search_kit import context, found, search, valid_in_box

# The logarithm reads 1e-6, and 0 where x lies between 0.345 and 0.3475, which has no slope.
RARE = (
    "g (float[2] x) => (float[2] y) <float many = {400}, float one = {138}, float small = {1e-6}>"
    " { t = Mul(x, many) f = Floor(t) e = Equal(f, one) n = Not(e) c = Cast <to = 1> (n) m = Mul(c, small)"
    " [log] %s }"
)
SHOWN = RARE % "y = Log(m)"
SWALLOWED = RARE % "l = Log(m) y = Tanh(l)"

# ONNX Runtime computes chains of float16 operators in float32: what is 0 everywhere in torch is 0 there only where x
# lies between 0.345 and 0.3475.
REFUSED = (
    "g (float[1] x) => (float16[1] y)"
    " <float many = {400}, float one = {138}, float tiny = {1e-4}>"
    " { t = Mul(x, many) f = Floor(t) e = Equal(f, one) n = Not(e) c = Cast <to = 10> (n) small = Cast <to = 10> (tiny)"
    " m = Mul(c, small) s = Mul(m, small) [log] y = Log(s) }"
)

DOUBTFUL = "g (float16[2] x) => (float16[2] y) { s = Mul(x, x) [sub] y = Sub(s, s) }"


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are as many as settings say, however busy the machine is."""
    monkeypatch.setattr(scan, "_SECONDS", 60.0)


def points_of(graph: Graph, near: list[float]) -> list[np.ndarray]:
    given = context(valid_in_box(graph, [(0.0, 1.0)]))
    region = next(given.regions())
    shape = (1, *region.boxes[0].lower.shape)
    with given.confirmer:
        return [x.numpy() for (x,) in find_revealing(given, region, [[torch.full(shape, value)] for value in near])]


@pytest.mark.parametrize("text", [SHOWN, SWALLOWED], ids=["shown", "swallowed"])
def test_what_a_few_starts_miss_is_found_without_a_dimension_of_samples(text: str) -> None:
    answer = search(valid_in_box(read(parse(text)), [(0.0, 1.0)]), n_starts=8, n_steps=2)
    assert found(answer).keys() == {"log"}


@pytest.mark.parametrize("near", [[], [0.9], [0.1, 0.9]], ids=str)
def test_points_lie_in_the_box_and_fail(near: list[float]) -> None:
    points = points_of(read(parse(SHOWN)), near)
    assert points
    for x in points:
        assert x.shape == (1, 2) and ((x >= 0) & (x <= 1)).all() and (np.floor(x * np.float32(400)) == 138).any()


def test_the_same_seed_gives_the_same_points() -> None:
    first, again = (points_of(read(parse(SHOWN)), [0.5]) for _ in range(2))
    assert np.array_equal(first, again)


def test_there_may_be_nothing_to_find() -> None:
    assert points_of(read(parse("g (float[2] x) => (float[2] y) { y = Exp(x) }")), [0.5]) == []


def test_the_search_goes_on_about_candidates_that_onnx_runtime_refuses() -> None:
    """Every start is a candidate; the sixteenth refusal once ended the search."""
    answer = search(valid_in_box(read(parse(REFUSED)), [(0.0, 1.0)]), n_starts=40, n_steps=2)
    assert found(answer).keys() == {"log"} and answer.unconfirmed == ()


def test_refusals_decide_nothing() -> None:
    given = context(valid_in_box(read(parse(DOUBTFUL)), [(300.0, 1000.0)], options="only=['Sub']"), n_starts=40)
    search = OperatorSearch(given)
    with given.confirmer:
        search.run()
        assert search.list_unconfirmed() and not search.is_done and not search.has_found


def test_of_inputs_that_show_the_same_few_are_told() -> None:
    # Half of the inputs run as users run the model: the others also show what an operator swallows.
    model = parse("g (float x) => (float y) { l = Log(x) y = Tanh(l) }")
    samples = np.array([1, 0, 2, -1] * 10, np.float32)
    with Replayer(model) as replayer:
        told = replayer.find_revealing({"x": samples}, 60.0)
        assert replayer.find_revealing({"x": samples}, 0.0) == []
    assert told and set(samples[told]) <= {0.0, -1.0} and len(told) < 16


def test_divisions_that_end_a_process_are_not_run() -> None:
    model = parse("g (int32[1] a, int32[1] b) => (int32[1] y) { y = Div(a, b) }")
    samples = {"a": np.array([[8], [-(2**31)], [7]] * 2, np.int32), "b": np.array([[2], [-1], [0]] * 2, np.int32)}
    with Replayer(model) as replayer:
        assert {1, 2} <= {position % 3 for position in replayer.find_revealing(samples, 60.0)}
