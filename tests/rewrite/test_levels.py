"""Verification at each level of ONNX Runtime's optimisations, and with several sizes of symbolic dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from ranum_falsify.errors import ReplayCrashError, TransformError
from ranum_falsify.rewrite import Rewrite, register, verify
from ranum_falsify.rewrite.checks.comparing import Tolerance
from ranum_falsify.rewrite.checks.difference import DifferenceQuestion, Judgement, decide
from ranum_falsify.rewrite.outcome import PostconditionError, Transformed, VerificationError
from ranum_falsify.rewrite.verify import Guarantee
from ranum_falsify.verify.replay.replayer import Replayer
from tests.rewrite.sweeping import session
from tests.rewrite.transform_kit import model_of, operators, proto_of, transformed

ALONE = "only with ONNX Runtime's default graph optimisations"
SUM = """g (float[3, 4] x) => (float[4] y) {
    axes = Constant<value_ints = [0]>() y = ReduceSum<keepdims = 0>(x, axes)
}"""
TURNED_SUM = """g (float[3, 4] x) => (float[4] y) {
    t = Transpose<perm = [1, 0]>(x) axes = Constant<value_ints = [1]>() y = ReduceSum<keepdims = 0>(t, axes)
}"""
TURNED_PRODUCT = """g (float[3, 4] x) => (float[4] y) <float[3] ones = {1, 1, 1}> {
    t = Transpose<perm = [1, 0]>(x) y = MatMul(t, ones)
}"""
HALF_PRODUCT = """g (float16[2, 3, 4] x, float16[4, 4] w) => (float16[3, 2, 4] y) {
    t = Transpose<perm = [1, 0, 2]>(x) i = Identity(w) y = MatMul(t, i)
}"""
RELU = "g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }"


def array(op: Any, values: Any, dtype: Any = np.float32) -> Any:
    return op.Constant(value=ir.tensor(np.asarray(values, dtype)))


def register_rewrite(op_type: str, rewrite: Callable[..., Any], guarantee: Any = verify.tolerance) -> None:
    """A pass `made` that replaces an operator by what a function of its first operand makes."""

    def pattern(self: Any, op: Any, x: Any) -> Any:
        return getattr(op, op_type)(x, _allow_other_inputs=True)

    methods = {"pattern": pattern, "rewrite": lambda self, op, x: rewrite(op, x)}
    guarantee(register("made")(type("Made", (Rewrite,), methods)))


def deviates(text: str | ir.Model) -> bool:
    """Whether the installed ONNX Runtime computes another output at its default level."""
    model = proto_of(text) if isinstance(text, str) else ir.to_proto(text)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    plain, default = (session(model, optimise=optimise) for optimise in (False, True))
    assert plain is not None and default is not None
    return not np.array_equal(plain.run(None, {"x": x})[0], default.run(None, {"x": x})[0])


def refusal(text: str, **config: Any) -> str:
    with pytest.raises(PostconditionError) as caught:
        transformed(text, ["made"], **config)
    assert isinstance(caught.value.__cause__, VerificationError)
    return str(caught.value.__cause__)


def told(done: Transformed) -> str:
    return "\n".join(done.notices)


def by_vector(op: Any, x: Any) -> Any:
    return op.MatMul(op.Transpose(x, perm=[1, 0]), array(op, np.ones(3)))


def test_a_product_that_the_optimiser_changes_is_refused() -> None:
    register_rewrite("ReduceSum", by_vector)
    if deviates(TURNED_PRODUCT):
        assert refusal(SUM).endswith(ALONE)
    else:
        assert transformed(SUM, ["made"]).reports[0].is_modified


@pytest.mark.parametrize("text", [SUM, TURNED_SUM])
def test_sums_are_products_that_the_optimiser_leaves_as_they_are(text: str) -> None:
    done = transformed(text, ["transform_reduce_sum"])
    assert "MatMul" in operators(done.model) and not deviates(done.model)
    assert told(done) == ""


def test_what_the_optimiser_changes_in_the_old_model_is_not_blamed_on_the_pass() -> None:
    def by_column(op: Any, x: Any) -> Any:
        product = op.MatMul(x, array(op, np.ones((3, 1))))
        return op.Reshape(product, array(op, [4], np.int64))

    register_rewrite("MatMul", by_column)
    done = transformed(TURNED_PRODUCT, ["made"])
    assert done.reports[0].is_modified and not deviates(done.model)
    assert ("ONNX Runtime does not compute output 'y' of the old model" in told(done)) == deviates(TURNED_PRODUCT)


def test_what_the_optimiser_changes_in_both_models_is_no_difference() -> None:
    text = TURNED_PRODUCT.replace("y = MatMul(t, ones)", "a = Abs(t) i = Identity(a) y = MatMul(t, ones)")
    done = transformed(text, ["remove_unused"])
    assert done.reports[0].is_modified and told(done) == ""


def test_what_neither_level_of_the_old_model_gives_is_refused() -> None:
    def half_by_vector(op: Any, x: Any) -> Any:
        column = op.MatMul(x, array(op, np.full((3, 1), 0.5)))
        return op.Add(op.Reshape(column, array(op, [4], np.int64)), op.MatMul(x, array(op, np.full(3, 0.5))))

    register_rewrite("MatMul", half_by_vector)
    if deviates(TURNED_PRODUCT):
        assert refusal(TURNED_PRODUCT).endswith(ALONE)
    else:
        assert transformed(TURNED_PRODUCT, ["made"]).reports[0].is_modified


@pytest.mark.parametrize("metric", [{"max_abs_error": (0, 0.01)}])
def test_metrics_are_those_of_the_default_level_too(metric: dict[str, tuple[float, float]]) -> None:
    register_rewrite("ReduceSum", by_vector, verify.metric)
    box = {"x": (np.float64(-1), np.float64(1))}
    if deviates(TURNED_PRODUCT):
        assert refusal(SUM, metrics=metric, box=box).endswith(ALONE)
    else:
        assert transformed(SUM, ["made"], metrics=metric, box=box).reports[0].is_modified


def test_equality_holds_but_for_how_the_optimiser_rounds() -> None:
    # A product and an addition become Gemm; a product and a subtraction do not.
    text = """g (float[2, 64] x, float[64, 9] w, float[9] b) => (float[2, 9] y) { p = MatMul(x, w) y = Sub(p, b) }"""
    assert transformed(text, ["lower_sub"], samples=64).reports[0].is_modified


def crashes() -> bool:
    """Whether the installed ONNX Runtime ends its process when it optimises a product in float16."""
    feeds = {"x": np.ones((2, 3, 4), np.float16), "w": np.ones((4, 4), np.float16)}
    with Replayer(proto_of(HALF_PRODUCT)) as replayer:
        try:
            replayer.run(feeds)
        except ReplayCrashError:
            return True
    return False


def test_where_the_optimiser_crashes_on_the_old_model_the_rest_is_verified() -> None:
    done = transformed(HALF_PRODUCT, ["eliminate_identity"])
    assert done.reports[0].is_modified and "sampled" in done.reports[0].verified[-1]


def test_a_pass_on_whose_model_the_optimiser_crashes_is_refused() -> None:
    register_rewrite("Identity", lambda op, x: op.Transpose(x, perm=[1, 0, 2]))
    text = HALF_PRODUCT.replace("t = Transpose<perm = [1, 0, 2]>(x) i = Identity(w)", "t = Identity(x)")
    text = text.replace("[2, 3, 4] x", "[3, 3, 4] x").replace("[3, 2, 4] y", "[3, 3, 4] y").replace("(t, i)", "(t, w)")
    box = {name: (np.float64(1), np.float64(1)) for name in "xw"}
    if crashes():
        assert "does not run where the old one does" in refusal(text, box=box)
    else:
        assert transformed(text, ["made"], box=box).reports[0].is_modified


def by_first(op: Any, x: Any, count: int) -> Any:
    bounds = (array(op, [bound], np.int64) for bound in (0, count, 0))
    return op.Slice(op.Relu(x), *bounds)


def with_sizes_exchanged(op: Any, x: Any) -> Any:
    sizes = op.Gather(op.Shape(x), array(op, [1, 0], np.int64))
    return op.Reshape(op.Relu(x), sizes)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("text", "rewrite"),
    [
        (RELU, lambda op, x: by_first(op, x, 1)),
        (RELU, lambda op, x: by_first(op, x, 2)),
        (RELU, lambda op, x: by_first(op, x, 3)),
        ("g (float[N, M] x) => (float[N, M] y) { y = Relu(x) }", with_sizes_exchanged),
    ],
    ids=["up to 1", "up to 2", "up to 3", "all alike"],
)
def test_a_rewrite_that_is_right_for_some_sizes_is_refused(text: str, rewrite: Callable[[Any, Any], Any]) -> None:
    register_rewrite("Relu", rewrite)
    assert "not as expected: it was float32" in refusal(text)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (RELU, [1, 2, 3, 7]),
        ("g (float[N, 3] x) => (float[3, 2] y) <int64[2] s = {3, 2}> { t = Reshape(x, s) y = Relu(t) }", [2]),
        ("g (float[N, 3] x) => (float[32, 3] y) <int64[2] s = {32, 3}> { t = Reshape(x, s) y = Relu(t) }", [32]),
        ("g (float[N, 3] x, float[M, 3] z) => (float[K, 3] y) { t = Add(x, z) y = Relu(t) }", [1, 2, 3, 7]),
    ],
)
def test_sizes_that_the_model_refuses_are_left_out(text: str, sizes: Sequence[int]) -> None:
    register_rewrite("Relu", lambda op, x: op.Max(x, array(op, 0)), verify.tolerance(everywhere=True))
    done = transformed(text, ["made"])
    assert f"dimensions taken as {', '.join(map(str, sizes))} in samples: " in told(done)


def test_bounds_by_element_have_sizes_of_their_own() -> None:
    register_rewrite("Relu", lambda op, x: op.Max(x, array(op, 0)))
    box = {"x": (np.zeros((3, 3)), np.ones((3, 1)))}
    assert told(transformed(RELU, ["made"], box=box)) == "dimensions taken as 3 in samples: N"
    with pytest.raises(TransformError, match=r"the bounds of input 'x' have shape \[5, 3\], not \[2, 3\]"):
        transformed(RELU, ["made"], box={"x": (np.zeros((5, 3)), np.ones((5, 3)))})


def test_every_size_is_tried_however_few_samples_are_asked_for() -> None:
    register_rewrite("Relu", lambda op, x: by_first(op, x, 3))
    assert "not as expected" in refusal(RELU, samples=4)
    assert model_of(RELU).graph.inputs[0].shape == ["N", 3]


def question(old: str, new: str, timeout: float) -> DifferenceQuestion:
    return DifferenceQuestion(
        old=model_of(old),
        new=model_of(new),
        guarantee=Guarantee(kind="tolerance"),
        tolerance=Tolerance(atol=1e-3),
        box={"x": (np.float64(-1), np.float64(1))},
        shapes={"x": (3, 4)},
        timeout=timeout,
    )


def test_a_proof_is_of_what_the_optimiser_writes_too() -> None:
    how = decide(question(SUM, TURNED_PRODUCT, 4.0), lambda inputs: Judgement(None)).how
    assert (how == "proved") != deviates(TURNED_PRODUCT)


def test_what_does_not_begin_in_time_is_not_said_to_be_searched() -> None:
    asked = question(SUM, TURNED_PRODUCT, 0.0)
    how = decide(asked, lambda inputs: pytest.fail("nothing was searched")).how
    assert how == "not searched (0 s are too short for models of this size; --verify-timeout gives more)"
    assert "graph" not in vars(asked), "nor read"
