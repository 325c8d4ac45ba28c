"""Properties over outputs by branch and bound: which problems have the form, what is proved, and what stays open."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.branch_and_bound import SplitResult
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import Graph, read
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.prove import margins
from ranum_falsify.verify.prove.applications import box_of
from ranum_falsify.verify.prove.margins import MarginProof
from tests.verify.search.search_kit import network, problem

SQUARES = "(float[1,2] x) => (float[1,1] y) { q = Mul(x, x) y = ReduceSum<keepdims = 1>(q) }"
# The least value of (a^2 + b^2) - a - b is -1/2, at (1/2, 1/2).
ABOVE = "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= x[0, 0] + x[0, 1] - {0}))"


@pytest.fixture(scope="module")
def squares() -> Graph:
    return network(SQUARES)


def proof_of(reduced: Problem, graph: Graph, *, valid: bool = True) -> MarginProof | None:
    analysis = LinearAnalysis(graph)
    box = box_of(reduced.regions[0])
    analysis.run([box[name] for name in graph.input_names])
    return MarginProof.of(reduced, analysis, {id(goal): valid for goal in reduced.goals})


def run(formula: str, graph: Graph, *, seconds: float = 60.0, valid: bool = True) -> SplitResult:
    proof = proof_of(problem(formula, networks={"N": graph}), graph, valid=valid)
    assert proof is not None
    return proof.run(Deadline.after(seconds))


def test_a_true_property_is_proved_by_cutting(squares: Graph) -> None:
    result = run("Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= x[0, 0] * x[0, 1] - 0.1))", squares)
    assert result.proved and result.boxes > 1
    assert result.open_boxes[0] is None or not len(result.open_boxes[0][0])


def test_slopes_that_are_chosen_prove_without_a_cut_what_is_true_by_little(squares: Graph) -> None:
    result = run(ABOVE.format(0.5001), squares)
    assert result.proved and result.boxes == 1
    assert not run(ABOVE.format(0.4999), squares, seconds=0.3).proved


@pytest.mark.slow
def test_of_many_inputs_curves_are_cut_and_corners_remain() -> None:
    rng = np.random.default_rng(0)
    g = ModelBuilder()
    hidden = g.Relu(g.Gemm(g.input("x", (1, 40)), *(rng.normal(size=s).astype(np.float32) for s in ((40, 10), (10,)))))
    hidden = g.Relu(g.Gemm(hidden, *(rng.normal(size=s).astype(np.float32) for s in ((10, 10), (10,)))))
    g.output(g.Gemm(hidden, *(rng.normal(size=s).astype(np.float32) for s in ((10, 2), (2,)))), (1, 2))
    graph = read(g.build())
    text = "Forall(x, Implies(And(-0.1 <= x, x <= 0.1), And(N(x)[0, 0] >= {0}, N(x)[0, 1] <= 1000)))"
    points = rng.choice([-0.1, 0.1], (500, 1, 40)).astype(np.float32)
    reached = min(float(np.asarray(graph(x)).reshape(-1)[0]) for x in points)
    for threshold in (*np.arange(reached - 60, reached, 2.0), reached + 0.01):
        proof = proof_of(problem(text.format(threshold), networks={"N": graph}), graph)
        assert proof is not None
        if not proof.run(Deadline.after(60), cuts=False).proved:
            break
    assert threshold < reached and proof is not None
    result = proof.run(Deadline.after(120))
    assert result.proved and result.boxes > 1
    proof = proof_of(problem(text.format(reached + 0.01), networks={"N": graph}), graph)
    assert proof is not None
    result = proof.run(Deadline.after(1))
    assert not result.proved
    low, high = result.open_boxes[0] or (None, None)
    assert low is not None and high is not None and torch.equal(low, high) and bool((low.abs() <= 0.11).all())


def test_a_proof_goes_on_where_it_ended(squares: Graph) -> None:
    text = "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= x[0, 0] * x[0, 1] - 0.001))"
    proof = proof_of(problem(text, networks={"N": squares}), squares)
    assert proof is not None and not proof.run(Deadline.after(60), cuts=False).proved
    boxes: list[int] = []
    while not (result := proof.run(Deadline.after(0.01))).proved and len(boxes) < 1000:
        boxes.append(result.boxes)
    assert boxes == sorted(boxes)
    assert result.proved and proof.run(Deadline.after(-1)).proved


def test_a_false_property_leaves_the_parts_open_where_it_is_false(squares: Graph) -> None:
    result = run(ABOVE.format(0.45), squares, seconds=0.3)
    assert not result.proved and result.open_boxes[0] is not None
    centre = (result.open_boxes[0][0] + result.open_boxes[0][1]) / 2
    excess = 0.45 - (centre - centre**2).sum(-1)
    assert len(centre) and float(excess.min()) < 0.2, "near where the property is false"


def test_a_side_condition_may_exclude_the_box(squares: Graph) -> None:
    text = "Forall(x, Implies(And(-1 <= x <= 1, x[0, 0] + x[0, 1] >= {0}), N(x)[0, 0] <= 1))"
    assert run(text.format(2.5), squares).proved
    assert not run(text.format(1.9), squares, seconds=0.3).proved


def test_a_goal_counts_as_it_is_said_to(squares: Graph) -> None:
    text = "Forall(x, Implies(-1 <= x <= 1, And(no_invalid_input(N(x)), N(x)[0, 0] <= 2.5)))"
    assert run(text, squares, valid=True).proved
    assert not run(text, squares, seconds=0.3, valid=False).proved


def test_values_that_are_no_linear_form_are_bounded_alone(squares: Graph) -> None:
    text = "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] * N(x)[0, 0] <= {0}))"
    assert run(text.format(4.5), squares).proved
    assert not run(text.format(3.5), squares, seconds=0.3).proved


def test_the_inputs_that_are_cut_have_names(squares: Graph) -> None:
    proof = proof_of(problem(ABOVE.format(0.5), networks={"N": squares}), squares)
    assert proof is not None and proof.input_names == ("x",)


@pytest.mark.parametrize(
    "formula",
    [
        "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] <= N(-x)[0, 0] + 1))",
        "Forall(x, Implies(-1 <= x <= 1, N(-x)[0, 0] <= 1))",
    ],
    ids=["two applications", "an argument that is an expression"],
)
def test_other_forms_have_no_such_proof(formula: str, squares: Graph) -> None:
    assert proof_of(problem(formula, networks={"N": squares}), squares) is None


def test_too_many_rows_are_not_tried(squares: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    reduced = problem(ABOVE.format(0.55), networks={"N": squares})
    assert proof_of(reduced, squares) is not None
    monkeypatch.setattr(margins, "_MOST_ROWS", 0)
    assert proof_of(reduced, squares) is None
