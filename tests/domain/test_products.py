"""Sums of products: what must hold whatever the numbers, and where bounds are as narrow as they can be."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.error_bounds import ProductRounding
from ranum_falsify.domain.rules.matrix.bilinear import bilinear, bound_weighted
from ranum_falsify.domain.rules.matrix.matmul import matrix_product, sum_scaled
from ranum_falsify.network import read
from tests.network.building import parse

F32 = torch.float32


def between(low: torch.Tensor, high: torch.Tensor) -> Interval:
    return Interval.of(torch.minimum(low, high), torch.maximum(low, high))


def drawn(seed: int, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def exact(a: Interval, b: Interval) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the exact range of a product whose second factor is known, in float64."""
    low, high = a.doubles()
    w = b.lower.double()
    up, down = w.clamp(min=0), w.clamp(max=0)
    return low @ up + high @ down, high @ up + low @ down


@given(st.integers(0, 10_000), st.sampled_from([1e-30, 1e-3, 1.0, 1e15]), st.integers(1, 40))
@settings(deadline=None)
def test_bounds_enclose_the_exact_range_and_are_hardly_wider(seed: int, scale: float, count: int) -> None:
    x = between(drawn(seed, 3, count, scale=scale), drawn(seed + 1, 3, count, scale=scale))
    w = Interval.point(drawn(seed + 2, count, 4))
    y, (low, high) = matrix_product(x, w), exact(x, w)
    assert bool((y.lower.double() <= low).all()) and bool((y.upper.double() >= high).all())
    reach = torch.maximum(x.lower.abs(), x.upper.abs()).double() @ w.lower.double().abs()
    room = reach * (count + 20) * 1e-6 + 1e-20
    assert bool((y.lower.double() >= low - room).all()) and bool((y.upper.double() <= high + room).all())


@given(st.integers(0, 10_000), st.booleans(), st.booleans())
@settings(deadline=None)
def test_products_of_two_intervals_enclose_sampled_products(seed: int, left: bool, right: bool) -> None:
    ends = [drawn(seed + i, 4, 4) for i in range(4)]
    if left:
        ends[:2] = [end.abs() for end in ends[:2]]
    if right:
        ends[2:] = [end.abs() for end in ends[2:]]
    a, b = between(*ends[:2]), between(*ends[2:])
    y = matrix_product(a, b)
    for share in (0.0, 0.3, 1.0):
        p, q = a.lower + (a.upper - a.lower) * share, b.lower + (b.upper - b.lower) * (1 - share)
        assert bool(y.encloses(p.clamp(a.lower, a.upper) @ q.clamp(b.lower, b.upper)).all())


def test_sums_of_non_negative_terms_keep_sign_and_size() -> None:
    x = Interval.of(torch.tensor([[0.0, 1e-20]]), torch.tensor([[1.0, 1.0]]))
    w = Interval.of(torch.tensor([[1.0], [1.0]]), torch.tensor([[2.0], [2.0]]))
    assert matrix_product(x, w).lower.item() == pytest.approx(1e-20, rel=1e-5)
    zero = matrix_product(Interval.fill(0, 1, (1, 2), F32), Interval.point(torch.tensor([[0.5], [3.0]])))
    assert zero.lower.item() == 0


@pytest.mark.parametrize("sign", [-1, 1])
def test_sums_of_non_negative_numbers_with_known_weights_of_one_sign_have_that_sign(sign: int) -> None:
    x, w = Interval.fill(0, 1e6, (2, 30), F32).split(0, 1), Interval.point(sign * drawn(1, 30, 5).abs())
    low, high = matrix_product(x, w).extremes
    assert (low == 0) if sign > 0 else (high == 0)


def test_merged_weights_stay_one_number() -> None:
    y = matrix_product(Interval.fill(-1, 1, (8, 1000), F32), Interval.fill(-0.1, 0.1, (1000, 500), F32))
    assert y.is_scalar and y.shape == (8, 500)
    assert y.upper.item() == pytest.approx(100, rel=1e-3)


def test_merged_operand_is_as_exact_as_the_split_one() -> None:
    w = Interval.point(drawn(0, 30, 5))
    x = Interval.fill(-0.5, 1, (2, 30), F32)
    merged, split = matrix_product(x, w), matrix_product(x.split(0, 1), w)
    assert merged.lower.shape == (1, 5)
    np.testing.assert_allclose(merged.lower.expand(2, 5), split.lower, rtol=1e-4)
    np.testing.assert_allclose(merged.upper.expand(2, 5), split.upper, rtol=1e-4)


@pytest.mark.parametrize(("size", "stored"), [(5, 25), (300, 1)])
def test_windows_at_the_border_of_a_small_image_read_fewer_elements(size: int, stored: int) -> None:
    image, kernel = (1, 2, size, size), (3, 2, 3, 3)
    y = "y = Conv <pads = [1, 1, 1, 1]> (x, w)"
    text = f"g (float[1,2,{size},{size}] x, float[3,2,3,3] w) => (float[1,3,{size},{size}] y) {{ {y} }}"
    found = IntervalAnalysis(read(parse(text))).run(
        [Interval.fill(-1, 1, image, F32), Interval.fill(-3, 1, kernel, F32)]
    )
    assert found[0] is not None and found[0].lower.numel() == stored
    upper = found[0].expand()[1][0, 0]
    assert upper[2, 2].item() == pytest.approx(54, rel=1e-5)
    assert upper[0, 0].item() == pytest.approx(24 if stored > 1 else 54, rel=1e-5)


def test_infinity_times_a_factor_of_0_is_said_to_be_nan() -> None:
    product = Interval.point(torch.tensor([[-math.inf, 1.0]]))
    assert sum_scaled(product, 0.0, None, 1.0).nan
    assert not sum_scaled(Interval.fill(-1, 1, (1, 2), F32), 0.0, None, 1.0).nan


def test_a_sum_that_overflows_on_the_way_is_said_to_be_nan() -> None:
    x = Interval.point(torch.tensor([[3e38, 3e38]]))
    y = matrix_product(x, Interval.point(torch.tensor([[10.0], [-10.0]])))
    assert y.nan and (y.lower.item(), y.upper.item()) == (-math.inf, math.inf)
    one_sign = matrix_product(x, Interval.point(torch.tensor([[10.0], [10.0]])))
    assert not one_sign.nan and one_sign.upper.item() == math.inf


def test_large_sums_that_fit_stay_finite() -> None:
    y = matrix_product(Interval.fill(1e38, 2e38, (1, 1), F32), Interval.point(torch.tensor([[1.5]])))
    assert not y.nan and y.lower.item() <= 1.5e38 and 3e38 <= y.upper.item() < 3.1e38


def test_a_tiny_bias_keeps_its_sign_beside_products_that_may_be_large() -> None:
    a, b = Interval.point(torch.zeros(1, 2)), Interval.of(torch.full((2, 1), -3e38), torch.zeros(2, 1))
    y = matrix_product(a, b, Interval.fill(-3e38, 3e-38, (1,), F32))
    assert y.upper.item() >= 3e-38


def test_masks_give_nan_only_where_infinities_meet_zero_or_each_other() -> None:
    mask = Interval.point(torch.tensor([[-math.inf, 0.0]]))
    kept = matrix_product(mask, Interval.point(torch.tensor([[2.0], [1.0]])))
    assert not kept.nan and kept.lower.item() == -math.inf
    assert matrix_product(mask, Interval.point(torch.tensor([[0.0], [1.0]]))).nan


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_once(dtype: torch.dtype) -> None:
    a, b = drawn(1, 2, 64).to(dtype), drawn(2, 64, 3).to(dtype)
    y = matrix_product(Interval.point(a), Interval.point(b))
    assert bool(y.encloses((a.float() @ b.float()).to(dtype)).all())
    assert bool((y.upper.float() - y.lower.float() <= 0.1).all())
    assert matrix_product(Interval.point(a * 8000), Interval.point(a.T.contiguous())).may_be_infinite is (
        dtype is torch.float16
    )


def test_integers_are_exact_or_unknown() -> None:
    a = Interval.of(torch.tensor([[1, -2]]), torch.tensor([[3, 4]]))
    b = Interval.point(torch.tensor([[5], [-7]]))
    y = matrix_product(a, b)
    assert (y.lower.item(), y.upper.item()) == (5 - 28, 15 + 14)
    small = Interval.point(torch.tensor([[2**30, 2**30]], dtype=torch.int32))
    wrapped = matrix_product(small, Interval.point(torch.tensor([[1], [1]], dtype=torch.int32)))
    assert wrapped.lower.item() == -(2**31)


def test_negative_factors_exchange_the_bounds() -> None:
    y = sum_scaled(Interval.fill(1, 2, (1, 1), F32), -3.0, Interval.fill(0, 1, (1,), F32), 2.0)
    assert y.lower.item() == pytest.approx(-6, rel=1e-5) and y.upper.item() == pytest.approx(-1, rel=1e-5)


def test_means_of_non_negative_numbers_are_not_negative() -> None:
    x = Interval.of(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 3.0]]))
    y = bound_weighted(lambda t: t.mean(1, keepdim=True), x, terms=2, shape=(1, 1))
    assert y.lower.item() == 0 and y.upper.item() == pytest.approx(2, rel=1e-5)


def test_roundings_in_between_count_whatever_the_operands() -> None:
    def upper(x: Interval, roundings: int) -> float:
        def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None) -> torch.Tensor:
            return a * b if c is None else a * b + c

        weights = Interval.fill(0.5, 1.5, (2,), torch.float16)
        rounding = ProductRounding(roundings)
        return bilinear(product, x, weights, terms=8, shape=(2,), rounding=rounding).expand()[1][0].item()

    low, high = torch.tensor([1.0, -1.0]).half(), torch.tensor([1000.0, 1000.0]).half()
    finite, infinite = Interval.of(low, high), Interval.of(torch.tensor([1.0, -math.inf]).half(), high)
    assert upper(infinite, 6) == upper(finite, 6) > upper(finite, 0)
    number = Interval.fill(1, 1000, (2,), torch.float16)
    assert upper(number, 6) > upper(number, 0)


def test_roundings_in_between_count_near_overflow() -> None:
    def upper(roundings: int) -> float:
        def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None) -> torch.Tensor:
            return a * b if c is None else a * b + c

        x = Interval.of(torch.tensor([1e36, 1e35]).bfloat16(), torch.tensor([2e36, 1e36]).bfloat16())
        weights = Interval.of(torch.tensor([1.0, 2.0]).bfloat16(), torch.tensor([2.0, 4.0]).bfloat16())
        rounding = ProductRounding(roundings)
        return bilinear(product, x, weights, terms=8, shape=(2,), rounding=rounding).expand()[1][0].item()

    assert upper(0) < upper(6) < math.inf
