"""Outputs that are too large for any process: ONNX Runtime refuses to make them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import parser

import ranum_falsify as rf
from ranum_falsify.domain import Interval
from ranum_falsify.network import read, spec_of
from ranum_falsify.operators.support.conditions import list_refusals
from tests.network.building import runs

_HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
_SIZES = "g (int64[2] i) => (float[n, m] y) { y = ConstantOfShape(i) }"
_ONE_HOT = "=> (float[n, m] y) <int64[2] x = {0, 1}, float[2] v = {0, 1}> { y = OneHot(x, i, v) }"
_MEL = """g (int64 i) => (float[n, m] y) <int64 a = {16}, int64 r = {8000}, float l = {0}, float h = {4000}> {
    y = MelWeightMatrix(i, a, r, l, h) }"""
_KINDS = {"tensor(int64)": np.int64, "tensor(float)": np.float32}


def _parse(text: str) -> onnx.ModelProto:
    return parser.parse_model(_HEAD + text)


_TOO_LARGE = {
    "sizes that overflow": (_SIZES, (0, 2**40)),
    "four sizes that overflow": (
        "g (int64[4] i) => (float[n, m, o, p] y) { y = ConstantOfShape(i) }",
        (0, 65537),
    ),
    "one size": ("g (int64[1] i) => (float[n] y) { y = ConstantOfShape(i) }", (0, 2**62)),
    "depth": (f"g (int64 i) {_ONE_HOT}", (1, 2**62)),
    "depth of floats": (f"g (float i) {_ONE_HOT}", (1e29, 1e30)),
}
"""Models, and sizes of their output with which no process can address it."""


@pytest.mark.parametrize("name", _TOO_LARGE)
def test_a_tensor_that_no_process_can_address_is_not_proved(name: str) -> None:
    text, box = _TOO_LARGE[name]
    model = _parse(text)
    session = ort.InferenceSession(model.SerializeToString())
    assert not runs(session, {x.name: np.full(x.shape, box[1], _KINDS[x.type]) for x in session.get_inputs()})
    result = rf.check(model, box=box, runtime="onnxruntime", self_check=False, n_starts=8)
    assert result.verdict != "holds"
    assert result.counterexample is None or not runs(session, dict(result.counterexample))


@pytest.mark.parametrize(("low", "verdict"), [(1, "holds"), (0, "violated")])
def test_depths_of_few_bits_are_compared_with_limits_of_many(low: int, verdict: str) -> None:
    model = _parse(f"g (int32 i) {_ONE_HOT}")
    assert rf.check(model, box=(low, 300), runtime="onnxruntime", self_check=False).verdict == verdict


@pytest.mark.parametrize("op_type", ["Expand", "Tile"])
def test_a_shape_that_no_process_can_address_is_not_taken(op_type: str) -> None:
    (op,) = read(_parse(f"g (float[1] x, int64[1] i) => (float[n] y) {{ y = {op_type}(x, i) }}")).nodes
    (condition,) = list_refusals(op)
    x, by = Interval.fill(0, 1, (1,), torch.float32), spec_of(op).operands[1]
    for size, fits in [(2**45 - 1, True), (2**45, False), (2**62, False)]:
        assert condition.holds(op, {"x": x, by: Interval.point(np.array([size]))}) == fits


def test_pads_that_no_process_can_address_are_not_taken() -> None:
    (op,) = read(_parse("g (float[2, 3] x, int64[4] i) => (float[n, m] y) { y = Pad(x, i) }")).nodes
    (condition,) = list_refusals(op)
    x = Interval.fill(0, 1, (2, 3), torch.float32)
    for pads, fits in [([0, 1, 1, 0], True), ([0, 0, 2**50, 0], False), ([2**30, 0, 0, 2**30], False)]:
        assert condition.holds(op, {"x": x, "pads": Interval.point(np.array(pads))}) == fits


def test_bins_that_no_process_can_address_are_not_taken() -> None:
    (op,) = read(_parse(_MEL)).nodes
    (condition,) = list_refusals(op)
    bounds = {
        key: Interval.point(x)
        for key, x in spec_of(op).name_values(spec_of(op).operands_of(op)).items()
        if isinstance(x, np.ndarray)
    }
    for count, fits in [(3, True), (2**50, False), (2**62, False)]:
        assert condition.holds(op, bounds | {"num_mel_bins": Interval.point(np.array(count))}) == fits
