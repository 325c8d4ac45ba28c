"""The four passes that lower to base operators: values, preconditions, and what is told of refusals."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from ranum_falsify.rewrite.apply import apply_pass
from ranum_falsify.rewrite.catalogue import find_pass
from tests.rewrite.caisar_cases import CASES
from tests.rewrite.sweeping import session, sweep
from tests.rewrite.transform_kit import OPSET, model_of, operators

COUNTS = {"transform_arg_max": 150, "transform_arg_min": 60, "transform_add": 150, "transform_reduce_sum": 150}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_random_cases_agree_with_the_operator_replaced(name: str) -> None:
    results = list(sweep(name, CASES[name], COUNTS[name]))
    assert [fault for fault in results if fault is not None] == []
    assert len(results) > COUNTS[name] // 3, "many cases are none that the pass refuses"


def run(model: ir.Model, *arrays: np.ndarray) -> np.ndarray:
    loaded = session(ir.to_proto(model))
    assert loaded is not None
    result = loaded.run(None, dict(zip([value.name or "" for value in model.graph.inputs], arrays, strict=True)))
    return np.asarray(result[0])


def rewritten(name: str, text: str, opset: int = OPSET) -> ir.Model:
    applied = apply_pass(find_pass(name), model_of(text, opset))
    assert applied.model is not None, applied.refusals
    return applied.model


@pytest.mark.parametrize(("last", "expected"), [(0, [1, 0, 2]), (1, [3, 3, 2])])
def test_of_equal_elements_the_first_wins_or_the_last(last: int, expected: list[int]) -> None:
    text = f"g (float[3, 4] x) => (int64[3] y) {{ y = ArgMax<axis = 1, keepdims = 0, select_last_index = {last}>(x) }}"
    x = np.array([[1, 2, 2, 2], [0.0, -0.0, 0.0, 0.0], [-1, -2, 5e-45, 0]], dtype=np.float32)
    assert run(rewritten("transform_arg_max", text), x).tolist() == expected


def test_the_longest_axis_of_float16_is_counted_exactly() -> None:
    text = "g (float16[1, 2048] x) => (int64[1] y) { y = ArgMax<axis = 1, keepdims = 0>(x) }"
    model = rewritten("transform_arg_max", text)
    for place in (0, 1, 1023, 2046, 2047):
        x = np.zeros((1, 2048), dtype=np.float16)
        x[0, place] = 1e-7
        assert run(model, x).tolist() == [place]


def test_an_addition_keeps_infinities_nan_and_signs_of_zero() -> None:
    numbers = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 5e-45, -3e38], dtype=np.float32)
    x, b = (part.reshape(-1) for part in np.meshgrid(numbers, numbers))
    text = f"g (float[{x.size}] x, float[{x.size}] b) => (float[{x.size}] y) {{ y = Add(x, b) }}"
    with np.errstate(invalid="ignore", over="ignore"):
        expected = x + b
    found = run(rewritten("transform_add", text), x, b)
    assert np.array_equal(found, expected, equal_nan=True)
    number = ~np.isnan(expected)
    assert np.array_equal(np.signbit(found[number]), np.signbit(expected[number]))


def test_sums_along_several_axes_keep_them_or_not() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for keep, shape in ((0, "3"), (1, "1, 3, 1")):
        text = f"""g (float[2, 3, 4] x) => (float[{shape}] y) {{
            axes = Constant<value_ints = [-1, 0]>() y = ReduceSum<keepdims = {keep}>(x, axes) }}"""
        model = rewritten("transform_reduce_sum", text)
        assert "Reshape" not in operators(model)
        assert np.array_equal(run(model, x), x.sum((0, 2), keepdims=bool(keep)))


@pytest.mark.parametrize(
    ("name", "text", "opset", "reason"),
    [
        ("transform_arg_max", "g (float[3, N] x) => (int64[3] y) { y = ArgMax<axis = 1, keepdims = 0>(x) }", 17,
         "axis 1 of 'x' has no fixed length"),
        ("transform_arg_max", "g (float[5000] x) => (int64[1] y) { y = ArgMax(x) }", 17, "at most 4,096 of float"),
        ("transform_arg_max", "g (float16[2049] x) => (int64[1] y) { y = ArgMax(x) }", 17, "at most 2,048 of float16"),
        ("transform_arg_max", "g (float[64, 4000] x) => (int64[64, 1] y) { y = ArgMax<axis = 1>(x) }", 17,
         "1,024,000,000 comparisons"),
        ("transform_arg_max", "g (int32[4] x) => (int64[1] y) { y = ArgMax(x) }", 17, "'x' holds int32"),
        ("transform_arg_max", "g (float[4] x) => (int64[1] y) { y = ArgMax(x) }", 8, "Sign needs opset 9"),
        ("transform_arg_max", "g (float[0] x) => (int64[1] y) { y = ArgMax(x) }", 17, "is empty"),
        ("transform_arg_max", "g (float[4] x, bool[4] m) => (int64[1] y) <float c = {-inf}> "
         "{ w = Where(m, x, c) t = Neg(w) y = ArgMax(t) }", 17, "'c' is a constant that is not finite"),
        ("transform_arg_min", "g (int32[4] x) => (int64[1] y) { y = ArgMin(x) }", 17, "'x' holds int32"),
        ("transform_add", "g (int64[4] x) => (int64[4] y) { y = Add(x, x) }", 8, "constant of int64 needs opset 9"),
        ("transform_add", "g (int8[4] x) => (int8[4] y) { y = Add(x, x) }", 17, "'x' holds int8"),
        ("transform_reduce_sum", "g (float[3] x, int64[1] a) => (float[1] y) { y = ReduceSum(x, a) }", 17,
         "its axes are not constant"),
        ("transform_reduce_sum", "g (float[N, 3] x) => (float[1, 1] y) { y = ReduceSum(x) }", 17,
         "axis 0 of 'x' has no fixed length"),
        ("transform_reduce_sum", "g (float16[2, 3, 4] x) => (float16[1, 1, 1] y) { y = ReduceSum(x) }", 17,
         "along the first of several axes: ONNX Runtime's optimiser crashes"),
        ("transform_reduce_sum", "g (float16[2, 3] x) => (float16[1, 1] y) { t = Transpose(x) y = ReduceSum(t) }", 17,
         "'t' is transposed, and holds float16"),
        ("transform_reduce_sum", "g (int32[3] x) => (int32[1] y) { y = ReduceSum(x) }", 17, "'x' holds int32"),
        ("transform_reduce_sum", "g (float[0, 3] x) => (float[1, 1] y) { y = ReduceSum(x) }", 17, "is empty"),
    ],
)  # fmt: skip
def test_what_a_pass_cannot_do_is_refused_with_the_reason(name: str, text: str, opset: int, reason: str) -> None:
    applied = apply_pass(find_pass(name), model_of(text, opset))
    assert applied.model is None
    assert [refusal.op_type for refusal in applied.refusals] == [find_pass(name).spec.takes[0]]
    assert reason in applied.refusals[0].reason


def test_an_infinite_constant_is_refused() -> None:
    model = model_of("g () => (int64[1] y) <float[2] x = {0.0, 1.0}> { y = ArgMax(x) }")
    model.graph.initializers["x"].const_value = ir.tensor(np.array([-np.inf, 1], dtype=np.float32))
    applied = apply_pass(find_pass("transform_arg_max"), model)
    assert applied.model is None and "not finite" in applied.refusals[0].reason


def test_a_default_that_users_may_override_is_no_constant() -> None:
    text = "g (float[3] x, int64[1] a) => (float[1] y) <int64[1] a = {0}> { y = ReduceSum(x, a) }"
    applied = apply_pass(find_pass("transform_reduce_sum"), model_of(text))
    assert applied.model is None and "not constant" in applied.refusals[0].reason
