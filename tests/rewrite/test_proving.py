"""Operators that are not proved, and the passes after which they are."""

from __future__ import annotations

from typing import Any

import pytest

import ranum_falsify as rf
from ranum_falsify.api.result import OperatorReport, Result
from ranum_falsify.config import ProveConfig
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.results import text
from ranum_falsify.results.counterexample import Saved
from ranum_falsify.rewrite.apply import equal_passes
from ranum_falsify.rewrite.catalogue import all_passes
from ranum_falsify.rewrite.proving import prove_after_rewriting
from tests.rewrite.transform_kit import proto_of

ONE = "one = Constant<value_float = 1.0>() last = Constant<value_ints = [1]>()"
LOG = "p = Softmax(x) l = Log(p) y = Neg(l)"
TWO = "p = Softmax(x) l = Log(p) q = Sigmoid(x) m = Log(q) y = Add(l, m)"
QUICK: dict[str, Any] = {"n_starts": 0, "processors": 1, "self_check": False, "prove_timeout": 0.0, "runtime": "exact"}


def ask(body: str, low: float = -300, high: float = 300, **options: Any) -> Result:
    graph = f"g (float[2, 3] x) => (float[2, 3] y) {{ {ONE} {body} }}"
    model = proto_of(graph).SerializeToString()
    return rf.check(model, box=(low, high), **{**QUICK, "try_rewrites": True, **options})


def unproved(result: Result) -> dict[str, OperatorReport]:
    return {operator.op_type: operator for operator in result.operators if operator.verdict != "proved"}


def test_an_open_operator_names_the_pass_after_which_it_is_proved() -> None:
    result = ask(LOG)
    assert result.verdict == "unknown", "it is no proof of the model that runs"
    found = unproved(result)
    assert found.keys() == {"Log", "Neg"} or found.keys() == {"Log"}
    assert {operator.proved_after_rewriting for operator in found.values()} == {("stable_log_softmax",)}
    assert {operator.verdict for operator in found.values()} == {"open"}


def test_nothing_is_tried_without_being_asked_for() -> None:
    result = ask(LOG, try_rewrites=False)
    assert {operator.proved_after_rewriting for operator in unproved(result).values()} == {()}
    assert "rewriting" not in str(result)


def test_the_report_says_so_and_how() -> None:
    result = ask(LOG)
    lines = list(text.report(result.answer, Saved()))
    assert lines[0].startswith("unknown") and "; proved after rewriting" in lines[0]
    told = [line for line in lines if "stable_log_softmax" in line]
    assert told and "`ranum-falsify transform model.onnx stable_log_softmax -o stable.onnx`" in told[0]
    assert "Log_l (Log)" in told[0]


def test_a_violated_operator_says_so_too() -> None:
    result = ask(LOG, n_starts=5, runtime="onnxruntime")
    assert result.verdict == "violated"
    assert unproved(result)["Log"].proved_after_rewriting == ("stable_log_softmax",)
    assert "proved after rewriting by stable_log_softmax" in str(result)


def test_what_takes_two_passes_names_both() -> None:
    found = unproved(ask(TWO))
    assert found["Add"].proved_after_rewriting == ("stable_log_sigmoid", "stable_log_softmax") or (
        found["Add"].proved_after_rewriting == ("stable_log_softmax", "stable_log_sigmoid")
    )
    assert len(found["Log"].proved_after_rewriting) == 1, "each Log needs one"


def test_an_operator_that_no_pass_repairs_stays_open() -> None:
    result = ask("s = Add(x, one) l = Log(s) p = Softmax(x) m = Log(p) y = Add(l, m)")
    by_name = {operator.node: operator.proved_after_rewriting for operator in result.operators}
    assert by_name["Log_l"] == () and by_name["Log_m"] == ("stable_log_softmax",) and by_name["Add_y"] == ()
    assert "; proved after rewriting" not in str(result).splitlines()[0]


def test_a_new_operator_that_is_open_is_no_proof() -> None:
    body = "e = Exp(x) s = Sub(e, one) y = Log(s)"
    assert unproved(ask(body, -1, 300))["Exp"].proved_after_rewriting == ()
    assert unproved(ask(body, 1e-3, 300))["Exp"].proved_after_rewriting == ("stable_log_expm1",)


def test_passes_that_change_the_function_are_not_tried() -> None:
    # Without the epsilon, which a pass takes away, it would be a logarithm of a Softmax, whose logarithm is proved.
    body = "t = Constant<value = float {0.0001}>() p = Softmax(x) q = Add(p, t) l = Log(q) y = Log(l)"
    assert {tuple(one.proved_after_rewriting) for one in unproved(ask(body)).values()} == {()}
    changing = {spec.name for spec in all_passes() if spec.stands_for is not None and not spec.stands_for.is_equal}
    assert "drop_log_epsilon" in changing and changing.isdisjoint(equal_passes())


@pytest.mark.parametrize("condition", ['only=["Log"]', 'nodes=["Log_l"]'])
def test_a_property_of_some_operators_asks_about_all_new_ones(condition: str) -> None:
    graph = f"g (float[2, 3] x) => (float[2, 3] y) {{ {ONE} e = Exp(x) s = Sub(e, one) l = Log(s) y = Neg(l) }}"
    statement = """from dnnv.properties import *
from ranum_falsify.properties import *
N = Network("N")
Forall(x, Implies({} <= x <= 300, no_invalid_input(N(x), {})))
"""
    for low, passes in ((-1.0, ()), (1e-3, ("stable_log_expm1",))):
        prop = rf.load_property(statement.format(low, condition))
        result = rf.falsify(proto_of(graph).SerializeToString(), prop, **QUICK, try_rewrites=True)
        assert [operator.node for operator in result.operators] == ["Log_l"]
        assert result.operators[0].proved_after_rewriting == passes


def test_weights_may_range_too() -> None:
    graph = "g (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}> { z = Mul(x, w) p = Softmax(z) y = Log(p) }"
    model = proto_of(graph).SerializeToString()
    options = {**QUICK, "try_rewrites": True, "free": ["w"], "weights": (-9, 9)}
    result = rf.check(model, box=(-100, 100), **options)
    assert unproved(result)["Log"].proved_after_rewriting == ("stable_log_softmax",)


def test_it_ends_when_its_time_is_up() -> None:
    result = ask(LOG, try_rewrites=False)
    wanted = {(operator.network, operator.node) for operator in unproved(result).values()}
    problem = result.loaded.problem
    late = prove_after_rewriting(problem, ProveConfig(), wanted, deadline=Deadline.after(0))
    assert not late.passes and not late.is_complete
    assert prove_after_rewriting(problem, ProveConfig(), wanted, deadline=Deadline.after(60)).passes.keys() == wanted
