"""Many points run in ONNX Runtime at once, where what it rounds may decide."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch

from ranum_falsify.network import Graph, read
from ranum_falsify.verify.search.scan import find_runtime_only
from ranum_falsify.verify.search.search import Region
from tests.network.building import parse
from tests.verify.search.search_kit import context, found, search, valid_in_box

# The logarithm reads 1e-6, and 0 where x lies between 0.1234 and 0.1235, which has no slope.
RARE = (
    "g (float[1,2] x) => (float[1,2] y) <float many = {10000}, float one = {1234}, float small = {1e-6}>"
    " { t = Mul(x, many) f = Floor(t) e = Equal(f, one) n = Not(e) c = Cast <to = 1> (n) m = Mul(c, small)"
    " [log] y = Log(m) }"
)


def points_of(graph: Graph, near: float) -> list[np.ndarray]:
    given = context(valid_in_box(graph, [(0.0, 1.0)]))
    region = next(given.regions())
    assert isinstance(region, Region)
    with given.confirmer:
        return [
            x.numpy()
            for (x,) in find_runtime_only(given, region, [[torch.full(region.boxes[0].lower[None].shape, near)]])
        ]


def test_what_a_few_starts_miss_is_found() -> None:
    answer = search(valid_in_box(read(parse(RARE)), [(0.0, 1.0)]), n_starts=8, n_steps=2)
    assert found(answer).keys() == {"log"} and answer.verdict == "violated"


def test_points_lie_in_the_box_and_fail() -> None:
    run = onnxruntime.InferenceSession(parse(RARE).SerializeToString(), providers=["CPUExecutionProvider"])
    points = points_of(read(parse(RARE)), 0.5)
    assert points
    for x in points:
        assert x.shape == (1, 1, 2) and ((x >= 0) & (x <= 1)).all()
        assert not np.isfinite(run.run(None, {"x": x[0]})[0]).all()


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x) => (float[2] y) { y = Log(x) }",
        "g (float[1,2] x) => (float[2,1] y) <int64[2] s = {2, 1}> { l = Log(x) y = Reshape(l, s) }",
        "g (float[1,2] x) => (float[1,2] y) { y = Exp(x) }",
    ],
    ids=["no dimension of samples", "another size further on", "nothing fails"],
)
def test_there_may_be_nothing_to_find(text: str) -> None:
    assert points_of(read(parse(text)), 0.0) == []
