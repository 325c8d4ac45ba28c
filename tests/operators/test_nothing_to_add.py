"""Products and sums of no terms: some kernels of ONNX Runtime leave memory as it was."""

import pytest

import ranum_falsify as rf
from tests.network.building import parse

FUSED = """g (float[2,0,3] x, int32[18] i) => (float[2,3,3] y, int32 s) <int32 one = {1}> {
    a = Sub(i, one) c = Neg(a) b = Neg(c) s = ReduceMax<keepdims = 0>(b)
    t = Transpose<perm = [0, 2, 1]>(x) m = MatMul(t, x) y = Neg(m) }"""
INTEGERS = """g (uint8[2,0] x, float[2,3] z) => (float[2,3] y) <uint8[0,3] w = {}> {
    m = MatMulInteger(x, w) f = Cast<to = 1>(m) e = Exp(f) y = Add(e, z) }"""
CONVOLUTION = """g (float[1,0,5] x, float[2,0,3] w, float[2] b) => (float[1,2,3] y) { y = Conv(x, w, b) }"""


@pytest.mark.parametrize("text", [FUSED, INTEGERS, CONVOLUTION], ids=["fused", "integers", "convolution"])
def test_what_is_not_written_is_not_proved(text: str) -> None:
    answer = rf.check(parse(text), box=(0, 0), self_check=False, timeout=3)
    assert answer.verdict != "holds"


WRITTEN = {
    "repeated 0 times": "(float[2,3] x) <int64[2] r = {1, 0}, float[0,3] w = {}> { t = Tile(x, r) y = MatMul(t, w) }",
    "shares of nothing": "(float[2,0] x) <float[0,3] w = {}> { t = Softmax<axis = -1>(x) y = MatMul(t, w) }",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_a_product_of_no_terms_is_zero(text: str) -> None:
    inputs, rest = text.split(") ", 1)
    model = parse(f"g {inputs}) => (float[2,3] y) {rest}".replace("y = M", "m = M").replace(" }", " y = Exp(m) }"))
    assert rf.check(model, box=(-1, 1), self_check=False, timeout=3).verdict == "holds"


def test_nothing_quantised_is_no_traceback() -> None:
    text = """g (float[2,0] x) => (float[2,3] y) <float s = {0.1}, uint8 z = {3}, float[0,3] w = {}> {
        q = QuantizeLinear(x, s, z) t = DequantizeLinear(q, s, z) y = MatMul(t, w) }"""
    assert rf.check(parse(text), box=(-1, 1), self_check=False, timeout=3).verdict != "violated"
