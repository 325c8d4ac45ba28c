"""Stable forms: what overflows, cancels or divides by 0 is finite, right and proved after the pass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import ranum_falsify as rf
from ranum_falsify.rewrite.apply import apply_pass, equal_passes
from ranum_falsify.rewrite.catalogue import all_passes, find_pass
from tests.rewrite.stable_forms import FORMS, Form, log_softmax, softplus
from tests.rewrite.sweeping import session
from tests.rewrite.transform_kit import model_of, operators, proto_of, transformed

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "transform.md"
IDS = [f"{form.name}-{number}" for number, form in enumerate(FORMS)]
# Whether a sum cancels depends on its order, which is the processor's.
OVERFLOWS = [
    form for form in FORMS if form.name not in ("drop_log_epsilon", "stable_variance", "stable_squared_distance")
]


def graph(body: str, dtype: str = "float", shape: str = "2, 3") -> str:
    constants = "one = Constant<value_float = 1.0>() two = Constant<value_float = 2.0>()"
    axes = "last = Constant<value_ints = [1]>() both = Constant<value_ints = [0, 1]>()"
    return f"g ({dtype}[2, 3] x) => ({dtype}[{shape}] y) {{ {constants} {axes} {body} }}"


def run(model: ir.Model | onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    loaded = session(model if isinstance(model, onnx.ModelProto) else ir.to_proto(model))
    assert loaded is not None
    return [np.asarray(found) for found in loaded.run(None, inputs)]


def rewritten(name: str, model: ir.Model) -> ir.Model:
    applied = apply_pass(find_pass(name), model)
    assert applied.model is not None and applied.replaced == 1, applied.refusals
    return applied.model


def on_the_way(model: ir.Model, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What all operators of a model give."""
    proto = ir.to_proto(model)
    names = [name for node in proto.graph.node for name in node.output]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return run(proto, inputs)


@pytest.mark.few(6)
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("form", FORMS, ids=IDS)
def test_what_it_makes_is_right_and_proved(form: Form, opset: int) -> None:
    made = rewritten(form.name, model_of(form.text(), opset))
    assert set(operators(made)) - {"Constant"} == form.made
    found = run(made, form.inputs())[0]
    exact = form.exact(*(array.astype(np.float64) for array in form.inputs().values())).reshape(found.shape)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)
    assert proves(made, form)
    assert form.name == "drop_log_epsilon" or not proves(model_of(form.text(), opset), form)


def proves(model: ir.Model, form: Form) -> bool:
    """Whether bounds alone show that no operator fails in the form's box."""
    options: Any = {"n_starts": 0, "prove_timeout": 0.0, "processors": 1, "self_check": False}
    return rf.check(ir.to_proto(model).SerializeToString(), box=form.box, **options).verdict == "holds"


@pytest.mark.few(10)
@pytest.mark.parametrize("form", OVERFLOWS, ids=[f"{form.name}-{number}" for number, form in enumerate(OVERFLOWS)])
def test_the_old_model_gives_no_finite_number_there(form: Form) -> None:
    model = model_of(form.text())
    low, high = form.box
    assert all((low <= array).all() and (array <= high).all() for array in form.inputs(np.float64).values())
    assert not all(np.isfinite(found).all() for found in on_the_way(model, form.inputs()))


@pytest.mark.few(1)
@pytest.mark.parametrize("start", range(0, len(FORMS), 8))
def test_each_is_verified(start: int) -> None:
    """Several forms in one model, because each model that runs is a process of its own."""
    forms = [form for form in FORMS[start : start + 8] if form.name != "stable_layer_normalization"]
    parts = [onnx.compose.add_prefix(proto_of(form.text()), f"{number}/") for number, form in enumerate(forms)]
    whole = parts[0]
    for part in parts[1:]:
        whole = onnx.compose.merge_models(whole, part, io_map=[])
    names = sorted({form.name for form in forms}, key=[*equal_passes(), "drop_log_epsilon", "stable_bce_loss"].index)
    box = {value.name: (np.float64(0.1), np.float64(0.9)) for value in whole.graph.input}
    metrics = {"max_abs_error": (0.0, 1e-4)} if "drop_log_epsilon" in names else {}
    reports = transformed(ir.from_proto(whole), names, samples=8, box=box, metrics=metrics).reports
    assert [report.name for report in reports] == names
    # Forms that divide by a spread are not valid for equal numbers, of which some samples are.
    assert all(re.fullmatch(r"structure, sampled [1-8]( of 8)?", ", ".join(report.verified)) for report in reports)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["stable_log_quotient", "stable_sigmoid", "stable_norm", "stable_layer_normalization"])
def test_it_is_verified_where_the_old_model_is_valid(name: str) -> None:
    form = next(form for form in FORMS if form.name == name)
    box = {given: (np.float64(form.box[0]), np.float64(form.box[1])) for given in form.bad}
    report = transformed(form.text(), [name], samples=24, box=box).reports[0]
    assert report.verified[0] == "structure" and re.fullmatch(r"sampled \d+ of 24", report.verified[1])


@pytest.mark.few(16)
@pytest.mark.parametrize("dtype", ["float16", "double"])
@pytest.mark.parametrize("form", FORMS, ids=IDS)
def test_other_element_types(form: Form, dtype: str) -> None:
    """Constants are of the element type, and numbers fit it; float32 alone has kernels of all operators."""
    model = ir.from_proto(retyped(proto_of(form.text(), 18), dtype))
    applied = apply_pass(find_pass(form.name), model)
    if applied.model is None:
        if form.name == "drop_log_epsilon":
            assert dtype == "float16", "1e-8 is 0 there"
        else:
            known = "holds" if form.name == "stable_inverse_hyperbolic" else "digits of float32"
            assert known in applied.refusals[0].reason
        return
    numbers = np.float16 if dtype == "float16" else np.float64
    kinds = {"x": [[0.5, 0.25, 0.75], [0.5, 0.125, 1.0]], "t": [[0.25, 0.5, 0.5], [1.0, 0.5, 0.25]]}
    inputs = {name: np.array(kinds[name], numbers)[:, : form.width] for name in form.bad}
    old, new = run(model, inputs)[0], run(applied.model, inputs)[0]
    assert old.dtype == new.dtype == numbers and np.isfinite(new).all()
    allowed = np.isfinite(old)
    np.testing.assert_allclose(new[allowed], old[allowed], rtol=0.05 if dtype == "float16" else 1e-6, atol=1e-2)


def retyped(proto: onnx.ModelProto, dtype: str) -> onnx.ModelProto:
    """A model with floats of another type."""
    kind = onnx.TensorProto.FLOAT16 if dtype == "float16" else onnx.TensorProto.DOUBLE
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = kind
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "value_float":
                array = np.array(attribute.f, onnx.helper.tensor_dtype_to_np_dtype(kind))
                attribute.CopyFrom(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(array)))
    return proto


def test_every_stable_pass_is_tested_and_documented() -> None:
    stable = {spec.name: spec for spec in all_passes() if spec.stands_for is not None}
    assert {form.name for form in FORMS} == stable.keys() and len(stable) >= 29
    rows = re.findall(r"^\| `((?:stable|drop)_\w+)` \|.*\| (yes|no) \|$", DOCS.read_text(encoding="utf-8"), re.M)
    assert {(name, equal == "yes") for name, equal in rows} == {
        (name, spec.stands_for.is_equal) for name, spec in stable.items() if spec.stands_for is not None
    }


def test_what_else_reads_the_probabilities_still_gets_them() -> None:
    text = "g (float[2, 3] x) => (float[2, 3] y, float[2, 3] p) { p = Softmax(x) y = Log(p) }"
    assert sorted(operators(transformed(text, ["stable_log_softmax"]).model)) == ["LogSoftmax", "Softmax"]


def test_the_axis_stays_whatever_the_opset_says_of_it() -> None:
    text = "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { p = Softmax<axis = 1>(x) y = Log(p) }"
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    for opset in (11, 13):
        model = model_of(text, opset)
        made = rewritten("stable_log_softmax", model)
        np.testing.assert_allclose(run(made, {"x": x})[0], run(model, {"x": x})[0], rtol=1e-4)


SCALARS = "c = Constant<value_float = 1e-6>() top = Constant<value_float = 0.5>() one = Constant<value_float = 1.0>()"
SHAPES = "six = Constant<value_ints = [6]>()"
BETWEEN = [
    ("p = Softmax(x) q = Add(p, c) y = Log(q)", lambda p: np.logaddexp(p, np.log(1e-6))),
    ("p = Softmax(x) q = Add(c, p) y = Log(q)", lambda p: np.logaddexp(p, np.log(1e-6))),
    ("p = Softmax(x) q = Clip(p, c, top) y = Log(q)", lambda p: np.clip(p, np.log(1e-6), np.log(0.5))),
    ("p = Softmax(x) q = Max(c, p) r = Min(q, top) y = Log(r)", lambda p: np.clip(p, np.log(1e-6), np.log(0.5))),
    ("p = Softmax(x) q = Abs(p) y = Log(q)", lambda p: p),
    ("p = Softmax(x) q = Relu(p) y = Log(q)", lambda p: p),
    ("p = Softmax(x) h = Cast<to = 11>(p) q = Cast<to = 1>(h) y = Log(q)", lambda p: p),
    ("p = Softmax(x) f = Reshape(p, six) q = Reshape(f, s) y = Log(q)", lambda p: p),
    (
        "p = Softmax(x) t = Transpose(p) u = Transpose(t) q = Add(u, c) y = Log(q)",
        lambda p: np.logaddexp(p, -13.815511),
    ),
]


TILED = """g (float[1, 3] x) => (float[1, 3] y) {
    last = Constant<value_ints = [1]>() one = Constant<value_ints = [1]>() e = Exp(x) s = ReduceSum(e, last)
    n = Shape<start = 1>(x) r = Concat<axis = 0>(one, n) t = Tile(s, r) y = Div(e, t) }"""


def test_a_sum_may_be_tiled_back_by_what_only_the_shape_says() -> None:
    x = np.array([[300, 1, -2]], dtype=np.float32)
    assert (run(rewritten("stable_softmax", model_of(TILED)), {"x": x})[0] == [[1, 0, 0]]).all()
    twice = TILED.replace("Concat<axis = 0>(one, n)", "Concat<axis = 0>(two, n)").replace(
        "one = Constant<value_ints = [1]>()", "two = Constant<value_ints = [2]>()"
    )
    assert apply_pass(find_pass("stable_softmax"), model_of(twice)).model is None, "there are two rows then"


@pytest.mark.parametrize(("body", "exact"), BETWEEN, ids=[body for body, _ in BETWEEN])
def test_what_stands_between_stays_in_effect(body: str, exact: object) -> None:
    assert callable(exact)
    constants = f"{SCALARS} {SHAPES} s = Constant<value_ints = [2, 3]>()"
    model = model_of(f"g (float[2, 3] x) => (float[2, 3] y) {{ {constants} {body} }}", 18)
    x = np.array([[-90, 3, 5], [1, 2, -2]], dtype=np.float32)
    found = run(rewritten("stable_log_softmax", model), {"x": x})[0]
    np.testing.assert_allclose(found, exact(log_softmax(x.astype(np.float64))), rtol=1e-5)


@pytest.mark.parametrize("body", ["e = Exp(x) y = Log(e)", "n = Neg(x) e = Exp(n) l = Log(e) y = Neg(l)"])
def test_what_is_left_may_be_a_tensor_that_is_there_already(body: str) -> None:
    x = np.array([[200, -200, 1], [0, 2, 3]], dtype=np.float32)
    assert (run(rewritten("stable_log_quotient", model_of(graph(body))), {"x": x})[0] == x).all()


def test_an_epsilon_that_rounds_away_is_not_lost() -> None:
    """1 + 1e-10 is 1 in float32, so that Log(1e-10 + 1 - Sigmoid(x)) is infinite at 20."""
    body = "e = Constant<value_float = 1e-10>() p = Sigmoid(x) o = Add(e, one) q = Sub(o, p) y = Log(q)"
    model, x = model_of(graph(body)), np.array([[20, 30, 1], [2, -50, 0]], dtype=np.float32)
    assert np.isinf(run(model, {"x": x})[0]).any()
    found = run(rewritten("stable_log_one_minus_sigmoid", model), {"x": x})[0]
    np.testing.assert_allclose(found, np.logaddexp(-softplus(x.astype(np.float64)), np.log(1e-10)), rtol=1e-5)


def test_a_norm_keeps_its_epsilon() -> None:
    body = "q = Mul(x, x) s = ReduceSum(q, last) e = Constant<value_float = 0.25>() a = Add(s, e) y = Sqrt(a)"
    made = rewritten("stable_norm", model_of(graph(body, shape="2, 1")))
    x = np.array([[0, 0, 0], [3e19, 4e19, 0]], dtype=np.float32)
    np.testing.assert_allclose(run(made, {"x": x})[0], [[0.5], [5e19]], rtol=1e-6)
    assert apply_pass(find_pass("stable_norm"), made).model is None, "what it makes needs no repair"


def test_a_root_mean_square_without_epsilon_is_proved() -> None:
    text = "g (float[2, 3] x, float[3] s) => (float[2, 3] y) { y = RMSNormalization<epsilon = 0.0>(x, s) }"
    made = rewritten("stable_layer_normalization", model_of(text, 23))
    x, s = np.array([[3e-25, 0, 4e-25], [0, 0, 0]], np.float32), np.array([1, 2, 3], np.float32)
    exact = np.array([[0.6, 0, 2.4], [0, 0, 0]]) * np.sqrt(3)
    np.testing.assert_allclose(run(made, {"x": x, "s": s})[0], exact, rtol=1e-6)
    proto = ir.to_proto(made).SerializeToString()
    assert rf.check(proto, box=(-5, 5), n_starts=0, prove_timeout=0.0, self_check=False).verdict == "holds"


def test_a_cross_entropy_may_have_any_weights() -> None:
    text = """g (float[3] x, float[3] t, float[3] u) => (float[3] y) { one = Constant<value_float = 1.0>()
        p = Sigmoid(x) q = Sub(one, p) l = Log(p) m = Log(q) s = Sub(u, one) a = Mul(t, l) b = Mul(s, m)
        y = Sub(a, b) }"""
    made = rewritten("stable_bce_with_logits", model_of(text))
    x, t, u = np.array([[15, -20, 0.5], [1, 0, -2], [0.25, 1, 3]], np.float32)
    wide = x.astype(np.float64)
    exact = -t * softplus(-wide) - (1 - u) * softplus(wide)
    np.testing.assert_allclose(run(made, {"x": x, "t": t, "u": u})[0], exact, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "text", "opset", "reason"),
    [
        ("stable_log_softmax", graph("p = Softmax(x) y = Log(p)", "bfloat16"), 17, "'x' holds bfloat16"),
        ("stable_log_softmax", graph("p = Softmax(x) y = Sqrt(p)"), 17, ""),
        ("stable_log_sigmoid", graph("p = Sigmoid(x) q = Sub(p, one) y = Log(q)"), 17, ""),
        ("stable_log_one_minus_sigmoid", graph("p = Sigmoid(x) q = Sub(two, p) r = Neg(q) y = Log(r)"), 17, ""),
        ("stable_log_one_minus_softmax", """g (float[2, N] x) => (float[2, N] y) {
            one = Constant<value_float = 1.0>() p = Softmax(x) q = Sub(one, p) y = Log(q) }""", 17, "no fixed length"),
        ("stable_log_one_minus_tanh_squared", graph("h = Tanh(x) q = Sub(one, h) y = Log(q)"), 17, ""),
        ("stable_softplus", graph("e = Exp(x) s = Sub(e, two) y = Log(s)"), 17, ""),
        ("stable_softplus", graph("e = Exp(x) s = Add(x, e) y = Log(s)"), 17, ""),
        ("stable_softplus", """g (float[3] x) => (float[1, 3] y) <float[1, 1] one = {1.0}> {
            e = Exp(x) s = Add(one, e) y = Log(s) }""", 17, "the constant 1 has shape [1, 1]"),
        ("stable_log_expm1", graph("e = Exp(x) s = Sub(e, two) y = Log(s)"), 17, ""),
        ("stable_log_sum_exp", graph("s = ReduceSum(x, last) y = Log(s)", shape="2, 1"), 17, ""),
        ("stable_log_add_exp", graph("e = Exp(x) s = Add(e, x) y = Log(s)"), 17, ""),
        ("stable_log_quotient", graph("e = Exp(x) s = Div(e, x) y = Log(s)"), 17, ""),
        ("stable_root_of_exp", graph("y = Sqrt(x)"), 17, ""),
        ("stable_softmax", graph("e = Exp(x) s = ReduceSum(e, both) y = Div(e, s)"), 17, "it sums along 2 axes"),
        ("stable_softmax", graph("e = Exp(x) s = ReduceSum(e) y = Div(e, s)"), 17, "it sums along 2 axes"),
        ("stable_softmax", graph("e = Exp(x) f = Neg(e) s = ReduceSum(f, last) y = Div(e, s)"), 17, ""),
        ("stable_softmax", """g (float[3, 3] x) => (float[3, 3] y) {
            e = Exp(x) s = ReduceSum<axes = [0]>(e) y = Div(e, s) }""", 12, "needs opset 13"),
        ("stable_softmax", """g (float[3, 3] x) => (float[3, 3] y) {
            e = Exp(x) s = ReduceSum<axes = [1], keepdims = 0>(e) y = Div(e, s) }""", 12, ""),
        ("stable_softmax", """g (float[3, 3] x) => (float[3, 3] y) { n = Constant<value_ints = [3, 1]>()
            a = Constant<value_ints = [0]>() e = Exp(x) s = ReduceSum<keepdims = 0>(e, a) r = Reshape(s, n)
            y = Div(e, r) }""", 17, ""),
        ("stable_sigmoid", graph("e = Exp(x) s = Add(e, two) y = Div(one, s)"), 17, ""),
        ("stable_tanh", graph("n = Neg(x) e = Exp(x) f = Exp(n) a = Add(e, f) y = Div(a, a)"), 17, ""),
        ("stable_one_minus_sigmoid", graph("p = Sigmoid(x) y = Sub(two, p)"), 17, ""),
        ("stable_one_minus_softmax", graph("p = Softmax(x) y = Sub(one, p)"), 17, "Softmax has 3 classes"),
        ("stable_expm1", graph("e = Exp(x) y = Sub(one, e)"), 17, ""),
        ("stable_one_minus_cos", graph("c = Cos(x) y = Sub(c, one)"), 17, ""),
        ("stable_inverse_hyperbolic", graph("q = Mul(x, x) s = Add(q, two) r = Sqrt(s) a = Add(x, r) y = Log(a)"), 17,
         ""),
        ("stable_inverse_hyperbolic", graph("q = Mul(x, x) s = Add(q, one) r = Sqrt(s) a = Add(x, r) y = Log(a)"), 8,
         "need opset 9"),
        ("stable_norm", graph("s = ReduceSum(x, last) y = Sqrt(s)", shape="2, 1"), 17, ""),
        ("stable_norm", """g (float[2, 3] x, int64[1] a) => (float[2, 1] y) {
            q = Mul(x, x) s = ReduceSum(q, a) y = Sqrt(s) }""", 17, "its axes are not constant"),
        ("stable_norm_product", graph("q = Mul(x, x) y = Sqrt(q)"), 17, ""),
        ("stable_normalize", """g (float[3, 3] x) => (float[3, 3] y) { a = Constant<value_ints = [1]>()
            n = ReduceL2<axes = [1], keepdims = 0>(x) y = Div(x, n) }""", 17, "not broadcast back"),
        ("stable_hypot", graph("q = Mul(x, x) s = Add(q, x) y = Sqrt(s)"), 17, ""),
        ("stable_variance", graph("""q = Mul(x, x) m = ReduceMean<axes = [1]>(q) n = ReduceMean<axes = [0]>(x)
            s = Mul(n, n) y = Sub(m, s)"""), 17, ""),
        ("stable_squared_distance", graph("""q = Mul(x, x) s = ReduceSum(q, last) r = Add(s, s) u = Mul(one, s)
            y = Sub(r, u)""", shape="2, 1"), 17, ""),
        ("stable_division_by_square", graph("q = Mul(x, two) y = Div(x, q)"), 17, ""),
        ("stable_x_log_x", graph("a = Abs(x) l = Log(a) y = Mul(x, l)"), 17, ""),
        ("stable_x_log_x", graph("l = Log(x) y = Mul(x, l)"), 10, "needs opset 11"),
        ("stable_bce_loss", graph("p = Sigmoid(x) l = Log(p) a = Mul(x, l) y = Add(a, a)"), 17, ""),
        ("drop_log_epsilon", graph("p = Softmax(x) y = Log(p)"), 17, ""),
    ],
)  # fmt: skip
def test_what_is_not_the_same_function_stays(name: str, text: str, opset: int, reason: str) -> None:
    applied = apply_pass(find_pass(name), ir.from_proto(proto_of(text, opset)))
    assert applied.model is None
    assert bool(applied.refusals) == bool(reason)
    assert not reason or reason in applied.refusals[0].reason
