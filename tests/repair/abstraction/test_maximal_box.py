"""The search for wide ranges, on conditions whose widest ranges are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ranum_falsify.domain import Interval
from ranum_falsify.repair.abstraction.maximal_box import BoxExpansion, ProvedBox
from ranum_falsify.repair.abstraction.ranges import KeptRange, Ranges, join, pin, share_kept, stretch

FINITE = st.floats(-(2.0**99), 2.0**99, width=32)


def box(low: float, high: float, *shape: int) -> Interval:
    return Interval.fill(low, high, shape or (3,), torch.float32)


def ends(x: Interval) -> tuple[float, float]:
    return float(x.lower.amin()), float(x.upper.amax())


def best(whole: Ranges, condition: object) -> ProvedBox:
    assert callable(condition)
    findings = list(BoxExpansion(whole, condition, condition).findings())
    assert [f.score for f in findings] == sorted(f.score for f in findings)
    return findings[-1]


def test_one_tensor_is_narrowed_at_one_end() -> None:
    whole = {"a": box(-10, 10), "b": box(-10, 10)}
    found = best(whole, lambda r: ends(r["b"])[1] <= 2.5)
    assert ends(found.ranges["a"]) == (-10, 10)
    low, high = ends(found.ranges["b"])
    assert low == -10 and 2.2 < high <= 2.5


def test_of_two_tensors_that_would_do_the_one_that_keeps_more_is_narrowed() -> None:
    whole = {"a": box(0, 10), "b": box(0, 10)}
    found = best(whole, lambda r: ends(r["a"])[1] <= 1 or ends(r["b"])[1] <= 9)
    assert ends(found.ranges["a"]) == (0, 10)
    assert 8.5 < ends(found.ranges["b"])[1] <= 9


def test_a_value_far_from_zero_and_from_the_ends_is_found() -> None:
    whole = {"a": box(-3, 12)}
    found = best(whole, lambda r: 4 <= ends(r["a"])[0] and ends(r["a"])[1] <= 5)
    low, high = ends(found.ranges["a"])
    assert 4 <= low < 4.3 and 4.7 < high <= 5


def test_nothing_is_found_where_no_single_values_will_do() -> None:
    assert not list(BoxExpansion({"a": box(0, 1)}, lambda r: False, lambda r: False).findings())


def test_what_the_quick_test_overlooks_is_searched_with_the_slow_one() -> None:
    whole = {"a": box(0, 10), "b": box(0, 10)}

    def proves(ranges: Ranges) -> bool:
        return ends(ranges["b"])[1] <= 5

    (*_, found) = BoxExpansion(whole, lambda r: min(ends(r["a"])[1], ends(r["b"])[1]) <= 5, proves).findings()
    assert proves(found.ranges) and ends(found.ranges["a"]) == (0, 10)


def test_two_results_that_make_constants_of_tensors_without_a_common_dimension_share_the_burden() -> None:
    whole = {"a": box(-10, 10), "b": box(-10, 10, 4)}
    found = best(whole, lambda r: max(map(abs, ends(r["a"]))) * max(map(abs, ends(r["b"]))) <= 0.5)
    for name in whole:
        assert ends(found.ranges[name])[1] == pytest.approx(0.5**0.5, rel=0.2)


def test_two_results_that_make_constants_are_halved() -> None:
    """A scalar product is bounded: it may be kept by either factor, or by each for half of the elements."""
    whole = {"x": box(0, 1, 1, 100), "w": box(-10, 10, 100, 5)}

    def proves(ranges: Ranges) -> bool:
        x, w = (torch.maximum(r.lower.abs(), r.upper.abs()) for r in (ranges["x"], ranges["w"]))
        return bool((x.expand(1, 100) @ w.expand(100, 5)).amax() <= 3)

    found = best(whole, proves)
    assert proves(found.ranges)
    kept = [share_kept(found.ranges[name], whole[name])[0] for name in whole]
    assert min(kept) > 0.4 and sum(kept) > 1


@given(low=FINITE, high=FINITE, value=FINITE, fraction=st.floats(0, 1), end=st.sampled_from(["lower", "upper", "both"]))
def test_ranges_stay_within_the_original_ones_and_grow(
    low: float, high: float, value: float, fraction: float, end: str
) -> None:
    whole = box(min(low, high), max(low, high))
    part = pin(whole, torch.tensor(value))
    assert part.is_point
    wider = stretch(part, whole, fraction, end)  # type: ignore[arg-type]
    assert bool((whole.lower <= wider.lower).all()) and bool((wider.lower <= part.lower).all())
    assert bool((part.upper <= wider.upper).all()) and bool((wider.upper <= whole.upper).all())
    if fraction == 1 and end == "both":
        assert ends(wider) == ends(whole)


@given(low=st.integers(-9, 9), width=st.integers(0, 9), at=st.integers(0, 9), fraction=st.floats(0, 1))
def test_ranges_of_integers_have_whole_ends(low: int, width: int, at: int, fraction: float) -> None:
    whole = Interval.fill(low, low + width, (2,), torch.int64)
    wider = stretch(pin(whole, torch.tensor(low + at)), whole, fraction, "both")
    assert wider.dtype == torch.int64
    start, high = min(low + at, low + width), low + width
    assert ends(wider) == (start - int(fraction * (start - low)), start + int(fraction * (high - start)))


def test_shares_count_elements_that_have_a_width() -> None:
    whole = Interval.of(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([2.0, 3.0, 5.0]))
    part = Interval.of(torch.tensor([0.0, 1.5, 5.0]), torch.tensor([2.0, 2.0, 5.0]))
    assert share_kept(part, whole) == pytest.approx((0.625, 0.25))
    assert share_kept(pin(whole, whole.lower), whole) == (0.0, 0.0)
    kept = KeptRange.of("w", "weight", part, whole)
    assert kept.lower.dtype == np.float32 and kept.lower.shape == (3,) and not kept.is_uniform


def test_joined_ranges_are_those_of_either_half() -> None:
    joined = join(box(0, 1, 2, 5), box(-2, -1, 2, 5), 1)
    lower, upper = joined.expand()
    assert lower.tolist() == [[0, 0, 0, -2, -2]] * 2 and upper.tolist() == [[1, 1, 1, -1, -1]] * 2
