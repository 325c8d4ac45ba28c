"""The network as written and what ONNX Runtime runs in its place: which are analysed, and what users are told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ranum_falsify.config import Runtime
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import Graph
from ranum_falsify.verify.prove import analyses
from ranum_falsify.verify.prove.analyses import Analyses, analyses_of, execution_of, notices_of
from tests.verify.search.search_kit import network

# ONNX Runtime folds the factor into the weights, where it vanishes: y = Log(0).
FOLDED = """(float[1,1,1,1] x) => (float[1,1,1,1] y) {
    w = Constant<value = float[1,1,1,1] {1e-20}>()
    k = Constant<value = float[1,1,1] {1e-26}>()
    c = Conv(x, w) e = Mul(c, k) a = Abs(e) y = Log(a)
}"""
PLAIN = "(float[2] x) => (float[2] y, float[2] z) { [log] y = Log(x) [root] z = Sqrt(x) }"


@pytest.fixture(scope="module")
def folded() -> Graph:
    return network(FOLDED)


@pytest.fixture(scope="module")
def plain() -> Graph:
    return network(PLAIN)


def make(graph: Graph, runtimes: Sequence[Runtime]) -> IntervalAnalysis:
    return IntervalAnalysis(graph, runtimes=runtimes)


def ones(graph: Graph, low: float, high: float) -> list[Interval]:
    shape = graph.input_details[0].shape
    return [Interval.box(np.full(shape, low, np.float32), np.full(shape, high, np.float32))]


def open_names(analyses: Analyses, graph: Graph, low: float, high: float, only: set[int] | None = None) -> set[str]:
    found = analyses.check(ones(graph, low, high), only=only).open
    return {op.name for op in graph.nodes if id(op) in found}


def test_a_network_that_runs_as_written_has_one_analysis(plain: Graph) -> None:
    assert execution_of(plain) is None
    analyses = analyses_of(plain, ("onnxruntime", "torch"), make)
    assert analyses.all == (analyses.written,) and analyses.execution is None


def test_a_network_that_is_rewritten_has_two(folded: Graph) -> None:
    analyses = analyses_of(folded, ("onnxruntime", "torch"), make)
    assert analyses.executed is not None and analyses.all == (analyses.written, analyses.executed)
    assert analyses.written.graph is folded
    assert len(analyses.executed.graph.nodes) < len(folded.nodes)


def test_only_onnx_runtime_rewrites(folded: Graph) -> None:
    analyses = analyses_of(folded, ("torch", "exact"), make)
    assert analyses.executed is None and analyses.execution is None


def test_the_optimiser_is_asked_once(folded: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    first = execution_of(folded)
    monkeypatch.setattr(analyses, "optimise", None)
    assert first is not None and execution_of(folded) is first


def test_what_the_rewriting_breaks_is_open_for_onnx_runtime_only(folded: Graph) -> None:
    assert "Log_y" in open_names(analyses_of(folded, ("onnxruntime",), make), folded, 1e20, 2e20)
    assert "Log_y" not in open_names(analyses_of(folded, ("torch",), make), folded, 1e20, 2e20)


def test_conditions_are_checked_operator_by_operator(plain: Graph) -> None:
    analyses = analyses_of(plain, ("onnxruntime",), make)
    assert open_names(analyses, plain, -1.0, 1.0) == {"log", "root"}
    assert open_names(analyses, plain, 0.0, 1.0) == {"log"}
    root = next(op for op in plain.nodes if op.name == "root")
    assert open_names(analyses, plain, -1.0, 1.0, only={id(root)}) == {"root"}


def test_every_operator_of_both_ticks(folded: Graph) -> None:
    analyses = analyses_of(folded, ("onnxruntime",), make)
    assert analyses.executed is not None
    ticks: list[None] = []
    analyses.check(ones(folded, 1.0, 2.0), tick=lambda: ticks.append(None))
    alone: list[None] = []
    Analyses(analyses.written).check(ones(folded, 1.0, 2.0), tick=lambda: alone.append(None))
    assert len(ticks) > len(alone) > 0


def test_notices_are_for_onnx_runtime_only(plain: Graph) -> None:
    refused = network("(bfloat16[2] x) => (bfloat16[2] y) { y = Erf(x) }")
    assert list(notices_of("N", plain, ("onnxruntime",))) == []
    assert list(notices_of("N", refused, ("torch", "exact"))) == []
    (notice,) = notices_of("N", refused, ("onnxruntime",))
    assert (
        notice.startswith("nothing is proved about network N for ONNX Runtime, which does not load it")
        and "\n" not in notice
    )
