"""Branch and bound proves what one pass does not, and what it proves holds on samples."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import Interval
from ranum_falsify.domain.linear import branching
from ranum_falsify.domain.linear.affine_composition import condense
from ranum_falsify.domain.linear.backsubstitution import BoxBatch
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.branch_and_bound import BranchAndBound, split_and_bound
from ranum_falsify.domain.linear.functionals import Functional, LinearBounds
from ranum_falsify.domain.linear.steps import CurveStep
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import Graph, read
from ranum_falsify.network.tensors import use_processors
from ranum_falsify.process.deadline import Deadline


def _network(seed: int, activation: str = "Relu", shape: tuple[int, ...] = (1, 3)) -> Graph:
    """Return a small network with a sum and a difference of its first layer in the last."""
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    w0, b0, w1, w2 = (rng.normal(size=shape).astype(np.float32) for shape in ((size, 8), (8,), (8, 8), (8, 2)))
    g = ModelBuilder()
    h0 = g.node(activation, g.Gemm(g.Flatten(g.input("x", shape)), w0, b0))
    h1 = g.node(activation, h0 @ g.constant(w1) + h0)
    g.output(h1 @ g.constant(w2), (1, 2))
    return read(g.build())


def _analysis(graph: Graph, width: float = 1.0) -> LinearAnalysis:
    analysis = LinearAnalysis(graph)
    shape = graph.input_details[0].shape
    analysis.run([Interval.box(np.full(shape, -width, np.float32), np.full(shape, width, np.float32))])
    return analysis


def _values(graph: Graph, rows: torch.Tensor, count: int = 400) -> torch.Tensor:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (count, *graph.input_details[0].shape)).astype(np.float32)
    return torch.stack([rows @ torch.from_numpy(np.asarray(graph(point))).double().reshape(-1) for point in x])


_ROWS = torch.tensor([[1.0, -1.0]], dtype=torch.float64)


@pytest.mark.few(1)
@pytest.mark.parametrize(("seed", "activation"), [(0, "Relu"), (1, "Relu"), (2, "Tanh"), (3, "Sigmoid")])
def test_what_is_true_with_room_is_proved_and_what_is_false_is_not(seed: int, activation: str) -> None:
    graph = _network(seed, activation)
    analysis = _analysis(graph)
    least = float(_values(graph, _ROWS).min())
    whole = float(analysis.bound(graph.output_operations, _ROWS).lower[0])
    assert whole <= least
    limit = least - 0.3 * (least - whole) - 0.05

    def above(threshold: float, seconds: float) -> bool:
        def decide(bounds: LinearBounds) -> torch.Tensor:
            return bounds.lower[:, 0] > threshold

        return split_and_bound(
            analysis, graph.output_operations, _ROWS, decide, deadline=Deadline.after(seconds)
        ).proved

    assert above(limit, 20)
    assert not above(least + 0.01, 0.3)


@pytest.mark.slow
def test_open_boxes_hold_the_counterexample() -> None:
    graph = _network(5)
    analysis = _analysis(graph)
    values = _values(graph, _ROWS)
    threshold = float(values.min()) + 0.05
    result = split_and_bound(
        analysis,
        graph.output_operations,
        _ROWS,
        lambda bounds: bounds.lower[:, 0] > threshold,
        deadline=Deadline.after(1),
        keep=1 << 20,
    )
    assert not result.proved
    assert result.boxes > 1
    box = result.open_boxes[0]
    assert box is not None
    x = np.random.default_rng(0).uniform(-1, 1, (400, 1, 3)).astype(np.float32)[int(values.argmin())]
    point = torch.from_numpy(x).double()
    inside = ((box[0] <= point) & (point <= box[1])).flatten(1).all(1)
    assert bool(inside.any())


def test_no_time_means_nothing_proved() -> None:
    graph = _network(0)
    result = split_and_bound(
        _analysis(graph),
        graph.output_operations,
        None,
        lambda bounds: torch.ones(len(bounds.lower), dtype=torch.bool),
        deadline=Deadline.after(-1),
    )
    assert not result.proved
    assert result.boxes == 0
    assert all(box is not None and len(box[0]) == 1 for box in result.open_boxes)


@pytest.mark.parametrize("activation", ["Relu", "Tanh"])
def test_matrices_give_the_bounds_of_the_steps(activation: str) -> None:
    graph = _network(7, activation)
    analysis = _analysis(graph, 0.5)
    functional = Functional.of(analysis, analysis.program, graph.output_operations, None)
    dense = condense(analysis.program, functional.variables)
    assert len(dense.steps) < len(analysis.program.steps)
    plain = analysis.bound(graph.output_operations)
    quick = functional.bound(BoxBatch(dense, {}))
    assert torch.allclose(quick.lower[0], plain.lower, atol=1e-4)
    assert torch.allclose(quick.upper[0], plain.upper, atol=1e-4)


@pytest.mark.parametrize("slope", [0.0, 0.3, None], ids=["Relu", "LeakyRelu", "PRelu"])
def test_rectifiers_that_keep_to_one_side_become_part_of_matrices(slope: float | None) -> None:
    rng = np.random.default_rng(5)
    shapes = ((4, 2, 3, 3), (4, 4, 3, 3), (100, 2))
    w0, w1, w2 = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    slopes = np.array([0, 0.1, 0.5, 1] if slope is None else [slope] * 4, np.float32).reshape(4, 1, 1)
    g = ModelBuilder()
    h0 = g.PRelu(
        g.Conv(g.input("x", (1, 2, 5, 5)), w0, np.array([-30, 30, 0, 1], np.float32), pads=[1, 1, 1, 1]), slopes
    )
    h1 = g.PRelu(g.Conv(h0, w1, np.array([0, 90, -90, 0], np.float32), pads=[1, 1, 1, 1]) + h0, slopes)
    g.output(g.Gemm(g.Flatten(h1), w2), (1, 2))
    graph = read(g.build())
    analysis = _analysis(graph)
    functional = Functional.of(analysis, analysis.program, graph.output_operations, None)
    dense = condense(analysis.program, functional.variables)
    curves = [step for step in dense.steps if isinstance(step, CurveStep)]
    assert 0 < sum(dense.variables[step.reads[0]].shape[0] for step in curves) < 150, "of 200, most keep to one side"
    plain = analysis.bound(graph.output_operations)
    quick = functional.bound(BoxBatch(dense, {}))
    assert torch.allclose(quick.lower[0], plain.lower, atol=0.1)
    assert torch.allclose(quick.upper[0], plain.upper, atol=0.1)
    (number,) = dense.inputs
    assert number is not None
    for _ in range(20):
        low, high = np.sort(rng.uniform(-1, 1, (2, 1, 2, 5, 5)).astype(np.float32), axis=0)
        box = tuple(torch.from_numpy(end).double()[None] for end in (low, high))
        part = functional.bound(BoxBatch(dense, {number: (box[0], box[1])}))
        for point in (low, high, *rng.uniform(low, high, (10, *low.shape)).astype(np.float32)):
            y = torch.from_numpy(np.asarray(graph(point))).double().flatten()
            assert bool(((part.lower[0] <= y) & (y <= part.upper[0])).all())


def test_a_point_that_is_not_proved_ends_the_search() -> None:
    graph = _network(0)
    analysis = LinearAnalysis(graph)
    analysis.run([Interval.box(np.zeros((1, 3), np.float32), np.zeros((1, 3), np.float32))])
    result = split_and_bound(
        analysis,
        graph.output_operations,
        _ROWS,
        lambda bounds: torch.zeros(len(bounds.lower), dtype=torch.bool),
        deadline=Deadline.after(60),
    )
    assert not result.proved
    assert result.boxes == 1


def test_parts_are_analysed_anew_where_the_rounding_of_large_numbers_hides_the_bound() -> None:
    g = ModelBuilder()
    x = g.input("x", (1, 2))
    h = g.Relu(x @ g.constant(np.array([[1, -1, 0, 0], [0, 0, 1, -1]], np.float32)))
    half = g.constant(np.full((2, 1), 0.5, np.float32))
    g.output(h @ g.constant(np.ones((4, 1), np.float32)) - x @ half, (1, 1))
    analysis = _analysis(read(g.build()), 1000.0)
    one = torch.ones(1, 1, dtype=torch.float64)
    functional = Functional.of(analysis, analysis.program, analysis.graph.output_operations, one)
    nothing = torch.zeros(1, 1, 2, dtype=torch.float64)
    assert float(functional.bound(BoxBatch(analysis.program, {0: (nothing, nothing)})).lower) < -1e-5

    def is_nearly_positive(bounds: LinearBounds) -> torch.Tensor:
        return bounds.lower[:, 0] > -1e-5

    result = split_and_bound(
        analysis, analysis.graph.output_operations, one, is_nearly_positive, deadline=Deadline.after(60)
    )
    assert result.proved


@pytest.mark.parametrize("activation", ["Relu", "Softplus"])
def test_inputs_of_one_value_are_not_cut(activation: str) -> None:
    graph = _network(0, activation)
    analysis = _analysis(graph, width=0.0)

    def refuse(bounds: LinearBounds) -> torch.Tensor:
        return torch.zeros(len(bounds.lower), dtype=torch.bool)

    result = split_and_bound(analysis, graph.output_operations, None, refuse, deadline=Deadline.after(60))
    assert not result.proved and result.open_boxes == (None,)


def test_threads_bound_the_same_boxes_and_an_error_in_one_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _network(2, "Tanh")
    analysis = _analysis(graph)
    least, whole = float(_values(graph, _ROWS).min()), float(analysis.bound(graph.output_operations, _ROWS).lower[0])
    limit, names, fails = least - 0.4 * (least - whole), set[str](), False

    def above(bounds: LinearBounds) -> torch.Tensor:
        names.add(threading.current_thread().name)
        if fails:
            raise RuntimeError("no memory")
        return bounds.lower[:, 0] > limit

    monkeypatch.setattr(branching, "_FEWEST", 1)
    monkeypatch.setattr(branching, "_COEFFICIENTS", 1)
    found = []
    for count in (1, 3):
        names.clear()
        with use_processors(count):
            search = BranchAndBound(analysis, graph.output_operations, _ROWS, above)
            found.append(search.run(Deadline.after(60)))
    assert found[0].proved and found[1].proved and len(names) > 1
    assert found[0].boxes == found[1].boxes > 8
    with use_processors(3):
        search = BranchAndBound(analysis, graph.output_operations, _ROWS, above)
        search.run(Deadline.after(60), cuts=False)
        fails = True
        with pytest.raises(RuntimeError, match="no memory"):
            search.run(Deadline.after(60))
        fails = False
        assert search.run(Deadline.after(60)).proved


def test_little_memory_ends_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branching, "_MOST_BYTES", 1)
    graph = _network(0)
    analysis = _analysis(graph)
    least, whole = float(_values(graph, _ROWS).min()), float(analysis.bound(graph.output_operations, _ROWS).lower[0])
    limit = least - 0.7 * (least - whole)

    def above(bounds: LinearBounds) -> torch.Tensor:
        return bounds.lower[:, 0] > limit

    result = split_and_bound(analysis, graph.output_operations, _ROWS, above, deadline=Deadline.after(60))
    assert result.proved and result.boxes > 1


def test_what_one_pass_proves_takes_one_box() -> None:
    graph = _network(0)
    result = split_and_bound(
        _analysis(graph),
        graph.output_operations,
        _ROWS,
        lambda bounds: bounds.lower[:, 0] > -1e6,
        deadline=Deadline.after(60),
    )
    assert result.proved
    assert result.boxes == 1
    assert [box is not None and len(box[0]) for box in result.open_boxes] == [0]
