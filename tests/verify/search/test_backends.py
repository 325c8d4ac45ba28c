"""DNNF's attack back ends on our models."""

from __future__ import annotations

import pytest

from ranum_falsify.errors import BackendError
from tests.verify.search.search_kit import found, network, problem, search, valid_in_box

LOG = network("(float[2,3] x) => (float[2,3] y) { o = Constant<value = float {0.5}>() d = Sub(x, o) y = Log(d) }")


@pytest.mark.parametrize("name", ["dnnf.pgd", "dnnf.newton"])
def test_back_end_finds_an_invalid_input(name: str) -> None:
    result = search(valid_in_box(LOG, [(0.0, 2.0)]), backend=(name,), n_starts=20)
    assert [operator.op_type for operator in found(result).values()] == ["Log"]
    assert result.starts > 0 and result.unconfirmed == ()


@pytest.mark.parametrize("name", ["dnnf.pgd", "dnnf.newton"])
def test_back_end_claims_nothing_where_nothing_is(name: str) -> None:
    assert search(valid_in_box(LOG, [(1.0, 2.0)]), backend=(name,), n_starts=3).verdict == "unknown"


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["dnnf.pgd", "dnnf.newton"])
def test_back_end_falsifies_a_classic_property(name: str) -> None:
    text = "Forall(x, Implies(0 <= x <= 1, N(x)[0, 0] > {0}))"
    result = search(problem(text.format(-0.5)), backend=(name,), n_starts=20)
    assert result.counterexample is not None
    assert -result.counterexample.inputs["x"][0, 0] <= -0.5
    assert search(problem(text.format(-2)), backend=(name,), n_starts=3).verdict == "unknown"


def test_back_ends_run_in_order_until_everything_is_found() -> None:
    result = search(valid_in_box(LOG, [(0.0, 2.0)]), backend=("dnnf.pgd", "pgd"), n_starts=20)
    assert result.verdict == "violated"
    assert search(valid_in_box(LOG, [(0.0, 2.0)]), backend=("dnnf.pgd",), n_starts=0).verdict == "unknown"


def test_back_ends_do_nothing_once_a_counterexample_is_found() -> None:
    reduced = problem("Forall(x, Implies(0 <= x <= 1, N(x)[0, 0] > 0.5))")
    alone = search(reduced, backend=("pgd",), n_starts=20)
    assert alone.verdict == "violated"
    assert search(reduced, backend=("pgd", "dnnf.pgd"), n_starts=20).starts == alone.starts


@pytest.mark.slow
def test_back_end_goes_on_until_the_timeout_where_no_number_of_starts_is_given() -> None:
    assert search(valid_in_box(LOG, [(0.0, 2.0)]), backend=("dnnf.pgd",), n_starts=-1).verdict == "violated"
    box = valid_in_box(LOG, [(1.0, 2.0)])
    settings = {"dnnf.pgd": {"n_steps": 1}}
    result = search(box, backend=("dnnf.pgd",), n_starts=-1, timeout=6.0, backend_parameters=settings)
    assert (result.verdict, result.interrupted) == ("unknown", "timeout")
    assert result.starts > 10, "there is a batch after the first"


def test_integers_stay_and_floats_of_other_widths_move() -> None:
    graph = network("(int64[2] n, double[2] x) => (double[2] y) { f = Cast<to = 11>(n) d = Sub(x, f) y = Log(d) }")
    result = search(valid_in_box(graph, [(1, 5), (0.0, 4.0)]), backend=("dnnf.pgd",), n_starts=20)
    example = result.counterexample
    assert example is not None
    assert (example.inputs["v0"] == 1).all()
    assert (example.inputs["v1"] <= 1).any()


def test_inputs_without_floats_are_refused() -> None:
    graph = network("(int64[2] n) => (float[2] y) { f = Cast<to = 1>(n) y = Log(f) }")
    with pytest.raises(BackendError, match="floating"):
        search(valid_in_box(graph, [(0, 5)]), backend=("dnnf.pgd",), n_starts=3)


def test_starts_of_the_back_end_alone() -> None:
    safe = valid_in_box(LOG, [(1.0, 2.0)])
    settings = {"dnnf.pgd": {"n_starts": 2, "n_steps": 1}}
    assert search(safe, backend=("dnnf.pgd",), backend_parameters=settings, n_starts=50).starts == 2
