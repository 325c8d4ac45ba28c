"""Cosines by sums of squares are about 1 at most, whatever the rows."""

import numpy as np
import pytest
import torch

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import read
from tests.network.building import parse

COSINE = """g (float[3,4] x, float[3,4] y) => (float[3] c) <float e = {{{0}}}, int64[1] axes = {{1}}> {{
    p = Mul(x, y) s = ReduceSum<keepdims = 0>(p, axes)
    xx = Mul(x, x) a0 = ReduceSum<keepdims = 0>(xx, axes) a = Add(a0, e)
    yy = Mul(y, y) b0 = ReduceSum<keepdims = 0>(yy, axes) b = Add(b0, e)
    ab = Mul(a, b) d = Sqrt(ab) c = Div(s, d) }}"""


@pytest.mark.parametrize("size", [1e-20, 1e-6, 1.0, 1e4])
def test_bounds_enclose_cosines_of_equal_rows(size: float) -> None:
    graph = read(parse(COSINE.format("1e-12")))
    ones = np.full((3, 4), size, np.float32)
    (found,) = IntervalAnalysis(graph).run([Interval.box(-ones, ones)] * 2)
    assert found is not None and found.extremes[1] < 1.001
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        x = (torch.rand(3, 4, generator=generator) * 2 - 1) * size
        products = (x * x).sum(1)
        cosines = products / ((products + 1e-12) * (products + 1e-12)).sqrt()
        assert bool(found.encloses(cosines).all() and found.encloses(-cosines).all())


def test_an_epsilon_that_rounding_swallows_says_nothing() -> None:
    graph = read(parse(COSINE.format("1e-36")))
    ones = np.ones((3, 4), np.float32)
    (found,) = IntervalAnalysis(graph).run([Interval.box(-ones, ones)] * 2)
    assert found is None or found.extremes[1] > 2
