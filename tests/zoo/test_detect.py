"""Detection over the whole zoo: every documented operator is flagged, and the repaired twins are proved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from onnx.numpy_helper import to_array

from ranum_falsify.model_builder import BoxedVariable
from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.catalogue import model_of
from ranum_falsify.zoo.detect import (
    Analysis,
    Detection,
    Flag,
    Seconds,
    analyse,
    analysis_of,
    detect,
    draw_plausible_inputs,
    inference_seconds,
    problem_of,
    totals,
)
from ranum_falsify.zoo.model import Defect, ZooModel
from tests.zoo.pair import Pair

UNPROVED: dict[str, set[str]] = {}
"""By model, the operators of its twin that the analysis does not prove yet."""

SOFTMAX = model_of("3")


@pytest.mark.few(3)
def test_every_documented_operator_is_flagged(pair: Pair) -> None:
    verdicts = {defect.id: pair.detection.faulty.verdict(defect) for defect in pair.model.defects}
    assert verdicts == dict.fromkeys(verdicts, "detected")


@pytest.mark.few(4)
def test_the_twin_is_proved(pair: Pair) -> None:
    assert {flag.node for flag in pair.detection.repaired.open} == UNPROVED.get(pair.model.id, set())


# what the numbers mean ----------------------------------------------------------------------------------------------


def flag(node: str, op_type: str = "Log", *, own: bool = True) -> Flag:
    return Flag(node=node, op_type=op_type, conditions=("x > 0",) if own else (), after=() if own else ("log",))


def analysis(model: ZooModel = SOFTMAX, *flags: Flag, safe: bool = False, operators: int = 10) -> Analysis:
    seconds = Seconds(build=1.0, read=2.0, reduce=3.0, analyses=(9.0, 1.0, 2.0), one_shot=8.0)
    return Analysis(model=model, safe=safe, operators=operators, flags=flags, seconds=seconds)


def found(model: ZooModel, faulty: tuple[Flag, ...], repaired: tuple[Flag, ...] = ()) -> Detection:
    return Detection(faulty=analysis(model, *faulty), repaired=analysis(model, *repaired, safe=True))


@pytest.mark.parametrize(
    ("flags", "verdict"),
    [
        ((flag("log"),), "detected"),
        ((flag("log", own=False),), "after"),
        ((flag("other"), flag("Mul", "Mul", own=False)), "missed"),
        ((flag("log", "Div"),), "missed"),
        ((), "missed"),
    ],
)
def test_a_verdict_is_about_the_documented_operator(flags: tuple[Flag, ...], verdict: str) -> None:
    assert analysis(SOFTMAX, *flags).verdict(SOFTMAX.defects[0]) == verdict


def test_open_operators_are_told_from_those_after_them() -> None:
    seen = analysis(SOFTMAX, flag("log"), flag("Mul", "Mul", own=False))
    assert [f.node for f in seen.open] == ["log"]
    assert [f.node for f in seen.dependent] == ["Mul"]
    assert seen.seconds.analysis == 2.0


def test_totals_count_defects_programs_models_and_operators() -> None:
    first = replace(
        SOFTMAX, id="11a", program="TensorFuzz", defects=(Defect(id="11a", node="log", operator="Log", mechanism=""),)
    )
    second = replace(
        SOFTMAX, id="11b", program="TensorFuzz", defects=(Defect(id="11b", node="log", operator="Log", mechanism=""),)
    )
    counted = totals(
        [
            found(SOFTMAX, (flag("log"),)),
            found(first, (flag("log", own=False),)),
            found(second, (), (flag("log"), flag("Mul", "Mul", own=False))),
        ]
    )
    assert counted.verdicts == {"detected": 1, "after": 1, "missed": 1}
    assert (counted.models, counted.models_proved) == (3, 2)
    assert (counted.programs, counted.programs_proved) == (2, 1)
    assert (counted.operators, counted.operators_open, counted.operators_flagged) == (30, 1, 2)


def test_totals_of_some_defects() -> None:
    assert sum(totals([found(SOFTMAX, (flag("log"),))], []).verdicts.values()) == 0


def test_a_flag_says_what_is_not_shown() -> None:
    seen = analyse(SOFTMAX, rounds=1)
    (log,) = seen.open
    assert (log.node, log.op_type, log.conditions, log.after) == ("log", "Log", ("x > 0",), ())
    assert all(f.after == ("log",) for f in seen.dependent)
    assert seen.operators == len(SOFTMAX.architecture().model.graph.node)
    assert len(seen.seconds.analyses) == 1 and seen.seconds.inference is None


@pytest.mark.parametrize("name", ["3", "36b", "saf3"])
def test_initial_weights_do_not_matter(name: str) -> None:
    model = model_of(name)
    drawn, zeros = model.architecture(), model.architecture(drawn=False)
    assert (drawn.inputs, drawn.weights) == (zeros.inputs, zeros.weights)
    flags = [analysis_of(model, problem_of(model, one)).flags for one in (drawn, zeros)]
    assert flags[0] == flags[1] != ()
    assert not any(to_array(tensor).any() for tensor in zeros.model.graph.initializer if tensor.name in names(zeros))


def names(architecture: Architecture) -> set[str]:
    return {weight.name for weight in architecture.weights}


def test_the_twin_is_analysed_beside_the_model() -> None:
    both = detect(SOFTMAX, rounds=2)
    assert (both.faulty.safe, both.repaired.safe, both.model) == (False, True, SOFTMAX)
    assert both.faulty.open and not both.repaired.flags
    assert len(both.repaired.seconds.analyses) == 2


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    analyse(SOFTMAX, rounds=1, threads=before + 1)
    assert torch.get_num_threads() == before


# inference ----------------------------------------------------------------------------------------------------------


def test_an_inference_is_timed() -> None:
    assert analyse(SOFTMAX, rounds=1, inference=True).seconds.inference
    assert 0 < inference_seconds(SOFTMAX.architecture(batch=4)) < 10


def test_plausible_inputs_lie_about_the_middle_and_repeat() -> None:
    inputs = (
        BoxedVariable(name="x", shape=(50, 2), dtype="float32", low=-1.0, high=3.0),
        BoxedVariable(name="keep", shape=(), dtype="float32", low=1.0, high=1.0),
        BoxedVariable(name="row", shape=(99,), dtype="int32", low=1, high=3),
    )
    architecture = Architecture(model=SOFTMAX.architecture().model, inputs=inputs, weights=(), widened={})
    drawn = draw_plausible_inputs(architecture)
    assert [(a.shape, a.dtype.name) for a in drawn.values()] == [(v.shape, v.dtype) for v in inputs]
    assert 0.5 <= drawn["x"].min() < 0.6 and 1.4 < drawn["x"].max() <= 1.5
    assert drawn["keep"] == 1.0
    assert set(drawn["row"].tolist()) == {1, 2, 3}
    again = draw_plausible_inputs(architecture)
    assert all(np.array_equal(drawn[name], again[name]) for name in drawn)
    assert not np.array_equal(draw_plausible_inputs(architecture, seed=1)["x"], drawn["x"])
