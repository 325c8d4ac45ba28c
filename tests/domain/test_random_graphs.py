"""Analyses of random models enclose what the runtimes compute; `scripts/sweep_domain.py` runs many more."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

from ranum_falsify.network import find
from tests.domain.random_graphs import random_model, sweep_graph


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(12))
def test_analysis_encloses_what_runtimes_compute(seed: int) -> None:
    tally = sweep_graph(seed, size=25, boxes=1, samples=6, rounds=2)
    assert tally.samples
    assert not tally.faults, "\n".join(tally.faults)


def test_models_are_valid_and_of_many_operators() -> None:
    found: Counter[str] = Counter()
    for seed in range(40):
        model, feeds = random_model(np.random.default_rng(seed), 40)
        onnx.checker.check_model(model)
        assert 40 <= len(model.graph.node) < 70
        assert feeds.keys() == {info.name for info in model.graph.input}
        found += Counter(node.op_type for node in model.graph.node)
    assert all(find(op_type, "") for op_type in found)
    assert len(found) > 80


def test_equal_seeds_give_equal_models() -> None:
    first, second = (random_model(np.random.default_rng(3), 20)[0] for _ in range(2))
    assert first == second
