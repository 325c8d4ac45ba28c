"""Quantised products whose scales, spans or sums overflow or vanish on the way, where the whole product does not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from onnx import ModelProto

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import read
from ranum_falsify.verify.replay.replayer import Replayer
from tests.verify.prove.test_narrow_misses import Array, assert_open, make


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


BLOCK = {"K": 32, "N": 1, "block_size": 32}
ZEROS = {4: np.full((1, 1, 16), 0x88, np.uint8), 8: np.full((1, 1, 32), 128, np.uint8)}
"""Weights of few bits that stand for 0."""


def row(first: float, rest: float) -> Array:
    """Return 32 numbers; boxes in which only the first varies are soon split to the end."""
    return np.array([[first] + [rest] * 31], np.float32)


@pytest.mark.parametrize("bits", ZEROS)
def test_a_sum_over_a_block_overflows_before_it_meets_a_small_scale(bits: int) -> None:
    # 4e38, and 3.1e38 in the centre.
    x = row(9e37, 1e37)
    model = make(
        "y = com.microsoft::MatMulNBits(x, w, s)",
        {"x": x},
        {"w": ZEROS[bits], "s": floats(1e-20)},
        bits=bits,
        accuracy_level=4,
        **BLOCK,
    )
    assert_open(model, {"x": (row(-9e37, 1e37), x)}, {"x": x})


@pytest.mark.parametrize(
    ("bits", "scale", "level", "zeros"),
    [(4, 1e38, 4, {}), (8, 1e37, 4, {}), (4, 1e38, 0, {"p": floats(8)})],
    ids=["4 bits", "8 bits", "zero points of floats"],
)
def test_zero_points_times_scales_overflow_before_they_meet_small_numbers(
    bits: int, scale: float, level: int, zeros: Mapping[str, Array]
) -> None:
    # The centre of the box takes the other branch.
    x = row(1e-10, 1e-12)
    model = make(
        f"t = com.microsoft::MatMulNBits({', '.join(['x', 'w', 's', *zeros])})\n"
        "m = ReduceMax(x)\nc = Greater(m, k)\ny = Where(c, t, o)",
        {"x": x},
        {"w": ZEROS[bits], "s": floats(scale), "k": floats(5e-11), "o": floats(0), **zeros},
        bits=bits,
        accuracy_level=level,
        **BLOCK,
    )
    assert_open(model, {"x": (row(-1e-10, 1e-12), x)}, {"x": x})


@pytest.mark.parametrize(("bits", "scale", "level"), [(8, 1e37, 0), (4, 1e38, 4)])
def test_an_expert_fails_that_the_centre_does_not_choose(bits: int, scale: float, level: int) -> None:
    weights = np.full((2, 32, 4 * bits), ZEROS[bits].flat[0], np.uint8)
    scales = np.full((2, 32, 1), 1e-3, np.float32)
    larger = scales.copy()
    larger[1] = scale
    point = {"x": row(1e-10, 1e-10), "r": floats(-1, 1)[None]}
    model = make(
        "y = com.microsoft::QMoE(x, r, w, s, , w, t)",
        point,
        {"w": weights, "s": larger, "t": scales},
        k=1,
        activation_type="identity",
        expert_weight_bits=bits,
        accuracy_level=level,
        block_size=32,
    )
    assert_open(model, {"x": (point["x"], point["x"]), "r": (floats(-1, -5)[None], point["r"])}, point)


UNIT: dict[str, Array] = {"z": np.array(0, np.uint8), "w": np.ones((1, 1), np.int8), "p": np.array(0, np.int8)}


def gemm(
    nodes: str, alpha: float, scale: float, x: int, s: float, **others: Array
) -> tuple[ModelProto, dict[str, Array]]:
    """Return a model whose first node is a QGemm with an input for a scale, and a point."""
    point: dict[str, Array] = {"s": np.array(s, np.float32), "x": np.array([[x]], np.uint8)}
    constants = {**UNIT, "ws": np.array(scale, np.float32), **others}
    return make(f"t = com.microsoft::QGemm(x, s, z, w, ws, p)\n{nodes}", point, constants, alpha=alpha), point


def test_two_of_three_scales_overflow() -> None:
    # Infinity times the difference of 3 and its zero point.
    model, point = gemm("y = Neg(t)", 1e20, 1e-30, 3, 3.5e18, z=np.array(3, np.uint8))
    assert_open(model, {"x": (0, 255), "s": (0, 3.5e18)}, point)


def test_two_of_three_scales_vanish() -> None:
    model, point = gemm("y = Reciprocal(t)", 1e-20, 1e38, 3, 1e-30)
    assert_open(model, {"x": (1, 255), "s": (1e-30, 1e-3)}, point)


def test_two_of_three_scales_lose_digits() -> None:
    # 3e-20 * 3e-25 is 6.4 times the smallest number.
    model, point = gemm("d = Sub(t, c)\ny = Log(d)", 3e-20, 1e38, 1, 3e-25, c=floats(8.7e-7))
    assert_open(model, {"x": (1, 255), "s": (3e-25, 3e-22)}, point)


def test_a_span_overflows_before_it_is_divided() -> None:
    x = floats(2e38, -2e38).reshape(2, 1, 1)
    nothing = np.zeros((1, 1, 4), np.int8)
    model = make(
        "t = com.microsoft::DynamicQuantizeLSTM(x, w, w, , , , , , s, p, s, p)\nd = Sub(h, t)\ny = Log(d)",
        {"x": x},
        {"w": nothing, "s": floats(0.01), "p": np.zeros(1, np.int8), "h": floats(0.1)},
        hidden_size=1,
    )
    assert_open(model, {"x": (-2e38, 2e38)}, {"x": x})


def gate(x: float, scale: float) -> tuple[ModelProto, Array]:
    """Return an LSTM of weights of 1, and a point."""
    point = floats(x, x).reshape(2, 1, 1)
    constants = {
        "w": np.ones((1, 1, 4), np.uint8),
        "s": floats(scale),
        "p": np.zeros(1, np.uint8),
        "r": np.zeros((1, 1, 4), np.uint8),
    }
    nodes = "y = com.microsoft::DynamicQuantizeLSTM(x, w, r, , , , , , s, p, s, p)"
    return make(nodes, {"x": point}, constants, hidden_size=1), point


def blocks(x: float, scale: float, weight: int) -> tuple[ModelProto, Array]:
    """Return a product with weights of 8 bits, and a point."""
    constants = {"w": np.full_like(ZEROS[8], weight), "s": floats(scale)}
    nodes = "y = com.microsoft::MatMulNBits(x, w, s)"
    return make(nodes, {"x": row(x, x)}, constants, bits=8, accuracy_level=4, **BLOCK), row(x, x)


@pytest.mark.few(3)
@pytest.mark.parametrize("flush", [False, True], ids=["denormal", "flushed"])
@pytest.mark.parametrize(
    ("model", "x"),
    [blocks(-0.01, 8e-38, 128), blocks(1e-36, 6e29, 129), gate(1e-36, 2.5e37)],
    ids=["a product of scales", "the scale of a block", "the scale of a span"],
)
def test_bounds_allow_for_scales_that_are_denormal(model: ModelProto, x: Array, flush: bool) -> None:
    (found,) = IntervalAnalysis(read(model), runtimes=("onnxruntime",)).run([Interval.box(x, x)])
    assert found is not None
    with Replayer(model, flush=flush) as replayer:
        for run in (replayer.outputs, replayer.run_plain):
            assert found.encloses(torch.from_numpy(run({"x": x})["y"])).all()
