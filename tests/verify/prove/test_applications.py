"""What is known of a problem's applications over one box: arguments, verdicts, and bounds that hold in any case."""

from __future__ import annotations

import numpy as np
import pytest

from ranum_falsify.domain import IntervalAnalysis
from ranum_falsify.network import Graph
from ranum_falsify.properties.formula.terms import NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.prove.analyses import Analyses
from ranum_falsify.verify.prove.applications import Applications, box_of, select_operators
from tests.verify.search.search_kit import network, problem

LOG = "(float[2] x) => (float[2] y) { y = Log(x) }"
SIN = "(float[2] x) => (float[2] y) { y = Sin(x) }"


@pytest.fixture(scope="module")
def log() -> Graph:
    return network(LOG)


@pytest.fixture(scope="module")
def sin() -> Graph:
    return network(SIN)


def over(reduced: Problem, analysed: list[str] | None = None) -> Applications:
    graphs = {id(call): call.graph for call in reduced.calls}
    analyses = {id(call): Analyses(IntervalAnalysis(call.graph)) for call in reduced.calls}
    tick = (lambda: None) if analysed is None else (lambda: analysed.append("operator"))
    return Applications(reduced, graphs, lambda call: analyses[id(call)], box_of(reduced.regions[0]), tick)


def test_a_box_has_the_bounds_of_its_variables(log: Graph) -> None:
    reduced = problem("Forall(x, Implies(0.5 <= x <= 2, no_invalid_input(N(x))))", networks={"N": log})
    low, high = box_of(reduced.inputs)["x"].expand()
    assert low.tolist() == [0.5, 0.5] and high.tolist() == [2, 2]


@pytest.mark.parametrize(("least", "valid"), [(0.5, True), (0, False), (-1, False)])
def test_a_goal_is_valid_where_its_operators_are(least: float, valid: bool, log: Graph) -> None:
    reduced = problem(f"Forall(x, Implies({least} <= x <= 2, no_invalid_input(N(x))))", networks={"N": log})
    known = over(reduced)
    assert known.is_valid(reduced.goals[0]) is valid
    assert known.is_sound(reduced.calls[0]) is valid
    assert bool(known.find_open(reduced.calls[0])) is not valid


def test_what_was_closed_by_other_means_is_open_no_more(log: Graph) -> None:
    reduced = problem("Forall(x, Implies(0 <= x <= 2, no_invalid_input(N(x))))", networks={"N": log})
    known, (call,) = over(reduced), reduced.calls
    assert not known.is_valid(reduced.goals[0])
    known.closed.add((id(call), id(log.nodes[0])))
    assert known.is_valid(reduced.goals[0]) and not known.find_open(call)


def test_each_application_is_analysed_once(log: Graph) -> None:
    analysed: list[str] = []
    reduced = problem("Forall(x, Implies(1 <= x <= 2, no_invalid_input(N(x))))", networks={"N": log})
    known = over(reduced, analysed)
    known.check(reduced.calls[0])
    count = len(analysed)
    known.check(reduced.calls[0]), known.is_valid(reduced.goals[0]), known.frame_surely()
    assert len(analysed) == count > 0


@pytest.mark.parametrize(("added", "valid"), [(1.5, True), (1.0, False)])
def test_arguments_that_are_expressions_have_bounds(added: float, valid: bool, log: Graph, sin: Graph) -> None:
    text = f"Forall(x, Implies(-1 <= x <= 1, And(no_invalid_input(N(x + {added})), no_invalid_input(M(x)))))"
    reduced = problem(text, networks={"N": log, "M": sin})
    known = over(reduced)
    (call,) = (call for call in reduced.calls if call.network == "N")
    inputs = known.inputs(call)
    assert inputs is not None
    low, high = (end.numpy() for end in inputs[0].expand())
    np.testing.assert_allclose([low, high], [[added - 1] * 2, [added + 1] * 2], atol=1e-6)
    (goal,) = (goal for goal in reduced.goals if goal.call is call)
    assert known.is_valid(goal) is valid


def test_nothing_holds_where_an_argument_has_no_bounds(sin: Graph) -> None:
    text = "Forall(x, Implies(-1 <= x <= 1, And(no_invalid_input(N(np.log(x))), no_invalid_input(M(x)))))"
    reduced = problem(text, networks={"N": sin, "M": network(SIN)})
    known = over(reduced)
    (call,) = (call for call in reduced.calls if call.network == "N")
    assert known.inputs(call) is None
    assert known.check(call).outputs == (None,) and known.find_open(call)


@pytest.mark.parametrize(("least", "sure"), [(0.5, True), (-1, False)])
def test_sure_bounds_need_valid_operators(least: float, sure: bool, log: Graph) -> None:
    reduced = problem(f"Forall(x, Implies({least} <= x <= 1, N(x)[0] <= 1))", networks={"N": log})
    known, (call,) = over(reduced), reduced.calls
    ((given, _),) = known._outputs_given(call)
    ((surely, _),) = known.outputs_surely(call)
    assert not given.isnan().any()
    assert bool(surely.isnan().all()) is not sure


def test_what_stands_behind_an_open_operator_names_it(log: Graph, sin: Graph) -> None:
    text = "Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(M(x)))))"
    reduced = problem(text, networks={"N": sin, "M": log})
    known, (goal,) = over(reduced), reduced.goals
    assert known.before[id(goal.call)][id(sin.nodes[0])] == ("M: Log_y",)
    assert not known.find_open(goal.call) and not known.is_valid(goal) and not known.is_sound(goal.call)


def test_operators_in_question_are_those_asked_for_and_those_that_hide_them() -> None:
    branches = (
        "then_branch = g1 () => (float[2] t) {{ t = {}(x) }}, else_branch = g2 () => (float[2] f) {{ f = Neg(x) }}"
    )
    for hidden, expected in (("Log", ["If"]), ("Sin", [])):
        graph = network(f"(float[2] x, bool c) => (float[2] y) {{ y = If (c) <{branches.format(hidden)}> }}")
        goal = ValidityGoal(call=NetworkCall(network="N", graph=graph, arguments=()), only=("Log",))
        assert [type(op).__name__ for op in select_operators(goal, graph)] == expected
