"""The condition that is named is the one that the operator breaks."""

from __future__ import annotations

import numpy as np
import pytest

from ranum_falsify.config import RUNTIMES
from ranum_falsify.network import read
from ranum_falsify.verify.replay.broken import find_broken, find_broken_at
from ranum_falsify.verify.search.torch_replay import find_failing_in_torch
from tests.network.building import unchecked
from tests.verify.replay.replay_kit import replay
from tests.verify.search.search_kit import found, search, valid_in_box

OVERFLOW = "|output| is finite"
CASES = [
    ("y = Pow(x, k)", 2.0, -1e30, OVERFLOW),
    ("y = Pow(x, k)", 0.5, -2.0, "x >= 0 where y is not an integer"),
    ("y = Pow(x, k)", -1.0, 0.0, "x != 0 where y < 0"),
    ("y = Div(x, k)", 1e-30, 1e10, OVERFLOW),
    ("y = Div(x, k)", 0.0, 1.0, "b != 0"),
    ("y = Div(k, x)", 1e30, 1e-20, OVERFLOW),
    ("y = Exp(x)", 0.0, 100.0, "x <= 88.72283 (in float32)"),
    ("l = Log(x) y = Softmax(l)", 0.0, 0.0, "no row along the axis is all -inf or has +inf"),
]


@pytest.mark.parametrize(("body", "constant", "x", "condition"), CASES)
def test_the_condition_that_fails_is_named(body: str, constant: float, x: float, condition: str) -> None:
    text = f"g (float[4] x) => (float[4] y) <float k = {{{constant}}}> {{ {body} }}"
    model, feeds = unchecked(text), {"x": np.full(4, x, np.float32)}
    graph = read(model)
    finding = replay(model.graph.node, feeds, ["y"], {"k": np.float32(constant)}).findings[-1]
    broken = find_broken(graph.nodes[-1], finding)
    assert broken is not None and broken.describe() == condition
    failing = find_failing_in_torch(graph, feeds)
    assert failing is not None and failing[graph.nodes[-1].name].broken.describe() == condition


def test_a_search_names_the_condition_that_fails() -> None:
    graph = read(unchecked("g (float[4] x) => (float[4] y) <float k = {2}> { y = Pow(x, k) }"))
    for runtime in RUNTIMES[:2]:
        (power,) = found(search(valid_in_box(graph, [(-1e30, -1e25)]), prove=True, runtime=runtime)).values()
        assert power.constraint == OVERFLOW


def test_of_two_elements_the_first_that_fails_counts() -> None:
    graph = read(unchecked("g (float[2] x) => (float[2] y) <float[2] k = {1e-30, 0}> { y = Div(x, k) }"))
    (op,) = graph.nodes
    constants = {"k": np.array([1e-30, 0], np.float32)}
    nodes = unchecked("g (float[2] x) => (float[2] y) { y = Div(x, k) }").graph.node
    for x, condition in (([1e20, 1], OVERFLOW), ([1, 1], "b != 0")):
        (finding,) = replay(nodes, {"x": np.array(x, np.float32)}, ["y"], constants).findings
        broken = find_broken(op, finding)
        assert broken is not None and broken.describe() == condition


def test_large_operands_are_not_passed_on() -> None:
    model = unchecked("g (float[2, 600000] x) => (float[2, 600000] y) { l = Log(x) y = Softmax(l) }")
    log, softmax = replay(model.graph.node, {"x": np.zeros((2, 600000), np.float32)}, ["y"]).findings
    assert [x.shape for x in log.arrays.values()] == [(1, 1)]
    assert not softmax.arrays
    assert find_broken(read(model).nodes[1], softmax) is None


def test_operands_alone_tell() -> None:
    (op,) = read(unchecked("g (float[2] x, float[2] z) => (float[2] y) { y = Div(x, z) }")).nodes
    one, tiny = np.ones(2, np.float32), np.array([1, 1e-45], np.float32)
    assert find_broken_at(op, [one, tiny]).describe() == OVERFLOW
    assert find_broken_at(op, [one, 0 * one]).describe() == "b != 0"
