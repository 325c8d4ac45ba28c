"""Reading where shapes are known: nodes do not run then."""

import numpy as np
import pytest
import torch
from dnnv.nn.utils import TensorDetails

from ranum_falsify.domain import Interval
from ranum_falsify.domain.analysis import IntervalAnalysis
from ranum_falsify.network import read
from tests.network.building import parse, types

STEPS = """g (float[2,3] x, int64[1] n) => (float[3,2] y, int64[1] z) {
    a = Exp(x) b = Transpose(a) y = Abs(b) z = Neg(n)
}"""
KINDS = {"a": ((2, 3), np.float32), "b": ((3, 2), np.float32), "z": ((1,), np.int64)}


@pytest.mark.parametrize("names", [["a"], ["b"], ["z"], ["a", "b", "z"]])
def test_a_graph_is_the_same_where_shapes_are_known(names: list[str]) -> None:
    known = {name: TensorDetails(KINDS[name][0], np.dtype(KINDS[name][1])) for name in names}
    graph, plain = read(parse(STEPS), known=known), read(parse(STEPS))
    assert graph.details == plain.details and graph.shapes == plain.shapes and types(graph) == types(plain)


def test_bounds_that_a_known_shape_does_not_fit_are_not_used() -> None:
    graph = read(parse(STEPS), known={"a": TensorDetails((4,), np.float32)})
    assert [details.shape for details in graph.output_details] == [(4,), (1,)]
    box = Interval.fill(0, 1, (2, 3), torch.float32), Interval.fill(0, 1, (1,), torch.int64)
    assert [bounds is None for bounds in IntervalAnalysis(graph).run(box)] == [True, False]


@pytest.mark.slow
def test_what_is_drawn_at_random_may_be_a_size() -> None:
    text = "g (float[1,2] x, float[1] r) => (float[3,2] y) <int64[1] two = {2}>"
    size = "s = RandomUniformLike<low = 3.1, high = 3.2>(r) k = Cast<to = 7>(s) n = Concat<axis = 0>(k, two)"
    graph = read(parse(f"{text} {{ {size} y = Expand(x, n) }}"))
    assert graph.output_details[0].shape == (3, 2)
