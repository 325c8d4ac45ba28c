"""Margins: their sign is the truth of the formula, as NumPy evaluates the same text."""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.problem.problem import Problem
from tests.properties.properties_kit import Batch, evaluate, network, problem, run

# float32 values among which ties, zeros, denormals, infinities and NaN are frequent.
VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-45, -1e-45, 3e38, 1e-20, math.inf, -math.inf, math.nan])
ARRAYS = ["x", "N(x)", "x[0]", "N(x)[:, 1:2]", "x[:, ::-1]", "np.abs(x)", "N(x)[1, :]", "x.T[1:, 0]"]
SCALARS = ["np.max(N(x))", "np.min(x)", "max(N(x)[0, 1], x[0, 0])", "abs(N(x)[1, 2])", "np.argmax(N(x))"]
# NaN among the operands of max and min makes NaN, in whatever order they stand.
SCALARS += ["max(x[0, 0], N(x)[0, 1])", "min(N(x)[0, 1], x[0, 0])", "min(x[0, 0], 0.5, N(x)[1, 1])", "abs(x[0, 0])"]
SCALARS += ["np.maximum(x, N(x))[1, 0]", "np.clip(N(x)[0, 0], -1, x[0, 1])", "np.sign(N(x)[0, 0])", "np.argmin(x)"]
SCALARS += ["max(N(x)[0, 1], float('nan'))", "min(float('nan'), x[0, 0])"]
SCALARS += [f"{term}[{i}, {j}]" for term in ("x", "N(x)") for i in (0, 1) for j in (-3, -1, 1)]
SCALARS += [repr(value) for value in (0.0, 1.0, -1.0, 0.5, 2.0, -0.25, 1e-45, 3e38)]


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    scalars = st.sampled_from(SCALARS)
    kind = draw(st.sampled_from(["scalar", "sum", "array", "label", "labels"]))
    operator = draw(st.sampled_from(["==", "!="] if "label" in kind else ["<=", "<", ">=", ">", "==", "!="]))
    arg = draw(st.sampled_from(["np.argmax", "np.argmin"]))
    if kind == "labels":
        return f"({arg}(N(x)) {operator} {arg}(x))"
    if kind == "label":
        return f"({arg}({draw(st.sampled_from(ARRAYS))}) {operator} {draw(st.integers(0, 5))})"
    left = draw(st.sampled_from(ARRAYS) if kind == "array" else scalars)
    if kind == "sum":
        left = f"({left} {draw(st.sampled_from('+-*'))} {draw(scalars)})"
    return f"({left} {operator} {draw(scalars)})"


@st.composite
def formulas(draw: st.DrawFn, depth: int = 3) -> str:
    word = draw(st.sampled_from(["", "", "And", "Or", "Not", "Implies", "IfThenElse"])) if depth else ""
    if not word:
        return draw(comparisons())
    count = {"And": 3, "Or": 3, "Not": 1, "Implies": 2, "IfThenElse": 3}[word]
    return f"{word}({', '.join(draw(formulas(depth=depth - 1)) for _ in range(count))})"


def largest(*values: Any) -> Any:
    """Return the maximum, NaN if there is one: Python's own depends on the order then."""
    return functools.reduce(np.maximum, values)


def least(*values: Any) -> Any:
    return functools.reduce(np.minimum, values)


def truth(formula: str, x: NDArray[Any]) -> bool:
    """Evaluate the text with Python and NumPy: an array comparison is true where all its elements are, != where any."""

    def all_(value: Any) -> bool:
        return bool(np.all(value))

    names: dict[str, Callable[..., Any]] = {
        "And": lambda *parts: all(map(all_, parts)),
        "Or": lambda *parts: any(map(all_, parts)),
        "Not": lambda part: not all_(part),
        "Implies": lambda p, q: not all_(p) or all_(q),
        "IfThenElse": lambda c, p, q: all_(p) if all_(c) else all_(q),
        "N": lambda value: -value,
        "any_": lambda value: bool(np.any(value)),
    }
    wide = x.astype(np.float64)
    text = _with_any(formula)
    with np.errstate(all="ignore"):
        return all_(
            eval(text, {"np": np, "max": largest, "min": least, "abs": abs, "float": float}, {**names, "x": wide})
        )


def _with_any(formula: str) -> str:
    """Wrap every `(a != b)` into any_(...)."""

    class Wrap(ast.NodeTransformer):
        def visit_Compare(self, node: ast.Compare) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node.ops[0], ast.NotEq):
                return ast.Call(ast.Name("any_", ast.Load()), [node], [])
            return node

    return ast.unparse(ast.fix_missing_locations(Wrap().visit(ast.parse(formula, mode="eval"))))


def reduced_or_known(formula: str) -> Problem | bool:
    """Reduce a formula over x; if it is the same for all inputs, say which."""
    try:
        return problem(f"Forall(x, Implies(-2 <= x <= 3e38, {formula}))", networks=NETS)
    except PropertyError as error:
        known = str(error).startswith("property: it is always true")
        if known or "it is always false" in str(error):
            return known
        # An empty box, inputs alone, or a side condition that none meets.
        if any(word in str(error) for word in ("bound", "depend", "no input satisfies")):
            reject()
        raise


NETS = {"N": network(), "M": network("(float[2,3] x) => (float[2,3] y) { y = Identity(x) }")}
LIMITS = settings(deadline=None, suppress_health_check=list(HealthCheck))


NOTHING = [math.nan, 1.0] * 9


@LIMITS
@given(formula=formulas(), values=st.lists(VALUES, min_size=18, max_size=18))
@example(formula="(max(N(x)[0, 1], x[0, 0]) <= 2.0)", values=NOTHING)
@example(formula="Not((min(x[0, 0], N(x)[0, 1]) <= 2.0))", values=NOTHING)
@example(formula="(max(float('nan'), x[0, 0]) <= N(x)[0, 1])", values=NOTHING)
@example(formula="(np.argmin(N(x)) == 0)", values=NOTHING)
@example(formula="(np.sign(N(x)[0, 0]) <= 2.0)", values=NOTHING)
def test_a_margin_is_negative_exactly_where_the_formula_is_false(formula: str, values: list[float]) -> None:
    points = np.array(values, np.float32).reshape(3, 2, 3)
    # M keeps its input, NaN and infinities too, and its output is not part of the box.
    hidden = re.sub(r"(?<!N.)\bx\b", "M(x)", formula)
    text = f"Or({hidden}, And(M(x) == 77, N(x) == 77))"
    reduced = reduced_or_known(text)
    if isinstance(reduced, bool):
        assert all(truth(formula, point) == reduced for point in points)
    else:
        margins = evaluate(reduced, x=points)
        assert margins.violated.tolist() == [not truth(formula, point) for point in points]
        assert torch.equal(margins.loss <= 0, margins.clauses < 0)
        assert not margins.clauses.isnan().any()


@pytest.mark.slow
@LIMITS
@given(formula=formulas(), values=st.lists(VALUES, min_size=6, max_size=6))
def test_box_penalties_and_clauses_together_are_the_formula(formula: str, values: list[float]) -> None:
    point = np.array(values, np.float32).reshape(2, 3)
    reduced = reduced_or_known(f"Or({formula}, And(M(x) == 77, N(x) == 77))")
    if isinstance(reduced, bool) or not np.isfinite(point).all():
        reject()
    expected = truth(formula, point) or not (-2 <= point.min() and point.max() <= np.float64(3e38))
    assert reduced.holds({"x": point}, run) == expected
    boxed = [all((v.lower <= point).all() and (point <= v.upper).all() for v in region) for region in reduced.regions]
    assert any(boxed) or expected


def test_values_are_compared_as_they_are() -> None:
    # float32(0.1) is above 0.1, and float32 arithmetic would hide it.
    reduced = problem("Forall(x, Implies(-1 <= x <= 1, N(x) >= -0.1))")
    below, above = np.full((2, 3), 0.1, np.float32), np.full((2, 3), np.nextafter(np.float32(0.1), np.float32(0)))
    assert not reduced.holds({"x": below}, run)
    assert reduced.holds({"x": above}, run)


@pytest.mark.parametrize(
    ("formula", "x", "margin"),
    [
        ("N(x) <= 1", [[0, 0, 0], [0, 0, -0.25]], 0.75),
        ("N(x)[0] <= x[1]", [[0, 0, 0], [3, 2, 1]], 1.0),
        ("And(N(x) >= -2, N(x) <= 5)", [[0, 1, 0], [0, 0, 0]], 1.0),
        ("Or(N(x) >= 3, N(x)[0, 0] <= 5)", [[0, 1, 0], [0, 0, 0]], 5.0),
        ("Implies(N(x)[0, 0] > 0, N(x)[0, 1] > 4)", [[-1, -2, 0], [0, 0, 0]], -1.0),
        ("np.argmax(N(x)[0]) == 1", [[3, 1, 2], [0, 0, 0]], 1.0),
        ("np.argmax(N(x)[0]) != 1", [[3, 1, 2], [0, 0, 0]], -1.0),
        ("np.argmin(N(x)[0]) == 1", [[3, 1, 2], [0, 0, 0]], -2.0),
        ("np.sum(N(x)) <= 0.5", [[3, 1, 2], [0, 0, 0]], 6.5),
        ("np.mean(N(x), axis=1) <= 0", [[3, 1, 2], [0, 0, -3]], -1.0),
        ("N(x).max() - N(x).min() < 10", [[3, 1, 2], [0, 0, 0]], 7.0),
        ("np.linalg.norm(N(x)) <= 6", [[3, 4, 0], [0, 0, 0]], 1.0),
        ("IfThenElse(N(x)[0, 0] <= 0, N(x)[0, 1], N(x)[0, 2]) <= 0", [[3, 1, 2], [0, 0, 0]], 1.0),
        ("0 <= N(x)[0, 0] * N(x)[0, 1] <= 10", [[3, 1, 2], [0, 0, 0]], 3.0),
        ("np.any(N(x) >= 2)", [[3, 1, 2], [0, 0, -5]], 3.0),
        ("N(x).shape[1] * N(x)[0, 0] >= -9", [[2, 0, 0], [0, 0, 0]], 3.0),
    ],
)
def test_margins_of_common_formulas(formula: str, x: list[list[float]], margin: float) -> None:
    reduced = problem(f"Forall(x, Implies(-10 <= x <= 10, {formula}))")
    margins = evaluate(reduced, x=[x])
    assert margins.clauses.min().item() == pytest.approx(margin)


def test_conjuncts_are_clauses_and_side_conditions_penalties() -> None:
    reduced = problem("Forall(x, Implies(And(-1 <= x <= 1, x[0, 0] + x[0, 1] <= 1), And(N(x) <= 1, N(x)[0] >= x[1])))")
    assert reduced.clause_names == ("(N(x) <= 1)", "(N(x)[0] >= x[1])")
    assert reduced.penalty_names == ("((x[(0, 0)] + x[(0, 1)]) <= 1)",)
    margins = evaluate(reduced, x=np.array([[[0.5, 0.75, 0], [0, 0, 0]], [[0, 0, 0], [0, 1, 0]]]))
    assert margins.clauses.tolist() == [[1.0, -0.75], [1.0, -1.0]]
    assert margins.penalties.tolist() == [[-0.25], [1.0]]
    assert margins.violated.tolist() == [False, True]


def test_a_disjunction_lets_met_parts_go() -> None:
    reduced = problem("Forall(x, Implies(-9 <= x <= 9, Or(N(x)[0, 0] > 1, N(x)[0, 1] > 2, N(x)[0, 2] > 3)))")
    x = torch.tensor([[[-2.0, -4.0, 5.0], [0, 0, 0]]], requires_grad=True)
    margins = reduced.margins({"x": x}, Batch())
    assert margins.clauses.item() == 2.0
    assert margins.loss.item() == 1.0 + 2.0
    margins.loss.sum().backward()
    assert x.grad is not None and x.grad[0, 0].tolist() == [-1.0, -1.0, 0.0]


def test_equal_applications_are_evaluated_once() -> None:
    reduced = problem("Forall(x, Implies(-1 <= x <= 1, And(N(x)[0, 0] <= 1, N(x)[0, 1] <= N(x)[0, 2], N(x) < 9)))")
    assert len(reduced.calls) == 1
    runner = Batch()
    reduced.margins({"x": torch.zeros(4, 2, 3)}, runner)
    assert runner.runs == 1


def test_margins_work_under_vmap() -> None:
    reduced = problem("Forall(x, Implies(-9 <= x <= 9, Or(np.argmax(N(x)) == 2, N(x)[0, 1] > 2)))")

    def single(x: torch.Tensor) -> torch.Tensor:
        return reduced.margins({"x": x[None]}, Batch()).loss[0]

    x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(1))
    together = reduced.margins({"x": x}, Batch()).loss
    torch.testing.assert_close(torch.func.vmap(single)(x), together)


def test_equivalence_of_two_networks() -> None:
    networks = {"N": network(), "M": network("(float[2,3] a) => (float[2,3] b) { c = Identity(a) b = Neg(c) }")}
    formula = "Forall(x, Implies(-1 <= x <= 1, And(-0.5 <= N(x) - M(x) <= 0.5, np.argmax(N(x)) == np.argmax(M(x)))))"
    reduced = problem(formula, networks=networks)
    assert [call.network for call in reduced.calls] == ["N", "M"]
    margins = evaluate(reduced, x=np.random.default_rng(0).random((4, 2, 3)))
    assert not margins.violated.any() and margins.clauses[:, :2].tolist() == [[0.5, 0.5]] * 4


def test_validity_goals_carry_their_options() -> None:
    formula = 'no_invalid_input(N(x), only=["Log", "Div"], gradient=True)'
    reduced = problem(f"Forall(x, Implies(-1 <= x <= 1, And({formula}, {formula}, no_invalid_input(N(x)))))")
    assert reduced.is_pure_validity and len(reduced.calls) == 1
    assert [(goal.only, goal.nodes, goal.gradient) for goal in reduced.goals] == [
        (("Log", "Div"), None, True),
        (None, None, False),
    ]
    assert all(goal.call is reduced.calls[0] for goal in reduced.goals)
    x = np.array([[[0.5, 0, 0], [0, 0, 0]]], np.float32)
    assert evaluate(reduced, x=x).clauses[0].tolist() == [-0.5] * len(reduced.clauses)
    assert not reduced.holds({"x": x[0]}, run, lambda goal, arrays: goal.only is None)
    assert reduced.holds({"x": x[0]}, run, lambda goal, arrays: True)


def test_validity_and_values_together() -> None:
    reduced = problem("Forall(x, Implies(-1 <= x <= 1, And(no_invalid_input(N(x)), N(x) <= 0.5)))")
    assert not reduced.is_pure_validity
    assert [goal is None for goal in reduced.clause_goals] == [False, True]
