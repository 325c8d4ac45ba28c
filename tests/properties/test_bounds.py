"""Bounds of terms and margins: whatever a property computes at points of a box lies within them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.properties.formula.circuit import Circuit
from ranum_falsify.properties.formula.terms import Frame, NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.prove.term_bounds import BoundsFrame, margin_bounds
from tests.properties.properties_kit import Batch, problem

BOXES, POINTS = 40, 25

# Properties of the negation N(x) of a 2 x 3 matrix.
FORMULAS = [
    "N(x)[0, 0] > 0.3",
    "N(x)[0, 0] <= N(x)[1, 1]",
    "Or(N(x)[0, 0] < 0, And(N(x)[0, 1] >= N(x)[1, 0], N(x)[1, 2] != 0.5))",
    "np.all(N(x) <= x + 1)",
    "np.any(N(x) > 1)",
    "np.argmax(N(x)) == 2",
    "np.argmax(N(x)) != 2",
    "np.argmin(N(x)) == 0",
    "np.argmax(N(x)) == np.argmax(x)",
    "np.argmax(N(x)) == np.argmin(x)",
    "np.argmax(N(x)) != np.argmin(x * x)",
    "np.argmax(N(x)) + np.argmin(N(x)) <= 5",
    "np.argmax(N(x)[0]) == 1 + 0 * N(x)[1, 1]",
    "np.argmax(N(x), axis=1)[1] == 7",
    "N(x)[0, 0] == N(x)[0, 0]",
    "N(x)[0, 0] == N(x)[0, 1]",
    "N(x)[0, 0] != N(x)[0, 1]",
    "np.sum(N(x)) <= np.mean(x)",
    "np.max(N(x), axis=0)[1] >= np.min(x)",
    "N(x)[0, 0] * N(x)[0, 1] <= N(x)[0, 0] * N(x)[0, 0] + 1",
    "N(x)[0, 0] / N(x)[0, 1] <= 2",
    "np.reciprocal(N(x)[0, 0]) <= 2",
    "1 / (2.5 + N(x)[0, 1]) <= 2",
    "np.exp(N(x)[0, 0]) + np.tanh(N(x)[0, 1]) <= np.cosh(N(x)[0, 2])",
    "np.log(N(x)[0, 0]) <= 1",
    "Not(np.log(N(x)[0, 0]) <= 1)",
    "max(np.log(N(x)[0, 0]), x[0, 1]) <= 1",
    "Not(min(x[0, 1], np.log(N(x)[0, 0])) <= 1)",
    "np.max(np.log(N(x))) <= 1",
    "np.argmax(np.log(N(x))) == 2",
    "np.argmin(np.log(N(x))) != 2",
    "np.sign(np.log(N(x)[0, 0])) + abs(np.log(N(x)[0, 1])) <= 9",
    "np.sqrt(N(x)[0, 0] + 1) <= np.square(N(x)[0, 1])",
    "np.sin(N(x)[0, 0]) + np.cos(N(x)[0, 0]) + np.tan(x[0, 1]) <= 1",
    "np.arcsin(N(x)[0, 0]) <= np.arccos(N(x)[0, 1])",
    "np.arctan(N(x)[0, 0]) <= np.sinh(N(x)[0, 1])",
    "np.power(N(x)[0, 0] + 3, N(x)[0, 1]) <= np.power(N(x)[0, 0], 3)",
    "np.floor(N(x)[0, 0]) + np.sign(N(x)[0, 1]) <= np.ceil(x[0, 0])",
    "np.linalg.norm(N(x) - x) <= 2",
    "np.clip(N(x), -0.5, 0.5)[0, 0] <= np.maximum(x, 0)[0, 1]",
    "IfThenElse(N(x)[0, 0] > 0, N(x), x)[0, 1] <= 0.5",
    "IfThenElse(N(x)[0, 0] > 0, N(x)[0, 1] > 0, x[0, 1] > 0)",
    "np.isfinite(N(x)[0, 0])",
    "np.isnan(np.log(N(x)[0, 0]))",
    "abs(N(x)[0, 0]) >= 0.25",
    "N(x).T[1, 0] - (-N(x)[0, 1]) <= 1",
]


def frame(reduced: Problem, lower: Tensor, upper: Tensor) -> BoundsFrame:
    env = {"x": Enclosure(lower.double(), upper.double())}

    def outputs(call: NetworkCall) -> Sequence[Enclosure]:
        return [Enclosure(-upper.double(), -lower.double())]

    def valid(goal: ValidityGoal) -> Tensor:
        return torch.zeros(len(lower), dtype=torch.bool)

    return BoundsFrame(env, outputs, valid)


def boxes(seed: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    centre = rng.uniform(-2, 2, (BOXES, 2, 3))
    centre[::5] = np.round(centre[::5])
    width = rng.choice([0.0, 1e-3, 0.1, 1.0], (BOXES, 1, 1)) * rng.random((BOXES, 2, 3))
    lower, upper = (np.clip(side, -2, 2).astype(np.float32) for side in (centre - width, centre + width))
    return torch.from_numpy(lower), torch.from_numpy(upper)


@pytest.mark.few(30)
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("negated", [False, True])
def test_margins_lie_within_their_bounds(formula: str, negated: bool) -> None:
    text = f"Not({formula})" if negated else formula
    reduced = problem(f"Forall(x, Implies(-2 <= x <= 2, {text}))")
    circuit = Circuit(reduced.clauses)
    lower, upper = boxes(seed=len(formula))
    low, high = margin_bounds(circuit, frame(reduced, lower, upper))
    assert low.shape == (BOXES, len(reduced.clauses)) and not bool((low.isnan() | high.isnan() | (low > high)).any())
    generator = torch.Generator().manual_seed(0)
    for number in range(POINTS):
        share = torch.rand(lower.shape, generator=generator)
        share = (share < 0.5).float() if number % 3 == 0 else share
        x = torch.maximum(torch.minimum(lower + share * (upper - lower), upper), lower)
        margins = circuit.margins(Frame({"x": x}, Batch()))
        assert bool((margins >= low).all()), (margins - low).amin()
        assert bool((margins <= high).all()), (high - margins).amin()


@pytest.mark.parametrize(
    ("formula", "low", "high", "proved"),
    [
        ("N(x)[0, 0] >= 0", -2.0, 0.0, True),
        ("N(x)[0, 0] > 0", -2.0, 0.0, False),
        ("N(x)[0, 0] < 0", 0.25, 1.0, True),
        ("np.argmax(N(x)) == 0", 1.0, 1.0, True),
        ("np.argmax(N(x)) == 1", 1.0, 1.0, False),
        ("np.argmax(N(x)) != 1", 1.0, 1.0, True),
        ("np.argmax(N(x)) == np.argmin(x)", 1.0, 1.0, False),
        ("np.log(N(x)[0, 0]) >= -1", -2.0, -0.5, True),
        ("np.log(N(x)[0, 0]) >= -100", -2.0, 0.5, False),
        ("N(x)[0, 0] * N(x)[0, 0] >= 0", -2.0, 2.0, True),
        ("np.maximum(np.log(N(x)[0, 0]), 3) >= 0", -1.0, 0.5, False),
    ],
)
def test_what_is_proved(formula: str, low: float, high: float, proved: bool) -> None:
    reduced = problem(f"Forall(x, Implies(-3 <= x <= 3, {formula}))")
    lower, upper = (torch.full((1, 2, 3), bound) for bound in (low, high))
    least, _ = margin_bounds(Circuit(reduced.clauses), frame(reduced, lower, upper))
    assert bool((least >= 0).all()) == proved
