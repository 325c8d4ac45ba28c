"""Attributes and stored operands that no exporter writes: nothing is proved of what kernels make of them."""

import numpy as np
import onnxruntime as ort
import pytest
import torch

import ranum_falsify as rf
from ranum_falsify.domain import Interval
from ranum_falsify.domain.analysis import IntervalAnalysis
from ranum_falsify.network import read
from tests.network.building import parse

STEEP = """g (float[1,1,1,7] x) => (float[1,1,1,5] z) <int64[4] sizes = {1, 1, 1, 5}, float c = {479.01}> {
    y = Resize <mode = "cubic", coordinate_transformation_mode = "pytorch_half_pixel", cubic_coeff_a = COEFFICIENT,
        exclude_outside = 1> (x, , , sizes)
    s = Add (y, c) z = Log (s) }"""


@pytest.mark.parametrize("coefficient", ["1000.0", "1.0e18"])
def test_errors_of_steep_cubic_kernels_are_not_known(coefficient: str) -> None:
    model = parse(STEEP.replace("COEFFICIENT", coefficient), opset=19)
    assert rf.check(model, box=(-1, 1), self_check=False, timeout=3).verdict != "holds"


def test_gentle_cubic_kernels_are_bounded() -> None:
    model = parse(STEEP.replace("COEFFICIENT", "-0.5"), opset=19)
    assert rf.check(model, box=(-1, 1), self_check=False, timeout=3).verdict == "holds"


def test_a_scale_by_channels_says_nothing_where_kernels_read_the_first_alone() -> None:
    merged = parse(
        """g (uint8[2,3] x, uint8[2,3] w) => (uint8[4,3] y)
        <float[3] s = {0.1, 1, 0.01}, uint8[3] z = {3, 3, 3}, float t = {0.1}, uint8 o = {3}>
        { y = Concat<axis = 0>(x, w) }"""
    )
    node = merged.graph.node[0]
    node.op_type, node.domain = "QLinearConcat", "com.microsoft"
    node.input[:] = ["t", "o", "x", "s", "z", "w", "s", "z"]
    merged.opset_import.add(domain="com.microsoft", version=1)
    box = [Interval.fill(3, 4, (2, 3), torch.uint8)] * 2
    (bounds,) = IntervalAnalysis(read(merged)).run(box)
    assert bounds is None or bounds.extremes == (0, 255)


@pytest.mark.slow
def test_a_product_that_the_optimiser_scales_by_channels_is_no_traceback() -> None:
    text = """g (float[2,3,4,3] x) => (float[2,3,4,2] y)
        <float[3] s = {0.01, 0.1, 1}, uint8[3] z = {3, 3, 3}, int8[3,2] w = {0, 1, 2, 3, 4, 5}, float one = {1},
        int8 zi = {0}, float so = {0.1}, uint8 zo = {3}> {
        q = QuantizeLinear<axis = 1>(x, s, z) d = DequantizeLinear<axis = 1>(q, s, z) v = DequantizeLinear(w, one, zi)
        o = MatMul(d, v) r = QuantizeLinear(o, so, zo) y = DequantizeLinear(r, so, zo) }"""
    model = parse(text, opset=13)
    try:  # some versions of ONNX Runtime merge the scales, and refuse to run what they made
        ort.InferenceSession(model.SerializeToString()).run(None, {"x": np.zeros((2, 3, 4, 3), np.float32)})
        verdict = "holds"
    except ort.capi.onnxruntime_pybind11_state.Fail:
        verdict = "unknown"
    assert rf.check(model, box=(-1, 1), self_check=False, timeout=10).verdict == verdict
