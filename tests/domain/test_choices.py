"""A choice that is a number, or is not: bounds know which branch was taken, and hold what ONNX Runtime gives."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import read
from tests.network.building import parse

NUMBERS = ["-inf", "-1", "0", "1"]
BRANCHES = [*NUMBERS, "x", "y"]
BOXES = [((-1, 1), (-1, 1)), ((-1, -1), (0, 1)), ((0, 0), (-1, 1)), ((-1, 1), (0, 1))]


def build(first: str, second: str, number: str, negated: bool, turned: bool) -> onnx.ModelProto:
    names = {"x": "x", "y": "y"}
    constants = {value: f"c{place}" for place, value in enumerate(NUMBERS)}
    operands = ["chosen", constants[number]]
    equal = ", ".join(operands[::-1] if turned else operands)
    test = f"e = Equal({equal}) t = Not(e)" if negated else f"t = Equal({equal})"
    given = ", ".join(f"float[1] {name} = {{{value}}}" for value, name in constants.items())
    one, other = (names.get(value, constants.get(value, "")) for value in (first, second))
    arms = ("chosen", constants["0"])
    return parse(
        f"""g (float[9] x, float[9] y) => (float[9] z, float[9] w, float[9] v) <{given}> {{
        b = Less(x, y) chosen = Where(b, {one}, {other}) {test}
        z = Where(t, {arms[0]}, {arms[1]}) w = Where(t, {arms[1]}, {arms[0]}) v = Where(t, y, x) }}"""
    )


def check(model: onnx.ModelProto) -> list[list[Interval]]:
    """Compare bounds with what ONNX Runtime computes on a grid; return them for each box."""
    graph, found = read(model), []
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for ends in BOXES:
        bounds = IntervalAnalysis(graph).run([Interval.box(*np.array([end] * 9, np.float32).T) for end in ends])
        x, y = (grid.ravel() for grid in np.meshgrid(*(np.linspace(*end, 3, dtype=np.float32) for end in ends)))
        for bound, result in zip(bounds, session.run(None, {"x": x, "y": y}), strict=True):
            assert bound is not None and bool(bound.encloses(torch.tensor(result)).all()), ends
        found.append([bound for bound in bounds if bound is not None])
    return found


@pytest.mark.few(3)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("negated", [False, True])
def test_bounds_hold_what_is_chosen(number: str, negated: bool) -> None:
    for place, (first, second) in enumerate(itertools.product(BRANCHES, BRANCHES)):
        check(build(first, second, number, negated, bool(place % 2)))


@pytest.mark.parametrize("negated", [False, True])
def test_an_infinity_that_was_tested_is_left_out(negated: bool) -> None:
    graph = read(build("0", "-inf", "-inf", negated, False))
    box = Interval.box(np.zeros(9, np.float32), np.ones(9, np.float32))
    z, w, _ = IntervalAnalysis(graph).run([box, box])
    kept = z if negated else w
    assert kept is not None and kept.extremes == (0.0, 0.0)


MOVES = {
    "Reshape": ("s = Constant<value_ints = [3, 3]>()", "Reshape(chosen, s)"),
    "Expand": ("s = Constant<value_ints = [4, 9]>()", "Expand(chosen, s)"),
    "Unsqueeze, Transpose": ("s = Constant<value_ints = [0]>() u = Unsqueeze(chosen, s)", "Transpose(u)"),
    "Slice": ("s = Constant<value_ints = [2]>() e = Constant<value_ints = [7]>()", "Slice(chosen, s, e)"),
    "Gather": ("s = Constant<value_ints = [5, 0, 0]>()", "Gather(chosen, s)"),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize(("first", "second"), [*itertools.product(["-inf", "-1", "0", "x"], ["-inf", "0", "y"])])
def test_bounds_hold_what_is_chosen_and_moved(move: str, first: str, second: str) -> None:
    before, moved = MOVES[move]
    names = {"x": "x", "y": "y", "-inf": "c0", "-1": "c1", "0": "c2"}
    model = parse(
        f"""g (float[9] x, float[9] y) => (float[M] z, float[M] w) <{CONSTANTS}> {{
        b = Less(x, y) chosen = Where(b, {names[first]}, {names[second]}) {before} m = {moved}
        t = Equal(m, c0) z = Where(t, c2, m) w = Where(t, m, c2) }}""".replace("float[M]", "float" + SHAPES[move])
    )
    for bounds in check(model):
        assert bounds[0].extremes[0] > -np.inf, "an infinity that was tested is left out"


CONSTANTS = "float c0 = {-inf}, float c1 = {-1}, float c2 = {0}"
SHAPES = {"Reshape": "[3, 3]", "Expand": "[4, 9]", "Unsqueeze, Transpose": "[9, 1]", "Slice": "[5]", "Gather": "[3]"}
