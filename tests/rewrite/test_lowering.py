"""Passes that lower operators for other verifiers: they apply, are verified, refuse, and compute the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import compose

from ranum_falsify.rewrite.apply import apply_pass
from ranum_falsify.rewrite.catalogue import all_passes, find_pass
from ranum_falsify.rewrite.outcome import PostconditionError
from tests.rewrite import elementwise_cases, image_cases, shape_cases
from tests.rewrite.lowering_rows import APPLIES, REFUSES, graph
from tests.rewrite.sweeping import session, sweep
from tests.rewrite.transform_kit import model_of, operators, proto_of, transformed

CASES = elementwise_cases.CASES | image_cases.CASES | shape_cases.CASES
NAMES = list(APPLIES)
_CHAIN = 10  # passes


def run(model: ir.Model, *arrays: np.ndarray) -> list[np.ndarray]:
    loaded = session(ir.to_proto(model))
    assert loaded is not None
    feeds = zip([value.name or "" for value in model.graph.inputs], arrays, strict=True)
    return [np.asarray(array) for array in loaded.run(None, dict(feeds))]


def lowered(name: str, text: str, opset: int = 17) -> ir.Model:
    applied = apply_pass(find_pass(name), model_of(text, opset))
    assert applied.model is not None, applied.refusals
    return applied.model


def test_every_lowering_has_rows_and_cases() -> None:
    names = {spec.name for spec in all_passes() if spec.name.startswith(("lower_", "fold_batch"))}
    assert names == APPLIES.keys() == REFUSES.keys() == CASES.keys()


@pytest.mark.parametrize("name", NAMES)
def test_it_applies(name: str) -> None:
    text, opset, made = APPLIES[name]
    applied = apply_pass(find_pass(name), model_of(text, opset))
    assert applied.replaced == 1 and applied.model is not None and not applied.refusals
    assert set(operators(applied.model)) - {"Constant"} == made


def together(names: list[str]) -> onnx.ModelProto:
    """One model of the graphs of several passes, side by side."""
    made = proto_of(APPLIES[names[0]][0], 20)
    made.graph.ClearField("node")
    for field in (made.graph.input, made.graph.output, made.graph.initializer):
        del field[:]
    for name in names:
        text, opset, _ = APPLIES[name]
        part = compose.add_prefix(proto_of(text, opset), f"{name}_")
        made.opset_import[0].version = max(opset, 17)
        for field in ("node", "input", "output", "initializer"):
            getattr(made.graph, field).extend(getattr(part.graph, field))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(NAMES), _CHAIN))
def test_it_is_verified(first: int) -> None:
    # One run of ONNX Runtime for each pass takes time, and less where models share one.
    names = sorted(NAMES, key=lambda name: APPLIES[name][1])[first : first + _CHAIN]
    model = ir.from_proto(together(names))
    box = {value.name or "": (np.float32(-1), np.float32(1)) for value in model.graph.inputs}
    done = transformed(model, names, samples=8, box=box)
    assert [tuple(report.verified) for report in done.reports] == [("structure", "sampled 8")] * len(names)
    assert all(report.replaced for report in done.reports)


@pytest.mark.parametrize(
    ("name", "text", "opset", "reason"), [(name, *row) for name, rows in REFUSES.items() for row in rows]
)
def test_it_refuses_and_says_why(name: str, text: str, opset: int, reason: str) -> None:
    applied = apply_pass(find_pass(name), model_of(text, opset))
    assert applied.model is None
    assert len(applied.refusals) == 1 and reason in applied.refusals[0].reason


@pytest.mark.few(17)
@pytest.mark.parametrize("name", CASES)
def test_random_cases_agree_with_the_operator_replaced(name: str) -> None:
    results = list(sweep(name, CASES[name], 8))
    assert [fault for fault in results if fault is not None] == []
    assert results, "not all cases are refused"


def test_new_tensors_of_subgraphs_have_names_of_their_own() -> None:
    branch = "{ b = Squeeze(x, first) u = Unsqueeze(b, first) }"
    text = f"""g (float[1, 2] x, bool c) => (float[1, 2] y) {{
        first = Constant<value_ints = [0]>() s = Squeeze(x, first) t = Unsqueeze(s, first)
        i = If(c) <then_branch = t1 () => (float[1, 2] u) {branch}, else_branch = e1 () => (float[1, 2] v) {{
            d = Squeeze(x, first) v = Unsqueeze(d, first) }}> y = Add(t, i)
    }}"""
    done = transformed(text, ["lower_squeeze", "lower_unsqueeze"], samples=8)
    assert [report.replaced for report in done.reports] == [3, 3]


def test_what_clip_guards_stays_guarded() -> None:
    numbers = [0, -0.0, 1e-45, 1e-12, 1e-10, 2e-10, 1e-7, 0.3, 1 - 6e-8, 1, 1 + 2e-7, 7, 3e38, -3e38, -1e-12]
    x = np.array(numbers, dtype=np.float32)
    for low, high in (
        (1e-10, 1.0),
        (-1.0, 1e-10),
        (1e-7, 1 - 1e-7),
        (-1e-3, 6.0),
        (-0.1, 0.3),
        (0.0, 6.0),
        (-8.0, 0.0),
    ):
        text = graph("y = Clip(x, a, b)", "float[15] x", "float[15] y", f"float a = {{{low}}}, float b = {{{high}}}")
        (found,) = run(lowered("lower_clip", text), x)
        least, most = np.float32(low), np.float32(high)
        assert (found >= least).all() and (found <= most).all(), (low, high, found)
        np.testing.assert_allclose(found, np.clip(x, least, most), rtol=1e-6, atol=1e-13)


def test_what_clip_guards_stays_guarded_when_the_optimiser_leaves_out_factors() -> None:
    x = np.array([0, 1e-300, 1e-17, 1e-12, 1e-10, 2e-10, 1e-7, 0.3, 1, 7, -1e-12])
    for low, high in ((1e-10, 1.0), (-1.0, 1e-10), (-1.0, 1.0)):
        text = graph(
            "y = Clip(x, a, b)", "double[11] x", "double[11] y", f"double a = {{{low}}}, double b = {{{high}}}"
        )
        loaded = session(ir.to_proto(lowered("lower_clip", text)), optimise=True)
        assert loaded is not None
        found = np.asarray(loaded.run(None, {"x": x})[0])
        assert (found >= low).all() and (found <= high).all(), (low, high, found)
        np.testing.assert_allclose(found, np.clip(x, low, high), rtol=1e-15, atol=1e-30)


def test_the_greater_of_two_is_exact_unless_one_is_tiny_beside_the_other() -> None:
    rng = np.random.default_rng(0)
    x, z = ((rng.normal(size=1000) * 10.0 ** rng.integers(-2, 3, 1000)).astype(np.float32) for _ in range(2))
    text = graph("y = Max(x, z)", "float[1000] x, float[1000] z", "float[1000] y")
    assert np.array_equal(run(lowered("lower_max", text), x, z)[0], np.maximum(x, z))
    assert np.array_equal(run(lowered("lower_min", text.replace("Max", "Min")), x, z)[0], np.minimum(x, z))


def test_a_bound_of_a_maximum_holds_exactly() -> None:
    text = graph("y = Max(x, c)", "float[4] x", "float[4] y", "float c = {1e-12}")
    (found,) = run(lowered("lower_max", text), np.array([-1e10, 0, 1e-13, -1], dtype=np.float32))
    assert (found == np.float32(1e-12)).all()


def test_what_overflows_on_the_way_is_no_valid_rewrite() -> None:
    text = APPLIES["lower_layer_normalization"][0]
    with pytest.raises(PostconditionError) as caught:
        transformed(text, ["lower_layer_normalization"])
    assert "receives invalid input where the old model receives none" in str(caught.value.__cause__)


def test_a_mean_of_huge_numbers_overflows_nowhere() -> None:
    x = np.full((2, 3), 3e38, dtype=np.float32)
    for name in ("lower_mean", "lower_reduce_mean"):
        (found,) = run(lowered(name, APPLIES[name][0]), x)
        np.testing.assert_allclose(found, np.full(found.shape, 3e38), rtol=1e-6)


@pytest.mark.parametrize(
    ("before", "constants"),
    [
        ("a = Conv(x, w, c)", "float[2, 3, 1, 1] w = {1, 2, 3, 4, 5, 6}, float[2] c = {1, -1}"),
        ("a = Gemm<transB = 1, alpha = 2.0, beta = 0.5>(x, w, c)",
         "float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[2] c = {1, -1}"),
        ("a = MatMul(x, w)", "float[3, 2] w = {1, 2, 3, 4, 5, 6}"),
    ],
)  # fmt: skip
def test_batch_normalization_becomes_a_part_of_the_weights(before: str, constants: str) -> None:
    spatial = ", 2, 2" if "Conv" in before else ""
    text = graph(
        f"{before} y = BatchNormalization(a, s, b, m, s)",
        f"float[4, 3{spatial}] x",
        f"float[4, 2{spatial}] y",
        f"{constants}, float[2] s = {{1, 2}}, float[2] b = {{3, -1}}, float[2] m = {{0.5, 2}}",
    )
    model = lowered("fold_batch_normalization", text)
    assert "BatchNormalization" not in operators(model)
    x = np.random.default_rng(0).normal(size=(4, 3, *(2 for _ in spatial[::3]))).astype(np.float32)
    np.testing.assert_allclose(run(model, x)[0], run(model_of(text), x)[0], rtol=1e-5, atol=1e-5)


def test_a_default_is_the_float32_number_whatever_the_element_type() -> None:
    text = graph("y = HardSigmoid(x)", "double[1] x", "double[1] y")
    x = np.array([-2.0])
    np.testing.assert_allclose(
        run(lowered("lower_hard_sigmoid", text, 18), x)[0], 0.5 - 2 * float(np.float32(0.2)), rtol=1e-15
    )


def test_an_output_of_split_that_nothing_reads_is_no_hindrance() -> None:
    text = graph("y, z = Split<axis = 1>(x, l)", y="float[2, 1] y", constants="int64[2] l = {1, 2}")
    assert operators(lowered("lower_split", text)).count("Slice") == 2


def test_of_a_refused_fold_the_first_reason_is_told() -> None:
    text = graph(
        "a = Conv(x, w) y = BatchNormalization(a, s, s, s, s)",
        "float[1, 1, 4] x, float[2, 1, 2] w",
        "float[1, 2, 3] y",
        "float[2] s = {1, 2}",
    )
    applied = apply_pass(find_pass("fold_batch_normalization"), model_of(text))
    assert [refusal.reason for refusal in applied.refusals] == ["the weights of Conv are not constant"]


def test_constants_are_known_behind_identity() -> None:
    text = graph(
        "v = Identity(w) a = MatMul(x, v) t = Identity(s) u = Identity(t) y = BatchNormalization(a, t, u, s, s)",
        y="float[2, 1] y",
        constants="float[3, 1] w = {1, 2, 3}, float[1] s = {1}",
    )
    assert operators(lowered("fold_batch_normalization", text)).count("BatchNormalization") == 0


def test_lowered_models_are_lowered_further() -> None:
    text = graph(
        "a = MaxPool<kernel_shape = [2, 2]>(x) b = GlobalAveragePool(a) c = Flatten(b) i = ArgMax<axis = 1>(c) "
        "y = Equal(i, k)",
        "float[2, 3, 5, 5] x",
        "bool[2, 1] y",
        "int64 k = {2}",
    )
    model = model_of(text)
    for name in "max_pool max global_average_pool reduce_mean flatten arg_max_equal reduce_max max sub".split():
        applied = apply_pass(find_pass(f"lower_{name}"), model)
        assert applied.model is not None, (name, applied.refusals)
        model = applied.model
    left = set(operators(model)) - {"Constant"}
    assert left == {"Add", "Greater", "Mul", "ReduceSum", "Relu", "Reshape", "Slice"}
