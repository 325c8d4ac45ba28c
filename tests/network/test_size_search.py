"""Sizes of symbolic dimensions that users do not give, where a model does not run with 1."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnxruntime as ort
import pytest
from dnnv.nn.utils import TensorDetails
from onnx import parser

import ranum_falsify as rf
from ranum_falsify.network import Graph, find_assumed_dims, read
from tests.network.building import unchecked

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
ONES = ", ".join(["1"] * 100)
WINDOW = f"<float[1, 1, 100] w = {{{ONES}}}, int64[1] e = {{8}}> {{ v = Conv(x, w)"


@pytest.mark.parametrize(
    ("inputs", "body", "sizes"),
    [
        ("float[batch, 1, samples] x", WINDOW, {"batch": 1, "samples": 128}),
        ("float[n, c, h, w] x", "<float[1, 3, 1, 1] k = {1, 1, 1}> { v = Conv(x, k)", {"n": 1, "c": 3, "h": 1, "w": 1}),
        ("float[?, 1, ?] x, float[1, ?, 2] s", f"{WINDOW} r = Reshape(s, e)", {"x:0": 1, "x:2": 128, "s:1": 4}),
    ],
)
def test_the_least_sizes_that_run(inputs: str, body: str, sizes: dict[str, int]) -> None:
    outputs = "v, r" if " r = " in body else "v"
    model = unchecked(f"g ({inputs}) => ({outputs}) {body} }}")
    assert find_assumed_dims(model) == sizes
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    shapes = {name: details.shape for name, details in _details(read(model, assumed=sizes))}
    session.run(None, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})


def _details(graph: Graph) -> Iterator[tuple[str, TensorDetails]]:
    return zip(graph.input_names, graph.input_details, strict=True)


MODEL = f"{HEAD} (float[batch, 1, samples] x) => (float[batch, 1, n] z) {WINDOW} z = Sqrt(v) }}"


def test_a_verdict_says_the_sizes_that_were_found() -> None:
    result = rf.check(parser.parse_model(MODEL), box=(-1, 1), n_starts=20, self_check=False)
    assert result.verdict == "violated" and result.counterexample is not None
    assert result.counterexample["x"].shape == (1, 1, 128)
    assert str(result).startswith("violated, with batch taken as 1 and samples taken as 128\n")
    assert any("is taken as 128, because 1 is too small" in notice for notice in result.notices)
    assert result.to_json()["assumptions"]["assumed_dims"] == {"batch": 1, "samples": 128}


def test_sizes_that_were_found_are_those_of_everything_that_follows() -> None:
    """ONNX Runtime's optimised graph, and half precision, are read with them."""
    body = f"{WINDOW} t = Transpose<perm = [0, 2, 1]>(v) u = Transpose<perm = [0, 2, 1]>(t) z = Relu(u) }}"
    model = parser.parse_model(f"{HEAD} (float[batch, 1, samples] x) => (float[batch, 1, n] z) {body}")
    for dtype in (None, "float16"):
        result = rf.check(model, box=(-1, 1), dtype=dtype, self_check=False, timeout=30)
        assert result.verdict == "holds" and result.assumptions.assumed_dims == {"batch": 1, "samples": 128}


def test_a_pool_that_is_larger_than_its_operand_asks_for_more() -> None:
    body = "p = MaxPool<kernel_shape = [3], strides = [2]>(x) y = Sqrt(p)"
    model = parser.parse_model(f"{HEAD} (float[1, 2, t] x) => (float[1, 2, n] y) {{ {body} }}")
    assert rf.check(model, box=(0, 1), self_check=False).verdict == "holds"
    assert rf.load_model(model).graph.assumed_dims == {"t": 4}


def test_what_is_mirrored_asks_for_more() -> None:
    body = '<int64[2] w = {5, 5}> { p = Pad<mode = "reflect">(x, w) y = Sqrt(p) }'
    model = parser.parse_model(f"{HEAD} (float[t] x) => (float[n] y) {body}")
    assert rf.check(model, box=(0, 1), self_check=False).verdict == "holds"
    assert rf.load_model(model).graph.assumed_dims == {"t": 8}


def test_what_conditions_cannot_look_at_is_an_error_of_shapes() -> None:
    body = "<float[3, 7] r = {" + ", ".join(["0"] * 21) + "}> { y = MaxRoiPool<pooled_shape = [2, 3]>(x, r) }"
    model = unchecked(f"g (float[2, 2, 1, 7] x) => (float[n, 2, 2, 3] y) {body}")
    with pytest.raises(rf.errors.ModelError, match="MaxRoiPool"):
        rf.load_model(model)


SCAN = """<int64[1] a = {0}, int64[1] b = {3}, int64[1] e = {2147483647}> {
    p = Slice(x, a, b) r = Slice(x, b, e)
    last, y = Scan<num_scan_inputs = 1, body = step (float[3] before, float now) => (float[3] after, float[k] found)
        { after = Relu(before) s = ReduceSum(before) found = Add(s, now) }>(p, r)
}"""


def test_a_scan_without_an_iteration_asks_for_more() -> None:
    model = parser.parse_model(f"{HEAD} (float[t] x) => (float[n] y) {SCAN}")
    assert rf.load_model(model).graph.assumed_dims == {"t": 4}
    assert rf.check(model, box=(0, 1), self_check=False).verdict == "holds"


def test_what_no_size_helps_is_an_error_about_the_least() -> None:
    model = parser.parse_model(
        f"{HEAD} (float[t] x, float[3] z, float[4] w) => (float[n] y) {{ a = Add(z, w) y = Add(x, a) }}"
    )
    with pytest.raises(rf.errors.ModelError, match=r"cannot run on operands of shapes \[\(3,\), \(4,\)\]"):
        rf.load_model(model)
