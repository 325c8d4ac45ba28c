"""Dropout in training mode draws random numbers, and says so."""

import numpy as np
import pytest

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import read


@pytest.mark.parametrize(("ratio", "training", "random"), [(0.5, True, True), (0.0, True, False), (0.5, False, False)])
def test_notice_of_dropout(ratio: float, training: bool, random: bool) -> None:
    g = ModelBuilder(opset=13)
    g.output(g.Dropout(g.input("x", [50]), np.float32(ratio), np.bool_(training)))
    network = read(g.build())
    assert bool(network.notices) == random
    answer = network(np.ones(50, np.float32))
    assert set(np.unique(answer)) == ({0.0, 2.0} if random else {1.0})
