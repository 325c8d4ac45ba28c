"""A partial analysis says of each box what a whole one says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.config import RUNTIMES
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import Graph, read
from ranum_falsify.operators.support.conditions import conditions_of
from ranum_falsify.repair.abstraction.clipping import PartialAnalysis
from ranum_falsify.verify.prove.checked import check
from tests.network.building import parse

GRAPH = """g (float[2, 3] x, float[3, 2] w, float[2] b) => (float[2, 2] y, float[2, 2] z) {
    m = MatMul(x, w) a = Add(m, b) s = Softmax(a) y = Log(s) e = Exp(b) q = Div(m, e) z = Sqrt(q)
}"""
SHAPES = {"x": (2, 3), "w": (3, 2), "b": (2,)}


def whole_answer(graph: Graph, boxes: list[Interval]) -> bool:
    with torch.no_grad():
        return not check(IntervalAnalysis(graph, runtimes=RUNTIMES), boxes).open


def ready(graph: Graph, *nodes: str) -> PartialAnalysis:
    analysis = PartialAnalysis(graph, RUNTIMES)
    wanted = [op for op in graph.nodes if not nodes or op.name in nodes]
    analysis.check_only({id(op): found for op in wanted if (found := conditions_of(op))})
    return analysis


@pytest.fixture(scope="module")
def graph() -> Graph:
    return read(parse(GRAPH))


@given(
    st.lists(
        st.tuples(st.sampled_from("xwb"), st.sampled_from([-90, -30, -1, 0, 1]), st.sampled_from([0, 1, 40, 200])),
        min_size=3,
        max_size=12,
    )
)
@settings(deadline=None)
def test_it_agrees_with_whole_analyses(graph: Graph, moves: list[tuple[str, int, int]]) -> None:
    analysis = ready(graph)
    box = {name: Interval.fill(1, 2, shape, torch.float32) for name, shape in SHAPES.items()}
    for name, low, width in moves:
        box = {**box, name: Interval.fill(low, low + width, SHAPES[name], torch.float32)}
        with torch.no_grad():
            assert analysis.holds(box) == whole_answer(graph, [box[n] for n in graph.input_names])


def test_only_what_is_asked_about_counts(graph: Graph) -> None:
    names = {type(op).__name__: op.name for op in graph.nodes}
    box = {name: Interval.fill(-2, 2, shape, torch.float32) for name, shape in SHAPES.items()}
    with torch.no_grad():
        assert ready(graph, names["Log"]).holds(box)
        assert not ready(graph, names["Sqrt"]).holds(box)


def test_inner_tensors_are_clipped_and_released_again(graph: Graph) -> None:
    analysis = ready(graph)
    box = {name: Interval.fill(-2, 2, shape, torch.float32) for name, shape in SHAPES.items()}
    limit = Interval.box(np.full((2, 2), 0.5, np.float32), np.full((2, 2), 3, np.float32))
    with torch.no_grad():
        assert [analysis.holds(found) for found in (box, {**box, "q": limit}, box, {**box, "q": limit})] == [
            False,
            True,
            False,
            True,
        ]
