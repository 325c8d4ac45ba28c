"""Costs of elements: how they move margins, relative to these."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ranum_falsify.domain import Interval
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import read
from ranum_falsify.properties.language.parse import parse_dnnp
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.repair.abstraction.clipping import rate_elements

TEXT = """from dnnv.properties import *
from ranum_falsify.properties import *
N = Network("N")
Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))
"""
BOX = {"x": Interval.fill(-1, 1, (1, 3), torch.float32)}


def weighted(weights: list[float]) -> Problem:
    g = ModelBuilder("weighted")
    g.output(g.Log(g.input("x", (1, 3)) * g.constant(np.array(weights, np.float32), "w") + 9.0))
    return reduce(parse_dnnp(TEXT, Path("p.py")), {"N": read(g.build())})


def test_elements_cost_what_they_move() -> None:
    costs = rate_elements(weighted([4.0, 1.0, 0.0]), BOX, ["x"])["x"].reshape(-1).tolist()
    assert costs[2] == 0 < costs[1]
    assert costs[0] / costs[1] == pytest.approx(4, rel=0.5)


def test_elements_that_matter_alike_have_no_costs() -> None:
    assert rate_elements(weighted([2.0, 2.0, 2.0]), BOX, ["x"]) == {}
    assert rate_elements(weighted([2.0, -2.1, 1.9]), BOX, ["x"]) == {}
    assert rate_elements(weighted([4.0, 1.0, 0.0]), BOX, []) == {}
