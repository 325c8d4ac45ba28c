"""What one analysis leaves open of each operator's conditions."""

from __future__ import annotations

import numpy as np
import pytest

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import Graph
from ranum_falsify.verify.prove.checked import Checked, check
from tests.verify.search.search_kit import network

GRAPH = network("(float[2] x) => (float[2] y, float[2] z) { [log] y = Log(x) [root] z = Sqrt(x) }")


def box(low: float, high: float) -> list[Interval]:
    return [Interval.box(np.full(2, low, np.float32), np.full(2, high, np.float32))]


def names(graph: Graph, table: object) -> set[str]:
    assert isinstance(table, dict)
    return {op.name for op in graph.nodes if id(op) in table}


def over(low: float, high: float, **options: object) -> Checked:
    return check(IntervalAnalysis(GRAPH), box(low, high), **options)  # type: ignore[arg-type]


def test_open_conditions_by_operator() -> None:
    assert names(GRAPH, over(-1, 1).open) == {"log", "root"}
    assert names(GRAPH, over(0, 1).open) == {"log"}
    assert names(GRAPH, over(0.5, 1).open) == set()


def test_conditions_of_derivatives_are_kept_apart() -> None:
    found = over(0, 1)
    assert "root" in names(GRAPH, found.open_gradient) and "root" not in names(GRAPH, found.open)
    assert names(GRAPH, over(0.5, 1).open_gradient) == set()


def test_only_the_operators_that_are_asked_for() -> None:
    root = next(op for op in GRAPH.nodes if op.name == "root")
    assert names(GRAPH, over(-1, 1, only={id(root)}).open) == {"root"}


def test_bounds_of_the_outputs() -> None:
    outputs = over(1, 4).outputs
    low, high = outputs[1].expand() if outputs[1] is not None else (None, None)
    assert low is not None and high is not None
    assert float(low.min()) <= 1 <= float(low.min()) + 1e-5 and 2 <= float(high.max()) <= 2 + 1e-5


def test_constants_that_may_be_invalid_are_named() -> None:
    graph = network(
        "(float[1] x) => (float[1] y) { c = Constant<value = float[1] {-16.5}>() "
        "[squash] s = Sigmoid(c) [log] l = Log(s) y = Add(x, l) }"
    )
    one = [Interval.box(np.zeros(1, np.float32), np.ones(1, np.float32))]
    assert check(IntervalAnalysis(graph, runtimes=("onnxruntime",)), one).constants == ("log",)
    assert check(IntervalAnalysis(graph, runtimes=("torch",)), one).constants == ()


def test_a_tick_may_end_it() -> None:
    class Late(Exception):
        pass

    def tick() -> None:
        raise Late

    with pytest.raises(Late):
        over(0, 1, tick=tick)
