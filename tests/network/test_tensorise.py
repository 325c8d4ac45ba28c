"""Strings, maps, sequences and optionals are resolved before a model is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import ranum_falsify as rf
from ranum_falsify.errors import ModelError, UnsupportedOperatorError
from ranum_falsify.network import read
from ranum_falsify.network.tensorise import has_others, lower
from ranum_falsify.verify.replay.replayer import Replayer
from tests.network.building import session, unchecked

X = np.arange(12, dtype=np.float32).reshape(4, 3)

SEQUENCES = {
    "items": "(float[4, 3] x) => (float[n, 3] y) { s = SequenceConstruct(x, x) i = Constant<value_int=1>() "
    "a = SequenceAt(s, i) y = Neg(a) }",
    "erased": "(float[4, 3] x) => (float[n, 3] y) { s = SplitToSequence<axis=0>(x) i = Constant<value_int=1>() "
    "e = SequenceErase(s, i) y = ConcatFromSequence<axis=0>(e) }",
    "last erased": "(float[4, 3] x) => (float[n, 3] y) { s = SplitToSequence<axis=0>(x) e = SequenceErase(s) "
    "y = ConcatFromSequence<axis=0>(e) }",
    "dropped axis": "(float[4, 3] x) => (float[n, m] y) { s = SplitToSequence<axis=0, keepdims=0>(x) "
    "y = ConcatFromSequence<axis=1, new_axis=1>(s) }",
    "sizes": "(float[4, 3] x) => (float[n, m] y, int64 l) { k = Constant<value=int64[2] {1, 3}>() "
    "s = SplitToSequence<axis=0>(x, k) t = Identity(s) i = Constant<value_int=-1>() a = SequenceAt(t, i) "
    "l = SequenceLength(s) z = SequenceEmpty<dtype=1>() w = SequenceInsert(z, a) q = SequenceInsert(w, x) "
    "o = Constant<value_int=0>() r = SequenceInsert(q, a, o) y = ConcatFromSequence<axis=0>(r) }",
    "step": "(float[4, 3] x) => (float[n, m] y) { k = Constant<value_int=3>() s = SplitToSequence<axis=0>(x, k) "
    "i = Constant<value_int=1>() y = SequenceAt(s, i) }",
    "output": "(float[4, 3] x) => (seq(float[a, b]) y) { z = Neg(x) s = SequenceConstruct(x, z) y = Identity(s) }",
    "map": "(float[4, 3] x) => (seq(float[a, b]) y, int64 l) { s = SplitToSequence<axis=0>(x) "
    "c = Constant<value_float=2.0>() "
    "y = SequenceMap<body = each (float[1, 3] i) => (float[1, 3] o) <float one = {1}> { a = Mul(i, c) b = Add(a, one) "
    "p = ReduceSum<keepdims=0>(i) q = Greater(p, c) o = If<then_branch = t () => (u) { u = Neg(b) }, "
    "else_branch = e () => (v) { v = Abs(a) }>(q) }>(s) l = SequenceLength(y) }",
    "map of two": "(float[4, 3] x) => (float[n, 3] y) { n = Neg(x) s = SequenceConstruct(x, n) "
    "r = SequenceConstruct(n, n) m, k = SequenceMap<body = each "
    "(float[4, 3] i, float[4, 3] j, float[4, 3] w) => (float[4, 3] o, float[4, 3] i) "
    "{ a = Mul(i, j) o = Sub(a, w) }>(s, r, x) z = ConcatFromSequence<axis=0>(m) u = ConcatFromSequence<axis=0>(k) "
    "y = Concat<axis=0>(z, u) }",
    "loop": "(float[4, 3] x) => (float[n, 3] y, seq(float[a, b]) z, float[k, 1, 3] w) { s = SplitToSequence<axis=0>(x) "
    "m = SequenceLength(s) t = Constant<value = bool {1}>() e = SequenceEmpty() z, v, w = Loop<body = each "
    "(int64 i, bool c, seq(float[1, 3]) q, float[1, 3] p) => "
    "(bool d, seq(float[1, 3]) r, float[1, 3] o, float[1, 3] h) "
    "{ d = Identity(c) a = SequenceAt(s, i) o = Add(a, p) r = SequenceInsert(q, o) h = Neg(o) }>(m, t, e, f) "
    "f = Constant<value = float[1, 3] {1, 2, 3}>() y = ConcatFromSequence<axis=0>(z) }",
    "captured": "(float[4, 3] x) => (float[4, 3] y) { s = SequenceConstruct(x) o = Constant<value_int=0>() "
    "a = SequenceAt(s, o) b = Relu(a) q = ReduceMax<keepdims=0>(b) l = Constant<value_float=3.0>() k = Greater(q, l) "
    "y = If<then_branch = t () => (u) { u = Neg(a) }, else_branch = e () => (v) { v = Abs(a) }>(k) }",
    "optional": "(float[4, 3] x) => (float[4, 3] y, bool h) { s = Optional(x) h = OptionalHasElement(s) "
    "y = OptionalGetElement(s) }",
    "optional in a branch": "(float[4, 3] x) => (float[4, 3] y) { s = Optional(x) h = OptionalHasElement(s) "
    "y = If<then_branch = t () => (u) { u = OptionalGetElement(s) }, else_branch = e () => (v) { v = Neg(x) }>(h) }",
    "optional in branches": "(float[4, 3] x) => (float[4, 3] y) { s = Optional(x) q = ReduceMax<keepdims=0>(x) "
    "l = Constant<value_float=3.0>() k = Greater(q, l) y = If<then_branch = t () => (u) { u = OptionalGetElement(s) }, "
    "else_branch = e () => (v) { w = OptionalGetElement(s) v = Neg(w) }>(k) }",
}


def model_of(body: str) -> onnx.ModelProto:
    return unchecked(f"g {body}", 18)


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_and_optionals_give_what_runtimes_compute(name: str) -> None:
    model = model_of(SEQUENCES[name])
    ours = read(model)(X, squeeze=False)
    theirs = [
        y for output in session(model).run(None, {"x": X}) for y in (output if isinstance(output, list) else [output])
    ]
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)
        assert mine.dtype == other.dtype


def test_other_models_stay_as_they_are() -> None:
    model = model_of("(float[4, 3] x) => (float[4, 3] y) { y = Identity(x) }")
    assert not has_others(model.graph) and lower(model) is model


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("(seq(float[2]) x) => (float[2] y) { i = Constant<value_int=0>() y = SequenceAt(x, i) }", "is an input"),
        (
            "(float[4, 3] x, int64 i) => (float[n, m] y) { s = SplitToSequence<axis=0>(x) y = SequenceAt(s, i) }",
            "position depends on the input",
        ),
        (
            "(float[n, 3] x) => (float[m, 3] y) { s = SplitToSequence<axis=0>(x) y = ConcatFromSequence<axis=0>(s) }",
            "number of its parts",
        ),
        ("(float[2] x) => (float[2] y) { o = Optional<type=float>() y = OptionalGetElement(o) }", "holds nothing"),
        ("(float[2] x) => (float[2] y) { s = Cast<to=8>(x) y = Cast<to=1>(s) }", "numbers written as strings"),
    ],
)
def test_what_the_model_alone_does_not_say_is_refused(body: str, words: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=words):
        read(model_of(body))


def test_a_body_that_runs_for_each_item_is_proved_and_searched() -> None:
    model = model_of(
        "(float[4, 3] x) => (float[n, 3] y) { s = SplitToSequence<axis=0>(x) z = SequenceMap<body = each "
        "(float[1, 3] i) => (float[1, 3] o) { o = Log(i) }>(s) y = ConcatFromSequence<axis=0>(z) }"
    )
    assert rf.check(model, box=(1, 2), n_starts=0).verdict == "holds"
    assert rf.check(model, box=(-1, 2), n_starts=5, prove_timeout=0).verdict == "violated"


def test_an_index_beyond_a_sequence_is_an_error() -> None:
    body = "(float[2] x) => (float[2] y) { s = SequenceConstruct(x) i = Constant<value_int=5>() y = SequenceAt(s, i) }"
    with pytest.raises(ModelError, match="has no position 5"):
        read(model_of(body))


# strings and maps -------------------------------------------------------------------------------------------------


def classifier(
    *, labels: dict[str, Any], after: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    first = helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "scores"],
        "classify",
        domain="ai.onnx.ml",
        coefficients=[1.0, -1.0, 0.5, 0.5],
        intercepts=[0.0, 1.0],
        **labels,
    )
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2])
    graph = helper.make_graph([first, *after], "g", [x], outputs)
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def tensor(name: str, kind: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, None)


def mapped(labels: dict[str, Any], key: int) -> onnx.ModelProto:
    """Return a classifier as converters write them: a label, and a map from labels to scores."""
    names = {name.replace("ints", "int64s"): value for name, value in labels.items()}
    zipped = helper.make_node("ZipMap", ["scores"], ["map"], "zip", domain="ai.onnx.ml", **names)
    item = helper.make_map_type_proto(key, helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))
    output = helper.make_value_info("map", helper.make_sequence_type_proto(item))
    kind = onnx.TensorProto.STRING if "classlabels_strings" in labels else onnx.TensorProto.INT64
    return classifier(labels=labels, after=[zipped], outputs=[tensor("label", kind), output])


MAPPED = {
    "strings": mapped({"classlabels_strings": ["no", "yes"]}, onnx.TensorProto.STRING),
    "integers": mapped({"classlabels_ints": [3, 7]}, onnx.TensorProto.INT64),
}


@pytest.mark.parametrize("kind", MAPPED)
def test_a_map_is_the_numbers_in_it(kind: str) -> None:
    x = np.array([[1.0, -2.0]], np.float32)
    graph = read(MAPPED[kind])
    label, scores = graph(x)
    theirs, maps = session(MAPPED[kind]).run(None, {"x": x})
    np.testing.assert_allclose(scores[0], list(maps[0].values()), rtol=1e-6)
    assert graph.output_names == ("label", "scores")
    if kind == "integers":
        np.testing.assert_array_equal(label, theirs)


@pytest.mark.parametrize("kind", MAPPED)
def test_invalid_numbers_in_a_map_reach_the_output(kind: str) -> None:
    with Replayer(MAPPED[kind]) as replayer:
        (found,) = replayer.run({"x": np.array([[3e38, -3e38]], np.float32)}).findings
    assert (found.op_type, found.reach) == ("LinearClassifier", "output")


def test_tables_of_strings_are_tables_of_codes() -> None:
    nodes = [
        helper.make_node(
            "LabelEncoder",
            ["label"],
            ["weight"],
            domain="ai.onnx.ml",
            keys_strings=["yes", "no"],
            values_floats=[0.25, 4.0],
            default_float=-1.0,
        ),
        helper.make_node("Mul", ["scores", "weight"], ["y"]),
        helper.make_node("Constant", [], ["word"], value=onnx.numpy_helper.from_array(np.array(["yes"], object))),
        helper.make_node("Equal", ["label", "word"], ["same"]),
    ]
    outputs = [tensor("y", onnx.TensorProto.FLOAT), tensor("same", onnx.TensorProto.BOOL)]
    model = classifier(labels={"classlabels_strings": ["no", "yes"]}, after=nodes, outputs=outputs)
    for x in ([[1.0, -2.0]], [[-1.0, 2.0]]):
        feed = np.array(x, np.float32)
        ours, theirs = read(model)(feed), session(model).run(None, {"x": feed})
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
        np.testing.assert_array_equal(ours[1], theirs[1])


def test_numbers_made_of_what_strings_say_are_refused() -> None:
    after = [helper.make_node("Cast", ["label"], ["y"], to=onnx.TensorProto.FLOAT)]
    outputs = [tensor("y", onnx.TensorProto.FLOAT)]
    model = classifier(labels={"classlabels_strings": ["1", "2"]}, after=after, outputs=outputs)
    with pytest.raises(UnsupportedOperatorError, match="what strings say"):
        read(model)
