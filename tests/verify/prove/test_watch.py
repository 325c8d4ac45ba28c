"""Before a proof counts for ONNX Runtime, it has run the model once on inputs that the property allows."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ranum_falsify as rf
from ranum_falsify.config import ProveConfig, Runtime, SearchConfig
from ranum_falsify.domain import Interval
from ranum_falsify.network import Graph, read, registry, spec_of
from ranum_falsify.network.blackbox import evaluate_until
from ranum_falsify.network.optimised import optimise
from ranum_falsify.network.runs import ModelRunner, RunError
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.prove.applications import box_of
from ranum_falsify.verify.prove.evaluation import restore
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.verify.prove.watch import Observed, ProvedBounds, watch
from tests.network.building import parse, session
from tests.verify.search.search_kit import in_box, network, problem, valid_in_box

RECURRENT = "<hidden_size = 2> (x, w, r)"
REFUSED = {
    "no kernel for float64": (
        "(double[3,1,2] x) => (double[3,1,1,2] y)"
        f" <double[1,8,2] w = {{{', '.join(['0.5'] * 16)}}}, double[1,8,2] r = {{{', '.join(['0.5'] * 16)}}}>"
        f" {{ y = LSTM {RECURRENT} }}"
    ),
    "no kernel for float64, gated": (
        "(double[3,1,2] x) => (double[3,1,1,2] y)"
        f" <double[1,6,2] w = {{{', '.join(['0.5'] * 12)}}}, double[1,6,2] r = {{{', '.join(['0.5'] * 12)}}}>"
        f" {{ y = GRU {RECURRENT} }}"
    ),
    "no cubic interpolation of integers": (
        "(int32[1,1,4,4] x) => (int32[1,1,8,8] y) <int64[4] s = {1, 1, 8, 8}>"
        ' { y = Resize <mode = "cubic"> (x, , , s) }'
    ),
    "no greatest of half-precision updates": (
        "(float16[3] x, float16[2] u) => (float16[3] y) <int64[2,1] i = {0, 1}>"
        ' { y = ScatterND <reduction = "max"> (x, i, u) }'
    ),
}


def prove(reduced: Problem, *runtimes: Runtime) -> Prover:
    prover = Prover(reduced, ProveConfig(runtime=runtimes) if runtimes else ProveConfig())
    prover.analyse()
    return prover


def run_alone(graph: Graph, feeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    with ModelRunner(graph) as runner:
        runs = runner.run([feeds])
    if runs.refusal is not None:
        raise runs.refusal
    details = dict(zip(graph.output_names, graph.output_details, strict=True))
    return {name: restore(x[0], np.dtype(details[name].dtype)) for name, x in runs.values.items()}


def ones_box(text: str) -> list[tuple[float, float]]:
    return [(0.0, 1.0)] * text.split("=>")[0].count("[")


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_loads_and_does_not_run_is_not_proved(text: str) -> None:
    model = parse(f"g {text}", opset=18)
    runs = session(model, optimised=True)
    with pytest.raises(Exception, match="Non-zero status code"):
        runs.run(None, {x.name: np.zeros(x.shape, DTYPES[x.type]) for x in runs.get_inputs()})
    prover = prove(valid_in_box(read(model), ones_box(text)))
    (notice,) = prover.proof.notices
    assert not prover.proof.holds and not any(o.proved for o in prover.proof.operators.values())
    assert notice.startswith("nothing is proved about network N for ONNX Runtime, which does not run it: Non-zero")
    assert prove(valid_in_box(read(model), ones_box(text)), "torch", "exact").proof.holds


DTYPES = {"tensor(double)": np.float64, "tensor(int32)": np.int32, "tensor(float16)": np.float16}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_the_answer_is_never_that_it_holds(text: str) -> None:
    answer = rf.check(parse(f"g {text}", opset=18), box=(0, 1), self_check=False, timeout=20)
    assert answer.verdict == ("violated" if "ScatterND" in text else "unknown")
    assert answer.answer.starts == 0, "there is nothing to search for"


def test_a_refusal_that_no_condition_explains_is_named_as_such() -> None:
    model = parse(f"g {REFUSED['no greatest of half-precision updates']}", opset=18)
    (found,) = (o for o in rf.check(model, box=(0, 1), self_check=False).operators if o.verdict == "violated")
    assert (found.kind, found.condition) == ("error", "ONNX Runtime runs the operator")


def test_properties_of_outputs_need_a_run_too() -> None:
    text = REFUSED["no cubic interpolation of integers"]
    reduced = problem(in_box([(0.0, 1.0)], "N(v0)[0, 0, 0, 0] <= 1000"), networks={"N": read(parse(f"g {text}", 18))})
    assert not prove(reduced).proof.holds
    assert prove(reduced, "torch", "exact").proof.holds


def test_of_several_networks_each_runs() -> None:
    networks = {
        "N": network("(float[2] x) => (float[2] y) { y = Neg(x) }"),
        "M": read(parse(f"g {REFUSED['no cubic interpolation of integers']}", 18)),
    }
    text = "Forall(x, Forall(z, Implies(And(0 <= x <= 1, 0 <= z <= 1), And({}))))"
    both = problem(text.format("no_invalid_input(N(x)), no_invalid_input(M(z))"), networks=networks)
    prover = prove(both)
    assert not prover.proof.holds and {o.network for o in prover.proof.operators.values() if o.proved} == {"N"}
    (notice,) = prover.proof.notices
    assert "network M for ONNX Runtime, which does not run it" in notice


def test_a_network_applied_to_another_runs_on_what_that_gives() -> None:
    networks = {
        "N": network("(float[2] x) => (float[2] y) { y = Neg(x) }"),
        "M": network("(float[2] x) => (float[2] y) { y = Exp(x) }"),
    }
    reduced = problem("Forall(x, Implies(0 <= x <= 1, no_invalid_input(N(M(x)))))", networks=networks)
    prover = prove(reduced)
    assert prover.proof.holds and prover.watched is not None and prover.watched.faults == {}


def test_it_runs_where_the_conditions_hold() -> None:
    graph = network("(float[2] x) => (float[2] y) { y = Exp(x) }")
    text = "Forall(x, Implies(And(0 <= x <= 1, {}), no_invalid_input(N(x))))"
    for condition, meets in (
        ("x[0] - x[1] >= 0.3", True),
        ("x[0] - x[1] >= 2", False),
    ):
        prover = prove(problem(text.format(condition), networks={"N": graph}))
        assert prover.proof.holds and prover.watched is not None
        first, second = prover.watched.inputs["x"]
        assert bool(first - second >= 0.3) is meets


def test_freed_weights_and_fixed_inputs_are_fed() -> None:
    model = parse("g (float[2] x, int64[1] s) => (float[2] y) <float[2] w = {1, 2}> { m = Mul(x, w) y = Expand(m, s) }")
    freed = read(parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }"), free=["w"])
    assert run_alone(freed, {"x": np.full(2, 3, np.float32), "w": np.full(2, 5, np.float32)})["y"].tolist() == [15, 15]
    fixed = read(model, fixed={"s": np.array([2], np.int64)})
    assert run_alone(fixed, {"x": np.full(2, 3, np.float32)})["y"].tolist() == [3, 6]


def test_bfloat16_goes_in_and_comes_out() -> None:
    graph = read(parse("g (bfloat16[2] x) => (bfloat16[2] y) { y = Identity(x) }"))
    given = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    (y,) = run_alone(graph, {"x": given}).values()
    assert y.dtype == given.dtype and (y == given).all()


def test_provers_of_a_problem_share_its_runs() -> None:
    graph = network("(float[2] x) => (float[2] y) { y = Exp(x) }")
    reduced = valid_in_box(graph, [(0.0, 1.0)])
    first, second = prove(reduced).watched, prove(reduced).watched
    assert first is not None and second is not None and first.inputs is second.inputs
    (call,) = reduced.calls
    other = Prover(reduced, ProveConfig(), {id(call): graph.copy()})
    assert other.analyse().holds and other.watched is not None and other.watched.inputs is not first.inputs


def test_what_ran_is_forgotten_with_its_problem() -> None:
    reduced = valid_in_box(network("(float[2] x) => (float[2] y) { y = Exp(x) }"), [(0.0, 1.0)])
    assert prove(reduced).proof.holds
    gone = weakref.ref(reduced)
    del reduced
    gc.collect()
    assert gone() is None


def test_zeros_of_both_signs_are_given_as_they_are() -> None:
    graph = network("(float[2] x) => (float[2] y) { y = Reciprocal(x) }")
    for given, shown in (([2, 0.0], [0.5, np.inf]), ([2, -0.0], [0.5, -np.inf]), ([-0.0, -0.0], [-np.inf] * 2)):
        assert run_alone(graph, {"x": np.array(given, np.float32)})["y"].tolist() == shown


def test_what_takes_any_memory_ends_the_trial_not_the_machine() -> None:
    text = "g (int64[1] n) => (float y) { a = ConstantOfShape(n) y = ReduceSum<keepdims = 0>(a) }"
    with pytest.raises(RunError, match=r"memory|allocate"):
        run_alone(read(parse(text)), {"n": np.array([10**10], np.int64)})


@pytest.mark.slow
def test_a_trial_that_time_cuts_off_is_named() -> None:
    """A hundred million iterations take ONNX Runtime a minute, and their bounds a moment."""
    text = (
        "(float[2] x) => (float[2] y) <int64 m = {100000000}, bool go = {1}> { z = Loop <body = b (int64 i, bool c,"
        " float[2] s) => (bool d, float[2] t) { d = Identity(c) t = Abs(s) }> (m, go, x) y = Exp(z) }"
    )
    reduced = valid_in_box(network(text), ones_box(text))
    with evaluate_until(Deadline.after(4)):
        prover = prove(reduced)
    assert not prover.proof.holds
    (notice,) = prover.proof.notices
    assert "for ONNX Runtime, which does not run it within" in notice and "left for this run" in notice
    assert prove(reduced, "torch", "exact").proof.holds


# what runs against a proof --------------------------------------------------------------------------------------------


def outcome(
    text: str,
    low: float = 0.0,
    high: float = 0.0,
    inner: str = "no_invalid_input(N(v0))",
    *,
    most: float = 1.0,
    patch: pytest.MonkeyPatch | None = None,
) -> tuple[Problem, Observed]:
    """Return a problem over [0, most] and what is seen of it, its first operator being said to lie between bounds."""
    reduced = problem(in_box([(0.0, most)], inner), networks={"N": network(text)})
    graphs = {id(call): call.graph for call in reduced.calls}
    if patch is not None:
        first = reduced.calls[0].graph.nodes[0]
        wrong = replace(spec_of(first), interval=lambda op, a: Interval.fill(low, high, a.shape, a.dtype))
        patch.setitem(registry._BY_NODE, type(first), wrong)
    prover = Prover(reduced, ProveConfig())
    bounds = ProvedBounds(
        region=lambda number: prover.apply(reduced, box_of(reduced.regions[number])),
        at=lambda case, variables: prover.apply(case, box_of(variables)),
        seconds=0.0,
    )
    observed = watch(reduced, graphs, prover.analyses_of, bounds, lambda box: ())
    assert observed is not None
    return reduced, observed


EXP = "(float[2] x) => (float[2] y) { [e] y = Exp(x) }"


def test_outputs_outside_proved_bounds_throw_the_proof_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(EXP)[1].faults == {}
    reduced, observed = outcome(EXP, 2.0, 3.0, patch=monkeypatch)
    assert observed.faults[id(reduced.calls[0])] == (
        "which gives 1.64872122 at 'y', of e (Exp), run without optimisations, where [2, 3] is proved:"
        " a fault of ranum-falsify, please report it"
    )
    assert observed.feeds.keys() == {"x"} and (observed.feeds["x"] == 0.5).all()


def test_ends_of_a_box_throw_a_proof_over_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for low, high, point in ((1.1, 3.0, [0, 0]), (1.0, 2.7, [1, 1])):
        _, observed = outcome(EXP, low, high, patch=monkeypatch)
        assert len(observed.faults) == 1 and observed.inputs["v0"].tolist() == point


HIDDEN = """
(float[4] x) => (float[4] y) <float one = {1}> {
  q = Mul(x, x) s = Sub(one, q) a = Mul(x, s) [floor] f = Sin(a) z = Mul(f, s) w = Mul(z, x) y = Exp(w)
}
"""


def test_what_no_output_shows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 0, 1 and -1 the factors hide what is wrong, and nowhere do outputs leave their bounds."""
    graph = network(HIDDEN)
    sin = next(op for op in graph.nodes if spec_of(op).op_type == "Sin")
    wrong = replace(spec_of(sin), interval=lambda op, a: Interval.fill(-0.3, 0.3, a.shape, a.dtype))
    monkeypatch.setitem(registry._BY_NODE, type(sin), wrong)
    prover = prove(valid_in_box(graph, [(-1.0, 1.0)]))
    (notice,) = prover.proof.notices
    assert not prover.proof.holds and "of floor (Sin), run without optimisations, where [-0.3" in notice


def test_bounds_of_a_point_show_what_those_of_a_box_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = network("(float[16] x) => (float[16] y) { [n] y = Neg(x) }")
    neg = graph.nodes[0]
    right = spec_of(neg).interval

    def shifted(op: Any, a: Interval) -> Interval:
        """Bound it wrongly where almost nothing is unknown."""
        return replace(a, lower=-a.upper + 0.5, upper=-a.lower + 0.5) if a.is_point else right(op, a)

    monkeypatch.setitem(registry._BY_NODE, type(neg), replace(spec_of(neg), interval=shifted))
    prover = prove(valid_in_box(graph, [(-1.0, 1.0)]))
    (notice,) = prover.proof.notices
    assert not prover.proof.holds and "is proved for this input alone" in notice


def test_few_points_are_analysed_where_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[Any] = []
    prover = Prover(valid_in_box(network(EXP), [(0.0, 1.0)]), ProveConfig())
    apply = prover.apply

    def note(case: Problem, box: Any) -> Any:
        boxes.append(box)
        return apply(case, box)

    monkeypatch.setattr(prover, "apply", note)
    monkeypatch.setattr("ranum_falsify.verify.prove.watch._FLOOR", -1.0)
    assert prover.analyse().holds
    assert len(boxes) <= 4


def test_the_graph_that_the_optimiser_makes_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    (float[8] x) => (float[8] y) <float r = {1.41421354}, float one = {1}, float h = {0.5}, float tiny = {0}> {
      d = Div(x, r) e = Erf(d) a = Add(e, one) m = Mul(x, a) g = Mul(m, h) y = Mul(g, tiny)
    }
    """
    graph = network(text)
    optimised = optimise(graph).graph
    assert optimised is not None
    gelu = next(op for op in optimised.nodes if spec_of(op).op_type == "Gelu")
    wrong = replace(spec_of(gelu), interval=lambda op, a: Interval.fill(0.0, 0.5, a.shape, a.dtype))
    monkeypatch.setitem(registry._BY_NODE, type(gelu), wrong)
    prover = prove(valid_in_box(graph, [(0.0, 1.0)]))
    (notice,) = prover.proof.notices
    assert "at 'g', of " in notice and "(Gelu) in the optimised graph, where [0, 0.5] is proved" in notice


def test_what_an_output_hides_is_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    (float[2] x) => (float[2] y) <bool no = {0}, float zero = {0}> {
      n = Floor(x) [log] l = Log(n) y = Where(no, l, zero)
    }
    """
    graph = network(text)
    floor = next(op for op in graph.nodes if spec_of(op).op_type == "Floor")
    wrong = replace(spec_of(floor), interval=lambda op, a: Interval.fill(1.0, 2.0, a.shape, a.dtype))
    monkeypatch.setitem(registry._BY_NODE, type(floor), wrong)
    reduced = valid_in_box(graph, [(0.25, 0.75)])
    answer = falsify(reduced, SearchConfig(runtime=("onnxruntime",)))
    (found,) = (o for o in answer.operators if o.verdict == "violated")
    assert (found.node, found.reach) == ("log", "masked") and answer.starts == 0


def test_inputs_that_leave_bounds_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse(f"g {EXP}")
    exp = network(EXP).nodes[0]
    wrong = replace(spec_of(exp), interval=lambda op, a: Interval.fill(1.0, 2.0, a.shape, a.dtype))
    monkeypatch.setitem(registry._BY_NODE, type(exp), wrong)
    answer = rf.check(model, box=(0, 1), self_check=False, timeout=10, n_starts=2)
    assert answer.verdict == "unknown"
    fault, kept = answer.notices
    assert "which gives 2.71828175 at 'y', of e (Exp)" in fault or "which gives 2.7182817" in fault
    path = kept.split(" are in ")[1].removesuffix(", for numpy.load")
    with np.load(path) as inputs:
        (y,) = session(model, optimised=False).run(None, dict(inputs))
    assert y.max() > 2
    again = rf.check(model, box=(0, 1), self_check=False, timeout=10, n_starts=2)
    assert again.notices == answer.notices


def test_the_least_integer_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = network("(int64[2] x) => (int64[2] y) { y = Abs(x) }")
    top = 2**63 - 1
    wrong = replace(spec_of(graph.nodes[0]), interval=lambda op, a: Interval.fill(0, top, a.shape, a.dtype))
    monkeypatch.setitem(registry._BY_NODE, type(graph.nodes[0]), wrong)
    (variable,) = valid_in_box(graph, [(0, 1)]).inputs
    box = (replace(variable, lower=np.full(2, -top - 1), upper=np.full(2, top)),)
    prover = prove(replace(valid_in_box(graph, [(0, 1)]), inputs=box, regions=(box,)), "onnxruntime")
    assert not prover.proof.holds and f"which gives {-top - 1} at 'y'" in prover.proof.notices[0]


def test_what_onnx_runtime_refuses_at_the_end_of_a_box_is_not_proved() -> None:
    text = "(int64 axis) => (float[2,1] y) <float[2,1] x = {1, 2}> { y = CumSum(x, axis) }"
    reduced, trial = outcome(text, most=3.0)
    assert "does not run it: Non-zero status" in trial.faults[id(reduced.calls[0])] and trial.inputs["v0"] == 3


def test_further_points_may_take_too_much() -> None:
    text = (
        "(int64[1] n) => (float y) { m = Mul(n, n) k = Mul(m, m) s = Concat<axis = 0>(k, n)"
        " c = ConstantOfShape(s) y = ReduceMax<keepdims = 0>(c) }"
    )
    assert outcome(text, most=200.0)[1].faults == {}


def test_properties_that_are_false_throw_the_proof_over() -> None:
    text = "(float[2] x) => (float[2] y) { y = Exp(x) }"
    assert outcome(text, inner="N(v0)[0] <= 2.8")[1].faults == {}
    _, trial = outcome(text, inner="N(v0)[0] <= 2.6")
    assert any("violates the property against its proof" in fault for fault in trial.faults.values())


@pytest.mark.parametrize("inner", ["no_invalid_input(N(v0))", "N(v0)[0] <= 1000"])
def test_what_a_wrong_rule_hides_is_violated(inner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = network("(float[2] x) => (float[2] y) { n = Sub(x, x) [invert] y = Reciprocal(n) }")
    sub = next(op for op in graph.nodes if spec_of(op).op_type == "Sub")
    wrong = replace(spec_of(sub), interval=lambda op, a, b: Interval.fill(1.0, 2.0, a.shape, a.dtype))
    reduced = problem(in_box([(1.0, 2.0)], inner), networks={"N": graph})
    monkeypatch.setitem(registry._BY_NODE, type(sub), wrong)
    answer = falsify(reduced, SearchConfig(runtime=("onnxruntime",)))
    assert answer.verdict == "violated" and answer.starts == 0
    assert any("a fault of ranum-falsify" in notice for notice in answer.notices)


@pytest.mark.slow
def test_outputs_whose_shape_a_fixed_input_decides_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "(float[1] x, int64[1] n) => (float[m] y) { d = Sub(x, x) r = Neg(d) y = Expand(r, n) }"
    graph = network(text)
    neg = next(op for op in graph.nodes if spec_of(op).op_type == "Neg")
    wrong = replace(spec_of(neg), interval=lambda op, a: Interval.fill(1.0, 2.0, a.shape, a.dtype))
    reduced = valid_in_box(graph, [(1.0, 2.0), (3, 3)])
    monkeypatch.setitem(registry._BY_NODE, type(neg), wrong)
    answer = falsify(reduced, SearchConfig(timeout=2.0, runtime=("onnxruntime",)))
    assert answer.verdict != "holds" and any("a fault of ranum-falsify" in notice for notice in answer.notices)


def test_outputs_of_which_nothing_is_known_may_have_the_shape_that_a_fixed_input_decides() -> None:
    text = (
        "(float[1] x, int64[1] n) => (float[m] y) <float nan = {nan}, float one = {1}>"
        " { c = Greater(x, one) w = Where(c, x, nan) y = Expand(w, n) }"
    )
    reduced = valid_in_box(network(text), [(2.0, 3.0), (3, 3)])
    assert falsify(reduced, SearchConfig(runtime=("onnxruntime",))).verdict == "holds"
