"""Functions of exponentials, rewritten so that nothing overflows."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from ranum_falsify.transform.apply import apply_pass
from ranum_falsify.transform.catalogue import find_pass
from ranum_falsify.transform.passes import stable
from ranum_falsify.transform.registry import registered
from tests.transform.sweeping import session
from tests.transform.transform_kit import model_of, operators, proto_of, transformed


def graph(body: str, dtype: str = "float", output: str = "2, 3") -> str:
    constants = "one = Constant<value_float = 1.0>() two = Constant<value_float = 2.0>()"
    axes = "last = Constant<value_ints = [1]>() both = Constant<value_ints = [0, 1]>()"
    return f"g ({dtype}[2, 3] x) => ({dtype}[{output}] y) {{ {constants} {axes} {body} }}"


LOG_SOFTMAX = "p = Softmax(x) y = Log(p)"
LOG_SIGMOID = "p = Sigmoid(x) y = Log(p)"
OPPOSITE = "p = Sigmoid(x) q = Sub(one, p) y = Log(q)"
SOFTPLUS = "e = Exp(x) s = Add(one, e) y = Log(s)"
SOFTPLUS_TURNED = "e = Exp(x) s = Add(e, one) y = Log(s)"
LOG_SUM_EXP = "e = Exp(x) s = ReduceSum(e, last) y = Log(s)"
SOFTMAX = "e = Exp(x) s = ReduceSum(e, last) y = Div(e, s)"

WRITTEN = [
    ("stable_log_softmax", LOG_SOFTMAX, "2, 3", {"LogSoftmax"}),
    ("stable_log_sigmoid", LOG_SIGMOID, "2, 3", {"Softplus", "Neg"}),
    ("stable_log_one_minus_sigmoid", OPPOSITE, "2, 3", {"Softplus", "Neg"}),
    ("stable_softplus", SOFTPLUS, "2, 3", {"Softplus"}),
    ("stable_softplus", SOFTPLUS_TURNED, "2, 3", {"Softplus"}),
    ("stable_log_sum_exp", LOG_SUM_EXP, "2, 1", {"ReduceLogSumExp"}),
    ("stable_softmax", SOFTMAX, "2, 3", {"Softmax"}),
]


def exact(name: str, x: np.ndarray) -> np.ndarray:
    """What the rewritten function is, in double precision."""
    shifted = x - x.max(1, keepdims=True)
    total = np.log(np.exp(shifted).sum(1, keepdims=True))
    values: dict[str, np.ndarray] = {
        "stable_log_softmax": shifted - total,
        "stable_log_sigmoid": -np.logaddexp(0, -x),
        "stable_log_one_minus_sigmoid": -np.logaddexp(0, x),
        "stable_softplus": np.logaddexp(0, x),
        "stable_log_sum_exp": x.max(1, keepdims=True) + total,
        "stable_softmax": np.exp(shifted - total),
    }
    return values[name]


def run(model: ir.Model, x: np.ndarray) -> np.ndarray:
    loaded = session(ir.to_proto(model))
    assert loaded is not None
    return np.asarray(loaded.run(None, {"x": x})[0])


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize(("name", "body", "output", "made"), WRITTEN)
def test_what_overflows_is_finite_and_right_afterwards(
    name: str, body: str, output: str, made: set[str], opset: int
) -> None:
    model = model_of(graph(body, output=output), opset)
    applied = apply_pass(find_pass(name), model)
    assert applied.model is not None and applied.replaced == 1
    assert set(operators(applied.model)) - {"Constant"} == made
    x = np.array([[-700, 300, 500], [1, 2, -2]], dtype=np.float32)
    extreme = -x if name == "stable_log_one_minus_sigmoid" else x
    assert not np.isfinite(run(model, np.concatenate([extreme[:1], -extreme[:1]]))).all(), "it overflows as it is"
    for inputs in (extreme, -extreme):
        found = run(applied.model, inputs)
        np.testing.assert_allclose(found, exact(name, inputs.astype(np.float64)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "body", "output"), [written[:3] for written in WRITTEN[:1] + WRITTEN[5:]])
def test_it_is_verified(name: str, body: str, output: str) -> None:
    assert transformed(graph(body, output=output), [name]).reports[0].verified[0] == "structure"


def test_every_stable_pass_is_tested() -> None:
    assert {name for name, *_ in WRITTEN} == {
        name for name, spec in registered().items() if spec.make.__name__ in stable.__all__
    }


def test_what_else_reads_the_probabilities_still_gets_them() -> None:
    text = "g (float[2, 3] x) => (float[2, 3] y, float[2, 3] p) { p = Softmax(x) y = Log(p) }"
    assert sorted(operators(transformed(text, ["stable_log_softmax"]).model)) == ["LogSoftmax", "Softmax"]


def test_the_axis_stays_whatever_the_opset_says_of_it() -> None:
    text = "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { p = Softmax<axis = 1>(x) y = Log(p) }"
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    for opset in (11, 13):
        model = model_of(text, opset)
        applied = apply_pass(find_pass("stable_log_softmax"), model)
        assert applied.model is not None
        np.testing.assert_allclose(run(applied.model, x), run(model, x), rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "text", "opset", "reason"),
    [
        ("stable_log_softmax", graph(LOG_SOFTMAX, "bfloat16"), 17, "'x' holds bfloat16"),
        ("stable_log_sigmoid", graph(LOG_SIGMOID, "double"), 17, "'x' holds double"),
        ("stable_log_one_minus_sigmoid", graph("p = Sigmoid(x) q = Sub(two, p) y = Log(q)"), 17, ""),
        ("stable_softplus", graph("e = Exp(x) s = Add(two, e) y = Log(s)"), 17, ""),
        ("stable_softplus", graph("e = Exp(x) s = Add(x, e) y = Log(s)"), 17, ""),
        ("stable_log_sum_exp", graph(LOG_SUM_EXP, "float16", "2, 1"), 17, "'x' holds float16"),
        ("stable_softmax", graph("e = Exp(x) s = ReduceSum(e, both) y = Div(e, s)"), 17, "it sums along 2 axes"),
        ("stable_softmax", graph("e = Exp(x) s = ReduceSum(e) y = Div(e, s)"), 17, "it sums along 2 axes"),
        ("stable_softmax", graph("e = Exp(x) f = Exp(x) s = ReduceSum(f, last) y = Div(e, s)"), 17, ""),
        ("stable_softmax", """g (float[3, 3] x) => (float[3, 3] y) {
            e = Exp(x) s = ReduceSum<axes = [0]>(e) y = Div(e, s) }""", 12, "needs opset 13"),
        ("stable_softmax", """g (float[3, 3] x) => (float[3, 3] y) {
            e = Exp(x) s = ReduceSum<axes = [1], keepdims = 0>(e) y = Div(e, s) }""", 12,
         "does not keep the dimension"),
        ("stable_softplus", """g (float[3] x) => (float[1, 3] y) <float[1, 1] one = {1.0}> {
            e = Exp(x) s = Add(one, e) y = Log(s) }""", 17, "the constant 1 has shape [1, 1]"),
    ],
)  # fmt: skip
def test_what_is_not_the_same_function_stays(name: str, text: str, opset: int, reason: str) -> None:
    applied = apply_pass(find_pass(name), ir.from_proto(proto_of(text, opset)))
    assert applied.model is None
    assert bool(applied.refusals) == bool(reason)
    assert not reason or reason in applied.refusals[0].reason
