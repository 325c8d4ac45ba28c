"""Operators that linear bounds leave open are proved by slopes that are chosen for their operands."""

from __future__ import annotations

import numpy as np
import pytest

from ranum_falsify.config import ProveConfig
from ranum_falsify.domain import Interval
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import Graph, read
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.verify.prove.prover import Prover
from tests.verify.search.search_kit import valid_in_box

_INPUTS = 80  # more than can be cut one after another


def _network(added: float) -> Graph:
    """Return the logarithm of a number and what three layers compute."""
    rng = np.random.default_rng(0)
    g = ModelBuilder()
    x = g.input("x", (1, _INPUTS))
    for rows, columns in ((_INPUTS, 20), (20, 20), (20, 20)):
        x = g.Relu(g.Gemm(x, rng.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)))
    x = g.Gemm(x, rng.normal(size=(20, 1)).astype(np.float32))
    g.output(g.Log(g.Add(x, np.array([added], np.float32), name="sum"), name="log"), (1, 1))
    return read(g.build())


def _find_least(ascent: float) -> float:
    graph = _network(0.0)
    analysis = LinearAnalysis(graph, ascent=ascent)
    analysis.run([Interval.box(np.zeros((1, _INPUTS), np.float32), np.ones((1, _INPUTS), np.float32))])
    op = next(op for op in graph.nodes if op.name == "sum")
    return float(analysis.tighten(op).doubles()[0])


@pytest.mark.few(1)
@pytest.mark.parametrize("share", [0.5, 1.5])
def test_an_operator_is_proved_if_chosen_slopes_show_it(share: float) -> None:
    usual, better = (-_find_least(ascent) for ascent in (0.0, 1e10))
    added = usual + share * (better - usual)
    assert 0 < better < usual
    problem = valid_in_box(_network(added), [(0.0, 1.0)])
    prover = Prover(problem, ProveConfig())
    prover.analyse()
    assert prover.refine(Deadline.after(60)).holds is (share < 1)
