"""Properties as VNN-LIB, with the networks that they are about: the verdicts are those of the property itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from ranum_falsify import falsify
from ranum_falsify.errors import PropertyError
from ranum_falsify.network import Graph, read
from ranum_falsify.properties.language.parse import parse_text
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.rewrite.vnnlib_export import StatedProperty, state_property
from tests.properties.properties_kit import HEAD, dnnp
from tests.rewrite.transform_kit import proto_of

LOG = "g (float[1, 3] x) => (float[1, 3] y) <float c = {{{c}}}> {{ a = Add(x, c) [log] y = Log(a) }}"
DIVIDE = """g (float[1, 2] x, float[3] d) => (float[1, 2] y, float s) <float c = {{{c}}}> {{
    s = ReduceSum<keepdims = 0>(d) t = Add(s, c) [div] y = Div(x, t) }}"""
LINEAR = """g (float[1, 2] x) => (float[1, 3] y)
    <float[2, 3] w = {1, -1, 0.5, 2, 0.25, -3}> { m = MatMul(x, w) y = Relu(m) }"""
TWO = "g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Sub(x, y) }"


def stated(text: str, formula: str, names: tuple[str, ...] = ("N",), opset: int = 17) -> StatedProperty:
    graphs: dict[str, Graph] = {name: read(proto_of(text, opset)) for name in names}
    return state_property(reduce(dnnp(formula, names=names), graphs))


def verdicts(text: str, formula: str, made: StatedProperty, opset: int = 17) -> tuple[str, str]:
    """The verdict on the property, and that on what is written of it."""
    asked = f'{HEAD}N = Network("N")\n{formula}\n'
    old = falsify(proto_of(text, opset), asked, seed=1, timeout=30)
    new = falsify(ir.to_proto(made.model), made.text, seed=1, timeout=30)
    return old.verdict, new.verdict


@pytest.mark.parametrize(
    ("text", "formula", "expected"),
    [
        (LOG.format(c=1.0), "Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))", "violated"),
        (LOG.format(c=1.1), "Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))", "holds"),
        (LINEAR, "Forall(x, Implies(0 <= x <= 1, np.argmax(N(x)) == 1))", "violated"),
        (LINEAR, "Forall(x, Implies(And(0.1 <= x <= 1, x[0, 0] <= x[0, 1]), np.argmax(N(x)) == 0))", "holds"),
    ],
)
def test_the_verdict_is_that_of_the_property(text: str, formula: str, expected: str) -> None:
    made = stated(text, formula)
    onnx.checker.check_model(ir.to_proto(made.model), full_check=True)
    assert verdicts(text, formula, made) == (expected, expected)


@pytest.mark.parametrize(("c", "expected"), [(3.0, "violated"), (3.5, "holds")])
def test_several_inputs_are_one_after_the_other(c: float, expected: str) -> None:
    formula = "Forall(x, Implies(And(-1 <= x[0] <= 1, -1 <= x[1] <= 1), no_invalid_input(N(x), only=['Div'])))"
    made = stated(DIVIDE.format(c=c), formula, opset=12)
    (joined,) = made.model.graph.inputs
    assert (joined.name, list(joined.shape or ())) == ("X", [5])
    assert list(made.box) == ["X"]
    assert any(notice.startswith("VNN-LIB has one input: X is x, d") for notice in made.notices)
    assert verdicts(DIVIDE.format(c=c), formula, made, 12) == (expected, expected)


def test_before_opset_10_slices_have_attributes() -> None:
    made = stated(DIVIDE.format(c=0.0), "Forall(x, Implies(0 <= x <= 1, no_invalid_input(N(x))))", opset=9)
    onnx.checker.check_model(ir.to_proto(made.model), full_check=True)


def test_what_must_not_be_zero_is_an_output() -> None:
    made = stated(DIVIDE.format(c=0.0), "Forall(x, Implies(0 <= x <= 1, no_invalid_input(N(x))))", opset=12)
    last = made.text.splitlines()
    assert "    (and (>= Y_0 0.0) (<= Y_0 0.0))" in last
    assert "    (and (>= Y_1 340282366920938463463374607431768211456.0))" in last, "nor must the quotient overflow"
    assert any("is what the property asks about: t (1), y (2)" in notice for notice in made.notices)


def test_what_is_not_asked_about_is_gone() -> None:
    made = stated(LOG.format(c=1.0), "Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))")
    assert [node.op_type for node in made.model.graph] == ["Add"]
    assert made.text.splitlines()[-5:] == ["(assert (or", *(f"    (and (<= Y_{i} 0.0))" for i in range(3)), "))"]
    assert made.notices[0] == "1 operator is proved, and not in the VNN-LIB file"


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("Forall(x, Implies(-1 <= x <= 1, And(N(x)[0] <= 1, N(x)[1] <= 1.01)))", "holds"),
        ("Forall(x, Implies(-1 <= x <= 1, N(x)[1] > -1))", "violated"),
    ],
)
def test_several_outputs_are_one_vector(formula: str, expected: str) -> None:
    made = stated(TWO, formula)
    assert len(made.model.graph.outputs) == 1
    assert verdicts(TWO, formula, made) == (expected, expected)


def test_the_network_of_a_vnnlib_file_stays(tmp_path: Path) -> None:
    text = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)\n"
    text += "(assert (<= X_0 1))(assert (>= X_0 0))(assert (<= X_1 1))(assert (>= X_1 0))(assert (>= Y_0 2.5))\n"
    problem = reduce(parse_text(text, tmp_path / "p.vnnlib", {}, vnnlib=True), {"N": read(proto_of(LINEAR, 17))})
    made = state_property(problem)
    assert made.text.splitlines()[-1] == "(assert (>= Y_0 2.5))"
    assert not made.notices
    assert [value.name for value in made.model.graph.outputs] == ["y"]
    lower, upper = made.box["x"]
    assert np.array_equal(lower, [[0, 0]]) and np.array_equal(upper, [[1, 1]])


@pytest.mark.parametrize(
    ("text", "formula", "names", "said"),
    [
        (LINEAR, "Forall(x, Implies(0 <= x <= 1, N(x) <= M(x)))", ("N", "M"), "this one has 2"),
        (LINEAR, "Forall(x, Implies(0 <= x <= 1, N(2 * x) <= 1))", ("N",), "not of terms of them"),
        ("g (float[600000] x) => (float[600000] y) { y = Log(x) }",
         "Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))", ("N",), "about 1,200,000 numbers"),
        ("g (float[2] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }",
         "Forall(x, Implies(And(0 <= x[0] <= 1, 0 <= x[1] <= 1), N(x) <= 1))", ("N",), "float32, int64"),
        (LINEAR, "Forall(x, Implies(And(0 <= x <= 1, no_invalid_input(N(x))), N(x) <= 1))", ("N",), "as a condition"),
    ],
)  # fmt: skip
def test_what_vnnlib_cannot_say_is_an_error(text: str, formula: str, names: tuple[str, ...], said: str) -> None:
    with pytest.raises(PropertyError, match=said):
        stated(text, formula, names)


def test_derivatives_are_asked_about_too() -> None:
    made = stated(
        "g (float[2] x) => (float[2] y) { y = Sqrt(x) }",
        "Forall(x, Implies(0 <= x <= 1, no_invalid_input(N(x), gradient=True)))",
    )
    assert "    (and (<= Y_1 0.0))" in made.text.splitlines()
