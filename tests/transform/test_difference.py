"""The difference of two models, searched and proved over a box."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from ranum_falsify.transform import Rewrite, register, verify
from ranum_falsify.transform.checks.comparing import Tolerance
from ranum_falsify.transform.outcome import PostconditionError, VerificationError
from tests.transform.transform_kit import transformed

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


def test_a_corner_outside_the_box_is_none() -> None:
    register_corner(1.5)
    tolerance = Tolerance(atol=1e-3)
    done = transformed(
        RELU, ["wrong_in_a_corner"], samples=2, box={"x": UNIT["x"]}, verify_timeout=20, tolerance=tolerance
    )
    assert done.reports[0].verified[-1] == "proved"


def test_a_sum_in_another_order_is_proved_within_a_tolerance() -> None:
    tolerance = Tolerance(atol=1e-3)
    done = transformed(SUM, ["transform_reduce_sum"], box=UNIT, verify_timeout=20, tolerance=tolerance)
    assert done.reports[0].verified[-1] == "proved"


def test_what_is_nan_in_both_models_is_no_difference() -> None:
    text = "g (float[4] x) => (float[4] y) { i = Identity(x) y = Log(i) }"
    done = transformed(text, ["eliminate_identity"], samples=4, box={"x": UNIT["x"]}, verify_timeout=4)
    assert done.reports[0].verified[-1].startswith("searched ")


def test_without_a_box_nothing_is_searched_and_the_report_says_so() -> None:
    done = transformed(SUM, ["transform_reduce_sum"], box={"x": UNIT["x"]}, verify_timeout=5)
    assert done.reports[0].verified[-1] == "not searched (input 'b' has no range; give --box)"
