"""Models with branches and loops, as exporters write them: what holds, and what fails under which name."""

import io
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.parser import parse_model
from torch import Tensor

import ranum_falsify as rf
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import read
from ranum_falsify.operators.rows.control import analysis_of
from tests.network.building import session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def verdicts(result: rf.Result) -> dict[str, str]:
    return {op.node: op.verdict for op in result.operators}


def violated(result: rf.Result) -> set[str]:
    return {op.node for op in result.operators if op.verdict == "violated"}


def script(module: torch.nn.Module, *inputs: Tensor) -> onnx.ModelProto:
    target: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(torch.jit.script(module), inputs, target, dynamo=False, opset_version=17, input_names=["x"])
    return onnx.load_model_from_string(target.getvalue())


def export(module: torch.nn.Module, *inputs: Tensor) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module, inputs, dynamo=True, verbose=False)
    assert program is not None
    return program.model_proto


class Roots(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        k = 0
        while k < 3:
            x = torch.sqrt(x + 1)
            k += 1
        return x


class Halving(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        k = 0
        while bool(x.sum() > 1) and k < 10:
            x = torch.sqrt(x) - 0.3
            k += 1
        return x


class Cumulative(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        from torch._higher_order_ops.scan import scan

        def step(carry: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            after = torch.sqrt(carry + y)
            return after, after * 2

        last, rows = scan(step, torch.zeros(3), x, dim=0)
        return last, rows


class Repeated(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        from torch._higher_order_ops.while_loop import while_loop

        step = (lambda i, x: i < 3), (lambda i, x: (i + 1, torch.log(x + 2)))
        last: Tensor = while_loop(*step, (torch.tensor(0), x))[1]
        return last


class Chosen(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        chosen: Tensor = torch.cond(x.sum() > 0, lambda x: torch.log(x + 2), lambda x: torch.sqrt(-x), (x,))
        return chosen


def test_a_scripted_loop_is_proved_and_its_operators_are_named() -> None:
    model = script(Roots(), torch.ones(2))
    assert [node.op_type for node in model.graph.node].count("Loop") == 1
    safe = rf.check(model, box=(0, 1), n_starts=0)
    assert safe.verdict == "holds" and len(safe.operators) == 6
    unsafe = rf.check(model, box=(-2, 1), n_starts=20, prove_timeout=0)
    assert violated(unsafe) == {"/Loop/body/Sqrt[0]"}
    (root,) = (op for op in unsafe.operators if op.verdict == "violated")
    assert root.reach == "output" and root.runtimes == ("onnxruntime", "torch")


@pytest.mark.slow
def test_an_iteration_of_a_loop_that_an_input_ends_is_named() -> None:
    model = script(Halving(), torch.ones(4))
    assert "Loop" in [node.op_type for node in model.graph.node]
    result = rf.check(model, box=(0, 1), n_starts=20, prove_timeout=0)
    assert result.verdict == "violated"
    assert violated(result) and all(name.startswith("/Loop/body/Sqrt[") for name in violated(result))


@pytest.mark.slow
def test_a_scan_is_proved_and_its_operators_are_named() -> None:
    model = export(Cumulative(), torch.ones(4, 3))
    assert "Scan" in [node.op_type for node in model.graph.node]
    assert rf.check(model, box=(0, 1), n_starts=0).verdict == "holds"
    unsafe = rf.check(model, box=(-1, 1), n_starts=20, prove_timeout=0)
    assert violated(unsafe) and all("/body/node_sqrt[" in name for name in violated(unsafe))


@pytest.mark.slow
def test_a_while_loop_is_proved_and_its_operators_are_named() -> None:
    model = export(Repeated(), torch.ones(3))
    assert "Loop" in [node.op_type for node in model.graph.node]
    assert rf.check(model, box=(0, 1), n_starts=0).verdict == "holds"
    unsafe = rf.check(model, box=(-2, 1), n_starts=20, prove_timeout=0)
    assert violated(unsafe) and all("/body/node_log[" in name for name in violated(unsafe))


@pytest.mark.slow
def test_an_operator_in_a_branch_that_an_input_chooses_is_named() -> None:
    model = export(Chosen(), torch.ones(3))
    assert "If" in [node.op_type for node in model.graph.node]
    result = rf.check(model, box=(-1, 1), n_starts=20, prove_timeout=0)
    assert {name.rpartition("/")[2] for name in violated(result)} == {"node_sqrt"}
    assert all("/else_branch/" in name for name in violated(result))


def loop(body: str, count: int = 3) -> onnx.ModelProto:
    head = f"{HEAD} g (float[2] x) => (float[2] y) <int64 m = {{{count}}}, float[2] big = {{2, 2}}>"
    model = parse_model(f"{head} {{ z = Hole(x) y = Identity(z) }}")
    ends = "b (int64 i, bool c, float[2] s) => (bool d, float[2] t)"
    graph = onnx.parser.parse_graph(f"{ends} {{ d = Identity(c) {body} }}")
    model.graph.node[0].CopyFrom(onnx.helper.make_node("Loop", ["m", "", "x"], ["z"], name="loop", body=graph))
    return model


@pytest.mark.slow
def test_what_a_loop_swallows_is_found_inside_it() -> None:
    """The root of a negative number is not taken, so the loop itself gives no NaN."""
    model = loop("n = Neg(s) q = Sqrt(n) p = Greater(s, big) e = Abs(s) t = Where(p, q, e)")
    result = rf.check(model, box=(1, 1.5), n_starts=5, prove_timeout=0)
    assert result.verdict == "violated" and violated(result) == {f"loop/body/Sqrt_q[{i}]" for i in range(3)}
    assert all(op.reach == "masked" for op in result.operators if op.verdict == "violated")
    again = rf.replay(None, result)
    assert again.violated and {finding.node for finding in again.findings} == violated(result)


def test_an_infinite_constant_in_a_body_excuses_no_other_operator() -> None:
    model = loop("u = Min(s, big) t = Exp(u)")
    model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.full(2, np.inf, np.float32), "big"))
    result = rf.check(model, box=(0, 5), n_starts=10, prove_timeout=0)
    assert violated(result) <= {"loop/body/Exp_t[1]", "loop/body/Exp_t[2]"} and violated(result)


@pytest.mark.slow
def test_a_loop_with_a_count_that_the_box_fixes_is_unrolled() -> None:
    model = loop("t = Log(s)")
    del model.graph.initializer[0]
    model.graph.input.append(onnx.helper.make_tensor_value_info("m", onnx.TensorProto.INT64, []))
    fixed = rf.check(model, box={"x": (5, 6), "m": 2}, n_starts=5, prove_timeout=0)
    assert fixed.verdict == "holds"
    assert verdicts(fixed) == {"loop/body/Log_t[0]": "proved", "loop/body/Log_t[1]": "proved"}
    wrong = rf.check(model, box={"x": (0.5, 6), "m": 2}, n_starts=20, prove_timeout=0)
    assert violated(wrong) == {"loop/body/Log_t[1]"}
    ranging = rf.check(model, box={"x": (0.5, 6), "m": (1, 3)}, n_starts=20, prove_timeout=0)
    assert ranging.verdict == "violated"


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_counterexample_replays(count: int) -> None:
    result = rf.check(loop("t = Sqrt(s)", count), box=(-1, 1), n_starts=5, prove_timeout=0)
    assert result.verdict == "violated"
    assert rf.replay(None, result).violated


def test_a_property_of_the_outputs_of_a_loop_holds() -> None:
    text = "from dnnv.properties import *\nN = Network('N')\nForall(x, Implies((0 <= x) & (x <= 1), N(x)[0] <= 3))"
    assert rf.falsify(loop("k = Constant<value_float = 1.0>() t = Min(s, k)"), text).verdict == "holds"
    assert rf.falsify(loop("t = Add(s, s)"), text).verdict == "violated"


# loops whose length an input decides --------------------------------------------------------------------------------


def steered(text: str, reads: list[str], body: str, outputs: str = "y") -> onnx.ModelProto:
    """Return a model whose node `y = Hole(x)` is a loop."""
    model = parse_model(f"{HEAD} {text}")
    node = onnx.helper.make_node("Loop", reads, outputs.split(), name="loop", body=onnx.parser.parse_graph(body))
    next(other for other in model.graph.node if other.op_type == "Hole").CopyFrom(node)
    return model


ROOTS = steered(
    "g (float[2] x, int64 n) => (float[2] z) { y = Hole(x) z = Log(y) }",
    ["n", "", "x"],
    "b (int64 i, bool c, float[2] s) => (bool d, float[2] t) <float one = {1}> {"
    " d = Identity(c) u = Add(s, one) t = Sqrt(u) }",
)


def test_a_loop_is_proved_for_any_number_of_iterations() -> None:
    result = rf.check(ROOTS, box={"x": (0.5, 4), "n": (0, 10**9)}, n_starts=0)
    assert result.verdict == "holds" and verdicts(result) == {"loop": "proved", "Log_z": "proved"}
    assert any("any number of iterations" in notice for notice in result.notices)


@pytest.mark.slow
def test_what_fails_in_a_loop_of_any_length_is_named() -> None:
    result = rf.check(ROOTS, box={"x": (-3, -2), "n": (1, 2)}, n_starts=5, prove_timeout=0)
    assert "loop/body/Sqrt_t" in violated(result) and verdicts(result)["loop"] == "open"


@pytest.mark.slow
def test_a_violation_in_what_an_input_steers_says_where_it_is_valid() -> None:
    chosen = parse_model(
        f"""{HEAD} g (float[2] x) => (float[2] y) <float zero = {{0}}> {{ m = ReduceMax<keepdims = 0>(x)
        c = Greater(m, zero) [choice] y = If(c) <then_branch = t () => (float[2] p) {{ [log] p = Log(x) }},
        else_branch = e () => (float[2] q) {{ q = Neg(x) }}> }}"""
    )
    condition = ("x > 0", "logarithm of a non-positive number")
    for model, box, says in (
        (chosen, {"x": (-1, 1)}, condition),
        (ROOTS, {"x": (-3, -2), "n": (1, 2)}, ("x >= 0", "square root of a negative number")),
    ):
        result = rf.check(model, box=box, n_starts=10, prove_timeout=0)
        found = [op for op in result.operators if "/" in op.node]
        assert found and {(op.condition, op.reason) for op in found} == {says}
        again = str(rf.replay(None, result))
        assert f"valid where {says[0]} (else: {says[1]})" in again and "not counted" not in again


def test_a_loop_that_its_condition_ends_long_before_its_count_is_followed() -> None:
    model = steered(
        "g (float x) => (float y) <int64 n = {100000}, bool go = {1}> { y = Hole(x) }",
        ["n", "go", "x"],
        "b (int64 i, bool c, float s) => (bool d, float t) <float one = {1}, float end = {95}> {"
        " d = Less(s, end) a = Add(s, one) [exp] e = Exp(a) l = Log(e) z = Sub(l, a) t = Add(a, z) }",
    )
    result = rf.check(model, box=(70, 80), n_starts=5, prove_timeout=0)
    assert result.verdict == "violated"
    assert any(name.startswith("loop/body/exp[") for name in violated(result))


@pytest.mark.slow
def test_iterations_that_fail_the_same_way_are_one_block() -> None:
    model = loop("n = Neg(s) q = Sqrt(n) p = Greater(s, big) e = Abs(s) t = Where(p, q, e)", 4)
    result = rf.check(model, box=(1, 1.5), n_starts=5, prove_timeout=0)
    assert len(violated(result)) == 4
    for text in (result.report(), str(rf.replay(None, result))):
        assert text.count("gives NaN") == 1
        assert "loop/body/Sqrt_q[0] (Sqrt) gives NaN" in text and "likewise in 3 more iterations: 1 to 3\n" in text


def test_a_node_in_what_an_input_steers_is_explained_by_what_holds_it() -> None:
    result = rf.check(ROOTS, box={"x": (1, 2), "n": (1, 2)}, n_starts=0)
    with pytest.raises(rf.RanumFalsifyError, match=r"an input decides what runs in 'loop'.* --explain loop shows"):
        result.explain("loop/body/Sqrt_t")
    assert "in [1, 2]" in result.explain("loop")


def test_what_stays_open_in_a_body_or_a_branch_is_named() -> None:
    result = rf.check(ROOTS, box={"x": (-3, -2), "n": (1, 2)}, n_starts=0, prove_timeout=0)
    (loop, _) = result.operators
    assert loop.inside == ("loop/body/Sqrt_t",)
    assert "open because of loop/body/Sqrt_t inside it" in result.report(verbosity=1)
    branches = parse_model(
        f"""{HEAD} g (float x) => (float y) <float zero = {{0}}, float one = {{1}}> {{ c = Greater(x, zero)
        [if] y = If(c) <then_branch = t () => (float p) {{ d = Greater(x, one)
            [in] p = If(d) <then_branch = u () => (float q) {{ q = Sqrt(x) }},
                else_branch = v () => (float r) {{ s = Sub(x, one) [log] r = Log(s) }}> }},
        else_branch = e () => (float w) {{ w = Neg(x) }}> }}"""
    )
    result = rf.check(branches, box=(-1, 2), n_starts=0, prove_timeout=0)
    (operator,) = (one for one in result.operators if one.verdict == "open")
    assert operator.inside == ("if/then_branch/in/else_branch/log",)


def test_a_loop_that_may_not_run_hands_on_what_it_is_given() -> None:
    assert rf.check(ROOTS, box={"x": (0, 4), "n": (1, 9)}, n_starts=0).verdict == "holds"
    result = rf.check(ROOTS, box={"x": (0, 4), "n": (0, 9)}, n_starts=20, prove_timeout=0)
    assert violated(result) == {"Log_z"}


def test_the_condition_of_a_loop_bounds_what_it_hands_on() -> None:
    text = """g (float x) => (float z) <float ten = {{10}}, float limit = {{{limit}}}> {{
        go = Less(x, ten) y = Hole(x) r = Sub(limit, y) z = Sqrt(r) }}"""
    body = "b (int64 i, bool c, float s) => (bool d, float t) <float one = {1}, float ten = {10}> {"
    body += " t = Add(s, one) d = Less(t, ten) }"
    for limit, verdict in ((12, "holds"), (10.5, "violated")):
        model = steered(text.format(limit=limit), ["", "go", "x"], body)
        assert rf.check(model, box=(1, 2), n_starts=20).verdict == verdict


SWALLOWING = steered(
    "g (float[1] x, int64 n) => (float[1] y) { y = Hole(x) }",
    ["n", "", "x"],
    "b (int64 i, bool c, float[1] s) => (bool d, float[1] t) <float one = {1}> {"
    " d = Identity(c) u = Add(s, one) e = Exp(u) v = Tanh(e) t = Add(u, v) }",
)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(0, 100), (60, 60)], ids=str)
def test_what_a_loop_of_any_length_swallows_is_found_and_replays(lengths: tuple[int, int]) -> None:
    result = rf.check(SWALLOWING, box={"x": (-1, 1), "n": lengths}, n_starts=20, prove_timeout=0)
    assert violated(result) and all(name.startswith("loop/body/Exp_e[") for name in violated(result))
    assert {op.reach for op in result.operators if op.verdict == "violated"} == {"masked"}
    shown = rf.replay(SWALLOWING, result)
    assert shown.violated and {finding.node for finding in shown.findings} == violated(result)


def test_a_body_reads_from_around_it() -> None:
    model = steered(
        "g (float[2] x, float[2] w, int64 n) => (float[2] z) { y = Hole(x) z = Log(y) }",
        ["n", "", "x"],
        "b (int64 i, bool c, float[2] s) => (bool d, float[2] t) { d = Identity(c) u = Abs(s) t = Max(u, w) }",
    )
    for low, verdict in ((1, "holds"), (-1, "violated")):
        box = {"x": (low, 2), "n": (0, 99), "w": (1, 3)}
        assert rf.check(model, box=box, n_starts=5, prove_timeout=0).verdict == verdict


def test_loops_of_any_length_may_nest() -> None:
    inner = "q (int64 j, bool e, float[2] p) => (bool f, float[2] q) { f = Identity(e) r = Abs(p) q = Sqrt(r) }"
    model = steered(
        "g (float[2] x, int64 n) => (float[2] z) { y = Hole(x) z = Exp(y) }",
        ["n", "", "x"],
        "b (int64 i, bool c, float[2] s) => (bool d, float[2] t) { d = Identity(c) t = Hole(s) }",
    )
    body = model.graph.node[0].attribute[0].g
    node = onnx.helper.make_node("Loop", ["i", "", "s"], ["t"], name="inner", body=onnx.parser.parse_graph(inner))
    body.node[1].CopyFrom(node)
    result = rf.check(model, box={"x": (0, 4), "n": (0, 50)}, n_starts=0)
    assert result.verdict == "holds" and verdicts(result) == {"loop": "proved", "Exp_z": "proved"}


@pytest.mark.slow
def test_rows_of_any_number_have_no_bounds() -> None:
    model = steered(
        "g (float[2] x, int64 n) => (float[k,2] z) { y, rows = Hole(x) z = Log(rows) }",
        ["n", "", "x"],
        "b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] row) {"
        " d = Identity(c) t = Abs(s) row = Add(t, t) }",
        "y rows",
    )
    assert rf.check(model, box={"x": (1, 2), "n": (1, 3)}, n_starts=5, prove_timeout=0).verdict == "unknown"


@settings(max_examples=15, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["Neg", "Abs", "Tanh", "Sqrt", "Exp", "Sigmoid", "Log"]), min_size=1, max_size=3),
    mixes=st.sampled_from(["Add", "Max", "Mul", "Sub"]),
    heeds=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_bounds_of_a_loop_hold_what_it_computes(steps: list[str], mixes: str, heeds: bool, seed: int) -> None:
    chain = " ".join(f"v{i + 1} = {step}(v{i})" for i, step in enumerate(steps))
    ends = "r = ReduceSum<keepdims = 0>(t) d = Less(r, one)" if heeds else "d = Identity(c)"
    body = "b (int64 i, bool c, float[2] s, float[2] o) => (bool d, float[2] t, float[2] p) <float one = {1}> {"
    model = steered(
        "g (float[2] x, float[2] w, int64 n) => (float[2] y, float[2] z) <bool go = {1}> { y, z = Hole(x) }",
        ["n", "go" if heeds else "", "x", "w"],
        f"{body} v0 = Abs(o) {chain} t = {mixes}(s, v{len(steps)}) p = Identity(v1) {ends} }}",
        "y z",
    )
    draw = np.random.default_rng(seed)
    points = [draw.normal(size=(3, 2)).astype(np.float32) for _ in range(2)]
    counts = draw.integers(0, 12, 3)
    bounds = [Interval.box(x.min(0), x.max(0)) for x in points]
    bounds.append(Interval.box(np.array(counts.min()), np.array(counts.max())))
    seen = list[Interval]()
    IntervalAnalysis(read(model)).run(bounds, lambda visited: seen.extend(visited.outputs))
    if any(y.nan or y.overflows or y.may_be_infinite for y in seen):
        return
    for optimised in (False, True):
        runner = session(model, optimised=optimised)
        for x, w, n in zip(*points, counts, strict=True):
            for y, known in zip(runner.run(None, {"x": x, "w": w, "n": np.array(n)}), seen, strict=True):
                assert bool(known.encloses(torch.from_numpy(y)).all())


def test_each_thread_analyses_subgraphs_by_itself() -> None:
    """Threads that share a model must not write into each other's bounds: a check took what another had proved."""
    body = read(parse_model(f"{HEAD} g (float[2] x) => (float[2] y) {{ y = Log(x) }}"))
    mine = analysis_of(body, ("onnxruntime",))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(analysis_of, body, ("onnxruntime",)).result() is not mine
    assert analysis_of(body, ("onnxruntime",)) is mine
