"""The search for invalid inputs: what it finds, what it must not claim, and what it says of the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import ranum_falsify as rf
from ranum_falsify.config import SearchConfig
from ranum_falsify.errors import PropertyError
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.replay.broken import has_finite_derivative
from ranum_falsify.verify.replay.replayer import Replay, Replayer
from ranum_falsify.verify.search.operator_search import OperatorSearch
from tests.networks.probing import metadata
from tests.verify.search.search_kit import NETWORKS, context, found, natural, network, problem, search, valid_in_box

FREED = {"vae": {"std_exp", "variance_exp"}}

LOG_AND_SQRT = network("(float[3] x) => (float[3] y, float[3] z) { y = Log(x) z = Sqrt(x) }")


# what must be found --------------------------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("name", sorted(file.stem for file in NETWORKS.glob("*.onnx")))
def test_documented_hazards_are_found_and_no_others(name: str) -> None:
    hazards = set(metadata(onnx.load(NETWORKS / f"{name}.onnx"), "hazard:"))
    result = search(natural(name), n_starts=100 if hazards else 20)
    assert hazards - FREED.get(name, set()) <= set(found(result))
    assert result.verdict == ("violated" if hazards else "unknown")
    assert {operator.network for operator in result.operators} <= {"N"}
    assert {operator.node for operator in result.operators} >= hazards
    assert hazards or result.unconfirmed == ()


@pytest.mark.slow
def test_free_weights_overflow_what_fixed_ones_do_not() -> None:
    nodes = sorted(FREED["vae"])
    assert search(natural("vae", options=f"nodes={nodes!r}"), n_starts=20).verdict == "unknown"
    free = natural("vae", free={"logvar_W": (-50.0, 50.0)}, options=f"nodes={nodes!r}")
    result = search(free, n_starts=20)
    assert set(found(result)) == FREED["vae"]
    example = result.counterexample
    assert example is not None and "logvar_W" in example.feeds


CANCELLING = {
    "difference": "(float[1,2] x) => (float[1,1] y) { k = Constant<value = float[2,1] {3, -7}>() d = MatMul(x, k) "
    "o = Constant<value = float {1}>() y = Div(o, d) }",
    "offset": "(float[1,4] x) => (float[1,4] y) { k = Constant<value = float[4] {0.3, -0.7, 0.11, 0.9}>() d = Sub(x, k)"
    " y = Reciprocal(d) }",
    "sum": "(float[1,3] x) => (float[1,1] y) { t = Tanh(x) k = Constant<value = float[3,1] {1.7, -0.4, 0.23}>() "
    "s = MatMul(t, k) o = Constant<value = float {0.37}>() d = Sub(s, o) y = Div(o, d) }",
    "double": "(double[1,2] x) => (double[1,1] y) { k = Constant<value = double[2,1] {3, -7}>() d = MatMul(x, k) "
    "o = Constant<value = double {1}>() y = Div(o, d) }",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CANCELLING)
def test_bisection_finds_exact_zeros(name: str) -> None:
    graph = network(CANCELLING[name])
    # Away from the origin, where the portfolio's zeros, constants and grids do not cancel by themselves.
    result = search(valid_in_box(graph, [(0.1, 1.3)]), n_starts=100)
    assert {operator.op_type for operator in found(result).values()} <= {"Div", "Reciprocal"}
    assert result.verdict == "violated"


def test_near_misses_of_other_kernels_are_replayed() -> None:
    """ONNX Runtime's Sigmoid is exactly 0 below about -15.8, torch's only below -103."""
    graph = network("(float[4] x) => (float[4] y) { s = Sigmoid(x) y = Log(s) }")
    reduced = valid_in_box(graph, [(-20.0, 20.0)])
    lowest = torch.full((1, 4), -20.0)
    assert torch.sigmoid(lowest).min() > 0
    (log,) = found(search(reduced)).values()
    assert (log.op_type, log.kind, log.oracle) == ("Log", "inf", "onnxruntime")
    assert search(valid_in_box(graph, [(-15.0, 20.0)])).verdict == "unknown"


def test_every_operator_is_reported_in_topological_order() -> None:
    result = search(valid_in_box(LOG_AND_SQRT, [(-1.0, 1.0)]))
    assert [operator.op_type for operator in result.operators] == ["Log", "Sqrt"]
    assert all(operator.verdict == "violated" for operator in result.operators)
    result = search(valid_in_box(LOG_AND_SQRT, [(0.0, 1.0)]))
    assert [operator.verdict for operator in result.operators] == ["violated", "open"]
    log = result.operators[0]
    assert log.constraint == "x > 0" and log.reason and log.reach == "output"


def test_masked_and_output_reach() -> None:
    graph = network(
        "(float[2] x) => (float[2] y, float[2] z) { l = Log(x) o = Constant<value = float {0}>() b = Greater(x, o) "
        "y = Where(b, l, o) z = Sqrt(x) }"
    )
    reduced = valid_in_box(graph, [(-1.0, 1.0)])
    reaches = {o.op_type: o.reach for o in found(search(reduced)).values()}
    assert reaches == {"Log": "masked", "Sqrt": "output"}
    only_output = search(reduced, fail_on="output")
    assert {o.op_type: o.verdict for o in only_output.operators} == {"Log": "masked", "Sqrt": "violated"}
    # ONNX Runtime did confirm the logarithm; that it is masked is what was not wanted.
    assert only_output.unconfirmed == ()


def test_large_values_overflow() -> None:
    graph = network("(float[2] x) => (float[2] y) { s = Mul(x, x) y = Neg(s) }")
    (mul,) = found(search(valid_in_box(graph, [(-3e38, 3e38)]))).values()
    assert (mul.op_type, mul.kind) == ("Mul", "inf")
    assert search(valid_in_box(graph, [(-1e19, 1e19)])).verdict == "unknown"


# what must not be claimed ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_side_conditions_hold_at_every_counterexample() -> None:
    safe = valid_in_box(LOG_AND_SQRT, [(-1.0, 1.0)], extra="v0[0] + v0[1] > 3")
    assert search(safe).verdict == "unknown", "no input of the box satisfies the antecedent"
    narrow = valid_in_box(LOG_AND_SQRT, [(-1.0, 1.0)], extra="v0[0] + v0[1] > 1.2")
    result = search(narrow)
    assert set(found(result)) != set()
    for operator in found(result).values():
        assert operator.counterexample is not None
        x = operator.counterexample.inputs["v0"].astype(np.float64)
        assert x[0] + x[1] > 1.2


def test_side_conditions_on_outputs() -> None:
    graph = network("(float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Sqrt(x) }")
    reduced = valid_in_box(graph, [(-1.0, 1.0)], extra="N(v0)[0][0] > 0.5")
    result = search(reduced)
    example = result.counterexample
    assert example is not None and -example.inputs["v0"][0] > 0.5
    unreachable = valid_in_box(graph, [(-1.0, 1.0)], extra="N(v0)[0][0] > 1.5")
    assert search(unreachable).verdict == "unknown"


def test_what_only_torch_sees_is_unconfirmed() -> None:
    """ONNX Runtime computes chains of float16 operators in float32, so Inf - Inf does not happen there."""
    graph = network("(float16[2] x) => (float16[2] y) { s = Mul(x, x) y = Sub(s, s) }")
    sub = next(op.name for op in graph.nodes if type(op).__name__ == "Sub")
    result = search(valid_in_box(graph, [(-1000.0, 1000.0)], options=f"nodes=[{sub!r}]"))
    assert result.verdict == "unknown"
    (line,) = result.unconfirmed
    assert "Sub" in line and sub in line and "torch" in line


def test_refused_candidates_do_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target whose first candidates ONNX Runtime refuses is tried at others of the same margin."""
    run = Replayer.run
    asked: list[float] = []

    def doubting(self: Replayer, inputs: dict[str, np.ndarray]) -> Replay:
        asked.append(float(inputs["x"][0]))
        return run(self, {"x": np.ones(3, np.float32)} if len(asked) <= 2 else inputs)

    monkeypatch.setattr(Replayer, "run", doubting)
    graph = network("(float[3] x) => (float[3] y) { r = Relu(x) y = Log(r) }")
    result = falsify(valid_in_box(graph, [(-1.0, 1.0)]), SearchConfig(n_starts=20, processors=1))
    assert len(asked) > 2
    assert result.verdict == "violated" and result.unconfirmed == ()


def test_a_candidate_is_replayed_once() -> None:
    reduced = valid_in_box(LOG_AND_SQRT, [(-1.0, 1.0)])
    search_context = context(reduced, n_starts=10)
    seen: list[bytes] = []
    run = search_context.confirmer.run

    def counting(graph: object, feeds: dict[str, np.ndarray]) -> Replay:
        seen.append(feeds["x"].tobytes())
        return run(graph, feeds)  # type: ignore[arg-type]

    search_context.confirmer.run = counting  # type: ignore[method-assign, assignment]
    with search_context.confirmer:
        OperatorSearch(search_context).run()
    assert len(seen) == len(set(seen)) > 0


# what is looked at -----------------------------------------------------------------------------------------------


def test_only_and_nodes_restrict_the_targets() -> None:
    names = {type(op).__name__: op.name for op in LOG_AND_SQRT.nodes}
    for options in ('only=["Sqrt"]', f"nodes=[{names['Sqrt']!r}]"):
        result = search(valid_in_box(LOG_AND_SQRT, [(-1.0, 1.0)], options=options))
        assert [operator.op_type for operator in result.operators] == ["Sqrt"]
        assert set(found(result)) == {names["Sqrt"]}


@pytest.mark.parametrize(("options", "text"), [('only=["Exp"]', "no operator 'Exp'"), ('nodes=["q"]', "no node 'q'")])
def test_unknown_names_are_refused(options: str, text: str) -> None:
    with pytest.raises(PropertyError, match=text) as error:
        search(valid_in_box(LOG_AND_SQRT, [(-1.0, 1.0)], options=options))
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_gradient_demands_finite_derivatives() -> None:
    graph = network("(float[3] x) => (float[3] y) { y = Sqrt(x) }")
    assert search(valid_in_box(graph, [(0.0, 1.0)])).verdict == "unknown"
    (sqrt,) = found(search(valid_in_box(graph, [(0.0, 1.0)], options="gradient=True"))).values()
    assert (sqrt.kind, sqrt.oracle) == ("gradient", "autograd")
    assert sqrt.counterexample is not None and (sqrt.counterexample.inputs["v0"] == 0).any()
    assert search(valid_in_box(graph, [(0.1, 1.0)], options="gradient=True")).verdict == "unknown"


@pytest.mark.slow
def test_derivatives_that_are_infinite_only_where_denormals_are_flushed_say_so() -> None:
    graph = network("(float[2] x) => (float[2] y) { e = Exp(x) y = Sqrt(e) }")
    assert search(valid_in_box(graph, [(-80.0, 10.0)], options="gradient=True")).verdict == "unknown"
    (sqrt,) = found(search(valid_in_box(graph, [(-100.0, 10.0)], options="gradient=True"))).values()
    assert (sqrt.op_type, sqrt.kind, sqrt.oracle) == ("Sqrt", "gradient", "autograd-flushed")
    assert sqrt.operands["x"][0] == 0 and sqrt.counterexample is not None
    assert np.exp(sqrt.counterexample.inputs["v0"]).min() > 0


def test_derivatives_of_several_operators_at_the_same_point() -> None:
    graph = network("(float[2] x) => (float[2] y) { a = Sqrt(x) b = Add(x, x) c = Sqrt(b) y = Add(a, c) }")
    result = search(valid_in_box(graph, [(0.0, 0.0)], options="gradient=True"), n_starts=5)
    violated = [operator for operator in result.operators if operator.verdict == "violated"]
    assert [(operator.op_type, operator.kind) for operator in violated] == 2 * [("Sqrt", "gradient")]


def test_derivatives_at_nan_are_the_fault_of_the_operator_before() -> None:
    (sqrt,) = network("(float[2] x) => (float[2] y) { y = Sqrt(x) }").nodes
    for value, finite in ((1.0, True), (0.0, False), (np.nan, True)):
        assert has_finite_derivative(sqrt, [np.array([1.0, value], np.float32)]) == finite


# inputs of every kind -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int32", "int64", "uint8", "int8", "uint16"])
def test_integer_inputs(kind: str) -> None:
    graph = network(
        f"({kind}[4] x) => (float[4] y) {{ f = Cast<to = 1>(x) k = Constant<value = float[4] {{3, 5, 7, 9}}>() "
        "d = Sub(f, k) y = Reciprocal(d) }"
    )
    result = search(valid_in_box(graph, [(0, 40)]))
    assert [o.op_type for o in found(result).values()] == ["Reciprocal"]
    assert search(valid_in_box(graph, [(10, 40)])).verdict == "unknown"


def test_integer_division_by_zero() -> None:
    graph = network("(int64[3] x, int64[3] z) => (int64[3] y) { y = Div(x, z) }")
    (div,) = found(search(valid_in_box(graph, [(-5, 5), (-2, 2)]))).values()
    assert (div.op_type, div.reach, div.kind) == ("Div", "output", "error")
    assert search(valid_in_box(graph, [(-5, 5), (1, 2)])).verdict == "unknown"


@pytest.mark.parametrize("op_type", ["Div", "Mod"])
def test_the_least_integer_divided_by_minus_one(op_type: str) -> None:
    graph = network(f"(int32[3] x, int32[3] z) => (int32[3] y) {{ y = {op_type}(x, z) }}")
    least = -(2**31)
    result = search(valid_in_box(graph, [(least, least + 9), (-3, -1)]))
    (found_one,) = found(result).values()
    assert result.verdict == "violated" and found_one.reach == "output"
    assert (found_one.reason, found_one.kind) == ("the least integer divided by -1", "crash")
    # PyTorch has the remainder.
    assert found_one.runtimes == (("onnxruntime", "torch") if op_type == "Div" else ("onnxruntime",))
    assert search(valid_in_box(graph, [(least + 1, least + 9), (-3, -1)])).verdict == "unknown"


def test_boolean_inputs() -> None:
    graph = network(
        "(bool[5] m, float[5] x) => (float[5] y) { o = Constant<value = float {-1}>() w = Where(m, x, o) y = Sqrt(w) }"
    )
    (sqrt,) = found(search(valid_in_box(graph, [(False, True), (0.5, 1.0)]))).values()
    assert sqrt.counterexample is not None
    assert not sqrt.counterexample.inputs["v0"].all()
    assert search(valid_in_box(graph, [(True, True), (0.5, 1.0)])).verdict == "unknown"


@pytest.mark.parametrize("kind", ["float16", "double", "float"])
def test_floats_of_every_width(kind: str) -> None:
    graph = network(f"({kind}[3] x) => ({kind}[3] y) {{ e = Exp(x) y = Log(e) }}")
    wide = search(valid_in_box(graph, [(-2000.0, 2000.0)]))
    assert {o.op_type for o in found(wide).values()} == {"Exp", "Log"}
    assert search(valid_in_box(graph, [(-5.0, 5.0)])).verdict == "unknown"


def test_scalar_inputs_take_more_steps_than_are_made_between_restarts() -> None:
    graph = network("(float s) => (float y) { t = Tanh(s) o = Constant<value = float {2}>() u = Add(t, o) y = Log(u) }")
    result = search(valid_in_box(graph, [(-3.0, 3.0)]), n_starts=4, n_steps=12, timeout=2.0)
    assert result.verdict == "unknown"


def test_a_box_of_one_point() -> None:
    graph = network("(float[2] x) => (float[2] y) { y = Log(x) }")
    assert search(valid_in_box(graph, [(0.0, 0.0)])).verdict == "violated"
    assert search(valid_in_box(graph, [(0.5, 0.5)])).verdict == "unknown"


# derived networks ------------------------------------------------------------------------------------------------


def test_slices_and_compositions() -> None:
    graph = network("(float[3] x) => (float[3] y) { a = Relu(x) b = Neg(a) c = Sqrt(b) y = Exp(c) }")
    whole = problem("Forall(x, Implies(1 <= x <= 2, no_invalid_input(N[2:](x))))", networks={"N": graph})
    assert "Sqrt" in {o.op_type for o in found(search(whole)).values()}
    head = problem("Forall(x, Implies(-1 <= x <= 2, no_invalid_input(N[:3](x))))", networks={"N": graph})
    assert search(head).verdict == "unknown"
    inner = network("(float[3] x) => (float[3] y) { y = Sub(x, x) }")
    networks = {"N": network("(float[3] x) => (float[3] y) { y = Log(x) }"), "M": inner}
    for formula in ("no_invalid_input(N.compose(M)(x))", "no_invalid_input(N(M(x)))"):
        composed = problem(f"Forall(x, Implies(-1 <= x <= 1, {formula}))", networks=networks)
        result = search(composed)
        assert [o.op_type for o in found(result).values()] == ["Log"], formula


def test_two_networks_have_their_own_targets() -> None:
    networks = {
        "N": network("(float[2] x) => (float[2] y) { y = Log(x) }"),
        "M": network("(float[2] x) => (float[2] y) { y = Sqrt(x) }"),
    }
    both = problem(
        "Forall(x, Implies(0 <= x <= 1, And(no_invalid_input(N(x)), no_invalid_input(M(x)))))", networks=networks
    )
    result = search(both)
    assert {(o.network, o.op_type, o.verdict) for o in result.operators} == {
        ("N", "Log", "violated"),
        ("M", "Sqrt", "open"),
    }


def test_what_an_infinite_operand_makes_fail_is_a_consequence(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Reciprocal", ["x"], ["inverse"], name="inverse"),
            helper.make_node("Reciprocal", ["y"], ["other"], name="other"),
            helper.make_node("Sub", ["inverse", "inverse"], ["gap"], name="gap"),
            helper.make_node("Sub", ["other", "y"], ["far"], name="far"),
            helper.make_node("Sqrt", ["y"], ["root"], name="root"),
            helper.make_node("Sum", ["gap", "far", "root"], ["z"], name="z"),
        ],
        "consequences",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)]), path)
    result = rf.check(path, box=(-1, 1), self_check=False)
    after = {one.node: one.after for one in result.operators if one.verdict == "violated"}
    assert after == {"inverse": (), "other": (), "gap": ("inverse",), "root": ()}
    assert "1 more fails because of it: gap (Sub)" in str(result)
