"""Proof and search in turns: what is proved is not searched, and what neither decides is said to be open."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ranum_falsify.config import RUNTIMES, SearchConfig
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.search.result import Answer
from ranum_falsify.verify.search.search import Progress
from tests.verify.search.search_kit import check, found, natural, network, problem, valid_in_box

pytestmark = pytest.mark.usefixtures("one_thread")

SIGMOID_LOG = network("(float[4] x) => (float[4] y) { s = Sigmoid(x) y = Log(s) }")


def run(reduced: Problem, *runtimes: str, prove_timeout: float = 5.0, **config: object) -> Answer:
    settings = {"n_starts": 20, "n_steps": 20, "timeout": 30.0, "processors": 1} | config
    asked = SearchConfig(prove_timeout=prove_timeout, runtime=runtimes or RUNTIMES, **settings)  # type: ignore[arg-type]
    return falsify(reduced, asked)


def verdicts(result: Answer) -> dict[str, str]:
    return {operator.node: operator.verdict for operator in result.operators}


def test_a_proof_needs_no_search() -> None:
    result = run(natural("log_mel_safe"))
    assert (result.verdict, result.starts, result.interrupted) == ("holds", 0, "")
    assert set(verdicts(result).values()) == {"proved"}
    assert result.counterexample is None and result.seconds["prove"] > 0
    assert result.runtimes == ("onnxruntime", "torch", "exact")


@pytest.mark.parametrize("name", ["log_mel", "split_forms", "l2_normalise"])
def test_what_is_violated_was_not_proved(name: str) -> None:
    result = run(natural(name))
    check(natural(name), result)
    assert result.verdict == "violated"
    assert set(verdicts(result).values()) <= {"violated", "proved", "open"}
    assert "proved" in verdicts(result).values()


def test_a_kernel_that_strays_is_found_and_not_proved_away() -> None:
    reduced = valid_in_box(SIGMOID_LOG, [(-20.0, 20.0)])
    result = run(reduced)
    assert found(result).keys() == {"Log_y"} and result.verdict == "violated"
    torch_only = run(reduced, "torch")
    assert (torch_only.verdict, torch_only.runtimes, torch_only.starts) == ("holds", ("torch",), 0)


def test_a_proof_of_some_operators_leaves_the_others_to_the_search() -> None:
    graph = network("(float[2] x) => (float[2] y, float[2] z) { e = Exp(x) y = Log(e) z = Log(x) }")
    result = run(valid_in_box(graph, [(-1.0, 1.0)]))
    assert verdicts(result) == {"Exp_e": "proved", "Log_y": "proved", "Log_z": "violated"}


def test_what_depends_on_an_open_operator_says_so() -> None:
    graph = network("(float[2] x) => (float[2] y) { l = Log(x) y = Sin(l) }")
    result = run(valid_in_box(graph, [(-1.0, 1.0)]), n_starts=0, prove_timeout=0.1)
    assert result.verdict == "unknown"
    assert [(o.node, o.verdict, o.after) for o in result.operators] == [
        ("Log_l", "open", ()),
        ("Sin_y", "open", ("Log_l",)),
    ]


def test_a_finer_proof_follows_a_round_of_the_search() -> None:
    graph = network("(float[1,2] x) => (float[1,1] y) { q = Mul(x, x) y = ReduceSum<keepdims = 1>(q) }")
    text = "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= x[0, 0] + x[0, 1] - {0}))"
    holds = run(problem(text.format(0.55), networks={"N": graph}), n_starts=-1)
    assert holds.verdict == "holds" and holds.starts > 0 and holds.interrupted == ""
    violated = run(problem(text.format(0.4), networks={"N": graph}), n_starts=-1)
    assert violated.verdict == "violated"
    without = run(problem(text.format(0.55), networks={"N": graph}), prove_timeout=0.0)
    assert without.verdict == "unknown"


@pytest.mark.few(1)
@pytest.mark.parametrize("timeout", [30.0, 1e10])
def test_the_whole_box_is_bounded_before_most_of_the_search(timeout: float) -> None:
    graph = network("(float[1,2] x) => (float[1,1] y) { q = Mul(x, x) y = ReduceSum<keepdims = 1>(q) }")
    text = "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= x[0, 0] + x[0, 1] - 0.55))"
    result = run(problem(text, networks={"N": graph}), n_starts=-1, n_steps=10**9, timeout=timeout)
    assert result.verdict == "holds" and result.interrupted == ""
    assert result.seconds["search"] < 15, "of all the time that its first round would take"


@pytest.mark.slow
def test_proof_and_search_go_on_while_there_is_time() -> None:
    graph = network("(float[1,2] x) => (float[1,1] y) { q = Mul(x, x) y = ReduceSum<keepdims = 1>(q) }")
    text = "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= x[0, 0] * x[0, 1] - 1e-9))"
    result = run(problem(text, networks={"N": graph}), n_starts=None, timeout=3.0)
    assert (result.verdict, result.interrupted) == ("unknown", "timeout")
    assert result.seconds["prove"] > 0.5 and result.seconds["search"] > 0.3


def test_a_suspected_point_is_a_start() -> None:
    graph = network("(float[1,2] x) => (float[1,1] y) { q = Mul(x, x) y = ReduceSum<keepdims = 1>(q) }")
    # False in a circle about (0.5, 0.5) that is too small to be met by chance, and no step is made.
    text = "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= x[0, 0] + x[0, 1] - 0.49999))"
    result = run(problem(text, networks={"N": graph}), n_starts=-1, n_steps=0, prove_timeout=2.0)
    assert result.verdict == "violated"


def interrupt(progress: Progress) -> None:
    if progress.stage == "prove":
        raise KeyboardInterrupt


def test_ctrl_c_during_the_proof_leaves_all_open() -> None:
    reduced = natural("log_mel_safe")
    result = falsify(reduced, SearchConfig(processors=1), progress=interrupt)
    assert (result.verdict, result.interrupted, result.starts) == ("unknown", "Ctrl-C", 0)
    assert set(verdicts(result).values()) == {"open"}


def test_no_time_for_a_proof() -> None:
    result = run(natural("log_mel_safe"), timeout=0.0)
    assert (result.verdict, result.interrupted) == ("unknown", "timeout")


@pytest.mark.slow
def test_the_timeout_ends_the_proof_too() -> None:
    graph = network("(float[1,2] x) => (float[1,1] y) { q = Mul(x, x) y = ReduceSum<keepdims = 1>(q) }")
    text = "Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= x[0, 0] + x[0, 1] - 0.49999999))"
    result = run(problem(text, networks={"N": graph}), timeout=1.0, prove_timeout=600.0, n_steps=0)
    assert result.seconds["prove"] < 60, "of the 600 that a proof may take"
    assert result.verdict != "holds"


def test_a_search_alone_proves_nothing() -> None:
    result = falsify(natural("log_mel_safe"), SearchConfig(n_starts=5, n_steps=2, processors=1, prove=False))
    assert (result.verdict, result.runtimes) == ("unknown", ())
    assert set(verdicts(result).values()) == {"open"}


@pytest.mark.slow
def test_a_proof_imports_nothing_that_is_slow_to_import() -> None:
    code = (
        "import sys; from tests.verify.search.search_kit import natural; from ranum_falsify.config import SearchConfig; "
        "from ranum_falsify.verify.decide import falsify; "
        "print(falsify(natural('log_mel_safe'), SearchConfig()).verdict, 'sympy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["holds", "False"]
