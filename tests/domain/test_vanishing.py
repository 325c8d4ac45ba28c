"""Results that come to the limits of their function exactly: kernels against the records, and bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import mpmath
import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.config import RUNTIMES
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.error_bounds import tiny
from ranum_falsify.domain.kernels import Envelope, envelope, families
from ranum_falsify.domain.rounding import flush
from ranum_falsify.network import Graph, read
from tests.network.building import Array, parse, session

COUNT = 20_003  # odd: the last elements fill no vector
LIMITS = {
    "Sigmoid": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "Exp": (0.0, np.inf),
    "Erf": (-1.0, 1.0),
    "Softplus": (0.0, np.inf),
}
FUNCTIONS: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
    "Sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "Tanh": mpmath.tanh,
    "Exp": mpmath.exp,
    "Erf": mpmath.erf,
    "Softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
}
_SUMMED = "g (float[3,3] x) => (float[3] y) { ax = Constant<value_ints=[1]>() y = ReduceSum<keepdims=0>(x, ax) }"
KERNELS = ("onnxruntime", "torch")


def saturation(op: str, runtime: str) -> tuple[float, float]:
    """Return from where on kernels come to their limits on every family of processors."""
    ends = [record.ends(op) for record in families() if record.runtime == runtime and op in record.rows]
    return min(end[0] for end in ends), max(end[1] for end in ends)


def text_of(op: str, shape: Sequence[int]) -> str:
    sizes = ",".join(map(str, shape))
    return f"g (float[{sizes}] x) => (float[{sizes}] y) {{ y = {op}(x) }}"


@cache
def sessions(text: str) -> list[onnxruntime.InferenceSession]:
    return [session(parse(text, 22), optimised=optimised) for optimised in (False, True)]


@cache
def graph_of(text: str) -> Graph:
    return read(parse(text, 22))


def results(runtime: str, op: str, x: Array) -> list[Array]:
    text = text_of(op, x.shape)
    if runtime == "torch":
        return [np.asarray(graph_of(text)(x, squeeze=False)[0])]
    return [loaded.run(None, {"x": x})[0] for loaded in sessions(text)]


def bounds(op: str, low: Array, high: Array, runtimes: Sequence[str] = RUNTIMES) -> Interval:
    box = Interval.of(torch.from_numpy(low), torch.from_numpy(high), low.shape)
    (found,) = IntervalAnalysis(graph_of(text_of(op, low.shape)), runtimes=runtimes).run([box])
    assert found is not None
    return found


def sizes_from(threshold: float) -> Array:
    """Return float32 numbers from a threshold on: all of the next 10,000, and some of every larger binade."""
    first = int(np.float32(threshold).view(np.int32))
    last = int(np.float32(np.inf).view(np.int32))
    far = np.linspace(first + 10_000, last, COUNT - 10_000, dtype=np.int64)
    return np.concatenate([np.arange(first, first + 10_000), far]).astype(np.int32).view(np.float32)


@pytest.mark.parametrize("runtime", KERNELS)
@pytest.mark.parametrize("op", LIMITS)
def test_kernels_come_to_their_limits_where_the_records_say(op: str, runtime: str) -> None:
    (floor, ceiling), (until, start) = LIMITS[op], saturation(op, runtime)
    for y in results(runtime, op, -sizes_from(-until)):
        assert (y <= floor).all()
    if start < np.inf:
        for y in results(runtime, op, sizes_from(start)):
            assert (y >= ceiling).all()


@pytest.mark.parametrize("runtime", KERNELS)
@pytest.mark.parametrize("length", [2, 3, 5, 8, 17, 64, 1000])
def test_softmax_loses_what_is_far_below_its_largest_element(length: int, runtime: str) -> None:
    rng = np.random.default_rng(length)
    until = saturation("Softmax", runtime)[0]
    gaps = np.maximum(until - rng.exponential(3.0, (200, length)), -1e30).astype(np.float32)
    gaps[::7] = np.float32(until)
    gaps[np.arange(200), rng.integers(0, length, 200)] = 0
    # The shift rounds the distances: it must not round them up.
    shifts = np.float32(2.0) ** rng.integers(0, 5, (200, 1)).astype(np.float32)
    for x in (gaps, np.where(gaps == 0, shifts, gaps + shifts - 1).astype(np.float32)):
        for y in results(runtime, "Softmax<axis=-1>", x):
            assert ((y == 0) | (y == 1)).all() and (y.sum(-1) == 1).all()


@pytest.mark.parametrize("op", LIMITS)
def test_correct_rounding_comes_to_the_limits_where_the_table_says(op: str) -> None:
    (floor, ceiling), (until, start) = LIMITS[op], saturation(op, "exact")
    with mpmath.workprec(400):
        for size in np.linspace(0, 40, 50):
            low = FUNCTIONS[op](mpmath.mpf(until) - size)
            assert low <= (mpmath.mpf(2) ** -150 if floor == 0 else -1 + mpmath.mpf(2) ** -25)
            if start < np.inf:
                high = FUNCTIONS[op](mpmath.mpf(start) + size)
                last = mpmath.mpf(2) ** 128 * (1 - mpmath.mpf(2) ** -25)
                assert high >= (last if ceiling == np.inf else 1 - mpmath.mpf(2) ** -25)


@pytest.mark.parametrize("op", LIMITS)
@pytest.mark.parametrize("runtimes", [RUNTIMES, ("onnxruntime",), ("torch",), ("exact",)])
def test_bounds_are_the_limits_from_the_thresholds_on_and_no_earlier(op: str, runtimes: tuple[str, ...]) -> None:
    floor, ceiling = LIMITS[op]
    until = min(saturation(op, runtime)[0] for runtime in runtimes)
    start = max(saturation(op, runtime)[1] for runtime in runtimes)
    ends = np.array([until, until + 0.5], np.float32)
    y = bounds(op, ends - 1, ends, runtimes)
    assert y.upper[0] <= floor < y.upper[1]
    if start < np.inf:
        ends = np.array([start, start - 0.5], np.float32)
        y = bounds(op, ends, ends + 1, runtimes)
        largest = min(ceiling, float(np.finfo(np.float32).max))
        assert y.lower[0] >= largest and y.lower[1] < ceiling


def test_softmax_bounds_vanish_and_are_sure_only_far_from_the_others() -> None:
    low = np.array([[0, -110, -300], [0, -100, -300], [0, -18, -19], [0, -16, -40]], np.float32)
    y = bounds("Softmax<axis=-1>", low - np.float32(0.1), low + np.float32(0.1))
    assert (y.upper == 0).tolist() == [[False, True, True], [False, False, True], [False] * 3, [False] * 3]
    assert (y.lower[:, 0] == 1).tolist() == [True, True, True, False]


def test_exponentials_over_their_sum_keep_what_softmax_loses() -> None:
    text = (
        "g (float[1,2] x) => (float[1,2] y) { ax = Constant<value_ints=[1]>() m = ReduceMax<axes=[1]>(x) "
        "d = Sub(x, m) e = Exp(d) s = ReduceSum(e, ax) y = Div(e, s) }"
    )
    x = np.array([[0, -95]], np.float32)
    graph = read(parse(text))
    box = Interval.of(torch.from_numpy(x), torch.from_numpy(x), x.shape)
    (y,) = IntervalAnalysis(graph, runtimes=("onnxruntime",)).run([box])
    assert y is not None
    session = onnxruntime.InferenceSession(parse(text).SerializeToString(), providers=["CPUExecutionProvider"])
    result = torch.from_numpy(session.run(None, {"x": x})[0])
    assert result[0, 1] > 0 and bool(y.encloses(result).all())


@given(seed=st.integers(0, 1 << 30), length=st.integers(1, 9), spread=st.sampled_from([1.0, 20.0, 60.0, 200.0]))
@settings(deadline=None)
def test_softmax_stays_within_its_bounds(seed: int, length: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    low = (rng.uniform(-1, 1, (30, length)) * spread).astype(np.float32)
    high = low + (rng.random((30, length)) * rng.choice([0, 1e-3, 1.0])).astype(np.float32)
    for runtime in KERNELS:
        y = bounds("Softmax<axis=-1>", low, high, (runtime,))
        for share in (0.0, 1.0, rng.random(low.shape)):
            x = np.clip(low + (high - low) * share, low, high).astype(np.float32)
            for result in results(runtime, "Softmax<axis=-1>", x):
                assert bool(y.encloses(torch.from_numpy(result)).all())


def test_a_large_softmax_is_bounded_part_by_part_as_a_small_one() -> None:
    rng = np.random.default_rng(0)
    low = (rng.uniform(-1, 1, (2, 5, 200, 150)) * 60).astype(np.float32)
    high = low + np.float32(0.1)
    large = bounds("Softmax<axis=1>", low, high)
    assert large.shape == low.shape
    small = bounds("Softmax<axis=1>", low[1:, :, 190:, :20].copy(), high[1:, :, 190:, :20].copy())
    for whole, part in ((large.lower, small.lower), (large.upper, small.upper)):
        assert torch.allclose(whole[1:, :, 190:, :20], part, rtol=1e-6, atol=1e-43)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare"])
def test_sums_of_zeros_are_zero_beside_others(op: str) -> None:
    low = np.array([[0, 0, 0], [-1, 0, 1], [0, 0, 0]], np.float32)
    high = np.array([[0, 0, 0], [1, 0, 2], [0, 0, 1e-40]], np.float32)
    text = f"g (float[3,3] x) => (float[3] y) {{ y = {op}<axes=[1], keepdims=0>(x) }}"
    graph = read(parse(_SUMMED if op == "ReduceSum" else text, 13))
    box = Interval.of(torch.from_numpy(low), torch.from_numpy(high), low.shape)
    (y,) = IntervalAnalysis(graph).run([box])
    assert y is not None
    assert y.lower[0] == y.upper[0] == 0
    assert y.upper[1] > 0 and (y.upper[2] > 0 or op in ("ReduceL2", "ReduceSumSquare"))


@given(seed=st.integers(0, 1 << 30), large=st.booleans(), known=st.booleans())
@settings(deadline=None)
def test_flushing_finds_denormals_wherever_they_are(seed: int, large: bool, known: bool) -> None:
    rng = np.random.default_rng(seed)
    low = rng.uniform(-1, 1, 300_000 if large else 5).astype(np.float32)
    high = low if known else low + np.float32(0.5)
    place = rng.integers(low.size)
    low[place], high[place] = 1e-40, 1e-40 if known else 1.0
    bound = torch.from_numpy(low)
    x = flush(Interval.of(bound, bound if known else torch.from_numpy(high)))
    assert x.lower[place] == 0
    assert not bool(((x.lower > 0) & (x.lower < tiny(torch.float32))).any())
    assert bool((x.lower <= torch.from_numpy(low)).all()) and bool((x.upper >= torch.from_numpy(high)).all())


def test_the_union_of_kernels_saturates_where_all_do() -> None:
    both = envelope("Sigmoid", torch.float32, RUNTIMES)
    assert both.floor_until == min(saturation("Sigmoid", runtime)[0] for runtime in RUNTIMES)
    assert both.ceiling_from == max(saturation("Sigmoid", runtime)[1] for runtime in RUNTIMES)
    assert envelope("Sigmoid", torch.float16, RUNTIMES).floor_until == -np.inf
    unknown = Envelope(0.0).union(both)
    assert (unknown.floor_until, unknown.ceiling_from) == (-np.inf, np.inf)
