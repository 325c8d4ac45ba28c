"""NaN and infinities that a model stores: said, violated where an operator computes with them, never proved away."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ranum_falsify.config import ProveConfig, SearchConfig
from ranum_falsify.network import Graph, read
from ranum_falsify.process.deadline import NEVER
from ranum_falsify.results.explanation import explanation
from ranum_falsify.results.text import ranges
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.prove.explaining import histories
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.verify.search.torch_replay import find_failing_in_torch
from tests.network.building import unchecked
from tests.verify.replay.replay_kit import replay
from tests.verify.search.search_kit import found, in_box, problem, search, valid_in_box

MEANING = "an operator that computes with it is violated, one that only hands it on is not"
CHOSEN = "c = Greater(x, z) v = Where(c, x, w)"


def model(body: str, value: float) -> onnx.ModelProto:
    made = unchecked(
        f"g (float[2] x) => (float[2] y) <float[2] w = {{0, 0}}, float z = {{0}}, float o = {{1}}> {{ {body} }}"
    )
    made.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([1, value], np.float32), "w"))
    return made


def graph(body: str, value: float = np.nan) -> Graph:
    return read(model(body, value))


@pytest.mark.parametrize(
    ("body", "failing"),
    [
        ("[mul] y = Mul(x, w)", {"mul"}),
        (f"{CHOSEN} [add] a = Add(v, v) [mul] y = Mul(a, a)", {"add"}),
        (f"{CHOSEN} q = Clip(v, z, o) [mul] y = Mul(q, q)", {"mul"}),
        (f"{CHOSEN} y = Relu(v)", set()),
        ("s = Shape(w) f = Cast<to = 1>(s) [mul] y = Mul(x, f)", set()),
    ],
)
def test_an_operator_that_computes_with_stored_nan_is_violated(body: str, failing: set[str]) -> None:
    made, feeds = model(body, np.nan), {"x": np.array([1, -1], np.float32)}
    stored = {"w": np.array([1, np.nan], np.float32), "z": np.float32(0), "o": np.float32(1)}
    findings = replay(made.graph.node, feeds, ["y"], stored)
    assert {finding.node for finding in findings.findings} == failing
    seen = find_failing_in_torch(read(made), feeds)
    assert seen is not None and set(seen) == failing
    proof = Prover(valid_in_box(read(made), [(-1.0, 1.0)]), ProveConfig()).analyse()
    assert proof.holds == (not failing)
    assert {name for (_, name), known in proof.operators.items() if known.open} >= failing


def test_a_search_finds_it() -> None:
    (mul,) = found(search(valid_in_box(graph("[mul] y = Mul(x, w)"), [(-1.0, 1.0)]))).values()
    assert (mul.node, mul.kind, mul.runtimes) == ("mul", "nan", ("onnxruntime", "torch"))


def test_initializers_are_named() -> None:
    assert graph("y = Mul(x, w)").notices == (f"initializer 'w' holds NaN: {MEANING}",)
    (notice,) = graph("y = Add(x, w)", -np.inf).notices
    assert notice == "initializer 'w' holds -inf: what it makes infinite is no violation, as a mask is none"
    assert not graph("y = Add(x, w)", 3.0).notices


@pytest.mark.parametrize(("value", "kind"), [(np.nan, "NaN"), (-np.inf, "infinite")])
def test_an_output_that_is_not_finite_is_a_notice_of_what_holds(value: float, kind: str) -> None:
    proof = Prover(valid_in_box(graph(CHOSEN.replace("v =", "y ="), value), [(-1.0, 1.0)]), ProveConfig()).analyse()
    assert proof.holds
    assert any(notice.startswith(f"output 'y' may be {kind} although") for notice in proof.notices)


@pytest.mark.parametrize(
    ("body", "value", "verdict"),
    [
        (f"{CHOSEN} y = Identity(v)", np.nan, "violated"),
        (f"{CHOSEN} y = Identity(v)", np.inf, "violated"),
        (f"{CHOSEN} y = Clip(v, z, o)", np.nan, "violated"),
        (f"{CHOSEN} y = Clip(v, z, o)", np.inf, "holds"),
        ("y = Exp(x)", 0.0, "holds"),
    ],
)
def test_finite_outputs(body: str, value: float, verdict: str) -> None:
    asked = problem(in_box([(-1.0, 1.0)], "finite_outputs(N(v0))"), networks={"N": graph(body, value)})
    assert falsify(asked, SearchConfig(n_starts=20, n_steps=5, timeout=20.0)).verdict == verdict


def test_reports_show_that_an_operand_holds_nan() -> None:
    violated = search(valid_in_box(graph("y = Mul(x, w)"), [(-1.0, 1.0)]))
    (operator,) = found(violated).values()
    assert ranges(operator.operands).endswith(", w with NaN")
    (shown,) = histories(valid_in_box(graph("y = Mul(x, w)"), [(-1.0, 1.0)]), "Mul_y", ProveConfig()).values()
    assert "  b with NaN, a constant" in explanation({"N": shown})


def test_nothing_is_said_of_outputs_that_stored_nan_may_reach() -> None:
    asked = problem(in_box([(-1.0, 1.0)], "N(v0) <= 2"), networks={"N": graph(f"{CHOSEN} y = Clip(v, z, o)")})
    prover = Prover(asked, ProveConfig())
    assert not prover.analyse().holds
    assert not prover.refine(NEVER).holds


def test_an_output_that_is_no_floating_number_is_not_nan() -> None:
    made = unchecked("g (float[2] x) => (bool[2] y) <float w = {0}> { y = Greater(x, w) }")
    made.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array(np.nan, np.float32), "w"))
    proof = Prover(valid_in_box(read(made), [(-1.0, 1.0)]), ProveConfig()).analyse()
    assert proof.holds and not any("may be NaN" in notice for notice in proof.notices)


@pytest.mark.parametrize("use", ["y = Max(x, c)", "h = Greater(x, c) y = Where(h, x, o)", "y = Add(x, c)"])
def test_a_constant_that_the_model_makes_nan_is_violated(use: str) -> None:
    (made,) = found(search(valid_in_box(graph(f"[zero] c = Div(z, z) {use}", 1.0), [(-1.0, 1.0)]))).values()
    assert (made.node, made.kind) == ("zero", "nan")


def test_a_constant_that_the_model_makes_infinite_is_named() -> None:
    asked = valid_in_box(graph("[pole] c = Div(o, z) h = Greater(x, c) y = Where(h, x, o)"), [(-1.0, 1.0)])
    proof = Prover(asked, ProveConfig()).analyse()
    assert not proof.holds
    assert any("pole (Div) gives infinity: that is no violation" in notice for notice in proof.notices)


@pytest.mark.parametrize("body", ["[use] y = Mul(x, w)", f"{CHOSEN} [use] y = Log(v)", "[use] y = MatMul(w, m)"])
def test_the_condition_that_is_named_is_about_stored_nan(body: str) -> None:
    made = model(body.replace("y = MatMul(w, m)", "i = Identity(x) m = Reshape(i, s) y = MatMul(w, m)"), np.nan)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 1]), "s"))
    del made.graph.output[0].type.tensor_type.shape.dim[:]
    (use,) = found(search(valid_in_box(read(made), [(-1.0, 1.0)]))).values()
    assert (use.constraint, use.reason) == ("no operand holds NaN that the model stores", "NaN that the model stores")


def test_constants_of_nodes_are_named_and_followed_too() -> None:
    made = model("y = Mul(x, k)", 1.0)
    value = onnx.numpy_helper.from_array(np.array([1, np.nan], np.float32))
    made.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["k"], value=value))
    assert read(made).notices == (f"constant 'k' holds NaN: {MEANING}",)
    (mul,) = found(search(valid_in_box(read(made), [(-1.0, 1.0)]))).values()
    assert (mul.kind, mul.runtimes) == ("nan", ("onnxruntime", "torch"))
