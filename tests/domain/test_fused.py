"""Sums and products that ONNX Runtime fuses with what stands before them stay within bounds of points."""

import numpy as np
import pytest

from tests.domain.soundness import Subject, faults_in
from tests.network.building import parse

NETWORKS = {
    "matrix product and bias": "m = MatMul(x, w) y = Add(m, b)",
    "matrix product and sum": "m = MatMul(x, w) y = Sum(m, b)",
    "matrix product and what it read": "m = MatMul(x, w) s = Mul(x, big) y = Add(m, s)",
    "product with a reciprocal": "i = Div(one, x) s = Add(x, b) y = Mul(s, i)",
    "three summands": """m = MatMul(x, w) s = Add(m, b) t = Add(s, x)
        n = LayerNormalization(t, b) y = Add(n, t)""",
}


@pytest.mark.parametrize("body", NETWORKS.values(), ids=NETWORKS)
def test_fused_results_of_points_are_enclosed(body: str) -> None:
    rng = np.random.default_rng(0)
    weights = ", ".join(str(v) for v in np.round(rng.normal(0, 1, 256), 6))
    biases = ", ".join(str(v) for v in np.round(rng.normal(0, 1000, 16), 3))
    constants = (
        f"<float[16, 16] w = {{{weights}}}, float[16] b = {{{biases}}}, float one = {{1}}, float big = {{1000}}>"
    )
    subject = Subject(parse(f"g (float[4,16] x) => (float[4,16] y) {constants} {{ {body} }}"))
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.normal(0, 10.0 ** rng.integers(-2, 3), (4, 16)).astype(np.float32)
        point = {"x": x}
        tally = faults_in(subject, (point, point), samples=1, rounds=0, rng=rng)
        assert not tally.faults, "\n".join(tally.faults)


@pytest.mark.parametrize("seed", range(4))
def test_weights_beside_quantised_numbers_may_be_quantised(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights, biases = (", ".join(map(str, np.round(rng.normal(0, 1, count), 6))) for count in (256, 16))
    constants = f"<float[16, 16] w = {{{weights}}}, float[16] b = {{{biases}}}, float s = {{0.1}}, int8 zero = {{0}}>"
    body = """q = QuantizeLinear(x, s, zero) d = DequantizeLinear(q, s, zero) m = Gemm(d, w, b)
        r = QuantizeLinear(m, s, zero) y = DequantizeLinear(r, s, zero)"""
    subject = Subject(parse(f"g (float[4,16] x) => (float[4,16] y) {constants} {{ {body} }}"))
    point = {"x": rng.normal(0, 0.5, (4, 16)).astype(np.float32)}
    tally = faults_in(subject, (point, point), samples=1, rounds=0, rng=rng)
    assert not tally.faults, "\n".join(tally.faults)


@pytest.mark.parametrize("layer", ["MatMul(d, w)", "Gemm(d, w)"])
@pytest.mark.parametrize("seed", range(3))
def test_pairs_of_wide_8_bit_products_may_saturate(layer: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = ", ".join(map(str, rng.choice([-127, 127, 100, -100], 256)))
    constants = f"<int8[16, 16] v = {{{weights}}}, float s = {{0.05}}, uint8 zero = {{0}}, int8 none = {{0}}>"
    body = f"""q = QuantizeLinear(x, s, zero) d = DequantizeLinear(q, s, zero) w = DequantizeLinear(v, s, none)
        m = {layer} r = QuantizeLinear(m, s, none) y = DequantizeLinear(r, s, none)"""
    subject = Subject(parse(f"g (float[4,16] x) => (float[4,16] y) {constants} {{ {body} }}"))
    point = {"x": rng.choice([12.75, 12.0, 0.0], (4, 16)).astype(np.float32)}
    tally = faults_in(subject, (point, point), samples=1, rounds=0, rng=rng)
    assert not tally.faults, "\n".join(tally.faults)


LAYERS = {
    "matrix product": ("[1,16]", "float[16, 2] w", "m = MatMul(x, w)", 2),
    "product with a transposed matrix": ("[1,16]", "float[2, 16] w", "m = Gemm<transB = 1>(x, w)", 16),
    "convolution": ("[1,4,2,2]", "float[2, 4, 2, 2] w", "m = Conv(x, w)", 16),
    "transposed convolution": ("[1,16,1,1]", "float[16, 2, 1, 1] w", "m = ConvTranspose(x, w)", 2),
}


@pytest.mark.parametrize(("shape", "weights", "layer", "stride"), LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("small", [0.0625, 16.0], ids=["one large weight", "large weights"])
def test_a_bias_is_safe_where_no_part_of_the_sum_before_it_overflows(
    shape: str, weights: str, layer: str, stride: int, small: float
) -> None:
    # 16 terms of 2e36 times the largest weight exceed the largest number; with one such weight in a sum they do not.
    values = [16.0 if i in (0, 1 if stride == 2 else 16) else small for i in range(32)]
    constants = f"<{weights} = {{{', '.join(map(str, values))}}}, float b = {{1}}>"
    sizes = [int(n) for n in shape[1:-1].split(",")]
    result = ",".join("abcd"[: len(sizes)])
    subject = Subject(parse(f"g (float{shape} x) => (float[{result}] y) {constants} {{ {layer} y = Add(m, b) }}"))
    high = np.full(sizes, 2e36, np.float32)
    verdict = subject.analyse({"x": -high}, {"x": high})
    assert verdict.proves(subject.graph.nodes[-1].name) == (small < 1)
    tally = faults_in(subject, ({"x": -high}, {"x": high}), samples=4, rounds=1, rng=np.random.default_rng(0))
    assert not tally.faults, "\n".join(tally.faults)
