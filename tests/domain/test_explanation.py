"""The history of an operand names the operators back to the input, and which of them widened."""

import numpy as np

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.explanation import explain
from ranum_falsify.network import read
from tests.network.building import parse


def test_chain_leads_back_and_the_widest_step_comes_first() -> None:
    graph = read(
        parse(
            """
            g (float[1,2] x, float[1,2] z) => (float[1,2] y)
            <float[1] large = {1000.0}, float[1] one = {1.0}>
            {
                [shift] a = Add(x, one)
                [grow] b = Mul(a, large)
                [join] c = Add(b, z)
                [turn] d = Neg(c)
                [log] y = Log(d)
            }
            """
        )
    )
    analysis = IntervalAnalysis(graph, keep=True)
    ones = np.ones((1, 2), np.float32)
    analysis.run([Interval.box(-ones, ones), Interval.box(-ones, ones)])
    log = next(op for op in graph.nodes if op.name == "log")
    (history,) = explain(analysis, log)
    assert [step.node for step in history.chain] == ["turn", "join", "grow", "shift", "x"]
    assert history.widest[0].node == "grow"
    assert history.bounds == (-2001.0, 1.0)
    assert history.chain[-1].op_type == "Input"
