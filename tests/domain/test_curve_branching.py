"""Boxes that are cut along operands of curves: what is true is proved, and no box that holds a counterexample is."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import Interval
from ranum_falsify.domain.linear import branch_and_bound
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.branch_and_bound import BranchAndBound
from ranum_falsify.domain.linear.branching import Boxes
from ranum_falsify.domain.linear.curve_branching import CurveBranching, find_thresholds
from ranum_falsify.domain.linear.functionals import Functional, LinearBounds
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import Graph, read
from ranum_falsify.process.deadline import Deadline

SIZES = (3, 4, 4)


class Subject:
    """A network of two hidden layers and one output, and its operands of curves as further outputs."""

    def __init__(self, seed: int, activation: str) -> None:
        rng = np.random.default_rng(seed)
        shapes = ((SIZES[0], SIZES[1]), (SIZES[1], SIZES[2]), (SIZES[2], 1))
        self.weights = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
        self.biases = [rng.normal(scale=0.3, size=shape[1:]).astype(np.float32) for shape in shapes]
        g = ModelBuilder()
        first = g.Gemm(g.input("x", (1, SIZES[0])), self.weights[0], self.biases[0])
        second = g.Gemm(g.node(activation, first), self.weights[1], self.biases[1])
        g.output(g.Gemm(g.node(activation, second), self.weights[2], self.biases[2]), (1, 1))
        g.output(first, (1, SIZES[1]))
        g.output(second, (1, SIZES[2]))
        model = g.build()
        self.graph: Graph = read(model)
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        self.analysis = LinearAnalysis(self.graph)
        end = np.ones((1, SIZES[0]), np.float32)
        self.analysis.run([Interval.box(-end, end)])
        self.ops = self.graph.output_operations[:1]

    def run(self, x: np.ndarray) -> list[np.ndarray]:
        found: list[np.ndarray] = self.session.run(None, {"x": x.reshape(1, -1).astype(np.float32)})
        return found

    def is_above(self, threshold: float, seconds: float) -> bool:
        def decide(bounds: LinearBounds) -> torch.Tensor:
            return bounds.lower[:, 0] >= threshold

        def find_open(bounds: LinearBounds) -> torch.Tensor:
            return torch.tensor([float(bounds.lower[0, 0]) < threshold, False])

        search = BranchAndBound(self.analysis, self.ops, torch.ones(1, 1), decide, find_open)
        return search.run(Deadline.after(seconds)).proved

    def least(self) -> np.ndarray:
        """Where a network of rectifiers is least over the box: the best of one linear program for each pattern."""
        best, point = np.inf, np.zeros(SIZES[0])
        (w0, w1, w2), (b0, b1, b2) = ([x.astype(float) for x in of] for of in (self.weights, self.biases))
        for signs in itertools.product((0.0, 1.0), repeat=SIZES[1] + SIZES[2]):
            on0, on1 = np.array(signs[: SIZES[1]]), np.array(signs[SIZES[1] :])
            a1, c1 = (w0 * on0) @ w1, (b0 * on0) @ w1 + b1
            cost, constant = (a1 * on1) @ w2[:, 0], (c1 * on1) @ w2[:, 0] + b2[0]
            faces = np.concatenate([(w0 * (1 - 2 * on0)).T, (a1 * (1 - 2 * on1)).T])
            sides = np.concatenate([b0 * (2 * on0 - 1), c1 * (2 * on1 - 1)])
            found = linprog(cost, A_ub=faces, b_ub=sides, bounds=[(-1, 1)] * SIZES[0])
            if found.status == 0 and found.fun + constant < best:
                best, point = found.fun + constant, found.x
        return point


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_and_bound, "_FEW_INPUTS", 0)


@pytest.mark.slow
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thresholds_next_to_the_least_value_are_told_apart(seed: int) -> None:
    subject = Subject(seed, "Relu")
    point = subject.least()
    near = point + np.random.default_rng(seed).normal(scale=1e-7, size=(50, SIZES[0]))
    reached = min(subject.run(x)[0].item() for x in (point, *near.clip(-1, 1)))
    assert subject.is_above(reached - 0.02, 60)
    assert not subject.is_above(float(np.nextafter(np.float32(reached), np.float32(np.inf))), 0.5)
    assert not subject.is_above(reached + 1e-6, 0.5)


@pytest.mark.few(1)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("activation", ["Tanh", "Sigmoid", "LeakyRelu"])
def test_curves_are_cut_wherever_they_are_bent(activation: str) -> None:
    subject = Subject(3, activation)
    x = np.random.default_rng(0).uniform(-1, 1, (2000, SIZES[0])).round()
    reached = min(subject.run(point)[0].item() for point in x)
    whole = float(subject.analysis.bound(subject.ops).lower[0])
    assert whole < reached and subject.is_above(reached - 0.5 * (reached - whole), 30)
    assert not subject.is_above(reached + 1e-6, 0.5)


@pytest.mark.slow
@given(
    seed=st.integers(0, 5),
    activation=st.sampled_from(["Relu", "Tanh", "Softplus"]),
    draw=st.integers(0, 2**32 - 1),
    cuts=st.integers(0, 6),
    scale=st.sampled_from([0.0, 0.1, 3.0, 1e6]),
)
@settings(deadline=None, max_examples=30)
def test_no_box_is_closed_that_holds_a_counterexample(
    seed: int, activation: str, draw: int, cuts: int, scale: float
) -> None:
    subject, rng = Subject(seed, activation), np.random.default_rng(draw)
    x = rng.uniform(-1, 1, SIZES[0]).astype(np.float32)
    value, *operands = subject.run(x)
    functional = Functional.of(subject.analysis, subject.analysis.program, subject.ops, torch.ones(1, 1))
    above = float(np.nextafter(np.float64(value.item()), np.inf))
    branching = CurveBranching(
        subject.analysis.program, functional, torch.tensor([above, 0.0]).double(), torch.tensor([True, False])
    )
    root = branching.root
    known = [subject.analysis.bounds_of(op) for op in subject.graph.output_operations[1:]]
    bent = [(b.expand()[0] < 0) & (b.expand()[1] > 0) | (activation != "Relu") for b in known if b is not None]
    parts = [part[0][at[0].numpy()] for part, at in zip(operands, bent, strict=True)]
    inside = torch.from_numpy(np.concatenate([x, *parts])).double()
    low, high = root.low.clone(), root.high.clone()
    for column in rng.integers(SIZES[0], len(inside), cuts):
        at = float(rng.uniform(low[0, column], high[0, column])) if rng.random() < 0.5 else 0.0
        if low[0, column] < at < high[0, column]:
            (low if inside[column] >= at else high)[0, column] = at
    side, part, corner, multipliers, *shares = root.own
    own = (side, ~part, corner, torch.from_numpy(rng.normal(scale=scale, size=multipliers.shape)), *shares)
    batch = Boxes(low, high, own)
    assert bool(((batch.low <= inside) & (inside <= batch.high)).all())
    left = branching.bound(batch, Deadline.after(60))
    assert len(left.boxes) == 1
    assert len(branching.bound(left.boxes, Deadline.after(60)).boxes) == 1


def _bounds(lower: list[float], upper: list[float]) -> LinearBounds:
    return LinearBounds(torch.tensor([lower]).double(), torch.tensor([upper]).double(), (), ())


def test_thresholds_are_those_of_a_conjunction() -> None:
    bounds, sides = _bounds([-1.0, -2.0, 5.0], [4.0, 4.0, 6.0]), torch.tensor([True, True, False, False, False, True])

    def all_above(of: LinearBounds) -> torch.Tensor:
        return (of.lower[:, 0] >= 1) & (of.lower[:, 1] >= 0.5) & (of.upper[:, 2] <= 5.5)

    found = find_thresholds(all_above, bounds, sides)
    assert found is not None
    assert found[sides].tolist() == pytest.approx([1.0, 0.5, -5.5]) and bool(
        (found[:2] >= torch.tensor([1, 0.5])).all()
    )
    assert bool(all_above(replace(bounds, lower=found[None, :3], upper=-found[None, 3:])).all())


def test_there_are_no_thresholds_where_one_side_may_stand_in_for_another() -> None:
    bounds, sides = _bounds([-1.0, -2.0], [4.0, 4.0]), torch.tensor([True, True, False, False])
    assert find_thresholds(lambda of: (of.lower >= 0).any(1), bounds, sides) is None
    assert find_thresholds(lambda of: of.lower.sum(1) >= 0, bounds, sides) is None
