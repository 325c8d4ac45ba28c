"""The difference of two models, searched and proved over a box."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from ranum_falsify.rewrite import Rewrite, register, verify
from ranum_falsify.rewrite.checks.comparing import Tolerance
from ranum_falsify.rewrite.outcome import PostconditionError, VerificationError
from tests.rewrite.transform_kit import transformed

RELU = "g (float[6] x) => (float[6] y) { y = Relu(x) }"
SUM = """g (float[N, 5] x, float[5] b) => (float[N, 1] y) {
    s = Add(x, b) axes = Constant<value_ints = [1]>() y = ReduceSum(s, axes)
}"""
UNIT = {name: (np.float64(-1), np.float64(1)) for name in "xb"}


def register_corner(threshold: float) -> None:
    """A pass that is wrong where all elements are above a threshold."""

    @verify.tolerance
    @register("wrong_in_a_corner")
    class WrongInACorner(Rewrite):
        def pattern(self, op: Any, x: Any) -> Any:
            return op.Relu(x)

        def rewrite(self, op: Any, x: ir.Value) -> Any:
            limit = op.Constant(value=ir.tensor(np.float32(threshold)))
            return op.Add(op.Relu(x), op.Relu(op.Sub(op.ReduceMin(x), limit)))


def test_the_search_finds_what_samples_do_not() -> None:
    register_corner(0.97)
    box = {"x": UNIT["x"]}
    assert transformed(RELU, ["wrong_in_a_corner"], samples=1, box=box).reports[0].verified[-1] == "sampled 1"
    with pytest.raises(PostconditionError) as caught:
        transformed(RELU, ["wrong_in_a_corner"], samples=1, box=box, verify_timeout=20)
    cause = caught.value.__cause__
    assert isinstance(cause, VerificationError) and "output 'y' not as expected" in str(cause)
    assert cause.inputs is not None and cause.inputs["x"].min() > 0.97


@pytest.mark.slow
def test_a_corner_outside_the_box_is_none() -> None:
    register_corner(1.5)
    tolerance = Tolerance(atol=1e-3)
    done = transformed(
        RELU, ["wrong_in_a_corner"], samples=2, box={"x": UNIT["x"]}, verify_timeout=20, tolerance=tolerance
    )
    assert done.reports[0].verified[-1] == "proved"


@pytest.mark.slow
def test_a_sum_in_another_order_is_proved_within_a_tolerance() -> None:
    tolerance = Tolerance(atol=1e-3)
    done = transformed(SUM, ["transform_reduce_sum"], box=UNIT, verify_timeout=20, tolerance=tolerance)
    assert done.reports[0].verified[-1] == "proved"


@pytest.mark.slow
def test_what_is_nan_in_both_models_is_no_difference() -> None:
    @verify.equality
    @register("in_two_steps")
    class InTwoSteps(Rewrite):
        def pattern(self, op: Any, x: Any) -> Any:
            return op.Log(x)

        def rewrite(self, op: Any, x: ir.Value) -> Any:
            return op.Neg(op.Neg(op.Log(x)))

    text = "g (float[4] x) => (float[4] y) { y = Log(x) }"
    done = transformed(text, ["in_two_steps"], samples=4, box={"x": UNIT["x"]}, verify_timeout=3)
    assert done.reports[0].verified[-1].startswith("searched ")


def test_what_computes_the_same_is_proved_without_a_box() -> None:
    text = "g (float[4] x) => (float[4] y) { i = Identity(x) a = Log(i) b = Log(x) y = Add(a, b) }"
    done = transformed(text, ["eliminate_identity", "eliminate_common_subexpressions"], samples=4)
    assert [report.verified[1] for report in done.reports] == ["proved", "proved"]


@pytest.mark.slow
def test_bounds_may_differ_from_element_to_element() -> None:
    register_corner(0.5)
    low, high = np.full(6, -1.0), np.full(6, 1.0)
    high[3] = 0.25
    tolerance = Tolerance(atol=1e-3)
    done = transformed(
        RELU, ["wrong_in_a_corner"], samples=8, box={"x": (low, high)}, verify_timeout=20, tolerance=tolerance
    )
    assert done.reports[0].verified[-1] == "proved"
    high[3] = 0.75
    with pytest.raises(PostconditionError):
        transformed(RELU, ["wrong_in_a_corner"], samples=1, box={"x": (low, high)}, verify_timeout=20)


def test_a_difference_that_rounding_explains_does_not_end_the_search() -> None:
    """Sums of squares that cancel differ from the first sample on, and by much on a slab alone."""

    @verify.tolerance
    @register("wrong_in_a_slab")
    class WrongInASlab(Rewrite):
        def pattern(self, op: Any, x: Any) -> Any:
            return op.ReduceSum(x, _allow_other_inputs=True)

        def rewrite(self, op: Any, x: ir.Value) -> Any:
            ones = op.Constant(value=ir.tensor(np.ones((5, 1), np.float32)))
            total = op.MatMul(x, ones)
            limits = [op.Constant(value=ir.tensor(np.float32(limit))) for limit in (0.7123, 0.001)]
            return op.Add(total, op.Relu(op.Sub(limits[1], op.Abs(op.Sub(total, limits[0])))))

    box = {"x": UNIT["x"], "b": (np.float64(0), np.float64(0))}
    with pytest.raises(PostconditionError) as caught:
        transformed(SUM, ["wrong_in_a_slab"], samples=8, box=box, verify_timeout=30)
    cause = caught.value.__cause__
    assert isinstance(cause, VerificationError) and cause.inputs is not None
    assert abs(cause.inputs["x"].astype(np.float64).sum(1) - 0.7123).min() < 0.002


def test_a_new_operator_is_proved_valid_or_said_not_to_be() -> None:
    @verify.tolerance
    @register("divide")
    class Divide(Rewrite):
        def pattern(self, op: Any, x: Any) -> Any:
            return op.Neg(x)

        def rewrite(self, op: Any, x: ir.Value) -> Any:
            return op.Div(x, op.Constant(value=ir.tensor(np.float32(-1))))

    text = "g (float[4] x) => (float[4] y) { y = Neg(x) }"
    tolerance = Tolerance(atol=1e-3)
    done = transformed(text, ["divide"], box={"x": UNIT["x"]}, verify_timeout=10, tolerance=tolerance)
    assert done.reports[0].verified[-1] == "proved"


def test_without_a_box_nothing_is_searched_and_the_report_says_so() -> None:
    done = transformed(SUM, ["transform_reduce_sum"], box={"x": UNIT["x"]}, verify_timeout=5)
    assert done.reports[0].verified[-1] == "not searched (input 'b' has no range; give --box)"
