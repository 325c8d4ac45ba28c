"""Normalisations of rows that are nearly constant: what two passes and Welford's updates give in float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import parser

from ranum_falsify.domain.analysis import IntervalAnalysis
from ranum_falsify.domain.error_bounds import reach_of_updates
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels import Record, records, updates_statistics, use_here
from ranum_falsify.network import read
from ranum_falsify.selfcheck.running import Array, Session, draw_nearly_equal, native
from ranum_falsify.selfcheck.running import updates_statistics as measure_updates

LENGTHS = (2, 3, 7, 8, 13, 16, 33, 100, 385)
LAYER = "LayerNormalization<epsilon = EPSILON>(x, s, b)"
SKIP = "com.microsoft.SkipLayerNormalization<epsilon = EPSILON>(x, z, s, b)"


def normalise(text: str, epsilon: float, rows: Array) -> tuple[list[Array], Interval]:
    """Return what ONNX Runtime gives for groups of rows, optimised and not, and the bounds over each group's hull.

    Args:
        text: The node.
        epsilon: Its epsilon.
        rows: The rows, `(groups, rows, n)`.
    """
    shape, n = ", ".join(map(str, rows.shape)), rows.shape[-1]
    ones, zeros = (", ".join([digit] * n) for digit in "10")
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> '
        f"g (float[{shape}] x) => (float[{shape}] y) <float[{n}] s = {{{ones}}}, float[{n}] b = {{{zeros}}}> "
        f"{{ z = Sub(x, x) y = {text.replace('EPSILON', str(epsilon))} }}"
    )
    found = [native(model.SerializeToString(), optimised)(rows) for optimised in (False, True)]
    low, high = (np.broadcast_to(end(1, keepdims=True), rows.shape).copy() for end in (rows.min, rows.max))
    (bounds,) = IntervalAnalysis(read(model), runtimes=("onnxruntime",)).run([Interval.box(low, high)])
    assert bounds is not None
    return found, bounds


@pytest.mark.parametrize("text", [LAYER, SKIP], ids=["layer", "skip"])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-12, 1e-30])
def test_no_row_leaves_the_bounds_of_its_box(text: str, epsilon: float) -> None:
    rng = np.random.default_rng(7)
    for n in LENGTHS:
        one = draw_nearly_equal(n, 200, rng)
        rows = np.stack([one, np.roll(one, 1, -1), np.flip(one, -1), rng.permuted(one, axis=-1)], 1)
        found, bounds = normalise(text, epsilon, rows)
        assert all(bool(((bounds.lower.numpy() <= y) & (y <= bounds.upper.numpy())).all()) for y in found)


def test_the_first_number_of_a_row_is_off_by_a_spacing() -> None:
    """The mean of two neighbours is the second, of which the deviation knows nothing."""
    rows = np.full((1, 1, 16), 1 + 2**-22, np.float32)
    rows[..., 0] = 1 + 2**-23
    found, bounds = normalise(SKIP, 1e-20, rows)
    assert min(y[0, 0, 0] for y in found) < -(2**-24) / 1e-10 and float(bounds.lower[0, 0, 0]) > -(2**-22) / 1e-10
    assert float(bounds.lower[0, 0, 1:].min()) > -14
    reach = reach_of_updates(16, torch.tensor([1.0]), 1e-20)
    assert float(reach[1]) < 14 < float(reach[0])


def test_encoders_stay_bounded_however_deep_they_are() -> None:
    rng = np.random.default_rng(0)
    weight = ", ".join(f"{w:.4f}" for w in rng.normal(0, 0.2, 256))
    ones, zeros = (", ".join([digit] * 16) for digit in "10")
    steps = "".join(
        f"m{i} = MatMul(h{i}, w) a{i} = Add(h{i}, m{i}) h{i + 1} = LayerNormalization<epsilon = 1e-12>(a{i}, s, b) "
        for i in range(30)
    )
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[4, 16] h0) => (float[4, 16] h30) <float[16, 16] w = '
        f"{{{weight}}}, float[16] s = {{{ones}}}, float[16] b = {{{zeros}}}> {{ {steps} }}"
    )
    box = Interval.box(np.full((4, 16), -1, np.float32), np.full((4, 16), 1, np.float32))
    for runtimes, bounded in ((("onnxruntime",), True), (("onnxruntime", "torch"), False)):
        (y,) = IntervalAnalysis(read(model), runtimes=runtimes).run([box])
        assert y is not None and bool(y.upper.max() < 100) is bounded


def test_a_variance_that_cancels_is_found() -> None:
    def load(model: bytes, optimised: bool) -> Session:
        def run(x: Array) -> Array:
            mean, square = x.mean(-1, keepdims=True), np.square(x).mean(-1, keepdims=True)
            y: Array = (x - mean) / np.sqrt(np.maximum(square - mean * mean, 0) + 1e-12)
            return y

        return run

    assert measure_updates(native) and not measure_updates(load)


def test_what_was_found_here_counts() -> None:
    assert updates_statistics(("onnxruntime",)) and not updates_statistics(("onnxruntime", "torch"))
    stray = Record(
        runtime="onnxruntime",
        family="here",
        versions={},
        safety={},
        swept={},
        rows={records.STATISTICS: {"float32": (0.0, 0.0, -np.inf, np.inf, False)}},
        saturation={},
    )
    use_here([stray])
    try:
        assert not updates_statistics(("onnxruntime",))
    finally:
        use_here([])
    assert updates_statistics(("onnxruntime",))
