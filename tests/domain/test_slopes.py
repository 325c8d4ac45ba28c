"""Slopes that are chosen for each functional make bounds narrower, and what they bound still lies inside."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import Interval
from ranum_falsify.domain.linear.backsubstitution import BoxBatch, descend
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.slope_optimisation import SlopeRecord, ascend
from ranum_falsify.model_builder import ModelBuilder, Tensor
from ranum_falsify.network import Graph, read
from ranum_falsify.network.optimised import optimise
from ranum_falsify.network.registry import spec_of

_SHAPE = (1, 2, 5, 5)


def _residual_network(activation: str, seed: int = 0) -> Graph:
    """Return a network of convolutions with a shortcut, whose activations have one consumer."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray:
        return rng.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape).astype(np.float32)

    def activate(x: Tensor) -> Tensor:
        return x * g.Sigmoid(x) if activation == "SiLU" else g.node(activation, x)

    g = ModelBuilder()
    pads = [1, 1, 1, 1]
    x = activate(g.Conv(g.input("x", _SHAPE), weights(3, 2, 3, 3), weights(3), pads=pads))
    y = activate(g.Conv(x, weights(3, 3, 3, 3), weights(3), pads=pads))
    z = activate(g.Conv(y, weights(3, 3, 3, 3), weights(3), pads=pads) + x)
    g.output(g.Gemm(g.Flatten(z), weights(75, 2), weights(2)), (1, 2))
    return read(g.build())


def _analyse(graph: Graph, *, ascent: float = 0.0, towards: set[int] | None = None) -> LinearAnalysis:
    analysis = LinearAnalysis(graph, ascent=ascent, towards=towards)
    analysis.run([Interval.box(np.zeros(_SHAPE, np.float32), np.ones(_SHAPE, np.float32))])
    return analysis


def _width(bounds: Interval) -> float:
    low, high = bounds.doubles()
    return float((high - low).sum())


@pytest.mark.few(1)
@pytest.mark.parametrize("activation", ["Relu", "SiLU", "Tanh", "Softplus"])
def test_chosen_slopes_narrow_bounds_around_all_that_is_computed(activation: str) -> None:
    graph = _residual_network(activation)
    (end,) = graph.output_operations
    usual, better = (_analyse(graph, ascent=ascent).tighten(end) for ascent in (0.0, 1e10))
    assert _width(better) < 0.9 * _width(usual)
    low, high = better.doubles()
    rng = np.random.default_rng(1)
    for x in (*rng.random((50, *_SHAPE)), *rng.integers(0, 2, (50, *_SHAPE))):
        y = torch.from_numpy(np.asarray(graph(x.astype(np.float32)))).double()
        assert bool((low <= y).all()) and bool((y <= high).all())


def test_slopes_of_several_rows_are_those_of_each_alone() -> None:
    graph = _residual_network("Relu")
    (end,) = graph.output_operations
    analysis = _analyse(graph)
    region = BoxBatch(analysis.program, {})
    number = analysis.program.numbers[id(end)]
    rows = torch.tensor([[1.0, 0], [0, -1], [1, 1]], dtype=torch.float64).reshape(1, 3, 1, 2)
    together = ascend({number: rows}, region)
    assert torch.allclose(together, torch.cat([ascend({number: rows[:, i : i + 1]}, region) for i in range(3)]))
    assert torch.equal(together, ascend({number: rows}, region))
    assert bool((together > descend({number: rows}, region)[0][0]).all())


@pytest.mark.parametrize(("activation", "fused"), [("Relu", "FusedConv"), ("SiLU", "QuickGelu")])
def test_what_runs_is_bounded_as_well_as_what_is_written(activation: str, fused: str) -> None:
    graph = _residual_network(activation)
    executed = optimise(graph).graph
    assert executed is not None
    assert fused in {spec_of(op).op_type for op in executed.nodes}
    widths = [_width(_analyse(each).tighten(each.output_operations[0])) for each in (graph, executed)]
    assert widths[1] == pytest.approx(widths[0], rel=0.02)


def test_only_operands_of_what_is_asked_for_are_narrowed() -> None:
    g = ModelBuilder()
    x = g.input("x", (1, 4))
    weights = np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)
    hidden, other = (x @ g.constant(w) - x @ g.constant(w) for w in weights)
    g.output(g.Exp(hidden, name="asked"), (1, 4))
    g.output(g.Exp(other, name="ignored"), (1, 4))
    graph = read(g.build())
    ops = {op.name: op for op in graph.nodes}
    analysis = LinearAnalysis(graph, towards={id(ops["asked"])})
    analysis.run([Interval.box(np.full((1, 4), -1, np.float32), np.full((1, 4), 1, np.float32))])
    operands = [analysis.operands(ops[name])[0] for name in ("asked", "ignored")]
    asked, ignored = (_width(x) for x in operands if isinstance(x, Interval))
    assert asked < 1e-3 < 1 < ignored


def _attention(seed: int = 0) -> Graph:
    """Return a head of attention over five numbers of four channels, and its projections."""
    rng = np.random.default_rng(seed)
    g = ModelBuilder()
    x = g.input("x", (1, 5, 4))
    q, k, v = (x @ g.constant(rng.normal(size=(4, 4)).astype(np.float32)) for _ in range(3))
    g.output(g.Softmax(q @ g.Transpose(k, perm=[0, 2, 1]), axis=-1) @ v, (1, 5, 4))
    return read(g.build())


def test_planes_of_products_are_chosen_term_by_term() -> None:
    graph = _attention()
    (end,) = graph.output_operations
    middle = np.random.default_rng(1).normal(size=(1, 5, 4)).astype(np.float32)
    box = Interval.box(middle - np.float32(0.1), middle + np.float32(0.1))
    found = []
    for ascent in (0.0, 1e10):
        analysis = LinearAnalysis(graph, ascent=ascent)
        analysis.run([box])
        found.append(analysis.tighten(end))
    assert _width(found[1]) < 0.9 * _width(found[0])
    low, high = found[1].doubles()
    rng = np.random.default_rng(2)
    for _ in range(200):
        x = middle + rng.choice([-0.1, 0.1, rng.uniform(-0.1, 0.1)], middle.shape).astype(np.float32)
        y = torch.from_numpy(np.asarray(graph(np.clip(x, middle - np.float32(0.1), middle + np.float32(0.1))))).double()
        assert bool((low <= y).all()) and bool((y <= high).all())


@pytest.mark.parametrize("graph", [_residual_network("Relu"), _residual_network("SiLU")])
def test_an_analysis_begins_with_what_another_one_chose(graph: Graph) -> None:
    executed = optimise(graph).graph
    assert executed is not None
    slopes, widths = SlopeRecord(), []
    # The third one has room for one pass from each element, which is all that it needs.
    for each, ascent, record in ((graph, 1e10, slopes), (executed, 1e10, None), (executed, 1e7, slopes)):
        analysis = LinearAnalysis(each, ascent=ascent, slopes=record)
        analysis.run([Interval.box(np.zeros(_SHAPE, np.float32), np.ones(_SHAPE, np.float32))])
        widths.append(_width(analysis.tighten(each.output_operations[0])))
    assert widths[2] == pytest.approx(widths[1], rel=0.02)
