"""Softmax, normalisations, losses and recurrent layers: sharp where they can be, proved only where they are safe."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from ranum_falsify.domain import Interval
from ranum_falsify.domain.rules.normalisation.statistics import divide_by_root_mean_square, standardise
from ranum_falsify.domain.rules.support.sections import sections
from ranum_falsify.model_builder import ModelBuilder
from tests.domain.soundness import Subject, Verdict, faults_in
from tests.network.building import Array, unchecked

ONES, ZEROS = np.ones(8, np.float32), np.zeros(8, np.float32)
NODE = "y"


def model(
    op_type: str,
    constants: Sequence[Array],
    shape: Sequence[int],
    opset: int = 21,
    dtype: Any = np.float32,
    **attributes: Any,
) -> Subject:
    """Return one node whose first operand is the input `x`, the others constants."""
    g = ModelBuilder(opset=opset, ir_version=10)
    x = g.input("x", shape, dtype=np.dtype(dtype).name)
    g.output(g.node(op_type, x, *(np.asarray(value) for value in constants), name=NODE, out="y", **attributes))
    return Subject(g.build())


def verdict(subject: Subject, low: float | Array, high: float | Array, shape: Sequence[int]) -> Verdict:
    """Return what the analysis says over a box."""
    lower, upper = (np.broadcast_to(np.asarray(end, np.float32), shape) for end in (low, high))
    return subject.analyse({"x": np.array(lower)}, {"x": np.array(upper)})


def extremes(found: Verdict) -> tuple[float, float]:
    """Return the range of the output."""
    bounds = found.bounds["y"]
    assert bounds is not None
    return bounds.extremes


# softmax --------------------------------------------------------------------------------------------------------


def test_softmax_is_exact_in_real_numbers() -> None:
    low, high = extremes(verdict(model("Softmax", [], (2, 3)), -1, 1, (2, 3)))
    assert low == pytest.approx(np.exp(-1) / (np.exp(-1) + 2 * math.e), rel=1e-5)
    assert high == pytest.approx(math.e / (math.e + 2 * np.exp(-1)), rel=1e-5)


def test_softmax_underflows_only_over_wide_boxes() -> None:
    subject = model("Softmax", [], (2, 3))
    assert extremes(verdict(subject, -20, 20, (2, 3)))[0] > 0
    assert extremes(verdict(subject, -60, 60, (2, 3)))[0] == 0


def test_softmax_of_a_merged_row_stays_merged() -> None:
    bounds = verdict(model("Softmax", [], (64, 1000)), -1, 1, (64, 1000)).bounds["y"]
    assert bounds is not None and bounds.is_scalar


@pytest.mark.parametrize("spread", [0.0, 1e-3, 10.0])
def test_merged_bounds_equal_those_of_each_element(spread: float) -> None:
    x = Interval.fill(-spread, spread, (5,), torch.float32)
    of_merged, of_full = sections(x, (0,)), sections(x.split(0), (0,))
    for merged, full in (
        (standardise(of_merged, 1e-5), standardise(of_full, 1e-5)),
        (divide_by_root_mean_square(of_merged, 1e-5, 0.2), divide_by_root_mean_square(of_full, 1e-5, 0.2)),
    ):
        assert torch.allclose(merged.upper.expand(5), full.upper, rtol=1e-9)
        assert torch.allclose(merged.lower.expand(5), full.lower, rtol=1e-9)


def test_log_softmax_is_finite_unless_differences_overflow() -> None:
    subject = model("LogSoftmax", [], (2, 3))
    found = verdict(subject, -1e6, 1e6, (2, 3))
    assert found.proves(NODE) and extremes(found)[1] == 0
    assert not verdict(subject, -3e38, 3e38, (2, 3)).proves(NODE)


@pytest.mark.parametrize(("low", "safe"), [([-np.inf, 0, -np.inf], True), ([-np.inf] * 3, False)])
def test_masked_rows_need_one_element_that_is_surely_finite(low: Sequence[float], safe: bool) -> None:
    found = verdict(model("Softmax", [], (1, 3)), np.array([low]), np.array([[0, 1, -np.inf]]), (1, 3))
    assert found.proves(NODE) is safe


def test_hardmax_knows_a_row_whose_greatest_element_is_sure() -> None:
    bounds = verdict(model("Hardmax", [], (1, 3)), np.array([[2, 0, 0]]), np.array([[3, 1, 1.5]]), (1, 3)).bounds["y"]
    assert bounds is not None
    assert bounds.lower.tolist() == bounds.upper.tolist() == [[1, 0, 0]]


# normalisations -------------------------------------------------------------------------------------------------


def test_a_normalised_number_is_at_most_the_root_of_those_beside_it() -> None:
    low, high = extremes(verdict(model("LayerNormalization", [ONES], (2, 8)), 0, 1, (2, 8)))
    assert -low == high == pytest.approx(np.sqrt(7), rel=1e-2)


def test_known_numbers_are_normalised_sharply() -> None:
    x = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    bounds = verdict(model("LayerNormalization", [ONES, ZEROS], (2, 8)), x, x, (2, 8)).bounds["y"]
    wanted = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    assert bounds is not None and bounds.encloses(torch.from_numpy(wanted)).all()
    assert (bounds.upper - bounds.lower).max() < 1e-3


@dataclass(frozen=True)
class Twins:
    """An operator, and attributes or a box that make it safe, and others that do not."""

    op_type: str
    constants: Sequence[Array]
    safe: dict[str, float]
    unsafe: dict[str, float]
    box: tuple[float, float] = (-1.0, 1.0)
    shape: tuple[int, ...] = (2, 8)
    opset: int = 21


FOUR = np.ones(4, np.float32)
TWINS = [
    Twins("LayerNormalization", [ONES], {}, {"epsilon": 0.0}),
    Twins("RMSNormalization", [ONES], {}, {"epsilon": 0.0}, opset=23),
    Twins("InstanceNormalization", [FOUR, FOUR], {}, {"epsilon": 0.0}, shape=(1, 4, 6)),
    Twins(
        "GroupNormalization", [FOUR, FOUR], {"num_groups": 2}, {"num_groups": 2, "epsilon": 0.0}, (-0.1, 0.1), (1, 4, 6)
    ),
    Twins("LRN", [], {"bias": 1.0, "size": 3}, {"bias": 0.0, "size": 3}, shape=(1, 4, 2, 2)),
]


@pytest.mark.parametrize("twins", [pytest.param(twins, id=twins.op_type) for twins in TWINS])
def test_a_normaliser_above_zero_is_proved_and_one_that_is_not_stays_open(twins: Twins) -> None:
    for attributes, proved in ((twins.safe, True), (twins.unsafe, False)):
        subject = model(twins.op_type, twins.constants, twins.shape, twins.opset, **attributes)
        assert verdict(subject, *twins.box, twins.shape).proves(NODE) is proved


def test_groups_far_from_zero_stay_open_as_their_variance_cancels() -> None:
    subject = model("GroupNormalization", [FOUR, FOUR], (1, 4, 6), num_groups=2)
    assert not verdict(subject, 1e4, 1e4 + 1, (1, 4, 6)).proves(NODE)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("scale", "proved"), [(np.ones(1), False), (np.ones(1027), True)], ids=["broadcast", "whole"])
def test_a_variance_cancels_beside_a_scale_that_broadcasts(dtype: Any, scale: Array, proved: bool) -> None:
    shape = (1, 1027)
    subject = model("LayerNormalization", [scale.astype(dtype)], shape, dtype=dtype)
    found = subject.analyse({"x": np.full(shape, 1e6, dtype)}, {"x": np.full(shape, 1e7, dtype)})
    assert found.proves(NODE) is proved


@pytest.mark.parametrize(("variance", "proved"), [(0.0, True), (-1e-5, False), (-1.0, False)])
def test_batch_normalisation_needs_a_variance_above_minus_epsilon(variance: float, proved: bool) -> None:
    constants = [FOUR, FOUR, FOUR, np.full(4, variance, np.float32)]
    subject = model("BatchNormalization", constants, (2, 4, 3), 15, epsilon=1e-5)
    assert verdict(subject, -1, 1, (2, 4, 3)).proves(NODE) is proved


@pytest.mark.parametrize(("scale", "proved"), [(1e20, True), (3e38, False)])
def test_a_factor_that_overflows_before_it_meets_numbers_near_zero_is_no_proof(scale: float, proved: bool) -> None:
    constants = [np.full(2, scale, np.float32), np.zeros(2, np.float32)]
    instance = model("InstanceNormalization", constants, (1, 2, 1), epsilon=1e-4)
    assert verdict(instance, -1, 1, (1, 2, 1)).proves(NODE) is proved
    moments = [np.zeros(2, np.float32), np.full(2, 1e-4, np.float32)]
    batch = model("BatchNormalization", [*constants, *moments], (1, 2, 1), epsilon=1e-6)
    assert verdict(batch, -1e-30, 1e-30, (1, 2, 1)).proves(NODE) is proved


@pytest.mark.parametrize(("scale", "proved"), [(1e16, True), (1e20, False)])
def test_a_factor_that_overflows_with_the_numbers_is_no_proof(scale: float, proved: bool) -> None:
    # ONNX Runtime subtracts the products with the number and with the mean from each other: NaN at 1e18 for 1e20.
    constants = [np.full(2, scale, np.float32), np.zeros(2, np.float32)]
    subject = model("InstanceNormalization", constants, (1, 2, 1), epsilon=1e-4)
    assert verdict(subject, 1e17, 1e18, (1, 2, 1)).proves(NODE) is proved


def test_components_of_a_unit_vector_keep_their_sign() -> None:
    low, high = extremes(verdict(model("LpNormalization", [], (2, 8), axis=1), 1, 2, (2, 8)))
    assert low == pytest.approx(1 / np.sqrt(29), rel=1e-4) and high == pytest.approx(2 / np.sqrt(11), rel=1e-4)


@given(
    offset=st.sampled_from([0.0, 1.0, -100.0, 1e4, 1e-19, 1e18]),
    spread=st.sampled_from([0.0, 1e-6, 1e-3, 1.0]),
    width=st.sampled_from([0.0, 1e-6, 0.1, 2.0]),
    operator=st.sampled_from(["LayerNormalization", "InstanceNormalization", "LpNormalization", "Softmax"]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=15, deadline=None)
def test_bounds_enclose_kernels_over_hard_boxes(
    offset: float, spread: float, width: float, operator: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    constants = {"LayerNormalization": [ONES[:6]], "InstanceNormalization": [FOUR[:2], FOUR[:2]]}.get(operator, [])
    scale = max(1.0, abs(offset))
    centre = offset + scale * spread * rng.normal(size=(1, 2, 6))
    box = tuple({"x": (centre + side * width * scale).astype(np.float32)} for side in (-1, 1))
    tally = faults_in(model(operator, constants, (1, 2, 6)), (box[0], box[1]), samples=10, rounds=0, rng=rng)
    assert not tally.faults


@pytest.mark.few(1)
@pytest.mark.parametrize("first", [635499.3, 1e5, 3e7, -2e-4])
@pytest.mark.parametrize("size", [2, 3, 5, 9])
@pytest.mark.parametrize("operator", ["LayerNormalization", "InstanceNormalization", "GroupNormalization"])
def test_neighbours_whose_variance_is_computed_as_zero_are_enclosed(operator: str, size: int, first: float) -> None:
    """The mean of two neighbours may be one of them, so that nothing but epsilon is left below the other."""
    shape = (1, 2, size)
    constants = [ONES.repeat(2)[:size]] if operator == "LayerNormalization" else [FOUR[:2], FOUR[:2]]
    groups = {"num_groups": 2} if operator == "GroupNormalization" else {}
    subject = model(operator, constants, shape, epsilon=1e-12, **groups)
    start = np.float32(first)
    for pattern in range(1, 2**size, max(1, 2**size // 16)):
        bits = [pattern >> i & 1 for i in range(size)]
        row = np.where(bits, np.nextafter(start, np.float32(np.inf)), start)
        x = {"x": np.broadcast_to(row, shape).astype(np.float32)}
        assert not faults_in(subject, (x, x), samples=1, rounds=0, rng=np.random.default_rng(0)).faults


@pytest.mark.parametrize("first", [2.6e3, 6e3, 0.087, -3.7e-3])
def test_half_precision_rounds_the_statistics_of_a_batch(first: float) -> None:
    ones = np.ones(2, np.float16)
    subject = model("BatchNormalization", [ones, 0 * ones, 0 * ones, ones], (2, 2, 5), 15, np.float16, training_mode=1)
    rng = np.random.default_rng(0)
    for spread in (1, 5, 1000):
        x = first + np.spacing(np.float16(abs(first))) * rng.integers(0, spread + 1, size=(2, 2, 5))
        point = {"x": x.astype(np.float16)}
        assert not faults_in(subject, (point, point), samples=1, rounds=0, rng=rng).faults


_OPSETS = {"RMSNormalization": 23, "GroupNormalization": 18}
_BELOW_ZERO = {
    "LayerNormalization": "[y] y = LayerNormalization<epsilon = -0.01>(x, ones)",
    "its statistics": "[y] n, m, y = LayerNormalization<epsilon = -0.01>(x, ones)",
    "RMSNormalization": "[y] y = RMSNormalization<epsilon = -0.01>(x, ones)",
    "SimplifiedLayerNormalization": "[y] y = SimplifiedLayerNormalization<epsilon = -0.01>(x, ones)",
    "InstanceNormalization": "[y] y = InstanceNormalization<epsilon = -0.01>(x, one, zero)",
    "GroupNormalization": "[y] y = GroupNormalization<epsilon = -0.01, num_groups = 1>(x, one, zero)",
    "BatchNormalization": "[y] y = BatchNormalization<epsilon = -0.01>(x, one, zero, zero, tenth)",
    "BatchNormalization of a batch": (
        "[y] y, r, t = BatchNormalization<epsilon = -0.01, training_mode = 1>(x, one, zero, zero, tenth)"
    ),
    "SkipLayerNormalization": "[y] y = com.microsoft.SkipLayerNormalization<epsilon = -0.01>(x, zeros, ones)",
    "SkipSimplifiedLayerNormalization": (
        "[y] y = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = -0.01>(x, zeros, ones)"
    ),
    "deviation by parts": (
        "m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = [-1]>(q) "
        "w = Add(v, less) r = Sqrt(w) y = Div(d, r)"
    ),
    "root mean square by parts": (
        "q = Mul(x, x) v = ReduceMean<axes = [-1]>(q) w = Add(v, less) r = Sqrt(w) y = Div(x, r)"
    ),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", _BELOW_ZERO)
def test_what_is_normalised_with_an_epsilon_below_zero_is_enclosed(name: str) -> None:
    """The quotient falls as the number rises, and the squares of n of them add up to more than n."""
    constants = (
        "<float[2] ones = {1, 1}, float[1] one = {1}, float[1] zero = {0}, float[1] tenth = {0.1}, "
        "float[1,1,2] zeros = {0, 0}, float less = {-0.01}, float[2] signs = {1, -1}>"
    )
    body = f"{{ {_BELOW_ZERO[name]} p = Mul(y, signs) s = ReduceSum(p) }}"
    model = unchecked(f"g (float[1,1,2] x) => (float[a,b,c] s) {constants} {body}", _OPSETS.get(name, 17))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    subject = Subject(model)
    middle, rng = np.array([[[0.15, -0.15]]], np.float32), np.random.default_rng(0)
    for width in (1e-3, 0.02):
        box = {"x": middle - np.float32(width)}, {"x": middle + np.float32(width)}
        assert name.endswith("by parts") or not subject.analyse(*box).proves(NODE)
        tally = faults_in(subject, box, samples=30, rounds=4, rng=rng)
        assert tally.samples and not tally.faults, tally.faults


# losses ---------------------------------------------------------------------------------------------------------

TARGETS = np.array([0, 2], np.int64)


@pytest.mark.parametrize(("weights", "proved"), [((1, 0, 1), True), ((0, 1, 0), False), ((1, 1, -1), False)])
def test_a_mean_needs_targets_that_weigh_something(weights: Sequence[float], proved: bool) -> None:
    subject = model("NegativeLogLikelihoodLoss", [TARGETS, np.array(weights, np.float32)], (2, 3))
    assert verdict(subject, -2, -1, (2, 3)).proves(NODE) is proved


def test_a_weighted_mean_lies_among_what_it_is_taken_of() -> None:
    subject = model("NegativeLogLikelihoodLoss", [TARGETS, np.array([0.3, 5, 2], np.float32)], (2, 3))
    low, high = extremes(verdict(subject, -2, -1, (2, 3)))
    assert low == pytest.approx(1, rel=1e-5) and high == pytest.approx(2, rel=1e-5)


# recurrent layers -----------------------------------------------------------------------------------------------


def recurrent(op_type: str, gates: int, scale: float, **attributes: Any) -> Subject:
    """Return a layer of 3 units over 5 steps, all weights equal."""
    weights = [np.full((1, gates * 3, size), scale, np.float32) for size in (2, 3)]
    return model(op_type, weights, (5, 2, 2), 14, hidden_size=3, **attributes)


@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_hidden_states_stay_within_one(op_type: str, gates: int) -> None:
    found = verdict(recurrent(op_type, gates, 100.0), -100, 100, (5, 2, 2))
    low, high = extremes(found)
    assert found.proves(NODE) and low >= -1 - 1e-4 and high <= 1 + 1e-4


def test_an_unbounded_activation_may_overflow() -> None:
    assert not verdict(recurrent("RNN", 1, 1e9, activations=["Relu"]), -1, 1, (5, 2, 2)).proves(NODE)
    assert verdict(recurrent("RNN", 1, 1.0, activations=["Relu"]), -1, 1, (5, 2, 2)).proves(NODE)


def test_a_known_input_is_followed_step_by_step() -> None:
    subject = recurrent("GRU", 3, 0.5)
    x = np.random.default_rng(0).normal(size=(5, 2, 2)).astype(np.float32)
    bounds = verdict(subject, x, x, (5, 2, 2)).bounds["y"]
    assert bounds is not None and (bounds.upper - bounds.lower).max() < 1e-3


def test_one_wide_number_hides_no_width_of_the_others() -> None:
    # The sum of the squares of all widths absorbs those of the others, which nothing that is subtracted brings back.
    low, high = [-4.25, 15.75, -6.375], [7.5, 15.75 + 2e-9, -6.375]
    box = Interval(torch.tensor([low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64), (1, 3))
    greatest = float(standardise(sections(box, [1]), 0.0).upper[0, 0])
    x = np.array([7.5, 15.75, -6.375])
    assert greatest >= (x[0] - x.mean()) / x.std()
