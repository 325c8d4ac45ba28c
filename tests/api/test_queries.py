"""VNN-LIB queries without a condition on outputs, and such that no input satisfies."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import ranum_falsify as rf

MODEL = parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21]>
g (float[1, 2] x) => (float[1, 2] y) <float[2, 2] w = {1, 2, -1, 1}> { h = MatMul(x, w) y = Relu(h) }
""")
NAMES = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
BOX = "(assert (and (<= X_0 1) (>= X_0 -1) (<= X_1 1) (>= X_1 -1)))\n"
V2 = """(vnnlib-version <2.0>)
(declare-network N (declare-input X float32 [1,2]) (declare-output Y float32 [1,2]))
(assert (and (<= X[0,0] 1) (>= X[0,0] -1) (<= X[0,1] 1) (>= X[0,1] -1)))
"""


def _ask(query: str) -> rf.Result:
    return rf.falsify(MODEL, query, n_starts=20, n_steps=5, prove_timeout=1, self_check=False)


@pytest.mark.parametrize(
    "query",
    [
        NAMES + BOX,
        NAMES + BOX + "(assert (or (>= X_0 0.5) (<= X_0 -0.5)))",
        NAMES + BOX + "(assert (>= (+ X_0 X_1) 1))",
        NAMES.split("(declare-const Y_0")[0] + BOX,
        V2,
    ],
    ids=["box", "boxes", "half-plane", "no outputs declared", "version 2"],
)
def test_without_a_condition_on_outputs_every_input_in_the_box_is_a_solution(query: str) -> None:
    result = _ask(query)
    assert result.verdict == "violated" and result.counterexample is not None
    (x,) = result.counterexample.values()
    assert x.shape == (1, 2) and bool((np.abs(x) <= 1).all())


@pytest.mark.parametrize(
    "condition",
    [
        "(and (>= X_0 2) (>= Y_0 1))",
        "(>= X_0 2)",
        "(or (and (>= X_0 2) (>= Y_0 1)) (and (>= X_1 3) (>= Y_1 0)))",
    ],
    ids=["with outputs", "without", "all of a disjunction"],
)
def test_an_empty_box_holds_and_is_said(condition: str) -> None:
    result = _ask(NAMES + BOX + f"(assert {condition})")
    assert result.verdict == "holds"
    assert "no input satisfies the conditions on the inputs" in result.notices[0]
    assert "no input satisfies" in result.report()
    assert "\nbox: empty\n" in result.report() and result.to_json()["assumptions"]["empty"]


def test_one_empty_box_of_several_leaves_the_others() -> None:
    query = NAMES + BOX + "(assert (or (and (>= X_0 2) (>= Y_0 1)) (and (<= X_1 0) (>= Y_1 {}))))"
    assert _ask(query.format(100)).verdict == "holds"
    assert _ask(query.format(0)).verdict == "violated"


def test_bounds_exchanged_in_a_property_file_are_an_error() -> None:
    text = "from dnnv.properties import *\nN = Network('N')\nForall(x, Implies(1 <= x <= 0, N(x)[0, 0] >= 0))\n"
    with pytest.raises(rf.errors.PropertyError, match="above its upper bound"):
        _ask(text)
