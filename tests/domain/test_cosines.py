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


@pytest.mark.parametrize(("above", "below"), [(0, 1), (1, 0)])
def test_sums_that_stand_elsewhere_are_no_cosines(above: int, below: int) -> None:
    text = COSINE.replace("s = ReduceSum<keepdims = 0>", f"s = ReduceSum<keepdims = {above}>")
    for name in ("a0", "b0"):
        text = text.replace(f"{name} = ReduceSum<keepdims = 0>", f"{name} = ReduceSum<keepdims = {below}>")
    text = text.replace("(float[3] c)", "(float[3,3] c)")
    graph = read(parse(text.format("1e-6")))
    tens = np.full((3, 4), 10, np.float32)
    (found,) = IntervalAnalysis(graph).run([Interval.box(-tens, tens)] * 2)
    x = torch.tensor([[10.0] * 4, [0.1] * 4, [1.0] * 4])
    (cosines,) = (torch.from_numpy(np.asarray(y)) for y in [graph(x.numpy(), x.numpy())])
    assert float(cosines.max()) > 2 and (found is None or bool(found.encloses(cosines).all()))


def test_products_in_a_narrower_type_are_rounded() -> None:
    text = """g (bfloat16[2000,1] x, bfloat16[2000,1] y) => (float[2000] c) <float e = {1e-6}, int64[1] axes = {1}> {
        p = Mul(x, y) pw = Cast<to = 1>(p) s = ReduceSum<keepdims = 0>(pw, axes)
        xx = Mul(x, x) xw = Cast<to = 1>(xx) a0 = ReduceSum<keepdims = 0>(xw, axes) a = Add(a0, e)
        yy = Mul(y, y) yw = Cast<to = 1>(yy) b0 = ReduceSum<keepdims = 0>(yw, axes) b = Add(b0, e)
        ab = Mul(a, b) d = Sqrt(ab) c = Div(s, d) }"""
    graph = read(parse(text, opset=18))
    one = torch.ones(2000, 1, dtype=torch.bfloat16)
    (found,) = IntervalAnalysis(graph, runtimes=("torch",)).run([Interval.of(one, 2 * one)] * 2)
    generator = torch.Generator().manual_seed(0)
    x, y = ((1 + torch.rand(2000, 1, generator=generator)).bfloat16() for _ in range(2))
    p, xx, yy = (z.float().sum(1) for z in (x * y, x * x, y * y))
    cosines = p / ((xx + 1e-6) * (yy + 1e-6)).sqrt()
    assert float(cosines.max()) > 1.001 and found is not None and bool(found.encloses(cosines).all())
