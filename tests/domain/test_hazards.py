"""Analyses do not raise on operands that no runtime takes, nor where bounds overflow float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.network import read
from tests.domain.subjects import Subject
from tests.network.building import parse

MOST, FAR = float(np.finfo(np.float64).max), 2**62


def bounds(text: str, *values: Any, of: type[IntervalAnalysis] = IntervalAnalysis) -> list[Interval | None]:
    """Return the bounds of a model's outputs at one point."""
    graph = read(parse(text))
    inputs = [Interval.point(np.asarray(x, d.dtype)) for x, d in zip(values, graph.input_details, strict=True)]
    return list(of(graph).run(inputs))


def proves(text: str, **values: Any) -> bool:
    """Tell whether a model's operator is proved at one point, given as numbers for whole tensors, or as arrays."""
    subject = Subject(parse(text))
    names, details = subject.graph.input_names, subject.graph.input_details
    point = {k: np.broadcast_to(np.asarray(values[k], d.dtype), d.shape) for k, d in zip(names, details, strict=True)}
    return subject.analyse(point, point).proves(subject.places[0].op.name)


@pytest.mark.parametrize("of", [IntervalAnalysis, LinearAnalysis])
@pytest.mark.parametrize("lengths", [[5, 1], [-1, 2], [FAR, FAR], [0, 3]])
def test_lengths_beyond_the_axis(of: type[IntervalAnalysis], lengths: list[int]) -> None:
    text = "g (float[2,3] x, int64[2] n) => (float[2,3] y) { y = ReverseSequence<batch_axis = 0, time_axis = 1>(x, n) }"
    (y,) = bounds(text, [[1, 2, 3], [4, 5, 6]], lengths, of=of)
    assert y is not None
    known = lengths == [0, 3]
    assert y.expand()[0].tolist() == ([[1, 2, 3], [6, 5, 4]] if known else [[1] * 3, [4] * 3])
    assert y.expand()[1].tolist() == ([[1, 2, 3], [6, 5, 4]] if known else [[3] * 3, [6] * 3])


@pytest.mark.parametrize("of", [IntervalAnalysis, LinearAnalysis])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("g (float[2] x, int64[1] n) => (float[N] y) { y = ConstantOfShape(n) }", [FAR]),
        ("g (float[2] x, int64[1] n) => (float[N] y) { y = ConstantOfShape(n) }", [-3]),
        ("g (float[2] x, int64[1] n) => (float[N] y) { y = Reshape(x, n) }", [3]),
        ("g (float[2] x, int64[1] n) => (float[N] y) { y = Tile(x, n) }", [-1]),
        ("g (float[2] x, int64[2] n) => (float[N] y) { y = Pad(x, n) }", [-2, -1]),
        ("g (float[2] x, int64[1] n) => (float[N] y, int64[N] i) { y, i = TopK(x, n) }", [7]),
        ("g (float[2] x, int64 n) => (float[2] y) { y = CumSum(x, n) }", 4),
        (
            "g (int64[2] x, int64 n) => (float[2,N] y) <float[2] v = {0, 1}> { y = OneHot(x, n, v) }",
            -1,
        ),
        ("g (double x, double n) => (double[N] y) <double d = {1}> { y = Range(x, n, d) }", np.inf),
    ],
)
def test_sizes_and_axes_that_there_are_not(of: type[IntervalAnalysis], text: str, value: Any) -> None:
    assert bounds(text, *([0.0] if "double x" in text else [[1, 2]]), value, of=of)[0] is None


@pytest.mark.parametrize("name", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("weight", ["", ", w"])
@pytest.mark.parametrize("classes", [[3, 0], [-4, 1], [FAR, -FAR]])
def test_classes_that_there_are_not(name: str, weight: str, classes: list[int]) -> None:
    declared = ", float[3] w" if weight else ""
    text = f"g (float[2,3] x, int64[2] t{declared}) => (float y) {{ y = {name}(x, t{weight}) }}"
    x = [[-1, -2, -3], [-4, -5, -6]]
    (y,) = bounds(text, x, classes, *([[1, 2, 3]] if weight else []))
    assert y is not None and y.shape == ()
    assert not proves(text, x=x, t=classes, w=[1, 2, 3])


@pytest.mark.parametrize(
    ("text", "x"),
    [
        ("g (double[2,3] x, double[3,2] w) => (double[2,2] y) { y = MatMul(x, w) }", 3.0),
        ("g (double[2,3] x, double[3,2] w) => (double[2,2] y) { y = MatMul(x, w) }", MOST),
        ("g (double[1,1,3,3] x, double[1,1,2,2] w) => (double[1,1,2,2] y) { y = Conv(x, w) }", -3.0),
        ('g (double[2,3] x, double[3,2] w) => (double[2,2] y) { y = Einsum<equation = "ij,jk->ik">(x, w) }', -MOST),
    ],
)
def test_products_beyond_float64(text: str, x: float) -> None:
    assert not proves(text, x=x, w=MOST)
    assert proves(text, x=x / MOST, w=1.0)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(("x", "weight"), [(MOST, MOST), (-MOST, 3.0)])
def test_losses_beyond_float64(reduction: str, x: float, weight: float) -> None:
    shape = "[4]" if reduction == "none" else ""
    text = (
        f"g (double[4,2] x, int64[4] t, double[2] w) => (double{shape} y)"
        f' {{ y = NegativeLogLikelihoodLoss<reduction = "{reduction}">(x, t, w) }}'
    )
    assert not proves(text, x=x, t=[0, 1, 1, 0], w=weight)
    assert proves(text, x=x / MOST, t=[0, 1, 1, 0], w=3.0)
