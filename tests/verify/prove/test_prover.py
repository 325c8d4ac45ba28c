"""What the prover proves, what it leaves open, and on what that depends."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest

from ranum_falsify.config import ProveConfig
from ranum_falsify.network import Graph
from ranum_falsify.process.deadline import Deadline, OutOfTime
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.prove.prover import Prover
from tests.networks.probing import metadata
from tests.verify.search.search_kit import NETWORKS, natural, network, problem, valid_in_box

# These need other weights than the file has.
NEED_FREE_WEIGHTS = {"std_exp", "variance_exp"}


def prove(reduced: Problem, *runtimes: str, seconds: float = 0.0) -> Proof:
    prover = Prover(reduced, ProveConfig(runtime=runtimes) if runtimes else ProveConfig())
    proof = prover.analyse()
    return prover.refine(Deadline.after(seconds)) if seconds else proof


def open_nodes(proof: Proof) -> dict[str, tuple[str, ...]]:
    """Return the operators with open conditions of their own, and those conditions."""
    return {o.node: tuple(c.describe() for c in o.open) for o in proof.operators.values() if o.open}


def dependent(proof: Proof) -> dict[str, tuple[str, ...]]:
    """Return the operators that are open only because of others, and those others."""
    return {o.node: o.after for o in proof.operators.values() if o.after and not o.open}


# our networks ----------------------------------------------------------------------------------------------------


@pytest.mark.few(7)
@pytest.mark.parametrize("name", sorted(file.stem for file in NETWORKS.glob("*.onnx")))
def test_hazards_stay_open_and_all_else_is_proved(name: str) -> None:
    known = set(metadata(onnx.load(NETWORKS / f"{name}.onnx"), "hazard:"))
    proof = prove(natural(name))
    hazards = known - NEED_FREE_WEIGHTS
    assert proof.operators and proof.holds is (not known)
    assert all(operator.proved for operator in proof.operators.values()) is (not known)
    assert hazards <= open_nodes(proof).keys()
    assert {o.node for o in proof.operators.values() if o.open and not o.after} == hazards


# induction -------------------------------------------------------------------------------------------------------

CHAIN = "(float[2] x) => (float[2] y) { l = Log(x) s = Sin(l) e = Exp(s) y = Neg(e) }"


def test_what_follows_an_open_operator_is_open_because_of_it() -> None:
    proof = prove(valid_in_box(network(CHAIN), [(-1.0, 1.0)]))
    assert open_nodes(proof) == {"Log_l": ("x > 0",)}
    assert dependent(proof) == {"Sin_s": ("Log_l",), "Exp_e": ("Log_l",), "Neg_y": ("Log_l",)}
    assert prove(valid_in_box(network(CHAIN), [(0.5, 1.0)])).holds


def test_a_narrowed_goal_needs_what_stands_before_it() -> None:
    graph = network("(float[2] x) => (float[2] y, float[2] z) { l = Log(x) y = Sin(l) z = Cos(x) }")
    only_cos, only_sin = (
        prove(valid_in_box(graph, [(-1.0, 1.0)], options=f"only=['{name}']")) for name in ("Cos", "Sin")
    )
    assert only_cos.holds and not only_sin.holds
    assert [o.node for o in only_cos.operators.values()] == ["Cos_z"]
    assert dependent(only_sin) == {"Sin_y": ("Log_l",)}


def test_arguments_depend_on_the_network_inside_them() -> None:
    inner = network("(float[2] x) => (float[2] y) { y = Log(x) }")
    outer = network("(float[2] x) => (float[2] y) { y = Sin(x) }")
    text = "Forall(x, Implies({0} <= x <= 1, no_invalid_input(N(M(x)))))"
    networks = {"N": outer, "M": inner}
    broken = prove(problem(text.format(-1), networks=networks))
    assert not broken.holds and dependent(broken) == {"Sin_y": ("M: Log_y",)}
    assert prove(problem(text.format(0.5), networks=networks)).holds


def test_arguments_may_be_expressions() -> None:
    graph = network("(float[2] x) => (float[2] y) { y = Log(x) }")
    text = "Forall(x, Implies(-1 <= x <= 1, And(no_invalid_input(N(x + {0})), no_invalid_input(M(x)))))"
    plain = network("(float[2] x) => (float[2] y) { y = Neg(x) }")
    assert prove(problem(text.format(1.5), networks={"N": graph, "M": plain})).holds
    assert not prove(problem(text.format(1.0), networks={"N": graph, "M": plain})).holds
    unknown = text.replace("x + {0}", "np.log(x)")
    proof = prove(problem(unknown, networks={"N": graph, "M": plain}))
    assert set(open_nodes(proof)) == {"Log_y"}


def test_every_region_must_be_proved() -> None:
    graph = network("(float[1] x) => (float[1] y) { y = Reciprocal(x) }")
    text = "Forall(x, Implies(And(-9 <= x <= 9, Or({0} <= x <= 2, -2 <= x <= -1)), no_invalid_input(N(x))))"
    assert prove(problem(text.format(1), networks={"N": graph})).holds
    proof = prove(problem(text.format(0), networks={"N": graph}))
    assert not proof.holds and set(open_nodes(proof)) == {"Reciprocal_y"}


def test_derivatives_are_proved_where_they_are_asked_for() -> None:
    graph = network("(float[1] x) => (float[1] y) { s = Sqrt(x) y = Sin(s) }")
    assert prove(valid_in_box(graph, [(0.0, 1.0)])).holds
    proof = prove(valid_in_box(graph, [(0.0, 1.0)], options="gradient=True"))
    assert open_nodes(proof) == {"Sqrt_s": ("x > 0",)}
    assert dependent(proof) == {}, "a derivative that is not finite breaks no operator after it"
    assert prove(valid_in_box(graph, [(0.1, 1.0)], options="gradient=True")).holds


# operators that hide something -----------------------------------------------------------------------------------


def _branching() -> Graph:
    branches = (
        "then_branch = g1 () => (float[2] t) { t = Log(x) }, else_branch = g2 () => (float[2] f) { f = Identity(x) }"
    )
    return network(f"(float[2] x, bool c) => (float[2] y) {{ y = If (c) <{branches}> }}")


@pytest.mark.parametrize("options", ["", ", only=['Log']", ", only=['If']"])
def test_branches_are_proved_as_one(options: str) -> None:
    text = "Forall(x, Forall(c, Implies(And({1} <= x <= 2, 0 <= c <= 1), no_invalid_input(N(x, c){0}))))"
    for least, holds in ((1, True), (0, False)):
        proof = prove(problem(text.format(options, least), networks={"N": _branching()}))
        assert proof.holds == holds


def test_derivatives_in_branches_are_not_proved() -> None:
    branches = "then_branch = g1 () => (float[2] t) { t = Sqrt(x) }, else_branch = g2 () => (float[2] f) { f = Neg(x) }"
    graph = network(f"(float[2] x, bool c) => (float[2] y) {{ y = If (c) <{branches}> }}")
    text = "Forall(x, Forall(c, Implies(And(1 <= x <= 2, 0 <= c <= 1), no_invalid_input(N(x, c){0}))))"
    assert prove(problem(text.format(""), networks={"N": graph})).holds
    assert not prove(problem(text.format(", gradient=True"), networks={"N": graph})).holds


def test_constants_in_a_branch_are_what_each_runtime_computes() -> None:
    head = "(float[1] x, bool c) => (float[1] y)"
    inside = "k = Constant<value = float[1] {-16.5}>() s = Sigmoid(k) t = Div(x, s)"
    graph = network(
        f"{head} {{ y = If (c) <then_branch = g1 () => (float[1] t) {{ {inside} }},"
        " else_branch = g2 () => (float[1] f) { f = Neg(x) }> }"
    )
    text = "Forall(x, Forall(c, Implies(And(1 <= x <= 2, 0 <= c <= 1), no_invalid_input(N(x, c)))))"
    reduced = problem(text, networks={"N": graph})
    assert not prove(reduced).holds and prove(reduced, "torch").holds


def test_random_draws_are_bounded_by_their_range() -> None:
    graph = network("(float[3] x) => (float[3] y) { r = RandomUniformLike<low = 1.0, high = 2.0>(x) y = Log(r) }")
    assert prove(valid_in_box(graph, [(0.0, 1.0)])).holds
    graph = network("(float[3] x) => (float[3] y) { r = RandomNormalLike(x) y = Log(r) }")
    assert not prove(valid_in_box(graph, [(0.0, 1.0)])).holds


def test_constants_are_what_each_runtime_computes() -> None:
    constant = "c = Constant<value = float[1] {-16.5}>() s = Sigmoid(c)"
    graph = network(f"(float[1] x) => (float[1] y) {{ {constant} l = Log(s) y = Add(x, l) }}")
    reduced = valid_in_box(graph, [(-1.0, 1.0)])
    assert dependent(prove(reduced)) == {"Add_y": ("Log_l",)}
    assert prove(reduced, "torch").holds
    graph = network(f"(float[1] x) => (float[1] y) {{ {constant} y = Div(x, s) }}")
    assert not prove(valid_in_box(graph, [(-1.0, 1.0)])).holds
    assert prove(valid_in_box(graph, [(-1.0, 1.0)]), "torch").holds


def test_a_proof_is_for_the_runtimes_that_it_names() -> None:
    graph = network("(float[4] x) => (float[4] y) { s = Sigmoid(x) y = Log(s) }")
    reduced = valid_in_box(graph, [(-20.0, 20.0)])
    assert not prove(reduced).holds
    assert not prove(reduced, "onnxruntime").holds
    proof = prove(reduced, "torch")
    assert proof.holds and proof.runtimes == ("torch",)


# properties over outputs -----------------------------------------------------------------------------------------

SQUARES = "(float[1,2] x) => (float[1,1] y) { q = Mul(x, x) y = ReduceSum<keepdims = 1>(q) }"


def test_margins_are_proved_by_bounds_of_the_outputs() -> None:
    graph = network(SQUARES)
    for bound, holds in ((2.5, True), (1.5, False)):
        text = f"Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] <= {bound}))"
        assert prove(problem(text, networks={"N": graph})).holds == holds


def test_no_property_holds_on_outputs_that_may_be_nan() -> None:
    graph = network("(float[1,1] x) => (float[1,1] y) { l = Log(x) n = Mul(l, l) y = Neg(n) }")
    text = "Forall(x, Implies({0} <= x <= 2, N(x)[0, 0] <= 1))"
    assert prove(problem(text.format(1), networks={"N": graph})).holds
    assert not prove(problem(text.format(-1), networks={"N": graph}), seconds=0.5).holds


def test_goals_within_other_formulas() -> None:
    graph = network("(float[1,1] x) => (float[1,1] y) { y = Log(x) }")
    text = "Forall(x, Implies({0} <= x <= 2, And(no_invalid_input(N(x)), N(x)[0, 0] <= 1)))"
    assert prove(problem(text.format(1), networks={"N": graph})).holds
    assert not prove(problem(text.format(0), networks={"N": graph})).holds
    negated = "Forall(x, Implies(1 <= x <= 2, Not(no_invalid_input(N(x)))))"
    assert not prove(problem(negated, networks={"N": graph}), seconds=0.3).holds


def test_side_conditions_exclude_whole_regions() -> None:
    graph = network(SQUARES)
    text = "Forall(x, Implies(And(-1 <= x <= 1, {0}), N(x)[0, 0] <= 1))"
    assert prove(problem(text.format("x[0, 0] + x[0, 1] >= 3"), networks={"N": graph})).holds
    assert not prove(problem(text.format("x[0, 0] + x[0, 1] >= 1.5"), networks={"N": graph})).holds


# refinement ------------------------------------------------------------------------------------------------------


# Between its operand and its result, no cells follow.
_UNITS = "e = Constant<value = float[4,4] {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>()"


def _difference() -> Graph:
    # Intervals forget that both sums are of the same inputs.
    return network(
        "(float[1,3] x) => (float[1,3] y) { e = Constant<value = float[3,3] {1,0,0,0,1,0,0,0,1}>() r = Relu(x) "
        "a = Add(x, r) b = MatMul(a, e) c = MatMul(r, e) d = Sub(b, c) "
        "one = Constant<value = float[1] {1.25}>() p = Add(d, one) y = Log(p) }"
    )


def test_linear_bounds_prove_what_intervals_cannot() -> None:
    reduced = valid_in_box(_difference(), [(-1.0, 1.0)])
    assert not prove(reduced).holds
    assert prove(reduced, seconds=20.0).holds


@pytest.mark.parametrize(("exponent", "holds"), [(-3.0, True), (-16.0, False)])
def test_linear_bounds_take_constants_as_all_runtimes_compute_them(exponent: float, holds: bool) -> None:
    constant = f"k = Constant<value = float {{{exponent}}}>() c = Exp(k)"
    text = f"{constant} {_UNITS} h = Relu(x) s = Add(h, c) a = MatMul(s, e) b = MatMul(h, e) t = Sub(a, b) y = Log(t)"
    reduced = valid_in_box(network(f"(float[4] x) => (float[4] y) {{ {text} }}"), [(-5.0, 5.0)])
    assert not prove(reduced).holds
    assert prove(reduced, seconds=20.0 if holds else 2.0).holds is holds


def test_cut_boxes_prove_what_bounds_of_the_whole_cannot() -> None:
    graph = network(
        "(float[2] x) => (float[2] y) { e = Constant<value = float[2,2] {1,0,0,1}>() h = MatMul(x, e) "
        "s = Sin(h) q = Mul(s, x) c = Constant<value = float[1] {0.01}>() "
        "p = Add(q, c) y = Log(p) }"
    )
    # x sin x is 0 or more up to pi, but the product of the whole ranges is not known to be.
    reduced = valid_in_box(graph, [(-3.0, 3.0)])
    assert not prove(reduced).holds
    assert prove(reduced, seconds=20.0).holds
    assert not prove(valid_in_box(graph, [(-4.0, 4.0)]), seconds=1.0).holds


@pytest.mark.slow
def test_branch_and_bound_proves_margins() -> None:
    graph = network(SQUARES)
    # The minimum of (a^2 + b^2) - a - b is -1/2, that of its parts by intervals -2.
    text = "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= x[0, 0] + x[0, 1] - {0}))"
    assert not prove(problem(text.format(0.55), networks={"N": graph})).holds
    assert prove(problem(text.format(0.55), networks={"N": graph}), seconds=20.0).holds
    assert not prove(problem(text.format(0.45), networks={"N": graph}), seconds=1.0).holds


@pytest.mark.slow
def test_what_stays_open_is_suspected() -> None:
    graph = network(SQUARES)
    text = "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= x[0, 0] + x[0, 1] - 0.45))"
    prover = Prover(problem(text, networks={"N": graph}), ProveConfig())
    prover.analyse()
    prover.refine(Deadline.after(1.0))
    (points,) = prover.suspects()[0]
    assert points.shape[1:] == (1, 2)
    assert np.abs(points.numpy() - 0.5).max() < 0.5, "near where the property is false"


def test_two_networks_are_compared_over_cut_boxes() -> None:
    one = network("(float[1,1] x) => (float[1,1] y) { y = Mul(x, x) }")
    other = network("(float[1,1] x) => (float[1,1] y) { t = Mul(x, x) y = Relu(t) }")
    text = "Forall(x, Implies(-1 <= x <= 1, abs(N(x)[0, 0] - M(x)[0, 0]) <= {0}))"
    reduced = problem(text.format(0.05), networks={"N": one, "M": other})
    assert not prove(reduced).holds
    assert prove(reduced, seconds=20.0).holds


def test_time_is_kept() -> None:
    text = "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= x[0, 0] + x[0, 1] - 0.45))"
    prover = Prover(problem(text, networks={"N": network(SQUARES)}), ProveConfig())
    prover.analyse()
    began = time.monotonic()
    prover.refine(Deadline.after(0.5))
    assert time.monotonic() - began < 60, "branch and bound would go on for ever"


@pytest.mark.parametrize(("after", "more"), [(1, False), (20, True)])
def test_how_far_the_first_analysis_came_is_said(after: int, more: bool) -> None:
    """How much longer it needs is said where enough operators tell it."""
    body = " ".join(f"t{i + 1} = Sin(t{i})" for i in range(38))
    graph = network(f"(float[2] t0) => (float[2] y) {{ {body} y = Neg(t38) }}")
    ticks = iter(range(after - 1))

    def tick() -> None:
        if next(ticks, None) is None:
            raise OutOfTime

    prover = Prover(valid_in_box(graph, [(-1.0, 1.0)]), ProveConfig(), tick=tick)
    with pytest.raises(OutOfTime):
        prover.analyse()
    said = prover.describe_rest()
    assert said.startswith(f"the first analysis had bounded {after} of 40 operators") and "raise --timeout" in said
    assert said.endswith(" s") == more
