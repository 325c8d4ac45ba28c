"""Branches that read what their condition tests: proved where the test is about that, and open where it is not."""

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

import ranum_falsify as rf
from tests.network.building import session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'

GUARDS = {
    "positive": ("float x", "c = Greater(x, zero)", "r = Log(x)"),
    "least": ("float[3] x", "m = ReduceMin <keepdims = 0> (x) c = Greater(m, zero)", "r = Log(x)"),
    "negative": ("float x", "c = Less(x, zero)", "n = Neg(x) r = Log(n)"),
    "squeezed": ("float[1] x", "s = Squeeze(x) c = GreaterOrEqual(s, zero)", "r = Sqrt(x)"),
    "summed": ("float[1] x", "s = ReduceSum <keepdims = 0> (x) c = Greater(s, zero)", "r = Log(x)"),
    "averaged": ("float[1, 1] x", "s = ReduceMean <keepdims = 0> (x) c = Greater(s, zero)", "r = Log(x)"),
    "picked": ("float[1] x", "s = Gather(x, at) c = Greater(s, zero)", "r = Log(x)"),
    "passed on": ("float[1, 1] x", "t = Reshape(x, flat) s = Transpose(t) c = Greater(s, zero)", "r = Log(x)"),
    "not zero": ("float[1] x", "s = Squeeze(x) c = Cast <to = 9> (s)", "a = Abs(x) r = Log(a)"),
}


def guard(of: str, test: str, then: str) -> onnx.ModelProto:
    """Return a model that computes something only where a test of its input is true."""
    constants = "<float zero = {0}, int64 at = {0}, int64[1] flat = {1}>"
    model = parse_model(f"{HEAD} g ({of}) => ({of[:-1]}y) {constants} {{ {test} z = Hole(c) y = Identity(z) }}")
    chosen, other = (onnx.parser.parse_graph(f"b () => ({of[:-1]}r) {{ {body} }}") for body in (then, "r = Exp(x)"))
    (place,) = (i for i, node in enumerate(model.graph.node) if node.op_type == "Hole")
    made = onnx.helper.make_node("If", ["c"], ["z"], "if", then_branch=chosen, else_branch=other)
    model.graph.node[place].CopyFrom(made)
    return model


@pytest.mark.parametrize("name", GUARDS)
def test_a_test_of_an_input_bounds_what_a_branch_reads(name: str) -> None:
    model = guard(*GUARDS[name])
    assert rf.check(model, box=(-2, 2), n_starts=0).verdict == "holds"
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    for optimised in (True, False):
        made = session(model, optimised=optimised)
        for number in (2.0, 1e-30, 1.1754942e-38, 1e-45, 0.0, -0.0, -1e-45, -1e-40, -2.0):
            assert np.isfinite(made.run(None, {"x": np.full(shape, number, np.float32)})[0]).all()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("of", "test"),
    [
        ("float[2] x", "s = ReduceSum <keepdims = 0> (x) c = Greater(s, zero)"),
        ("float[2] x", "s = Gather(x, at) c = Greater(s, zero)"),
        ("float[1] x", "s = Squeeze(x) c = GreaterOrEqual(s, zero)"),
        ("float[1] x", "m = Abs(x) s = Squeeze(m) c = Greater(s, zero)"),
        ("float[1] x", "m = Neg(x) s = Squeeze(m) c = Greater(s, zero)"),
    ],
)
def test_a_test_of_something_else_proves_nothing(of: str, test: str) -> None:
    result = rf.check(guard(of, test, "r = Log(x)"), box=(-2, 2), n_starts=20)
    assert result.verdict == "violated"


@pytest.mark.slow
def test_a_result_that_may_be_flushed_is_not_positive() -> None:
    model = guard("float x", "c = Greater(x, zero)", "h = Mul(x, x) r = Log(h)")
    assert rf.check(model, box=(-2, 2), n_starts=0).verdict == "unknown"
