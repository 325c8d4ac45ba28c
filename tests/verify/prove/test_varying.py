"""What users are told where a shape varies over the box: which operator gives it, which inputs steer it, what to do."""

from __future__ import annotations

from typing import Any

import pytest
from onnx.parser import parse_graph, parse_model

import ranum_falsify as rf

HEAD = '<ir_version: 8, opset_import: ["" : 18]> g '
X: dict[str, Any] = {"x": (1, 2)}
CASES = [
    ("TopK", "(float[1,9] x, int64[1] k) => (y) { [node] v, i = TopK(x, k) y = Log(v) }", {"k": (1, 3)}),
    ("Tile", "(float[1,4] x, int64[2] k) => (y) { [node] v = Tile(x, k) y = Log(v) }", {"k": (1, 3)}),
    ("Reshape", "(float[2,6] x, int64[2] k) => (y) { [node] v = Reshape(x, k) y = Log(v) }", {"k": (2, 6)}),
    ("Expand", "(float[1,4] x, int64[2] k) => (y) { [node] v = Expand(x, k) y = Log(v) }", {"k": (1, 4)}),
    (
        "Slice",
        "(float[8] x, int64[1] k) => (y) <int64[1] from = {0}> { [node] v = Slice(x, from, k) y = Log(v) }",
        {"k": (3, 5)},
    ),
    (
        "ConstantOfShape",
        "(float[1] x, int64[1] k) => (y) { [node] c = ConstantOfShape(k) v = Add(c, x) y = Log(v) }",
        {"k": (1, 3)},
    ),
    (
        "Range",
        "(float x, int64 k) => (y) <float from = {1}, float step = {1}> "
        "{ f = Cast<to = 1>(k) [node] r = Range(from, f, step) v = Mul(r, x) y = Log(v) }",
        {"k": (2, 4)},
    ),
    (
        "Resize",
        "(float[1,1,4,4] x, int64[4] k) => (y) { [node] v = Resize<mode = 'nearest'>(x, , , k) y = Log(v) }".replace(
            "'", '"'
        ),
        {"k": (1, 4)},
    ),
    (
        "OneHot",
        "(float[3] x, int64[1] k) => (y) <int64[3] at = {0, 1, 2}, float[2] ends = {1, 2}> "
        "{ [node] v = OneHot<axis = 0>(at, k, ends) w = Mul(v, x) y = Log(w) }",
        {"k": (3, 5)},
    ),
    ("Pad", "(float[4] x, int64[2] k) => (y) { [node] v = Pad(x, k) y = Log(v) }", {"k": (0, 2)}),
    ("Split", "(float[6] x, int64[2] k) => (y, w) { [node] v, w = Split<axis = 0>(x, k) y = Log(v) }", {"k": (0, 6)}),
    ("CenterCropPad", "(float[8] x, int64[1] k) => (y) { [node] v = CenterCropPad(x, k) y = Log(v) }", {"k": (4, 9)}),
    (
        "ReduceSum",
        "(float[2,3] x, int64[1] k) => (y) { [node] v = ReduceSum<keepdims = 0>(x, k) y = Log(v) }",
        {"k": (0, 1)},
    ),
]


def ask(text: str, box: dict[str, Any]) -> rf.Result:
    return rf.check(parse_model(HEAD + text), box=X | box, n_starts=0, self_check=False, prove_timeout=1)


@pytest.mark.few(2)
@pytest.mark.parametrize(("op_type", "text", "box"), CASES, ids=[case[0] for case in CASES])
def test_the_operator_and_the_input_are_named(op_type: str, text: str, box: dict[str, Any]) -> None:
    found = ask(text, box)
    assert found.verdict == "unknown"
    (notice,) = [notice for notice in found.notices if "shape" in notice]
    assert notice.startswith(f"the shape of what node ({op_type}) gives")
    assert "varies with 'k':" in notice and "--box k=VALUE" in notice
    assert notice in found.to_json()["notices"] and "\n" not in notice
    log = next(operator.node for operator in found.operators if operator.op_type == "Log")
    assert notice in found.explain(log)


@pytest.mark.parametrize(
    ("condition", "steering"),
    [("d = Identity(c)", "'k'"), ("h = ReduceMax<keepdims = 0>(s) d = Less(h, two)", "'x', 'k'")],
)
def test_of_a_loop_that_collects_rows_what_steers_it_is_named(condition: str, steering: str) -> None:
    model = parse_model(
        f"{HEAD}(float[2] x, int64 k) => (float[n,2] y) <float two = {{2}}, bool go = {{1}}>"
        "{ [loop] z, r = Loop(k, go, x) y = Log(r) }"
    )
    body = (
        f"b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] r) {{ {condition} t = Relu(s) r = Relu(s) }}"
    )
    model.graph.node[0].attribute.add(name="body", type=5).g.CopyFrom(parse_graph(body))
    found = rf.check(model, box=X | {"k": (1, 3)}, n_starts=0, self_check=False, prove_timeout=1)
    (notice,) = [notice for notice in found.notices if "shape" in notice]
    assert notice.startswith("the shape of what loop (Loop) gives") and f"varies with {steering}:" in notice


def test_nothing_is_said_where_one_value_is_given() -> None:
    _, text, _ = CASES[0]
    found = ask(text, {"k": 3})
    assert found.verdict == "holds"
    assert not any("shape" in notice for notice in found.notices)


def test_no_input_with_one_value_is_told_to_take_one() -> None:
    """Rows of a loop that a condition ends have no bounds, even where all that steers it has one value."""
    model = parse_model(
        f"{HEAD}(float[2] x, float[2] w) => (float[n,2] y) <float two = {{2}}, bool go = {{1}}>"
        "{ [loop] z, r = Loop(, go, x) a = Add(r, w) y = Log(a) }"
    )
    body = (
        "b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] r)"
        " { h = ReduceMax<keepdims = 0>(s) d = Less(h, two) t = Add(s, two) r = Relu(s) }"
    )
    model.graph.node[0].attribute.add(name="body", type=5).g.CopyFrom(parse_graph(body))
    ranges: list[tuple[Any, bool]] = [(1.5, False), ((1, 1.5), True)]
    for one, told in ranges:
        found = rf.check(model, box={"w": 0.5, "x": one}, n_starts=0, self_check=False, prove_timeout=1)
        assert any("varies with 'x'" in notice for notice in found.notices) == (told and found.verdict == "unknown")


def test_nothing_is_said_where_nothing_is_open() -> None:
    found = ask(
        "(float[8] x, int64[1] k) => (v, y) <int64[1] o = {0}> { y = Log(x) v = Slice(x, o, k) }", {"k": (1, 3)}
    )
    assert found.verdict == "holds"
    assert not any("shape" in notice for notice in found.notices)


def test_only_the_first_shape_of_a_chain_is_named() -> None:
    text = (
        "(float[1,4] x, int64[2] k, int64[1] j) => (y) <int64[1] one = {1}>"
        "{ [first] v = Tile(x, k) [second] w, i = TopK(v, j) t = Log(w) [third] y = Unsqueeze(t, one) }"
    )
    found = ask(text, {"k": (1, 2), "j": (1, 2)})
    (notice,) = [notice for notice in found.notices if "shape" in notice]
    assert "first" in notice and "'j'" not in notice
    assert "second" not in notice
    assert not any("varies" in line for line in found.explain("first").splitlines()[:1])


def test_networks_are_named_where_there_are_several() -> None:
    _, text, _ = CASES[1]
    question = """from dnnv.properties import *
from ranum_falsify.properties import *
import numpy as np
N = Network("N")
M = Network("M")
Forall(x, Forall(k, Implies(And(1 <= x <= 2, 1 <= k <= 3), And(no_invalid_input(N(x, k)), no_invalid_input(M(x, k))))))
"""
    models = {name: parse_model(HEAD + text) for name in ("N", "M")}
    found = rf.prove(models, question, self_check=False, prove_timeout=1)
    told = [notice for notice in found.notices if "varies" in notice]
    assert [notice.split(" gives")[0] for notice in told] == [f"the shape of what {n}: node (Tile)" for n in ("N", "M")]
