"""The quick path of margins agrees with the exact one: in sign always, in value where every clause holds clearly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.properties.formula.leaves import Differences
from ranum_falsify.properties.formula.terms import Const, Frame, Gather, Variable
from ranum_falsify.properties.problem.problem import Problem
from tests.properties.properties_kit import Batch, problem

EQUALITY = "N(x)[0, 0] == N(x)[0, 1]"
FORMULAS = (
    "N(x)[0, 0] <= N(x)[0, 1]",
    "N(x)[0, 0] < N(x)[0, 1]",
    "N(x) <= 1",
    "N(x) >= -2",
    EQUALITY,
    "N(x)[0, 0] != N(x)[0, 1]",
    "Or(N(x)[0, 0] <= N(x)[0, 1], N(x)[0, 0] < N(x)[0, 2], N(x)[1, 1] > 0.5)",
    "And(N(x)[0] <= N(x)[1], Or(N(x)[0, 0] > 1, And(N(x)[0, 1] > 2, N(x)[0, 2] > 3)))",
    "np.argmax(N(x)) == 2",
    "Not(N(x)[0, 0] <= 2)",
)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 5e-324, float("nan"), float("inf"), float("-inf"))

points = st.lists(st.one_of(st.sampled_from(SPECIAL), st.floats(-3, 3, width=32)), min_size=6, max_size=6).map(
    lambda values: np.array(values, np.float32).reshape(2, 3)
)


@settings(deadline=None)
@given(st.lists(points, min_size=1, max_size=3), st.sampled_from(FORMULAS))
def test_quick_margins_have_the_sign_of_exact_ones(batch: list[np.ndarray], formula: str) -> None:
    reduced = problem(f"Forall(x, Implies(-9 <= x <= 9, {formula}))")
    x = torch.from_numpy(np.stack(batch))
    exact, quick = (reduced.margins({"x": x}, Batch(), quick=quick) for quick in (False, True))
    assert torch.equal(quick.clauses < 0, exact.clauses < 0)
    assert torch.equal(quick.clauses, exact.clauses)
    assert torch.equal(quick.loss > 0, exact.loss > 0)


def holding(reduced: Problem) -> torch.Tensor:
    """Points at which a property holds by a positive margin."""
    drawn = torch.randn(64, 2, 3, generator=torch.Generator().manual_seed(0)) * 3
    return drawn[(reduced.margins({"x": drawn}, Batch()).clauses > 0).all(1)]


def test_an_equality_holds_by_no_positive_margin() -> None:
    assert not len(holding(problem(f"Forall(x, Implies(-9 <= x <= 9, {EQUALITY}))")))


@pytest.mark.parametrize("formula", [formula for formula in FORMULAS if formula != EQUALITY])
def test_quick_gradients_are_those_of_the_exact_path(formula: str) -> None:
    reduced = problem(f"Forall(x, Implies(-9 <= x <= 9, {formula}))")
    points = holding(reduced)
    assert len(points)
    gradients = []
    for quick in (False, True):
        x = points.clone().requires_grad_()
        gradients.append(torch.autograd.grad(reduced.margins({"x": x}, Batch(), quick=quick).loss.sum(), x)[0])
    assert torch.equal(*gradients)


def test_differences_are_those_of_picked_elements() -> None:
    base = Variable("x", (2, 3), np.dtype(np.float64))
    x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 1e3
    frame = Frame({"x": x}, None)
    terms = (base, Gather(base, np.array([[5, 0, 0]])), Gather(base, np.array(4)), Const(0.1), Const(np.arange(3.0)))
    for first, second in itertools.product(terms, terms):
        product = Differences.of(first, second)
        if isinstance(first, Const) and isinstance(second, Const):
            assert product is None
            continue
        assert product is not None
        shape = np.broadcast_shapes(first.shape, second.shape)
        values = (frame.value(term) for term in (first, second))
        wide = [v.reshape(len(v), *(1,) * (len(shape) + 1 - v.dim()), *v.shape[1:]) for v in values]
        assert torch.equal(product.compute(frame), (wide[0] - wide[1]).expand(5, *shape).reshape(5, -1))


def test_large_differences_are_picked() -> None:
    base = Variable("x", (100,), np.dtype(np.float64))
    assert Differences.of(base, Const(0.0)) is None
    assert Differences.of(base, Variable("y", (100,), np.dtype(np.float64))) is None
