"""Loops that are unrolled: what they compute, what their nodes are called, and which stay as they are."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper
from onnx.parser import parse_graph, parse_model

import ranum_falsify as rf
from ranum_falsify.errors import UnsupportedOperatorError
from ranum_falsify.network import Graph, blackbox, construction, read
from ranum_falsify.network.nesting import black_boxes_of, is_evaluated_outside

RNG = np.random.default_rng(0)


def whole(text: str, node: onnx.NodeProto | None = None, opset: int = 17) -> onnx.ModelProto:
    """Return a model of a text, whose node `y = Relu(x)` another one replaces."""
    model = parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    if node is not None:
        (place,) = (i for i, other in enumerate(model.graph.node) if other.op_type == "Hole")
        model.graph.node[place].CopyFrom(node)
    return model


def loop(inputs: list[str], outputs: list[str], body: str, **attributes: object) -> onnx.NodeProto:
    kind = "Scan" if "num_scan_inputs" in attributes else "Loop"
    return helper.make_node(kind, inputs, outputs, name="loop", body=parse_graph(body), **attributes)  # type: ignore[arg-type]


def run(model: onnx.ModelProto, *inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [info.name for info in session.get_inputs()]
    outputs: list[np.ndarray] = session.run(None, dict(zip(names, inputs, strict=True)))
    return outputs


def check(model: onnx.ModelProto, *inputs: np.ndarray) -> Graph:
    """Compare the graph, and the model written from it, with the model; return the graph."""
    graph = read(model)
    assert not black_boxes_of(graph)
    expected = run(model, *inputs)
    for found in (graph(*inputs, squeeze=False), run(graph.as_onnx(), *inputs)):
        for a, b in zip(found, expected, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-6)
    return graph


POWERS = """b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] row) {
    d = Identity(c) t = Mul(s, w) row = Exp(t) }"""
HEAD = "g (float[2] x, float[2] w) => (float[2] y, float[n,2] z)"


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 21])
@pytest.mark.parametrize("count", [1, 3])
def test_a_loop_with_a_trip_count_is_its_iterations(opset: int, count: int) -> None:
    node = loop(["m", "", "x"], ["y", "z"], POWERS)
    model = whole(f"{HEAD} <int64 m = {{{count}}}> {{ y = Hole(x) }}", node, opset)
    inputs = RNG.uniform(0, 1, (2, 2)).astype(np.float32)
    names = [op.name for op in check(model, *inputs).nodes if "body" in op.name]
    if count == 1:
        assert names == ["loop/body/Mul_t", "loop/body/Exp_row"]
    else:
        assert {"loop/body/Mul_t[0]", "loop/body/Exp_row[2]"} <= set(names) and len(names) == 6


def test_the_model_tells_which_nodes_lie_in_subgraphs() -> None:
    node = loop(["m", "", "x"], ["y", "z"], POWERS)
    graph = read(whole(f"{HEAD} <int64 m = {{2}}> {{ q = Neg(x) y = Hole(q) }}", node))
    assert "loop/body/Mul_t[1]" in graph.origins and "Neg_q" not in graph.origins


@pytest.mark.parametrize("going", ["true", "false"])
def test_a_loop_may_not_run_at_all(going: str) -> None:
    node = loop(["m", "go", "x"], ["y", "z"], POWERS)
    zero = whole(
        f"{HEAD} <int64 m = {{{0 if going == 'true' else 4}}}, bool go = {{{int(going == 'true')}}}> {{ y = Hole(x) }}",
        node,
    )
    found = read(zero)(*np.ones((2, 2), np.float32))
    assert found[0].tolist() == [1, 1] and found[1].shape == (0, 2)


def test_a_condition_that_no_input_reaches_ends_a_loop() -> None:
    body = """b (int64 i, bool c, float[2] s, float k) => (bool d, float[2] t, float l) {
        two = Constant<value_float = 2.0>() l = Mul(k, two) top = Constant<value_float = 9.0>() d = Less(l, top)
        t = Add(s, l) }"""
    node = loop(["", "go", "x", "one"], ["y", "unread"], body)
    text = "g (float[2] x) => (float[2] y) <bool go = {1}, float one = {1}> { y = Hole(x) }"
    graph = check(whole(text, node), np.zeros(2, np.float32))
    assert sum("Add_t" in op.name for op in graph.nodes) == 4, "2, 4, 8, 16"


def test_the_number_of_an_iteration_is_known_in_it() -> None:
    body = """b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
        d = Identity(c) f = Cast<to = 1>(i) t = Add(s, f) }"""
    graph = check(
        whole("g (float[2] x) => (float[2] y) <int64 m = {4}> { y = Hole(x) }", loop(["m", "", "x"], ["y"], body)),
        np.zeros(2, np.float32),
    )
    assert graph(np.zeros(2, np.float32)).tolist() == [6, 6]


def test_states_may_grow() -> None:
    body = """b (int64 i, bool c, float[k] s) => (bool d, float[l] t) { d = Identity(c) t = Concat<axis = 0>(s, x) }"""
    node = loop(["m", "", "x"], ["y"], body)
    check(whole("g (float[2] x) => (float[n] y) <int64 m = {3}> { y = Hole(x) }", node), np.ones(2, np.float32))


def test_loops_may_nest_and_read_from_all_around() -> None:
    inner = loop(
        ["n", "", "s"],
        ["t"],
        "in (int64 j, bool e, float[2] u) => (bool f, float[2] v) { f = Identity(e) p = Add(u, w) v = Mul(p, s) }",
    )
    inner.name = "inner"
    body = parse_graph("b (int64 i, bool c, float[2] s) => (bool d, float[2] t) { d = Identity(c) t = Neg(s) }")
    body.node[1].CopyFrom(inner)
    node = helper.make_node("Loop", ["m", "", "x"], ["y"], name="outer", body=body)
    text = "g (float[2] x, float[2] w) => (float[2] y) <int64 m = {2}, int64 n = {3}> { y = Hole(x) }"
    graph = check(whole(text, node), *RNG.uniform(0, 1, (2, 2)).astype(np.float32))
    assert "outer/body/inner/body/Mul_v[1,2]" in {op.name for op in graph.nodes}


STEP = """b (float[2] s, float[3] a) => (float[2] t, float[3] r) {
    k = Constant<value_ints = [0]>() q = ReduceSum(a, k) t = Add(s, q) r = Sqrt(a) }"""


@pytest.mark.parametrize("opset", [9, 11, 16, 21])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"scan_input_directions": [1]},
        {"scan_output_directions": [1]},
        {"scan_input_axes": [1]},
        {"scan_output_axes": [1]},
        {"scan_input_axes": [-1], "scan_output_axes": [-1], "scan_input_directions": [1]},
    ],
    ids=str,
)
def test_a_scan_is_its_iterations(attributes: dict[str, list[int]], opset: int) -> None:
    step = (
        STEP
        if opset >= 13
        else STEP.replace("k = Constant<value_ints = [0]>() ", "").replace(
            "ReduceSum(a, k)", "ReduceSum<axes = [0]>(a)"
        )
    )
    node = loop(["w", "x"], ["y", "z"], step, num_scan_inputs=1, **attributes)
    x = RNG.uniform(0, 1, (4, 3)).astype(np.float32)
    x = x if "scan_input_axes" not in attributes else x.T.copy()
    rows, columns = x.shape
    model = whole(
        f"g (float[{rows},{columns}] x, float[2] w) => (float[2] y, float[n,m] z) {{ y = Hole(x) }}", node, opset
    )
    graph = check(model, x, np.ones(2, np.float32))
    assert "loop/body/Sqrt_r[3]" in {op.name for op in graph.nodes}


def test_a_scan_may_run_along_several_inputs() -> None:
    body = "b (float[2] a, float b0) => (float[2] r, float q) { r = Mul(a, b0) q = Neg(b0) }"
    node = loop(["x", "w"], ["y", "z"], body, num_scan_inputs=2)
    model = whole("g (float[3,2] x, float[3] w) => (float[n,2] y, float[m] z) { y = Hole(x) }", node)
    check(model, np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(3, dtype=np.float32))


def test_a_length_that_depends_on_values_is_not_unrolled() -> None:
    body = "b (float[2] s, float a) => (float[2] t) { t = Add(s, a) }"
    node = loop(["w", "k"], ["y"], body, num_scan_inputs=1)
    text = """g (float[3] x, float[2] w) => (float[2] y) <float[1] one = {1}, int64[1] flat = {-1}> {
        m = Concat<axis = 0>(x, one) j = NonZero(m) h = Cast<to = 1>(j) k = Reshape(h, flat) y = Hole(x) }"""
    model = whole(text, node)
    graph = read(model)
    assert list(black_boxes_of(graph)) == ["Scan"]
    for x in ([0, 1, 1], [1, 1, 1]):
        inputs = np.array(x, np.float32), np.zeros(2, np.float32)
        np.testing.assert_array_equal(graph(*inputs), run(model, *inputs)[0])


@pytest.mark.parametrize(
    ("text", "reads", "body", "why"),
    [
        (
            "g (float[2] x, int64 m) => (float[2] y) { y = Hole(x) }",
            ["m", "", "x"],
            "b (int64 i, bool c, float[2] s) => (bool d, float[2] t) { d = Identity(c) t = Log(s) }",
            "the number of its iterations depends on an input",
        ),
        (
            "g (float[2] x, bool go) => (float[2] y) <int64 m = {3}> { y = Hole(x) }",
            ["m", "go", "x"],
            "b (int64 i, bool c, float[2] s) => (bool d, float[2] t) { d = Identity(c) t = Log(s) }",
            "an input decides whether it runs at all",
        ),
        (
            "g (float x) => (float y) <int64 m = {3}, float one = {1}> { y = Hole(x) }",
            ["m", "", "x"],
            "b (int64 i, bool c, float s) => (bool d, float t) { d = Greater(s, one) t = Log(s) }",
            "an input decides when it ends",
        ),
    ],
)
def test_what_inputs_decide_is_evaluated_outside_and_says_why(text: str, reads: list[str], body: str, why: str) -> None:
    model = whole(text, loop(reads, ["y"], body))
    for strict in (False, True):
        graph = read(model, strict=strict)
        assert is_evaluated_outside(graph) and not black_boxes_of(graph)
        (notice,) = graph.notices
        assert notice.startswith(f"node 'loop': Loop: {why}, so its bounds are those of any number of iterations")
        (node,) = (op for op in graph.nodes if op.name == "loop")
        assert [op.name for op in node.body.nodes if "Log" in op.name] == ["loop/body/Log_t"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "b (int64 i, bool c, float[n] s) => (bool d, float[k] t) { d = Identity(c) t = Concat<axis = 0>(s, s) }",
            "its iterations hand on tensors of several shapes",
        ),
        (
            "b (int64 i, bool c, float[n] s) => (bool d, float[k] t) {"
            " d = Identity(c) p = NonZero(s) q = Transpose(p) t = GatherND(s, q) }",
            "its iterations hand on tensors of several shapes",
        ),
    ],
)
def test_states_that_change_their_shape_have_no_bounds(body: str, why: str) -> None:
    model = whole("g (float[2] x, int64 m) => (float[n] y) { y = Hole(x) }", loop(["m", "", "x"], ["y"], body))
    graph = read(model)
    assert list(black_boxes_of(graph)) == ["Loop"]
    (notice,) = graph.notices
    assert f"depends on an input, and {why}, so nothing is known" in notice
    with pytest.raises(UnsupportedOperatorError, match=why):
        read(model, strict=True)


def test_the_last_condition_does_not_matter() -> None:
    body = "b (int64 i, bool c, float s) => (bool d, float t) { d = Greater(s, s) t = Neg(s) }"
    node = loop(["m", "", "x"], ["y"], body)
    check(whole("g (float x) => (float y) <int64 m = {1}> { y = Hole(x) }", node), np.array(2, np.float32))


def test_inputs_that_decide_are_followed() -> None:
    body = "b (int64 i, bool c, float s) => (bool d, float t) { t = Sub(s, one) d = Greater(t, one) }"
    node = loop(["m", "", "x"], ["y"], body)
    graph = read(whole("g (float x) => (float y) <int64 m = {9}, float one = {1}> { y = Hole(x) }", node))
    assert graph.read_again is not None
    path = graph.read_again(replace(graph.options, example={"x": np.array(3.5, np.float32)}))
    assert not black_boxes_of(path)
    assert path(np.array(3.5, np.float32)) == 0.5
    assert [op.name for op in path.nodes if "Sub" in op.name] == [f"loop/body/Sub_t[{i}]" for i in range(3)]


def nested(depth: int, count: int) -> onnx.ModelProto:
    graph = parse_graph("b (int64 i, bool c, float s) => (bool d, float t) { d = Identity(c) t = Neg(s) }")
    for level in range(depth):
        node = helper.make_node("Loop", ["m", "", f"s{level}"], [f"t{level}"], body=graph)
        graph = helper.make_graph(
            [helper.make_node("Identity", [f"c{level}"], [f"d{level}"]), node],
            "b",
            [helper.make_tensor_value_info(f"{n}{level}", k, []) for n, k in (("i", 7), ("c", 9), ("s", 1))],
            [helper.make_tensor_value_info(f"{n}{level}", k, []) for n, k in (("d", 9), ("t", 1))],
        )
    model = whole(f"g (float x) => (float y) <int64 m = {{{count}}}> {{ y = Hole(x) }}")
    model.graph.node[0].CopyFrom(helper.make_node("Loop", ["m", "", "x"], ["y"], name="loop", body=graph))
    return model


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(construction, "MOST_NODES", 500)


@pytest.mark.parametrize(("depth", "count"), [(0, 10**6), (0, 10**12), (3, 200)])
def test_a_bomb_is_bounded_by_its_body(depth: int, count: int, few: None) -> None:
    model = nested(depth, count)
    assert model.ByteSize() < 2000
    graph = read(model, strict=True)
    assert [type(op).__name__ for op in graph.nodes] == ["BlackBox"] and not black_boxes_of(graph)
    notice = graph.notices[-1]
    assert "its iterations are more than 500 nodes, so its bounds are those of any number of iterations" in notice


def test_a_loop_that_does_not_end_is_not_run(few: None) -> None:
    body = "b (int64 i, bool c, float s) => (bool d, float t) { d = Identity(c) t = Neg(s) }"
    node = loop(["", "go", "x"], ["y"], body)
    model = whole("g (float x) => (float z) <bool go = {1}> { y = Hole(x) z = Exp(y) }", node)
    graph = read(model, strict=True)
    assert graph.nodes[0].name == "loop" and graph.output_details[0].shape == ()


def test_a_loop_that_ends_only_within_the_box_is_not_run_outside_of_it() -> None:
    body = "b (int64 i, bool c, float s) => (bool d, float t) { t = Add(s, s) d = Less(t, top) }"
    node = loop(["", "go", "x"], ["y"], body)
    model = whole("g (float x) => (float z) <bool go = {1}, float top = {100}> { y = Hole(x) z = Log(y) }", node)
    result = rf.check(model, box=(1, 2), timeout=60, self_check=False)
    assert result.verdict == "holds"


@pytest.mark.slow
def test_a_sample_on_which_a_loop_does_not_end_leaves_time_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blackbox, "_SECONDS", 8.0)
    body = "b (int64 i, bool c, float s) => (bool d, float t) { t = Add(s, s) d = Less(t, top) }"
    node = loop(["", "go", "x"], ["y"], body)
    graph = read(whole("g (float x) => (float y) <bool go = {1}, float top = {100}> { y = Hole(x) }", node))
    (op,) = graph.nodes
    found = cast(Any, op).engine.run([[None, None, torch.tensor(x)] for x in (0.0, 1.0, 3.0)])
    assert [float(y) for (y,) in found] == [0.0, 128.0, 192.0]


def test_nested_loops_share_the_nodes() -> None:
    assert len(read(nested(1, 20)).nodes) == 400
    assert construction.MOST_NODES >= 10_000
