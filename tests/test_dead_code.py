"""Operators that no output depends on run all the same, and so they are checked."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx.parser import parse_model

import ranum_falsify as rf

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
CONSTANTS = (
    "<int64 m = {3}, int64[1] count = {1}, bool go = {1}, float one = {1}, float two = {2}, float three = {3}, "
    "float large = {1e38}>"
)
LOOP = "y = Loop <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] t) { d = Identity(c) %s }> (m, go, x)"
IF = "c = ReduceMax <keepdims = 0> (x) p = Greater(c, one) y = If (p) <%s>"
BRANCHES = "then_branch = a () => (float[2] r) { %s r = Neg(x) }, else_branch = b () => (float[2] r) { r = Abs(x) }"
FORGOTTEN = "f = Cast <to = 1> (i) g = Sub(%s, f) h = Mul(g, large) a = Abs(x) t = Mul(a, h)"
STEERED = (
    "c = ReduceMax <keepdims = 0> (x) p = Greater(c, one) u = If (p) <then_branch = a () => (float[2] r) "
    "{ h = Sub(x, two) r = Log(h) }, else_branch = b () => (float[2] r) { r = Abs(x) }>"
)
RECIPROCAL = "f = Cast <to = 1> (i) e = Sub(f, %s) s = Abs(x) h = Add(e, s) t = Reciprocal(h)"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("u = Log(x) w = Neg(u) y = Exp(x)", "violated"),
        ("a = Abs(x) b = Add(a, one) u = Log(b) y = Exp(x)", "holds"),
        (LOOP % "u = Log(v) t = Neg(v)", "violated"),
        (LOOP % (RECIPROCAL % "one"), "violated"),
        (LOOP % (RECIPROCAL % "three"), "violated"),
        (LOOP % "f = Cast <to = 1> (i) s = Abs(x) h = Add(f, s) k = Add(h, one) t = Reciprocal(k)", "holds"),
        (IF % (BRANCHES % "k = Sub(x, two) u = Log(k)"), "violated"),
        (IF % (BRANCHES % "a = Abs(x) k = Add(a, one) u = Log(k)"), "holds"),
        ("w = Mul(x, large) y = Abs(x)", "violated"),
        ("w = Cast <to = 10> (h) h = Mul(x, large) y = Abs(x)", "violated"),
        ("w = Mul(x, three) y = Abs(x)", "holds"),
        (LOOP % (FORGOTTEN % "two"), "violated"),
        (IF % (BRANCHES % "w = Mul(x, large)"), "violated"),
        (f"{STEERED} y = Exp(x)", "violated"),
        (f"{STEERED} w = Abs(u) y = Exp(x)", "violated"),
        (f"{STEERED} y = Exp(x)".replace("Log", "Sin"), "holds"),
        (
            "c = ReduceMax <keepdims = 0> (x) n = Cast <to = 7> (c) u = Loop <body = b (int64 i, bool d, "
            "float[2] v) => (bool e, float[2] t) { e = Identity(d) t = Log(v) }> (n, go, x) y = Exp(x)",
            "violated",
        ),
        ("v, i = TopK(x, count) y = Exp(x)", "holds"),
        (LOOP % "v2, i2 = TopK(v, count) t = Neg(v)", "holds"),
        ("p, q, r = LayerNormalization(x, x) y = Exp(x)", "holds"),
    ],
)
def test_what_no_output_depends_on_is_checked(body: str, verdict: str) -> None:
    """Of a loop whose iterations forget what came before, the last one alone reaches the output."""
    model = parse_model(f"{HEAD} g (float[2] x) => (float[2] y) {CONSTANTS} {{ {body} }}")
    result = rf.check(model, box=(-4, 4), n_starts=20)
    assert result.verdict == verdict


def test_onnx_runtime_runs_what_no_output_depends_on() -> None:
    model = parse_model(f"{HEAD} g (int64[1] x) => (int64[1] y) {{ u = Div(x, x) y = Abs(x) }}")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(Exception, match="division by zero"):
        session.run(None, {"x": np.zeros(1, np.int64)})
