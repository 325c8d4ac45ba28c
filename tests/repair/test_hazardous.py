"""Small hazardous models, repaired: their formulas are known, and no repair gives up what was right in silence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import ranum_falsify as rf
from lab.bench import hazardous_runs as runs
from lab.bench.hazardous_models import HAZARDOUS
from ranum_falsify.repair.meaning import Meaning

BOX = """
from dnnv.properties import *
from ranum_falsify.properties import *

N = Network("N")
Forall(x, Implies(And({low} <= x, x <= {high}), no_invalid_input(N(x))))
"""
CASES = {case.id: case for case in HAZARDOUS}


def test_there_are_sixty_in_twelve_kinds() -> None:
    assert len(CASES) == 60 and len({case.kind for case in CASES.values()}) == 12


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("power: root of a difference", "Max(d, 0)"),
        ("normalisation without epsilon: LayerNormalization", "stable_layer_normalization"),
        ("vector over its norm: float16", "stable_normalize"),
        ("cross entropy by hand: pos_weight", "stable_bce_with_logits"),
    ],
)
def test_what_was_right_stays(name: str, change: str) -> None:
    case = CASES[name]
    by = "rewrite" if change.startswith("stable") else "guard"
    best = rf.fix(case.model, runs.property_of(case), by=by, samples=48, n_starts=2, self_check=False)[0]
    assert (best.standing, best.loss, [one.text for one in best.changes]) == ("proved", 0.0, [change])
    found = runs.compare(case, best.model, number=40)
    assert found["infinite"] == 0 and found["lost"] == 0 and found["off"] < 1e-4


@pytest.mark.slow
def test_a_loss_is_stated() -> None:
    """Of a^b, base and exponent are not independent of each other: no limit of either keeps all powers."""
    case = CASES["power: a^b"]
    best = rf.fix(case.model, runs.property_of(case), by="guard", samples=48, n_starts=2, self_check=False)[0]
    assert best.standing == "proved" and best.loss > 1e-3


def test_an_epsilon_is_raised_and_the_input_stays_as_it_is() -> None:
    case = CASES["normalisation without epsilon: InstanceNormalization"]
    best = rf.fix(case.model, runs.property_of(case), by="guard", samples=16, n_starts=2, self_check=False)[0]
    (change,) = best.changes
    assert (best.standing, change.place, change.text[:10], change.tensor) == ("proved", "attribute", "epsilon = ", "")
    assert change.keeps_gradient and [node.op_type for node in best.model.graph.node] == ["InstanceNormalization"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("exponent", "low", "text"),
    [
        (-1.5, 0.0, "Max(x, 2.05"),
        (-2.0, -1.0, "Where(x < 0, Min(x, -5.4"),
        (-1.5, -1.0, "Max(x, 2.05"),
        (0.4, -1.0, "Max(x, 0)"),
    ],
)
def test_the_base_of_a_power_is_kept_as_the_exponent_asks(exponent: float, low: float, text: str) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) <float k = {{{exponent}}}> '
        "{ y = Pow(x, k) }"
    )
    prop = BOX.format(low=low, high=4)
    found = rf.fix(model, prop, by="guard", samples=24, n_starts=2, self_check=False)
    assert any(repair.changes[0].text.startswith(text) and repair.loss == 0 for repair in found)


def meaning_of(body: str, x: list[float], **options: Any) -> list[float]:
    """Return what a model of one operand means."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[1, n] x) => (float[1, n] y) <float one = {{1}}> {{ {body} }}'
    )
    found = Meaning(model, is_small=True).run({"x": np.array([x], np.float32)})["y"]
    return [float(number) for number in found.flat]


def test_meanings_have_all_digits() -> None:
    assert meaning_of("p = Softmax(x) y = Log(p)", [0, 3e4]) == pytest.approx([-3e4, 0])
    assert meaning_of("p = Sigmoid(x) q = Sub(one, p) y = Log(q)", [100, 0]) == pytest.approx([-100, -math.log(2)])
    casts = "e = Exp(x) f = Cast <to = 10> (e) g = Cast <to = 1> (f) y = Log(g)"
    assert meaning_of(casts, [1e30, -5]) == pytest.approx([1e30, -5])
    tail = meaning_of("e = Erf(x) s = Sub(one, e) y = Log(s)", [10, 0])
    assert tail == pytest.approx([-102.87988902484488, 0])


def test_what_has_no_value_means_nothing() -> None:
    assert np.isnan(meaning_of("y = Log(x)", [0, -1])).all()
    assert np.isnan(meaning_of("y = Div(x, x)", [0])).all()
    assert np.isnan(meaning_of("h = Neg(one) r = Sqrt(h) y = Mul(x, r)", [1])).all()
