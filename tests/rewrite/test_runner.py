"""Passes run in order, and each is verified before the next."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from ranum_falsify.errors import TransformError
from ranum_falsify.rewrite import Rewrite, register, verify
from ranum_falsify.rewrite.config import Reference
from ranum_falsify.rewrite.outcome import PostconditionError, VerificationError
from tests.rewrite.transform_kit import model_of, operators, transformed

ADD = "g (float[3] x, float[3] b) => (float[3] y) { y = Add(x, b) }"
SIGMOID = "g (float[N, 3] x) => (float[N, 3] y) { y = Sigmoid(x) }"
RELU = "g (float[4] x) => (float[4] y) { y = Relu(x) }"
CHAIN = """g (float[N, 3, 5] x, float[5] b) => (int64[N, 3] y, float[N, 1, 5] z) {
    s = Add(x, b)
    y = ArgMin<axis = 2, keepdims = 0>(s)
    axes = Constant<value_ints = [1]>()
    z = ReduceSum(s, axes)
}"""
ALL_FOUR = ("transform_reduce_sum", "transform_arg_min", "transform_arg_max", "transform_add")
BASE = {"Constant", "Add", "Sub", "Mul", "MatMul", "Relu", "Transpose", "Sign"}


class Replace(Rewrite):
    """Relu(x) becomes what a subclass says."""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        raise NotImplementedError


def scalar(op: Any, value: float) -> Any:
    return op.Constant(value=ir.tensor(np.float32(value)))


def register_scaled(factor: float, guarantee: Any) -> None:
    """A pass `scaled` that multiplies what Relu gives by a factor."""

    @guarantee
    @register("scaled")
    class Scaled(Replace):
        def rewrite(self, op: Any, x: ir.Value) -> Any:
            return op.Mul(op.Relu(x), scalar(op, factor))


def failure(text: str, passes: tuple[str, ...], **config: Any) -> tuple[PostconditionError, VerificationError]:
    with pytest.raises(PostconditionError) as caught:
        transformed(text, passes, **config)
    cause = caught.value.__cause__
    assert isinstance(cause, VerificationError)
    return caught.value, cause


def test_four_passes_in_a_row_leave_base_operators() -> None:
    done = transformed(CHAIN, ALL_FOUR)
    # Positions are integers, so that what computes them on floats must end in a Cast.
    assert set(operators(done.model)) - BASE == {"Cast"}
    assert [report.replaced for report in done.reports] == [1, 1, 1, 2]
    assert [tuple(report.verified) for report in done.reports] == [("structure", "sampled 24")] * 3 + [
        ("structure", "sampled 26")  # infinities and NaN among them, for which the others do not vouch
    ]


def test_the_model_given_stays_as_it_is() -> None:
    model = model_of(CHAIN)
    transformed(model, ALL_FOUR)
    assert operators(model) == ["Add", "ArgMin", "Constant", "ReduceSum"]


def test_the_order_given_is_the_order() -> None:
    done = transformed(CHAIN, ALL_FOUR[::-1])
    assert "ArgMax" in operators(done.model), "it came of ArgMin, after ArgMax had been looked for"


def register_break_adds() -> None:
    @verify.equality
    @register("BreakAdds")
    class BreakAdds(Rewrite):
        def pattern(self, op: Any, x: Any, y: Any) -> Any:
            return op.Add(x, y)

        def rewrite(self, op: Any, x: ir.Value, y: ir.Value) -> Any:
            return op.Add(x, x)


def test_a_broken_pass_is_caught() -> None:
    register_break_adds()
    error, cause = failure(ADD, ("BreakAdds",))
    assert str(error) == "post-condition of pass 'BreakAdds' failed"
    assert str(cause).startswith("output 'y' not as expected: ")
    assert operators(error.checkpoint) == ["Add"]
    assert cause.inputs is not None and not np.array_equal(cause.inputs["x"], cause.inputs["b"])


def test_of_several_samples_the_largest_difference_is_told() -> None:
    register_break_adds()
    _, cause = failure(ADD, ("BreakAdds",), references=[Reference({"x": f32([1, 2, 3]), "b": f32([1, 2e38, 3])})])
    assert "1.99999994e+38 became 4 at [1]" in str(cause)


def test_passes_before_the_broken_one_are_reported() -> None:
    register_break_adds()
    error, _ = failure(
        "g (float[3] x) => (float[3] y) { a = Identity(x) b = Neg(a) y = Add(a, b) }",
        ("eliminate_identity", "BreakAdds"),
    )
    assert [report.name for report in error.reports] == ["eliminate_identity"]
    assert operators(error.checkpoint) == ["Neg", "Add"]


def test_equality_is_to_the_last_bit() -> None:
    one_ulp = float(np.nextafter(np.float32(1), np.float32(2)))
    register_scaled(one_ulp, verify.equality)
    failure(RELU, ("scaled",))


def test_tolerance_allows_an_ulp_and_no_percent() -> None:
    register_scaled(float(np.nextafter(np.float32(1), np.float32(2))), verify.tolerance)
    assert transformed(RELU, ["scaled"]).reports[0].is_modified


def test_a_percent_is_no_tolerance() -> None:
    register_scaled(1.01, verify.tolerance)
    _, cause = failure(RELU, ("scaled",))
    assert "output 'y' not as expected" in str(cause)


def test_the_sign_of_zero_counts_where_the_guarantee_says_so() -> None:
    # The zeros of Relu are positive.
    text = "g (float[4] x) => (float[4] y) { z = Relu(x) y = Reciprocal(z) }"
    register_scaled_sign(verify.equality)
    assert "not as expected" in str(failure(RELU, ("negated",))[1])
    with pytest.raises(PostconditionError):
        transformed(text, ["negated"])


def register_scaled_sign(guarantee: Any) -> None:
    @guarantee
    @register("negated")
    class Negated(Replace):
        def rewrite(self, op: Any, x: ir.Value) -> Any:
            return op.Neg(op.Min(op.Neg(x), scalar(op, 0.0)))


def test_the_sign_of_zero_does_not_count_where_the_guarantee_says_so() -> None:
    register_scaled_sign(verify.equality(signed_zero=False))
    assert transformed(RELU, ["negated"]).reports[0].is_modified


def register_lowered_sigmoid() -> None:
    @verify.tolerance
    @register("lower_sigmoid")
    class LowerSigmoid(Rewrite):
        def pattern(self, op: Any, x: Any) -> Any:
            return op.Sigmoid(x)

        def rewrite(self, op: Any, x: ir.Value) -> Any:
            one = scalar(op, 1)
            return op.Div(one, op.Add(one, op.Exp(op.Neg(x))))


def test_a_new_operator_that_overflows_is_caught_though_outputs_agree() -> None:
    register_lowered_sigmoid()
    _, cause = failure(SIGMOID, ("lower_sigmoid",))
    assert "(Exp) receives invalid input where the old model receives none: it gives infinity" in str(cause)


def test_a_box_in_which_nothing_overflows_lets_it_pass() -> None:
    register_lowered_sigmoid()
    box = {"x": (np.float64(-5), np.float64(5))}
    assert transformed(SIGMOID, ["lower_sigmoid"], box=box).reports[0].is_modified


def test_nan_equals_nan() -> None:
    done = transformed("g (float[4] x) => (float[4] y) { i = Identity(x) y = Log(i) }", ["eliminate_identity"])
    assert done.reports[0].verified == ("structure", "proved", "sampled 26")


def test_where_the_old_model_fails_itself_a_weaker_guarantee_says_nothing() -> None:
    register_scaled(1.0, verify.tolerance)
    text = "g (float[4] x) => (float[4] y) { l = Log(x) y = Relu(l) }"
    assert "of 24" in transformed(text, ["scaled"], box={"x": (np.float64(-1), np.float64(9))}).reports[0].verified[-1]
    with pytest.raises(TransformError, match=r"on each of the 24 samples.*--box"):
        transformed(text, ["scaled"], box={"x": (np.float64(-9), np.float64(-1))})


def test_sums_that_cancel_are_compared_by_how_far_they_can_be_known() -> None:
    text = "g (float[1, 300] x) => (float[1, 1] y) { axes = Constant<value_ints = [1]>() y = ReduceSum(x, axes) }"
    assert transformed(text, ["transform_reduce_sum"], samples=64).reports[0].replaced == 1


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("renamed", "outputs were 'y', 'z', and are 'other', 'z'"),
        ("missing", "outputs were 'y', 'z', and are 'y'"),
        ("typed", "output 'y' was FLOAT, and is DOUBLE"),
        ("shaped", r"input 'x' had shape \[4\], and has \[5\]"),
        ("dangling", "reads 'nowhere', which nothing writes"),
        ("opset", "opset of ai.onnx was 17, and is 18"),
    ],
)
def test_a_model_that_looks_different_from_outside_is_refused(what: str, said: str) -> None:
    @verify.equality
    @register("outside")
    class Outside(ir.passes.InPlacePass):
        def call(self, model: ir.Model) -> ir.passes.PassResult:
            graph = model.graph
            if what == "renamed":
                graph.outputs[0].name = "other"
            elif what == "missing":
                del graph.outputs[1]
            elif what == "typed":
                graph.outputs[0].dtype = ir.DataType.DOUBLE
            elif what == "shaped":
                graph.inputs[0].shape = ir.Shape([5])
            elif what == "dangling":
                graph.node("abs").replace_input_with(0, ir.Value(name="nowhere"))
            else:
                graph.opset_imports[""] = 18
            return ir.passes.PassResult(model, True)

    text = "g (float[4] x) => (float[4] y, float[4] z) { [abs] y = Abs(x) z = Neg(x) }"
    _, cause = failure(text, ("outside",))
    assert re.search(said, str(cause))
    assert cause.inputs is None, "that is seen without running it"


def test_a_pass_that_fails_is_named() -> None:
    @verify.equality
    @register("fails")
    class Fails(Replace):
        def rewrite(self, op: Any, x: ir.Value) -> Any:
            raise KeyError("x")

    with pytest.raises(TransformError, match="pass 'fails' raised KeyError"):
        transformed(RELU, ["fails"])


def test_a_model_that_does_not_run_any_more_is_refused() -> None:
    @verify.equality
    @register("unrunnable")
    class Unrunnable(Replace):
        def rewrite(self, op: Any, x: ir.Value) -> Any:
            return op.Relu(x, _domain="nobody")

    _, cause = failure(RELU, ("unrunnable",))
    assert "nobody" in str(cause)


def test_what_a_pass_makes_is_not_matched_again() -> None:
    register_scaled(1.0, verify.equality)
    done = transformed("g (float[4] x) => (float[4] y) { a = Relu(x) y = Relu(a) }", ["scaled"])
    assert operators(done.model).count("Relu") == 2


def test_new_nodes_are_named_after_those_whose_place_they_take() -> None:
    done = transformed("g (float[3] x, float[3] b) => (float[3] y) { [sum] y = Add(x, b) }", ["transform_add"])
    assert [node.name for node in done.model.graph] == ["sum/Constant", "sum/Sub", "sum/Sub_2"]


def test_a_pass_that_changes_outputs_needs_limits() -> None:
    register_scaled(1.5, verify.metric)
    with pytest.raises(TransformError, match=r"verify\.metrics"):
        transformed(RELU, ["scaled"])


def test_metrics_within_their_limits_pass_and_others_do_not() -> None:
    register_scaled(1.5, verify.metric)
    assert transformed(RELU, ["scaled"], metrics={"accuracy": (1, 1)}).reports[0].is_modified
    with pytest.raises(PostconditionError) as caught:
        transformed(RELU, ["scaled"], metrics={"max_abs_error": (0, 0.1)})
    assert "max_abs_error" in str(caught.value.__cause__) and "not within [0, 0.1]" in str(caught.value.__cause__)


def test_a_model_that_draws_random_numbers_cannot_be_verified() -> None:
    text = "g (float[4] x) => (float[4] y) { i = Identity(x) r = RandomNormalLike(i) y = Add(i, r) }"
    with pytest.raises(TransformError, match="random"):
        transformed(text, ["eliminate_identity"])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("seq(float[4])", "SequenceConstruct(a)"),
        ("string[4]", "Cast<to = 8>(a)"),
        ("int4[4]", "Cast<to = 22>(a)"),
    ],
)
def test_an_output_that_cannot_be_compared_must_be_proved(kind: str, body: str) -> None:
    register_scaled_sign(verify.equality)
    text = f"g (float[4] x) => ({kind} z, float[4] y) {{ a = Relu(x) z = {body} y = Abs(x) }}"
    with pytest.raises(TransformError, match=r"output 'z' \(.*\) cannot be compared"):
        transformed(text, ["negated"], opset=21)
    text = text.replace("a = ", "i = Identity(x) a = ")
    assert "proved" in transformed(text, ["eliminate_identity"], opset=21, samples=8).reports[0].verified


def test_a_metric_is_that_of_all_outputs_though_a_reference_names_one() -> None:
    register_scaled(1.5, verify.metric)
    x = f32([1, 2, 3, 4])
    text = "g (float[4] x) => (float[4] y, float[4] z) { y = Abs(x) z = Relu(x) }"
    with pytest.raises(PostconditionError) as caught:
        transformed(
            text,
            ["scaled"],
            references=[Reference({"x": x}, {"y": x})],
            metrics={"max_abs_error": (0, 0.1)},
            box={"x": (np.float64(0), np.float64(1))},
        )
    assert "output 'z': max_abs_error" in str(caught.value.__cause__)


def f32(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_references_are_checked_against_the_model_itself_first() -> None:
    good = Reference([f32([1, 2, 3]), f32([1, 1, 1])], [f32([2, 3, 4])])
    assert transformed(ADD, ["transform_add"], references=[good]).reports[0].verified[-1] == "sampled 27"
    bad = Reference([f32([1, 2, 3]), f32([1, 1, 1])], [f32([2, 3, 5])])
    with pytest.raises(TransformError, match=r"before any pass, does not give output 'y' \(5 became 4 at \[2\]\)"):
        transformed(ADD, ["transform_add"], references=[bad])


def test_a_reference_may_be_bfloat16_as_files_hold_it() -> None:
    text = "g (bfloat16[2] x) => (float[2] y) { i = Identity(x) y = Cast<to = 1>(i) }"
    one = np.array([0x3F80, 0x4000], dtype=np.uint16).view("V2")
    reference = Reference([one], [f32([1, 2])])
    done = transformed(text, ["eliminate_identity"], references=[reference], samples=8)
    assert done.reports[0].verified[-1] == "sampled 10"


@pytest.mark.parametrize(
    ("reference", "what"),
    [
        (Reference([f32([1, 2, 3])]), "1 inputs are given, the model has 2"),
        (Reference({"x": f32([1, 2, 3])}), "input 'b' is missing"),
        (Reference({"z": f32([1, 2, 3])}), "the model has no input 'z'"),
        (Reference([f32([1, 2]), f32([1, 2])]), r"input 'x' is float32\[3\], the array given is float32\[2\]"),
    ],
)
def test_references_that_do_not_fit_are_told(reference: Reference, what: str) -> None:
    with pytest.raises(TransformError, match=what):
        transformed(ADD, ["transform_add"], references=[reference])


def test_an_unknown_pass_is_told_with_the_nearest_right_one() -> None:
    with pytest.raises(TransformError, match=r"there is no pass 'transform_ad'; did you mean 'transform_add'\?"):
        transformed(ADD, ["transform_ad"])


def test_subgraphs_are_rewritten_too() -> None:
    text = """g (bool c, float[3] x) => (float[3] y) {
        y = If(c) <
            then_branch = t () => (float[3] a) { a = Add(x, x) },
            else_branch = e () => (float[3] b) { b = Neg(x) }
        >
    }"""
    done = transformed(text, ["transform_add"])
    assert done.reports[0].replaced == 1
