"""Laws and precision of arithmetic and reductions."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.network import read
from tests.network.building import Array, parse, session

FLOATS = st.floats(-1e6, 1e6, width=32)
ENDS = st.tuples(FLOATS, FLOATS).map(sorted)


def bounds(body: str, *boxes: Interval, kind: str = "float", result: str = "", opset: int = 17) -> Interval:
    """Return what the analysis says of `y`, computed from `x`, and `z` if two boxes are given."""
    inputs = ", ".join(
        f"{kind}[{','.join(map(str, box.shape))}] {name}" for name, box in zip("xz", boxes, strict=False)
    )
    graph = read(parse(f"g ({inputs}) => ({result or kind}[...] y) {{ {body} }}".replace("[...]", ""), opset))
    visited: list[Visited] = []
    IntervalAnalysis(graph).run(boxes, visited.append)
    return visited[-1].outputs[0]


def box(low: float | Sequence[float], high: float | Sequence[float], dtype: type = np.float32) -> Interval:
    """Return the interval between two vectors, or numbers as vectors of 8."""
    ends: list[Array] = [
        np.broadcast_to(np.array(end, dtype), (8,) if np.ndim(end) == 0 else None or np.shape(end))
        for end in (low, high)
    ]
    return Interval.box(*ends)


def ends(y: Interval) -> tuple[float, float]:
    low, high = y.extremes
    return float(low), float(high)


# elementwise ------------------------------------------------------------------------------------------------------


def test_sums_and_products_are_exact_at_their_ends() -> None:
    x, z = box(0.1, 0.3), box(-2.0, 0.7)
    third = np.float32(0.3)
    assert ends(bounds("y = Add(x, z)", x, z)) == (
        float(np.float32(0.1) - np.float32(2)),
        float(third + np.float32(0.7)),
    )
    assert ends(bounds("y = Mul(x, z)", x, z)) == (float(third * np.float32(-2)), float(third * np.float32(0.7)))
    assert ends(bounds("c = Constant<value_float = 1.0>() y = Sub(c, x)", box(0.0, 1.0))) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.0, 2.0, (0.5, 1.0)),
        (-2.0, -1.0, (-1.0, -0.5)),
        (0.0, 2.0, (0.5, math.inf)),
        (-2.0, 0.0, (-math.inf, -0.5)),
        (-1.0, 2.0, (-math.inf, math.inf)),
    ],
)
def test_quotient_keeps_the_sign_of_its_divisor(low: float, high: float, expected: tuple[float, float]) -> None:
    y = bounds("c = Constant<value_float = 1.0>() y = Div(c, x)", box(low, high))
    assert ends(y) == expected
    assert y.overflows == (low <= 0 <= high)


def test_gap_of_a_divisor_bounds_the_quotient() -> None:
    guard = """a = Abs(x) e = Constant<value_float = 0.5>() o = Constant<value_float = 1.0>() c = Greater(a, e)
        w = Where(c, x, o) n = Neg(w) m = Mul(n, o)"""
    y = bounds(f"{guard} y = Div(o, m)", box(-4.0, 4.0))
    assert not y.overflows
    assert ends(y) == pytest.approx((-2.0, 2.0), rel=1e-5)
    assert ends(bounds(f"{guard} y = Abs(m)", box(-4.0, 4.0)))[0] == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("body", "low", "high", "nan"),
    [
        ("y = Add(x, z)", -math.inf, math.inf, True),
        ("y = Add(x, z)", 0.0, math.inf, False),
        ("y = Sub(x, z)", 0.0, math.inf, True),
        ("y = Mul(x, z)", 0.0, math.inf, True),
        ("y = Mul(x, z)", 1.0, math.inf, False),
        ("y = Div(x, z)", 1.0, math.inf, True),
        ("y = Max(x, z)", -math.inf, math.inf, False),
    ],
)
def test_infinities_may_cancel(body: str, low: float, high: float, nan: bool) -> None:
    assert bounds(body, box(low, high), box(low, high)).nan == nan


@pytest.mark.parametrize(
    ("body", "low", "high", "expected"),
    [
        ("y = Add(x, x)", 1, 10, (2, 20)),
        ("y = Add(x, x)", 1, 100, (-128, 127)),
        ("y = Mul(x, x)", -11, 11, (-121, 121)),
        ("y = Mul(x, x)", -12, 11, (-128, 127)),
        ("y = Neg(x)", -127, 5, (-5, 127)),
        ("y = Neg(x)", -128, 5, (-128, 127)),
        ("y = Abs(x)", -128, 5, (-128, 127)),
        ("y = Abs(x)", -7, 5, (0, 7)),
    ],
)
def test_integers_wrap(body: str, low: int, high: int, expected: tuple[int, int]) -> None:
    assert ends(bounds(body, box(low, high, np.int8), kind="int8")) == expected


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("y = ReduceProd<keepdims = 0>(x)", [0, *[5] * 40]),
        ("y = ReduceSum<keepdims = 0>(x)", [np.iinfo(np.int64).min, np.iinfo(np.int64).max]),
    ],
)
def test_parts_that_fit_no_integer_leave_the_whole_open(body: str, numbers: Sequence[int]) -> None:
    known = box(numbers, numbers, np.int64)
    assert ends(bounds(body, known, kind="int64")) == (-(2.0**63), 2.0**63)


def test_quotients_of_integers_leave_zero_out() -> None:
    assert ends(bounds("y = Div(x, z)", box(10, 20, np.int64), box(-3, 4, np.int64), kind="int64")) == (-20, 20)
    assert ends(bounds("y = Div(x, z)", box(10, 20, np.int64), box(0, 4, np.int64), kind="int64")) == (2, 20)


@pytest.mark.parametrize(
    ("fmod", "low", "high", "divisors", "expected"),
    [
        (0, -9, 9, (5, 5), (0, 4)),
        (0, -9, 9, (-5, -5), (-4, 0)),
        (1, -9, 3, (5, 5), (-4, 3)),
        (0, 2, 3, (5, 7), (2, 3)),
        (1, -3, -2, (5, 7), (-3, -2)),
    ],
)
def test_remainders(fmod: int, low: int, high: int, divisors: tuple[int, int], expected: tuple[int, int]) -> None:
    y = bounds(f"y = Mod<fmod = {fmod}>(x, z)", box(low, high, np.int32), box(*divisors, np.int32), kind="int32")
    assert ends(y) == expected


# reductions -------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(low=FLOATS, width=st.floats(0, 1e3, width=32), order=st.permutations(range(8)))
def test_sum_encloses_every_order(low: float, width: float, order: list[int]) -> None:
    rng = np.random.default_rng(0)
    values = (np.float32(low) + np.float32(width) * rng.random(8).astype(np.float32)).astype(np.float32)
    y = bounds("y = ReduceSum<keepdims = 0>(x)", Interval.box(values, values))
    total = np.float32(0)
    for place in order:
        total += values[place]
    assert ends(y)[0] <= total <= ends(y)[1]


@settings(deadline=None)
@given(given_ends=st.lists(ENDS, min_size=8, max_size=8))
def test_merged_sum_encloses_that_of_each_element(given_ends: list[list[float]]) -> None:
    low, high = (np.array([pair[i] for pair in given_ends], np.float32) for i in (0, 1))
    uniform = Interval.fill(float(low.min()), float(high.max()), (8,), torch.float32)
    for name in ("Sum", "Mean", "L1", "L2", "SumSquare", "Max", "Min", "LogSumExp"):
        body = f"y = Reduce{name}<keepdims = 0>(x)"
        merged, apart = ends(bounds(body, uniform)), ends(bounds(body, Interval.box(low, high)))
        assert merged[0] <= apart[0] and apart[1] <= merged[1], name


def test_merged_sum_stays_merged() -> None:
    x = Interval.fill(0.0, 1.0, (1000, 8), torch.float32)
    y = bounds("a = Constant<value_ints = [0]>() y = ReduceSum<keepdims = 0>(x, a)", x)
    assert y.shape == (8,)
    assert y.is_scalar
    assert ends(y)[0] == 0
    assert ends(y)[1] == pytest.approx(1000, rel=1e-3)


@pytest.mark.parametrize("name", ["Sum", "Mean", "L1", "L2", "SumSquare", "Prod"])
def test_reductions_of_numbers_that_are_not_negative_are_not(name: str) -> None:
    assert ends(bounds(f"y = Reduce{name}<keepdims = 0>(x)", box(0.0, 3.0)))[0] == 0
    assert ends(bounds(f"y = Reduce{name}<keepdims = 0>(x)", box(1.0, 3.0)))[0] > 0.9


def test_mean_lies_between_the_bounds_but_for_rounding() -> None:
    low, high = ends(bounds("y = ReduceMean<keepdims = 0>(x)", box(0.1, 0.3)))
    assert np.float32(0.1) - 1e-6 < low <= np.float32(0.1)
    assert np.float32(0.3) <= high < np.float32(0.3) + 1e-6


def test_part_of_a_sum_may_overflow() -> None:
    huge = [3e38, 3e38, -3e38, -3e38, 0, 0, 0, 0]
    assert bounds("y = ReduceSum<keepdims = 0>(x)", box(huge, huge)).overflows
    assert not bounds("y = ReduceSum<keepdims = 0>(x)", box([v / 8 for v in huge], [v / 8 for v in huge])).overflows
    assert bounds("y = ReduceL2<keepdims = 0>(x)", box(0.0, 1e20)).overflows


def test_extremes_are_exact() -> None:
    low, high = [0.0, 5, 2, 1, -3, 0, 0, 0], [9.0, 6, 3, 2, -1, 1, 1, 1]
    assert ends(bounds("y = ReduceMax<keepdims = 0>(x)", box(low, high))) == (5, 9)
    assert ends(bounds("y = ReduceMin<keepdims = 0>(x)", box(low, high))) == (-3, -1)


def test_positions_are_those_that_may_be_extreme() -> None:
    low, high = [0.0, 5, 2, 7, -3, 0, 0, 0], [1.0, 8, 3, 9, -1, 1, 1, 1]
    assert ends(bounds("y = ArgMax<keepdims = 0>(x)", box(low, high), result="int64")) == (1, 3)
    assert ends(bounds("y = ArgMin<keepdims = 0>(x)", box(low, high), result="int64")) == (4, 4)


def test_largest_lie_between_the_largest_bounds() -> None:
    low, high = [0.0, 5, 2, 7, -3, 0, 0, 0], [1.0, 8, 3, 9, -1, 1, 1, 1]
    y = bounds("k = Constant<value_ints = [3]>() y, i = TopK(x, k)", box(low, high))
    assert y.lower.tolist() == [7, 5, 2]
    assert y.upper.tolist() == [9, 8, 3]


def test_running_sum() -> None:
    y = bounds("a = Constant<value_int = 0>() y = CumSum(x, a)", box(0.0, 1.0))
    assert y.lower.tolist() == [0] * 8
    assert y.upper.tolist() == pytest.approx(list(range(1, 9)), rel=1e-5)


@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
@pytest.mark.parametrize(("low", "high"), [(-2, 1), (0, 0), (-1, -1), (-1, 0)])
def test_running_results_along_the_axes_that_an_input_chooses(name: str, low: int, high: int) -> None:
    model = parse(f"g (float[3, 2] x, int64 a) => (float[3, 2] y) {{ y = {name}<exclusive = 1>(x, a) }}", 26)
    graph, visited = read(model), list[Visited]()
    inputs = [Interval.fill(-3, 2, (3, 2), torch.float32), Interval.box(np.array(low), np.array(high))]
    IntervalAnalysis(graph).run(inputs, visited.append)
    (y,) = visited[-1].outputs
    rng = np.random.default_rng(0)
    for axis in range(low, high + 1):
        for _ in range(20):
            x = torch.from_numpy(rng.choice([-3, -1.5, 0, 0.1, 2], (3, 2)).astype(np.float32))
            (found,) = graph.evaluate([x, torch.tensor(axis)])
            assert bool(y.contains(found).all())
    assert not y.nan and not y.overflows


def test_running_sum_along_an_axis_that_there_is_not() -> None:
    graph = read(parse("g (float[3, 2] x, int64 a) => (float[3, 2] y) { y = CumSum(x, a) }", 17))
    inputs = [Interval.fill(0, 1, (3, 2), torch.float32), Interval.box(np.array(-2), np.array(2))]
    assert IntervalAnalysis(graph).run(inputs) == (None,)


def test_products_of_either_sign() -> None:
    assert ends(bounds("y = ReduceProd<keepdims = 0>(x)", box([-1, 2, 3], [-0.5, 3, 4]))) == pytest.approx(
        (-12, -3), rel=1e-5
    )
    assert ends(bounds("y = ReduceProd<keepdims = 0>(x)", box([-1, 2], [0.5, 3]))) == pytest.approx((-3, 1.5), rel=1e-5)


def test_logarithm_of_a_sum_is_proved_where_the_sum_is_positive() -> None:
    assert not bounds("y = ReduceLogSum<keepdims = 0>(x)", box(0.5, 1.0)).overflows
    assert bounds("y = ReduceLogSum<keepdims = 0>(x)", box(0.0, 1.0)).overflows


def test_log_sum_exp_of_large_numbers() -> None:
    low, high = ends(bounds("y = ReduceLogSumExp<keepdims = 0>(x)", box(999.0, 1000.0)))
    assert low == pytest.approx(999 + math.log(8), abs=1e-2)
    assert high == pytest.approx(1000 + math.log(8), abs=1e-2)


def test_infinite_elements() -> None:
    assert bounds("y = ReduceSum<keepdims = 0>(x)", box([-math.inf, 1.0], [-math.inf, 2.0])).extremes[0] == -math.inf
    assert not bounds("y = ReduceSum<keepdims = 0>(x)", box([-math.inf, 1.0], [0.0, 2.0])).nan
    assert bounds("y = ReduceSum<keepdims = 0>(x)", box([-math.inf, 1.0], [0.0, math.inf])).nan


# half precision ---------------------------------------------------------------------------------------------------


def test_sums_of_operands_in_half_precision_round_each_addition() -> None:
    first, second = np.array([-0.11267], np.float16), np.array([0.045319], np.float16)
    x, z = Interval.point(first), Interval.point(second)
    y = bounds("y = Sum(x, z, z)", x, z, kind="float16")
    assert bool(y.encloses(torch.from_numpy(first + second + second)).all())
    assert bounds("y = Sum(x, x, x)", box(3e4, 4e4, np.float16), kind="float16").overflows


def test_logarithms_of_sums_of_exponentials_may_exceed_half_precision() -> None:
    def bounded(high: float) -> Interval:
        return bounds("y = ReduceLogSumExp<keepdims = 0>(x)", box(0.0, high, np.float16), kind="float16")

    assert bounded(65504.0).may_be_infinite and not bounded(60000.0).may_be_infinite


def test_infinity_may_wrap_where_steps_are_integers() -> None:
    scale = Interval.point(np.array([0.5], np.float16))

    def bounded(high: float) -> tuple[float, float]:
        body = "i = Constant<value_int = 0>() t = Cast<to = 3>(i) y = QuantizeLinear(x, z, t)"
        x = box(1000.0, high, np.float16)
        return ends(bounds(body, x, scale, kind="float16", result="int8", opset=21))

    assert bounded(math.inf) == (-128, 127) and bounded(60000.0) == (127, 127)


def test_local_responses_to_numbers_whose_squares_overflow_are_not_followed() -> None:
    far = Interval.box(np.zeros((1, 2, 1)), np.full((1, 2, 1), 1e200))
    assert bounds("y = LRN<size = 2>(x)", far, kind="double").nan


@pytest.mark.parametrize(
    ("x", "attributes"),
    [
        pytest.param(1e10, "alpha = 1.0, beta = 2.0, bias = 5e22", id="power-underflows"),
        pytest.param(1e11, "alpha = 1.0, beta = 2.0, bias = 1.0", id="power-is-denormal"),
        pytest.param(5e18, "alpha = 1.0, beta = 0.5, bias = 3.3e38", id="sum-overflows"),
        pytest.param(4.7e-23, "alpha = 1e38, beta = 1.0, bias = 1e-8", id="square-is-denormal"),
    ],
)
def test_local_responses_are_enclosed_where_a_step_leaves_the_normal_numbers(x: float, attributes: str) -> None:
    body, point = f"y = LRN<size = 1, {attributes}>(x)", np.full((1, 1, 1, 1), x, np.float32)
    y = session(parse(f"g (float[1,1,1,1] x) => (float[1,1,1,1] y) {{ {body} }}")).run(None, {"x": point})[0]
    assert bounds(body, Interval.point(point)).encloses(torch.from_numpy(y)).all()


def test_infinite_powers_of_local_responses_are_multiplied_by_0() -> None:
    near = Interval.box(np.zeros((1, 1, 1), np.float32), np.full((1, 1, 1), 1e-30, np.float32))
    assert bounds("y = LRN<size = 1, alpha = 1.0, beta = 2.0, bias = 1e-20>(x)", near).nan
    assert not bounds("y = LRN<size = 1, alpha = 1.0, beta = 2.0, bias = 1e-10>(x)", near).nan
