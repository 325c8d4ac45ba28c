"""Orders between tensors that are looked for node by node."""

from __future__ import annotations

import pytest
import torch

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import read
from ranum_falsify.operators.relations import comparison, matching
from tests.network.building import parse


def test_a_search_ends_where_every_node_asks_for_several_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    is_fit = matching.is_fit

    def counted(*operands: Interval) -> bool:
        nonlocal asked
        asked += 1
        return is_fit(*operands)

    monkeypatch.setattr(comparison, "is_fit", counted)
    nodes = "m0 = Mul(x, z) a0 = Mul(m0, x) b0 = Mul(m0, z) "
    for i in range(1, 8):
        last = i - 1
        nodes += f"m{i} = Mul(a{last}, b{last}) a{i} = Mul(m{i}, a{last}) b{i} = Mul(m{i}, b{last}) "
    graph = read(parse(f"g (float[4] x, float[4] z) => (float[4] y) {{ {nodes} y = Sub(a7, b7) }}"))
    box = [Interval.fill(0.5, 1, (4,), torch.float32) for _ in graph.input_details]
    assert IntervalAnalysis(graph).run(box)[0] is not None
    assert 0 < asked < 10_000
