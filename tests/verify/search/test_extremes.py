"""Points that drive tensors to their extremes."""

from __future__ import annotations

import numpy as np

from ranum_falsify.verify.search.converter import convert
from ranum_falsify.verify.search.extremes import find_extremes
from tests.verify.search.search_kit import network, valid_in_box

LINEAR = """
(float[1,3] x, float[1,3] z) => (float[1,1] y) <float[3,1] w = {1, -2, 3}> {
  d = Sub(x, z) m = MatMul(d, w) y = Exp(m)
}
"""


def test_linear_tensors_reach_both_extremes() -> None:
    graph = network(LINEAR)
    reduced = valid_in_box(graph, [(-1.0, 2.0), (0.0, 1.0)])
    points = find_extremes(reduced.calls[0], convert(graph), reduced.inputs)
    names = [v.name for v in reduced.inputs]
    products = [(point[names[0]] - point[names[1]]) @ np.array([1.0, -2.0, 3.0]) for point in points]
    assert max(products) == 2 + 4 + 6 and min(products) == -2 - 4 - 6
    for variable in reduced.inputs:
        for point in points:
            x = point[variable.name]
            assert x.shape == variable.shape and x.dtype == variable.dtype
            assert (variable.lower <= x).all() and (x <= variable.upper).all()


def test_there_are_none_where_samples_mix_or_nothing_can_be_derived() -> None:
    for text in (
        "(float[2] x) => (float[2] y) { y = Exp(x) }",
        "(int64[1,2] x) => (int64[1,2] y) { y = Abs(x) }",
    ):
        graph = network(text)
        reduced = valid_in_box(graph, [(0.0, 1.0)])
        assert find_extremes(reduced.calls[0], convert(graph), reduced.inputs) == []
