"""A distance from 0 says nothing of the bounds on either side of it."""

import numpy as np
import torch

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import read
from tests.network.building import parse


def test_squares_and_remainders_of_what_avoids_0_may_be_small() -> None:
    graph = read(
        parse(
            """g (float[2] x) => (float[2] s, float[2] r) <float zero = {0}, float[2] c = {0.9, 0.5}, float one = {1}> {
            n = Less(x, zero) w = Where(n, x, c) s = Mul(w, w) r = Mod<fmod = 1>(one, w) }"""
        )
    )
    ones = np.ones(2, np.float32)
    squares, remainders = IntervalAnalysis(graph).run([Interval.box(-ones, ones)])
    assert squares is not None and remainders is not None
    assert bool(squares.encloses(torch.tensor([0.04, 0.25])).all())
    assert bool(remainders.encloses(torch.tensor([0.0, 0.0])).all())
