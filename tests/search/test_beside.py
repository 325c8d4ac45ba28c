"""PyTorch beside ONNX Runtime: which of them a violation occurs on."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

from ranum_falsify.network import Graph, read
from ranum_falsify.search.beside import add_runtimes, find_failing_in_torch
from ranum_falsify.search.result import OperatorResult
from tests.search.search_kit import found, search, valid_in_box


def graph(body: str, inputs: str = "float[2] x") -> Graph:
    return read(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (y) {{{body}}}'))


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
    assert find_failing_in_torch(made, {"x": np.array([1, 2])}) == frozenset()
    seen = find_failing_in_torch(made, {"x": np.array([1, 0])})
    assert seen is not None and [type(op).__name__ for op in made.nodes if op.name in seen] == ["Div"]


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
        parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 17]>
            g (float[1, 2] x) => (float[1, 1] y) <float[2, 1] w = {0, 1}, float c = {1e25}> {
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
