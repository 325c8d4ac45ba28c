"""Operators without a row: how they are read, evaluated and written, and when they are refused."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from dnnv.nn import Operation
from onnx.parser import parse_model

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.errors import ModelError, UnsupportedAttributeError, UnsupportedOperatorError
from ranum_falsify.network import blackbox, read, registry, spec_of
from ranum_falsify.network.messages import tidy_message
from ranum_falsify.network.nesting import black_boxes_of
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.verify.search.batching import BatchedModel
from ranum_falsify.verify.search.converter import convert

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "my.own" : 1]>'
INVERSE = "com.microsoft.Inverse"


@pytest.fixture(autouse=True)
def without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CDist", "Inverse", "TransposeMatMul", "Unique"):
        monkeypatch.delitem(registry._ROWS, ("com.microsoft", name), raising=False)


def model(text: str) -> onnx.ModelProto:
    return parse_model(f"{HEAD} {text}")


def run(proto: onnx.ModelProto, *inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs: list[np.ndarray] = session.run(
        None, dict(zip([i.name for i in session.get_inputs()], inputs, strict=True))
    )
    return outputs


def matrices(count: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(1, 2, (count, 3, 3)).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)


SMALL = f"g (float[3,3] x) => (float[3,3] y) {{ a = Neg(x) b = {INVERSE}(a) y = Relu(b) }}"


def test_onnx_runtime_evaluates_it() -> None:
    graph = read(model(SMALL))
    assert list(black_boxes_of(graph)) == ["com.microsoft::Inverse"]
    (x,) = matrices(1)
    np.testing.assert_allclose(graph(-x), run(model(SMALL), -x)[0], rtol=1e-6)


def test_when_time_is_up_it_counts_as_refused() -> None:
    graph = read(model(SMALL))
    (x,) = matrices(1)
    with blackbox.evaluate_until(Deadline.after(0)):
        np.testing.assert_array_equal(graph(-x), np.zeros((3, 3)))
    with blackbox.evaluate_until(Deadline.after(20)):
        assert graph(-x).any()
    assert graph(-x).any()


def test_the_notice_names_operator_domain_and_node() -> None:
    (notice,) = read(model(SMALL)).notices
    assert "'Inverse_b'" in notice and "com.microsoft::Inverse" in notice and "never proved" in notice


def test_it_is_written_as_it_was_read() -> None:
    text = (
        "g (float[3,3] x, float[4,3] z) => (float[3,4] y) { a = com.microsoft.Inverse(x) "
        "y = com.microsoft.TransposeMatMul<transB = 1>(a, z) }"
    )
    inputs = matrices(1)[0], np.ones((4, 3), np.float32)
    written = read(model(text)).as_onnx()
    np.testing.assert_array_equal(run(written, *inputs)[0], run(model(text), *inputs)[0])


def test_absent_inputs_and_outputs_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Clip", "Dropout"):
        monkeypatch.delitem(registry._ROWS, ("", name))
    proto = model("g (float[3] x) => (float[3] y) <float top = {2}> { a = Clip(x, top, top) y, unread = Dropout(a) }")
    proto.graph.node[0].input[1] = proto.graph.node[1].output[1] = ""
    x = np.array([-1, 1, 3], np.float32)
    graph = read(proto)
    assert list(black_boxes_of(graph)) == ["Clip", "Dropout"]
    np.testing.assert_array_equal(graph(x), run(proto, x)[0])
    np.testing.assert_array_equal(run(graph.as_onnx(), x)[0], run(proto, x)[0])


def test_what_it_writes_has_a_shape_where_onnx_runtime_infers_one() -> None:
    assert spec_of(read(model(SMALL)).nodes[1]).dynamic_shape is False
    (node,) = read(model("g (float[4] x) => (float[n] y) { y, i, j = com.microsoft.Unique(x) }")).nodes
    assert spec_of(node).dynamic_shape, "as many elements as it happened to give on zeros"


def test_it_is_never_a_constant() -> None:
    text = f"g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {{1, 0, 0, 1}}> {{ b = {INVERSE}(w) y = Add(x, b) }}"
    graph = read(model(text))
    assert black_boxes_of(graph) and not graph.folded


@pytest.mark.parametrize(
    ("tail", "mode"),
    [
        ("y = Relu(b)", "vmap"),
        ("f = Reshape(x, k) c, i, j = com.microsoft.Unique(f) d = ReduceSum(c) y = Mul(b, d)", "loop"),
    ],
)
def test_a_batch_is_evaluated_sample_by_sample(tail: str, mode: str) -> None:
    text = f"g (float[3,3] x) => (float[3,3] y) <int64[1] k = {{-1}}> {{ b = {INVERSE}(x) {tail} }}"
    batched = BatchedModel(convert(read(model(text))))
    assert batched.mode == mode
    x = matrices(4)
    (y,), _ = batched.run([torch.from_numpy(x)])
    for sample, found in zip(x, y, strict=True):
        np.testing.assert_allclose(found, run(model(text), sample)[0], rtol=1e-5)


def test_its_derivative_is_constant() -> None:
    batched = BatchedModel(convert(read(model(f"g (float[3,3] x) => (float[3,3] y) {{ y = {INVERSE}(x) }}"))))
    for x in (torch.from_numpy(matrices(4)).requires_grad_(), 100 * torch.from_numpy(matrices(4)).requires_grad_()):
        (y,), _ = batched.run([x])
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert (gradient == 1).all()


def test_operands_of_another_shape_get_the_mean_gradient() -> None:
    text = "g (float[2,3] x, float[4,3] z) => (float[2,4] y) { y = com.microsoft.TransposeMatMul<transB = 1>(x, z) }"
    x, z = torch.zeros(2, 3, requires_grad=True), torch.ones(4, 3)
    (y,) = read(model(text)).evaluate([x, z])
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert (gradient == 1).all()


def test_strict_reading_refuses_it() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"com.microsoft::Inverse \(1\); `ranum-falsify operators`"):
        read(model(SMALL), strict=True)


def test_what_onnx_runtime_does_not_load_is_refused() -> None:
    text = f"g (float[3,3] x) => (float[3,3] y) {{ a = {INVERSE}(x) b = my.own.Wavelet(a) y = my.own.Wavelet(b) }}"
    with pytest.raises(UnsupportedOperatorError) as caught:
        read(model(text))
    message = str(caught.value)
    assert "com.microsoft::Inverse (1), my.own::Wavelet (2)" in message
    assert "Wavelet: ONNX Runtime does not run it either" in message and "\n" not in message
    assert "[ONNXRuntimeError]" not in message and message.endswith("a local function of the model for instance")


def test_a_model_that_onnx_runtime_rewrote_for_a_processor_comes_with_advice() -> None:
    name = "com.microsoft.nchwc"
    text = f"{name}.ReorderInput(x) y = {name}.ReorderOutput<channels = 16>(a)"
    made = model(f"g (float[1,16,2,2] x) => (float[1,16,2,2] y) {{ a = {text} }}")
    made.opset_import.append(onnx.helper.make_opsetid(name, 1))
    notices = read(made).notices
    assert sum("save it at the level ORT_ENABLE_EXTENDED" in notice for notice in notices) == 1
    assert len(notices) == 3
    assert not any("ORT_ENABLE_EXTENDED" in notice for notice in read(model(SMALL)).notices)


def test_one_operator_is_one_and_words_are_whole() -> None:
    with pytest.raises(
        UnsupportedOperatorError, match=r"1 unsupported operator at opset .* \(with its number of nodes\)"
    ):
        read(model("g (float[3] x) => (float[3] y) { y = my.own.Wavelet(x) }"))
    assert tidy_message(f"[ONNXRuntimeError] : 1 : FAIL : Fatal error: {'Wavelet' * 100}") == "Fatal error: ..."


def test_a_branch_with_such_an_operator_is_refused_too() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        y = If(c) <then_branch = a () => (float[2] p) { p = my.own.Wavelet(x) },
                   else_branch = b () => (float[2] q) { q = Neg(x) }> }"""
    with pytest.raises(UnsupportedOperatorError, match="Wavelet"):
        read(model(text))


def test_what_it_refuses_to_run_is_a_model_error() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { y = com.microsoft.Inverse(x) }"
    with pytest.raises(ModelError, match="Inverse"):
        read(model(text))


def test_a_child_that_died_is_replaced() -> None:
    graph = read(model(SMALL))
    (x,) = matrices(1)
    before = graph(x)
    blackbox._evaluator.forget()
    np.testing.assert_array_equal(graph(x), before)


def test_threads_may_evaluate_the_same_operator() -> None:
    graph = read(model(SMALL))
    samples = list(matrices(4))
    expected = [np.stack([graph(x)] * 8) for x in samples]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(len(samples)) as pool:
            found = list(pool.map(lambda x: np.stack([graph(x) for _ in range(8)]), samples))
    finally:
        sys.setswitchinterval(before)
    np.testing.assert_array_equal(found, expected)


def test_captured_tensors_are_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(registry._ROWS, ("", "Scan"), raising=False)
    proto = model("g (float[3,2] x, float[2] w) => (float[3,2] y) { y = my.own.Later(x) }")
    body = model("b (float[2] e, float[2] w) => (float[2] f) { f = Add(e, w) }").graph
    del body.input[1:]
    scan = onnx.helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)
    del proto.graph.node[:]
    proto.graph.node.append(scan)
    inputs = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([10, 20], np.float32)
    graph = read(proto)
    np.testing.assert_array_equal(graph(*inputs), run(proto, *inputs)[0])
    np.testing.assert_array_equal(run(graph.as_onnx(), *inputs)[0], run(proto, *inputs)[0])


def test_an_attribute_that_a_row_does_not_know_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(op: Operation, *operands: torch.Tensor) -> torch.Tensor:
        raise UnsupportedAttributeError("Softmax: axis 1 is not supported")

    spec = registry.find("Softmax", "")
    assert spec is not None
    changed = replace(spec, torch=refuse)
    monkeypatch.setitem(registry._ROWS, ("", "Softmax"), changed)
    monkeypatch.setitem(registry._BY_NODE, spec.node, changed)
    proto = model("g (float[2,3] x) => (float[2,3] y) { a = Softmax<axis = 1>(x) y = Neg(a) }")
    graph = read(proto)
    assert list(black_boxes_of(graph)) == ["Softmax"] and [op.name for op in graph.nodes] == ["Softmax_a", "Neg_y"]
    assert "Softmax: axis 1 is not supported, so nothing is known" in graph.notices[0]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(graph(x), run(proto, x)[0], rtol=1e-6)
    assert list(black_boxes_of(graph.free([]))) == ["Softmax"], "read again"
    with pytest.raises(UnsupportedAttributeError, match="axis 1"):
        read(proto, strict=True)


def test_a_shape_seen_once_is_no_bound() -> None:
    graph = read(model("g (float[4] x) => (float[n] y) { y, i, j = com.microsoft.Unique(x) }"))
    assert graph.output_details[0].shape == (1,), "as many elements as zeros have values"
    (bounds,) = IntervalAnalysis(graph).run([Interval.point(np.arange(4, dtype=np.float32))])
    assert bounds is None
    (bounds,) = IntervalAnalysis(read(model(SMALL))).run([Interval.point(matrices(1)[0])])
    assert bounds is not None and bounds.shape == (3, 3)


def test_relations_know_no_black_box_by_its_name() -> None:
    proto = model(
        "g (float[1,3] x, float[3,2] w) => (float[1,2] y) <float[2] b = {1, 1}> { t = Gemm(x, w, b) y = Add(t, b) }"
    )
    proto.graph.node[0].attribute.append(onnx.helper.make_attribute("alpha", float("nan")))
    graph = read(proto)
    assert list(black_boxes_of(graph)) == ["Gemm"]
    ones = [Interval.fill(0, 1, shape, torch.float32) for shape in ((1, 3), (3, 2))]
    (bounds,) = IntervalAnalysis(graph).run(ones)
    assert bounds is not None and bounds.extremes[0] < -1e38
