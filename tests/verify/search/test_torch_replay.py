"""PyTorch beside ONNX Runtime: which of them a violation occurs on."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import onnxruntime as ort
import pytest
import torch

from ranum_falsify.config import SearchConfig
from ranum_falsify.network import Graph, read
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.search.result import OperatorResult
from ranum_falsify.verify.search.torch_replay import add_runtimes, find_failing_in_torch
from tests.network.building import unchecked
from tests.verify.search.search_kit import found, in_box, problem, search, valid_in_box


def graph(body: str, inputs: str = "float[2] x") -> Graph:
    return read(unchecked(f"g ({inputs}) => (y) {{{body}}}"))


def operator(name: str, oracle: str = "onnxruntime") -> OperatorResult:
    return OperatorResult(
        network="N",
        node=name,
        op_type="Log",
        verdict="violated",
        constraint="x > 0",
        oracle=oracle,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("values", "failing"),
    [((1, 1), set()), ((1, 0), {"Log"}), ((0, 0), {"Log"}), ((np.nan, 1), set()), ((np.inf, 1), set())],
)
def test_an_operator_fails_by_the_rules_of_replay(values: tuple[float, float], failing: set[str]) -> None:
    made = graph("a = Log(x) y = Add(a, x)")
    seen = find_failing_in_torch(made, {"x": np.array(values, np.float32)})
    assert seen is not None
    assert {type(op).__name__ for op in made.nodes if op.name in seen} == failing


def test_an_integer_division_by_zero_fails() -> None:
    made = graph("a = Add(x, x) b = Div(a, x) y = Add(b, b)", "int64[2] x")
    assert find_failing_in_torch(made, {"x": np.array([1, 2])}) == {}
    seen = find_failing_in_torch(made, {"x": np.array([1, 0])})
    assert seen is not None and [type(op).__name__ for op in made.nodes if op.name in seen] == ["Div"]
    (failure,) = seen.values()
    assert (failure.kind, failure.reach, failure.operands) == ("error", "output", {"a": (0, 2), "b": (0, 1)})


@pytest.mark.parametrize(("op_type", "kinds"), [("Div", ["crash"]), ("Mod", [])])
def test_the_least_integer_divided_by_minus_one(op_type: str, kinds: list[str]) -> None:
    made = graph(f"a = Neg(x) y = {op_type}(x, a)", "int32[1] x")
    x = np.array([np.iinfo(np.int32).min], np.int32)
    seen = find_failing_in_torch(made, {"x": x})
    assert seen == {}  # its negative is itself, so that the quotient is 1
    made = graph(f"y = {op_type}(x, d)", "int32[1] x, int32[1] d")
    seen = find_failing_in_torch(made, {"x": x, "d": np.array([-1], np.int32)})
    assert seen is not None and [failure.kind for failure in seen.values()] == kinds


def test_random_numbers_are_not_compared() -> None:
    made = graph("r = RandomNormalLike(x) a = Sqrt(r) y = Add(a, x)")
    assert find_failing_in_torch(made, {"x": np.ones(2, np.float32)}) is None
    assert add_runtimes(operator("a"), None).runtimes == ()


@pytest.mark.parametrize(
    ("failing", "oracle", "runtimes"),
    [
        ({"a"}, "onnxruntime", ("onnxruntime", "torch")),
        ({"b"}, "onnxruntime", ("onnxruntime",)),
        ({"a"}, "reference", ("torch",)),
    ],
)
def test_runtimes_are_those_that_fail(failing: set[str], oracle: str, runtimes: tuple[str, ...]) -> None:
    assert add_runtimes(operator("a", oracle), failing).runtimes == runtimes


def test_a_search_says_where_a_violation_occurs() -> None:
    (log,) = found(search(valid_in_box(graph("y = Log(x)"), [(-1.0, 1.0)]))).values()
    assert (log.runtimes, log.optimisations, log.reach) == (("onnxruntime", "torch"), "any", "output")


def test_a_search_finds_what_only_the_optimiser_breaks() -> None:
    # The factors merge into 1e50, which is infinite.
    made = read(
        unchecked(
            """g (float[1, 2] x) => (float[1, 1] y) <float[2, 1] w = {0, 1}, float c = {1e25}> {
                l = Mul(x, c) p = MatMul(l, w) [scaled] y = Mul(p, c)
            }"""
        )
    )
    (scaled,) = found(search(valid_in_box(made, [(0.0, 1e-20)]))).values()
    assert (scaled.node, scaled.op_type, scaled.reach) == ("scaled", "Mul", "output")
    assert (scaled.optimisations, scaled.fused, scaled.runtimes) == ("default", "FusedMatMul", ("onnxruntime",))


def test_a_saturated_sigmoid_fails_on_onnx_runtime_alone() -> None:
    made = graph("s = Sigmoid(x) y = Log(s)")
    x = np.full(2, -20, np.float32)
    session = ort.InferenceSession(made.model.SerializeToString(), providers=["CPUExecutionProvider"])
    if np.isfinite(session.run(None, {"x": x})[0]).all():
        pytest.skip("this processor's kernel does not saturate there")
    (log,) = found(search(valid_in_box(made, [(-20.0, -19.0)]))).values()
    assert (log.op_type, log.runtimes) == ("Log", ("onnxruntime",))


TORCH = SearchConfig(n_starts=20, n_steps=20, processors=1, runtime=("torch",))


def test_an_answer_about_torch_leaves_out_what_onnx_runtime_alone_shows() -> None:
    # The factors merge into 1e50, which is infinite, on ONNX Runtime.
    made = read(
        unchecked(
            """g (float[1, 2] x, float[1] v) => (float[1, 1] y, float[1] z) <float[2, 1] w = {0, 1}, float c = {1e25}> {
                l = Mul(x, c) p = MatMul(l, w) [scaled] y = Mul(p, c) [log] z = Log(v)
            }"""
        )
    )
    result = falsify(valid_in_box(made, [(0.0, 1e-20), (-1.0, 1.0)]), TORCH)
    verdicts = {operator.node: operator.verdict for operator in result.operators}
    assert (verdicts["scaled"], verdicts["log"]) == ("proved", "violated")
    (notice,) = result.notices
    assert re.match(r"scaled \(Mul\) gives (NaN|infinity) on ONNX Runtime, where PyTorch does not", notice)
    (log,) = found(result).values()
    assert (log.oracle, log.runtimes, log.kind, log.reach) == ("torch", ("onnxruntime", "torch"), "nan", "output")


def test_an_answer_about_torch_counts_what_torch_alone_shows() -> None:
    made = graph("s = Sigmoid(x) one = Constant <value_float = 1.0> () d = Sub(one, s) [log] l = Log(d) y = Neg(l)")
    session = ort.InferenceSession(made.model.SerializeToString(), providers=["CPUExecutionProvider"])
    points = np.linspace(16, 18, 1001, dtype=np.float32)
    pairs = [x for x in np.stack([points, points], 1) if np.isfinite(session.run(None, {"x": x})[0]).all()]
    apart = [x for x in pairs if bool((torch.sigmoid(torch.from_numpy(x)) == 1).all())]
    if not apart:
        pytest.skip("this processor's kernels agree there")
    reduced = valid_in_box(made, [(float(apart[0][0]), float(apart[0][0]))])
    (log,) = found(falsify(reduced, TORCH)).values()
    assert (log.node, log.oracle, log.runtimes, log.kind, log.reach) == ("log", "torch", ("torch",), "inf", "output")
    assert log.counterexample is not None
    failing = find_failing_in_torch(made, log.counterexample.feeds)
    assert failing is not None and failing.keys() == {"log"}


def test_a_derivative_is_taken_where_torch_computes_its_operands() -> None:
    reduced = valid_in_box(graph("a = Abs(x) [root] y = Sqrt(a)"), [(-1.0, 1.0)], options="gradient=True")
    (root,) = found(falsify(reduced, TORCH)).values()
    assert (root.node, root.kind, root.oracle) == ("root", "gradient", "autograd-torch")


def test_a_property_over_outputs_is_false_where_both_runtimes_say_so() -> None:
    # Merged, the factors are infinite on ONNX Runtime, and the output is not below 1.
    made = read(
        unchecked(
            """g (float[1, 2] x) => (float[1, 1] y) <float[2, 1] w = {0, 1}, float c = {1e25}> {
                l = Mul(x, c) p = MatMul(l, w) y = Mul(p, c)
            }"""
        )
    )
    reduced = problem(in_box([(1e-30, 1e-20)], "N(v0) <= 1e36"), networks={"N": made})
    assert falsify(reduced, replace(TORCH, runtime=None)).verdict == "violated"
    assert falsify(reduced, TORCH).verdict == "holds"


def test_the_search_goes_on_where_a_violation_is_refuted() -> None:
    made, asked = graph("y = Log(x)"), list[OperatorResult]()

    def refute_first(operator: OperatorResult) -> str | None:
        asked.append(operator)
        return "not there" if len(asked) == 1 else None

    reduced = valid_in_box(made, [(-1.0, 1.0)])
    answer = falsify(reduced, TORCH, refute=refute_first)
    assert answer.verdict == "violated" and answer.counterexample is asked[-1].counterexample and len(asked) == 2
    answer = falsify(reduced, TORCH, refute=lambda _: "not there")
    assert answer.verdict == "unknown" and "not there" in answer.notices
