"""Laws of the value type: what encloses what, and what stays stored once."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.domain import Interval
from ranum_falsify.domain.interval import dtype_range, merge
from ranum_falsify.network.tensors import to_torch

TYPES = [
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16),
]
FEW = settings(max_examples=12, deadline=None, derandomize=True)


def ends(dtype: Any) -> np.ndarray:
    """Return values from all over an element type."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return np.array([False, True])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.array([limits.min, limits.max, limits.max // 2, limits.max // 2 + 1, 0, 1, 7], dtype)
    largest = dtype_range(to_torch(np.zeros(0, dtype)).dtype)[1]
    return np.array([0, -0.0, 1, -2.5, 1e-3, largest, -largest, math.inf, -math.inf], dtype)


@st.composite
def arrays(draw: st.DrawFn, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    values = ends(dtype)
    picks = draw(st.lists(st.integers(0, len(values) - 1), min_size=math.prod(shape), max_size=math.prod(shape)))
    return values[np.array(picks, dtype=np.int64)].reshape(shape)


@st.composite
def intervals(draw: st.DrawFn, dtype: Any, shape: tuple[int, ...]) -> Interval:
    """Return bounds, of which some dimensions are merged."""
    stored = tuple(draw(st.sampled_from((1, n))) for n in shape)
    a, b = (to_torch(draw(arrays(dtype, stored))) for _ in range(2))
    crossed = Interval(a, a, shape).hull(Interval(b, b, shape))
    return Interval(crossed.lower, crossed.upper, shape)


def numbers(x: torch.Tensor) -> list[Any]:
    """Return the elements as Python numbers, of which 64-bit integers stay exact."""
    return list(x.reshape(-1).tolist())


def within(inner: Interval, outer: Interval) -> bool:
    (low, high), (least, greatest) = inner.expand(), outer.expand()
    below = all(a <= b for a, b in zip(numbers(least), numbers(low), strict=True))
    return below and all(a >= b for a, b in zip(numbers(greatest), numbers(high), strict=True))


@pytest.mark.parametrize("dtype", TYPES)
@FEW
@given(data=st.data())
def test_laws_of_hull_and_meet(dtype: Any, data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(), (3,), (2, 3), (2, 1, 3)]))
    a, b = (data.draw(intervals(dtype, shape)) for _ in range(2))
    both, common = a.hull(b), a.meet(b)
    for x in (both, common, a.split(*range(len(shape))), a.keep_finite()):
        x.check()
        assert x.shape == shape
    assert within(a, both) and within(b, both) and within(common, a)
    assert within(both.hull(a), both) and within(a.meet(a), a) and within(a, a.meet(a))
    assert within(common, both.meet(common)) and within(a.split(*range(len(shape))), a)
    low, high = both.extremes
    assert low == min(numbers(both.lower)) and high == max(numbers(both.upper))
    assert bool(a.encloses(a.expand()[0]).all()) and bool(both.encloses(b.expand()[1]).all())


@pytest.mark.parametrize("dtype", TYPES)
@FEW
@given(data=st.data())
def test_point_and_box_are_exact(dtype: Any, data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(), (3,), (2, 3), (0,), (2, 0, 3)]))
    value = data.draw(arrays(dtype, shape))
    for x in (Interval.point(value), Interval.point(to_torch(value)), Interval.box(value, value)):
        x.check()
        assert x.shape == shape and x.is_point
        assert x.dtype == to_torch(value).dtype
        assert numbers(x.expand()[0]) == numbers(to_torch(value)) == numbers(x.expand()[1])
    other = data.draw(arrays(dtype, shape))
    low, high = np.minimum(value, other), np.maximum(value, other)
    box = Interval.box(low, high)
    assert [numbers(bound) for bound in box.expand()] == [numbers(to_torch(bound)) for bound in (low, high)]


@pytest.mark.parametrize("dtype", TYPES)
def test_everything_is_said_of_every_type(dtype: Any) -> None:
    for shape in ((), (2, 3), (0, 3)):
        top = Interval.top(shape, to_torch(np.zeros(0, dtype)).dtype)
        top.check()
        assert top.is_scalar and not top.may_be_infinite and not top.surely_infinite
        assert bool(top.contains(0).all()) and repr(top)
        assert (top.lower.item(), top.upper.item()) == dtype_range(top.dtype)
        assert bool(top.clamp(0, 1).contains(1).all()) and not bool(top.clamp(0, 0).contains(1).any())
        assert top.move(lambda x: x.reshape(-1)).shape == (math.prod(shape),)
    assert not Interval.point(np.ones((2,), dtype)).contains(0).any()


def test_uniform_dimensions_of_boxes_are_merged() -> None:
    channels = np.array([1.0, 2.0, 3.0], np.float32).reshape(1, 3, 1, 1)
    box = Interval.box(*(np.array(np.broadcast_to(channels + d, (2, 3, 4, 5))) for d in (-1, 1)))
    assert tuple(box.lower.shape) == (1, 3, 1, 1) and box.shape == (2, 3, 4, 5)
    assert Interval.box(np.zeros((4, 5)), np.ones((4, 5))).is_scalar
    odd = np.zeros((4, 5), np.float32)
    odd[2, 3] = 1  # neither at the beginning nor at the end
    assert tuple(Interval.box(odd, odd).lower.shape) == (4, 5)
    assert Interval.point(np.broadcast_to(np.float32(3), (7, 8))).is_scalar


def test_views_of_stride_0_are_merged() -> None:
    x = torch.arange(3.0).reshape(3, 1).expand(3, 5)
    assert tuple(merge(x).shape) == (3, 1)
    y = Interval.point(x).move(lambda t: t.T.unsqueeze(0))
    assert y.shape == (1, 5, 3) and tuple(y.lower.shape) == (1, 1, 3) and y.lower is y.upper


def test_nan_in_a_constant_has_every_bound() -> None:
    x = Interval.point(np.array([1.0, math.nan], np.float32))
    assert x.lower.tolist() == [1.0, -math.inf] and x.upper.tolist() == [1.0, math.inf]
    x.check()
    both = Interval.point(np.array([math.inf, -math.inf], np.float32))  # their sum is NaN, they are not
    assert both.lower.tolist() == [math.inf, -math.inf] == both.upper.tolist()


def test_numbers_that_a_type_lacks_become_its_nearest() -> None:
    assert Interval.fill(-1, 300, (2,), torch.uint8).extremes == (0, 255)
    assert Interval.fill(-1e300, 1e300, (), torch.float16).extremes == (-65504, 65504)
    assert Interval.fill(-math.inf, math.inf, (), torch.float32).extremes == (-math.inf, math.inf)
    assert Interval.fill(-math.inf, 2**70, (), torch.uint64).extremes == (0, 2**64 - 1)


def test_a_gap_is_what_both_sides_keep_from_zero() -> None:
    above, below = (Interval.point(np.array([x], np.float32)) for x in (2.0, -3.0))
    assert above.hull(below).gap == 2 and not above.hull(below).contains(1.5).any()
    assert above.hull(Interval.point(np.zeros(1, np.float32))).contains(0).all()


@pytest.mark.parametrize(
    ("lower", "upper", "shape"), [([1.0], [0.0], (1,)), ([math.nan], [1.0], (1,)), ([0.0, 0.0], [1.0, 1.0], (3,))]
)
def test_broken_bounds_are_refused(lower: list[float], upper: list[float], shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="interval bounds"):
        Interval(torch.tensor(lower), torch.tensor(upper), shape).check()
