"""Recurrent layers, norms and reductions of integers at what ONNX Runtime's kernels do in their own way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import ranum_falsify as rf
from ranum_falsify.errors import ModelError
from tests.domain.boxes import Recipe
from tests.domain.soundness import sweep_case
from tests.operators.harness import OperatorCase, Spread
from tests.verify.prove.test_narrow_misses import assert_open, make

RECURRENT = {"w": np.ones((1, 2, 2), np.float32), "r": np.ones((1, 2, 2), np.float32), "c": np.array(0.1, np.float32)}


def assert_unknown(model: ModelProto, box: tuple[float, float]) -> None:
    """A model with an attribute that is not followed is refused, or nothing is proved of it."""
    try:
        found = rf.check(model, box={"x": box}, n_starts=0, self_check=False)
    except ModelError as error:
        assert "is not supported" in str(error)
    else:
        assert found.verdict != "holds"


def test_a_limit_of_0_leaves_nothing_of_a_recurrent_layer() -> None:
    inputs = {"x": np.full((2, 1, 2), 2, np.float32)}
    model = make("y = RNN(x, w, r)\nd = Sub(y, c)\nz = Log(d)", inputs, RECURRENT, hidden_size=2, clip=0.0)
    assert_open(model, {"x": (1, 2)}, inputs)
    case = OperatorCase(
        op_type="RNN",
        inputs=[Spread((2, 1, 2)), Spread((1, 2, 2)), Spread((1, 2, 2))],
        attributes={"hidden_size": 2, "clip": 0.0},
    )
    assert not sweep_case(case, given=[Recipe(width="none")]).faults


@pytest.mark.parametrize("clip", [-1.0, float("nan")])
def test_limits_of_recurrent_layers_that_are_none_are_not_followed(clip: float) -> None:
    # What no limit above 0 keeps is no number between this one and its opposite.
    inputs = {"x": np.full((2, 1, 2), 2, np.float32)}
    constants = {**RECURRENT, "c": np.array(2, np.float32)}
    model = make("y = RNN(x, w, r)\nd = Sub(c, y)\nz = Log(d)", inputs, constants, hidden_size=2, clip=clip)
    assert_unknown(model, (-2, 2))


@pytest.mark.parametrize("op_type", ["ReduceMean", "ReduceProd", "ReduceLogSumExp"])
def test_reductions_of_integers_near_the_greatest_have_bounds(op_type: str) -> None:
    greatest = np.iinfo(np.int32).max
    x = np.array([[greatest - 1, greatest]], np.int32)
    case = OperatorCase(op_type=op_type, inputs=[x, np.array([0])], attributes={"keepdims": 1}, gradient=False)
    assert not sweep_case(case, given=[Recipe(width="none")]).faults


@pytest.mark.parametrize("op_type", ["LpPool", "GlobalLpPool"])
def test_norms_of_order_0_are_not_followed(op_type: str) -> None:
    attributes: dict[str, Any] = {"kernel_shape": [2]} if op_type == "LpPool" else {}
    nodes = f"y = {op_type}(x)\nz = Sqrt(y)"
    assert_unknown(make(nodes, {"x": np.ones((1, 1, 4), np.float32)}, {}, p=0, **attributes), (-1, 1))


@pytest.mark.parametrize("op_type", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_statistics_of_half_precision_have_room_for_small_epsilons(op_type: str) -> None:
    x = np.array([[1e-4, 1.1e-4, 9e-5]], np.float16)
    inputs = [x, np.zeros_like(x), np.ones(3, np.float16)]
    case = OperatorCase(op_type=op_type, domain="com.microsoft", inputs=inputs, gradient=False)
    assert not sweep_case(case, given=[Recipe(width="none")]).faults


@pytest.mark.parametrize("alpha", [1e38, -1e38])
def test_factors_beyond_half_precision_overflow(alpha: float) -> None:
    case = OperatorCase(op_type="Elu", inputs=[Spread((4,), np.float16)], attributes={"alpha": alpha}, opset=22)
    assert not sweep_case(case, given=[Recipe()]).faults
