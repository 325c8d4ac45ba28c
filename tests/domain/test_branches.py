"""Bounds of an `If` that an input steers: each branch under its condition, sound for what ONNX Runtime computes."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.parser import parse_model

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import read
from ranum_falsify.operators.support.deciding import is_proved

RNG = np.random.default_rng(0)

TESTS = {
    "least": "a = ReduceMin<keepdims = 0>(x) c = Greater(a, t)",
    "least, negated": "a = ReduceMin<keepdims = 0>(x) d = LessOrEqual(a, t) c = Not(d)",
    "least, from the other side": "a = ReduceMin<keepdims = 0>(x) c = Less(t, a)",
    "greatest": "a = ReduceMax<keepdims = 0>(x) d = Greater(a, t) c = Not(d)",
    "every element": "b = Greater(x, t) i = Cast<to = 7>(b) a = ReduceMin<keepdims = 0>(i) c = Cast<to = 9>(a)",
    "no element": "b = Greater(x, t) i = Cast<to = 7>(b) a = ReduceMax<keepdims = 0>(i) n = Cast<to = 9>(a) c = Not(n)",
    "both": "a = ReduceMin<keepdims = 0>(x) e = Greater(a, t) b = ReduceMax<keepdims = 0>(x) f = Less(b, u)"
    " c = And(e, f)",
    "a number": "a = Gather(x, zero) c = Greater(a, t)",
    "least, in another shape": "a = ReduceMin(x) d = LessOrEqual(a, t) e = Squeeze(d) f = Cast<to = 9>(e) c = Not(f)",
    "a sum": "a = ReduceSum<keepdims = 0>(x) c = Greater(a, t)",
    "a sum of products": "m1 = Mul(x, w) a = ReduceSum<keepdims = 0>(m1) c = Greater(a, t)",
}
UNBOUNDED = {
    "a product of matrices": "a = MatMul(x, w) c = Greater(a, t)",
    "random numbers": "n1 = RandomNormalLike(x) a = ReduceSum<keepdims = 0>(n1) c = Greater(a, t)",
}
THEN = "m = Sub(x, t) p = Gather(x, zero) q = Sub(p, t) r = Mul(m, q) y1 = Add(r, t)"
BOTH = "then_branch = g1 () => (float[3] y1) {{ {0} }}, else_branch = g2 () => (float[3] y2) {{ y2 = Neg(x) }}"


def model(test: str, then: str = THEN) -> onnx.ModelProto:
    constants = "<float t = {0.5}, float u = {1.5}, int64 zero = {0}, float[3] w = {2, -1, 0.5}>"
    branches = BOTH.format(then)
    return parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) {constants}'
        f" {{ {test} y = If(c) <{branches}> }}"
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("name", TESTS)
def test_bounds_enclose_what_onnx_runtime_computes(name: str) -> None:
    proto = model(TESTS[name])
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    analysis = IntervalAnalysis(read(proto))
    for _ in range(20):
        low, high = np.sort(RNG.uniform(-1, 2, (2, 3)).astype(np.float32), axis=0)
        (y,) = analysis.run([Interval.box(low, high)])
        assert y is not None
        corners = np.where(RNG.random((60, 3)) < 0.5, low, high)
        inner = RNG.uniform(low, high, (60, 3))
        border = np.where(RNG.random((60, 3)) < 0.4, np.clip(np.float32(0.5), low, high), inner)
        for x in np.concatenate([corners, inner, border]).astype(np.float32).clip(low, high):
            found = session.run(None, {"x": x})[0]
            least, greatest = (bound.numpy() for bound in y.expand())
            assert (found >= least).all() and (found <= greatest).all(), (low, high, x)


@pytest.mark.parametrize(
    ("name", "then", "proved"),
    [
        ("least", "y1 = Log(x)", True),
        ("least, negated", "y1 = Log(x)", True),
        ("least, from the other side", "y1 = Log(x)", True),
        ("least, in another shape", "y1 = Log(x)", True),
        ("every element", "y1 = Log(x)", True),
        ("both", "s = Sub(u, x) k = Log(s) l = Log(x) y1 = Add(k, l)", True),
        ("greatest", "s = Sub(u, x) y1 = Log(s)", True),
        ("no element", "s = Sub(u, x) y1 = Log(s)", True),
        ("greatest", "y1 = Log(x)", False),
        ("a number", "y1 = Log(x)", False),
        ("a sum", "y1 = Log(x)", False),
        ("a number", "k = Log(a) y1 = Add(x, k)", True),
        ("a sum", "k = Log(a) y1 = Add(x, k)", True),
        ("a sum", "k = Sqrt(a) e = Log(k) y1 = Add(x, e)", True),
        ("a sum", "b = ReduceSum<keepdims = 0>(x) k = Log(b) y1 = Add(x, k)", True),
        ("a sum", "i = Identity(x) b = ReduceSum<keepdims = 0>(i) k = Log(b) y1 = Add(x, k)", False),
        ("greatest", "i = Identity(x) b = ReduceMax(i) s = Sub(u, b) k = Log(s) y1 = Add(x, k)", True),
        ("a sum of products", "n = Mul(x, w) b = ReduceSum<keepdims = 0>(n) k = Log(b) y1 = Add(x, k)", False),
        ("a sum of products", "n = Mul(x, u) b = ReduceSum<keepdims = 0>(n) k = Log(b) y1 = Add(x, k)", False),
        ("a sum of products", "n = Div(x, w) b = ReduceSum<keepdims = 0>(n) k = Log(b) y1 = Add(x, k)", False),
        ("a sum", "b = ReduceMean<keepdims = 0>(x) k = Log(b) y1 = Add(x, k)", False),
        ("a sum", "n = Neg(x) b = ReduceSum<keepdims = 0>(n) k = Log(b) y1 = Add(x, k)", False),
        ("a sum", "b = ReduceSum<keepdims = 0>(x) d = Sub(b, t) k = Log(d) y1 = Add(x, k)", True),
        ("a sum", "b = ReduceSum<keepdims = 0>(x) d = Sub(b, u) k = Log(d) y1 = Add(x, k)", False),
        ("a product of matrices", "b = MatMul(x, w) k = Log(b) y1 = Add(x, k)", False),
        ("random numbers", "n = RandomNormalLike(x) b = ReduceSum<keepdims = 0>(n) k = Log(b) y1 = Add(x, k)", False),
    ],
)
def test_a_branch_is_proved_under_its_condition(name: str, then: str, proved: bool) -> None:
    graph = read(model((TESTS | UNBOUNDED)[name], then))
    seen: dict[str, bool] = {}
    analysis = IntervalAnalysis(graph)
    analysis.run(
        [Interval.box(np.full(3, -1, np.float32), np.full(3, 2, np.float32))],
        lambda visited: seen.__setitem__(visited.op.name, is_proved(analysis, visited)),
    )
    assert seen["If_y"] == proved


REPEATED = {
    "a sum": "b = ReduceSum<keepdims = 0>(x) y1 = Sub(x, b)",
    "a sum of products": "n = Mul(x, w) b = ReduceSum<keepdims = 0>(n) y1 = Sub(n, b)",
    "greatest": "b = ReduceMax<keepdims = 0>(x) y1 = Sub(x, b)",
}


@pytest.mark.parametrize("name", REPEATED)
def test_bounds_of_what_a_branch_computes_again_enclose_what_onnx_runtime_computes(name: str) -> None:
    proto, points = model(TESTS[name], REPEATED[name]), RNG.uniform(-1, 2, (200, 3)).astype(np.float32)
    (y,) = IntervalAnalysis(read(proto)).run([Interval.box(points.min(axis=0), points.max(axis=0))])
    assert y is not None
    least, greatest = (bound.numpy() for bound in y.expand())
    for level in (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    ):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
        for x in points:
            found = session.run(None, {"x": x})[0]
            assert (found >= least).all() and (found <= greatest).all(), (level, x)


def test_the_other_branch_is_proved_under_the_opposite() -> None:
    test = "a = ReduceMin<keepdims = 0>(x) c = Less(a, t)"
    graph = read(
        parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) <float t = {0.5}>'
            f" {{ {test} y = If(c) <then_branch = g1 () => (float[3] p) {{ p = Neg(x) }},"
            " else_branch = g2 () => (float[3] q) { q = Log(x) }> }"
        )
    )
    seen: dict[str, bool] = {}
    analysis = IntervalAnalysis(graph)
    analysis.run(
        [Interval.box(np.full(3, -1, np.float32), np.full(3, 2, np.float32))],
        lambda visited: seen.__setitem__(visited.op.name, is_proved(analysis, visited)),
    )
    assert seen["If_y"]
