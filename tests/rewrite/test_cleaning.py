"""Cleaning passes of libraries: each changes what it is for, leaves the rest, and is verified."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from ranum_falsify.errors import TransformError
from ranum_falsify.rewrite.apply import apply_pass
from ranum_falsify.rewrite.catalogue import all_passes, find_pass
from ranum_falsify.rewrite.model import read_model
from ranum_falsify.rewrite.passes import cleaning
from tests.rewrite.transform_kit import model_of, operators, proto_of, transformed

CLEAN = "g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"
UNUSED = "g (float[2, 3] x) => (float[2, 3] y) { u = Abs(x) y = Relu(x) }"
IDENTITY = "g (float[2, 3] x) => (float[2, 3] y) { i = Identity(x) y = Relu(i) }"
TWICE = "g (float[2, 3] x) => (float[2, 3] y) { a = Abs(x) b = Abs(x) y = Add(a, b) }"
SAME = "g (float[3] x) => (float[3] y) <float[3] a = {1, 2, 3}, float[3] b = {1, 2, 3}> { s = Add(x, a) y = Mul(s, b) }"
CONSTANT = "g (float[3] x) => (float[3] y) { c = Constant<value = float[3] {1, 2, 3}>() y = Add(x, c) }"
FOLDABLE = "g (float[3] x) => (float[3] y) <float[3] a = {1, 2, 3}> { b = Neg(a) y = Add(x, b) }"
SOFTMAX = "g (float[2, 3] x) => (float[2, 3] y) { y = Softmax(x) }"
UNTYPED = "g (float[2, 3] x) => (float[2, 3] y) { a = Abs(x) y = Relu(a) }"

APPLIES = [
    ("remove_unused", UNUSED, ["Relu"]),
    ("eliminate_identity", IDENTITY, ["Relu"]),
    ("eliminate_common_subexpressions", TWICE, ["Abs", "Add"]),
    ("deduplicate_initializers", SAME, ["Add", "Mul"]),
    ("lift_constants", CONSTANT, ["Add"]),
    ("fold_constants", FOLDABLE, ["Add"]),
    ("add_default_attributes", SOFTMAX, ["Softmax"]),
    ("infer_shapes", UNTYPED, ["Abs", "Relu"]),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "text", "left"), APPLIES)
def test_a_pass_changes_what_it_is_for(name: str, text: str, left: list[str]) -> None:
    done = transformed(text, [name], samples=8)
    proved = ("structure", "proved", "sampled 9")  # infinities and NaN among them
    verified = ("structure", "sampled 8") if name == "fold_constants" else proved
    assert done.reports[0].is_modified and done.reports[0].verified == verified
    assert operators(done.model) == left


@pytest.mark.parametrize("name", [name for name, *_ in APPLIES])
def test_a_pass_leaves_what_is_clean(name: str) -> None:
    model = model_of(CLEAN)
    done = transformed(model, [name])
    assert done.model is model and not done.reports[0].is_modified


def test_one_of_equal_initializers_stays() -> None:
    assert len(transformed(SAME, ["deduplicate_initializers"], samples=4).model.graph.initializers) == 1


def test_functions_are_inlined() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[3] x) => (float[3] y) { y = local.twice(x) }
        <domain: "local", opset_import: ["" : 17]> twice (a) => (b) { b = Add(a, a) }"""
    done = transformed(ir.from_proto(parser.parse_model(text)), ["inline_functions"], samples=4)
    assert operators(done.model) == ["Add"] and not done.model.functions


def test_nodes_are_sorted_on_reading(tmp_path: Path) -> None:
    proto = proto_of("g (float[3] x) => (float[3] y) { a = Abs(x) b = Neg(x) y = Add(a, b) }")
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    onnx.save(proto, tmp_path / "m.onnx")
    model = read_model(tmp_path / "m.onnx")
    assert operators(model)[-1] == "Add"
    assert transformed(model, ["transform_add"], samples=4).reports[0].is_modified


def test_metadata_is_cleared() -> None:
    model = model_of(CLEAN)
    model.graph.node(0).metadata_props["origin"] = "here"
    done = transformed(model, ["clear_metadata"], samples=4)
    assert not done.model.graph.node(0).metadata_props


@pytest.mark.few(1)
@pytest.mark.parametrize("opset", [16, 18, 21])
def test_the_opset_becomes_what_is_asked_for(opset: int) -> None:
    text = "g (float[2, 3] x) => (float[2] y) { a = Relu(x) y = ReduceMax<axes = [1], keepdims = 0>(a) }"
    done = transformed(text, [f"convert_opset={opset}"], samples=8)
    assert done.model.opset_imports[""] == opset
    assert transformed(done.model, [f"convert_opset={opset}"]).reports[0].is_modified is False


def test_what_no_converter_converts_is_told() -> None:
    with pytest.raises(TransformError, match="convert_opset=13: the converters"):
        transformed(CLEAN, ["convert_opset=13"])


def test_every_cleaning_pass_is_tested_here() -> None:
    tested = {name for name, *_ in APPLIES} | {"inline_functions", "clear_metadata", "convert_opset"}
    assert {spec.name for spec in all_passes() if spec.make.__module__ == cleaning.__name__} == tested


@pytest.mark.parametrize("holder", ["<float[{0}] c = {{{1}}}> {{", "{{ c = Constant<value = float[{0}] {{{1}}}>()"])
@pytest.mark.parametrize("length", [3, 2000])
def test_identity_of_a_constant_is_folded_and_not_eliminated(holder: str, length: int) -> None:
    body = holder.format(length, ", ".join(["0.5"] * length))
    text = f"g (float[{length}] x) => (float y) {body} i = Identity(c) j = Identity(i) y = MatMul(x, j) }}"
    kept = apply_pass(find_pass("eliminate_identity"), model_of(text))
    assert kept.model is None, "it sums up in another order where the operand is a constant"
    folded = apply_pass(find_pass("fold_constants"), model_of(text))
    assert folded.model is not None and [name for name in operators(folded.model) if name != "Constant"] == ["MatMul"]


def test_what_a_model_says_of_itself_stays() -> None:
    model = model_of(IDENTITY)
    model.metadata_props["author"] = "somebody"
    model.producer_name = "exporter"
    done = transformed(model, ["eliminate_identity"], samples=4)
    assert done.model.metadata_props["author"] == "somebody" and done.model.producer_name == "exporter"


def test_a_reference_to_weights_is_no_copy() -> None:
    model = model_of(FOLDABLE)
    done = transformed(model, ["transform_add"], samples=4)
    kept = done.model.graph.initializers["a"].const_value
    assert kept is model.graph.initializers["a"].const_value
    assert np.array_equal(np.asarray(kept), [1, 2, 3])


@pytest.mark.parametrize(
    "text",
    [
        """g (bool c, float[3] x) => (float[3] y) {
            p = Abs(x)
            y = If(c) <
                then_branch = t () => (float[3] a) { a = Identity(p) },
                else_branch = e () => (float[3] b) { b = Identity(p) }
            >
        }""",
        "g (float[3] x) => (float[3] y, float[3] z) { y = Abs(x) z = Identity(y) }",
    ],
)
def test_an_identity_that_gives_an_output_its_name_stays(text: str) -> None:
    done = transformed(f"{text[:-1]} unused = Identity(x) w = Neg(unused) }}", ["eliminate_identity"])
    assert done.reports[0].is_modified, "the other one goes"
    assert [node.op_type for node in done.model.graph.all_nodes()].count("Identity") >= 1
