"""The constants that widen bounds are as large as their derivations ask for, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from ranum_falsify.domain import error_bounds
from ranum_falsify.domain.error_bounds import accumulation, unit
from ranum_falsify.domain.rules.support import real_functions
from tests.domain.subjects import Setting, Subject
from tests.network.building import parse

TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NEARLY = 1 - Fraction(1, 10**12)
TERMS = (1, 2, 30, 1000, 200_000, 1_000_000, 6_000_000)


def gamma(count: int, dtype: torch.dtype) -> Fraction:
    """Return gamma_n exactly, for n u < 1."""
    share = count * Fraction(unit(dtype))
    return share / (1 - share)


def compound(count: int, dtype: torch.dtype) -> Fraction:
    """Return what n roundings make of a number at most, relative to it."""
    return (1 + Fraction(unit(dtype))) ** count - 1


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("steps", [0, 1, 8, 16, 24])
def test_a_sum_and_roundings_in_a_row(dtype: torch.dtype, terms: int, steps: int) -> None:
    together = (1 + gamma(terms, accumulation(dtype))) * (1 + compound(steps, dtype)) - 1
    assert error_bounds.sum_error(terms, dtype, steps) >= together


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("terms", TERMS)
def test_sums_of_magnitudes_and_differences_of_squares(dtype: torch.dtype, terms: int) -> None:
    work = accumulation(dtype)
    assert error_bounds.sum_growth(terms, dtype) >= (1 + gamma(terms, work)) * NEARLY
    error = gamma(terms + error_bounds.STATISTICS_ROUNDINGS, work)
    assert error_bounds.cancellation_share(terms, dtype) >= (3 * error + error**2) * NEARLY


@pytest.mark.parametrize("terms", [*TERMS, 10**8])
def test_sums_in_float64(terms: int) -> None:
    assert error_bounds.double_share(terms) >= 2 * gamma(terms + 8, torch.float64)
    assert error_bounds.vanishing(terms) >= terms * error_bounds.tiny(torch.float64)
    for count in (terms, 10):
        error = gamma(count + error_bounds.PRODUCT_ROUNDINGS, torch.float32)
        share = error_bounds.product_share(count, torch.float32)
        assert error > Fraction(1, 2) or share >= 2 * error * (1 + error) / (1 - error) * NEARLY


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[mpmath.mpf], mpmath.mpf], float, float]] = {
    "exp": (torch.exp, mpmath.exp, -700, 709),
    "log": (torch.log, mpmath.log, 1e-300, 1e300),
    "log1p": (torch.log1p, mpmath.log1p, -0.999, 1e300),
    "tanh": (torch.tanh, mpmath.tanh, -30, 30),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), -700, 700),
    "erf": (torch.erf, mpmath.erf, -7, 7),
    "sin": (torch.sin, mpmath.sin, -1e6, 1e6),
    "tan": (torch.tan, mpmath.tan, -1e6, 1e6),
    "acos": (torch.acos, mpmath.acos, -1, 1),
    "sinh": (torch.sinh, mpmath.sinh, -700, 700),
    "asinh": (torch.asinh, mpmath.asinh, -1e150, 1e150),
    "atanh": (torch.atanh, mpmath.atanh, -1, 1),
    "softplus": (real_functions.softplus, lambda x: mpmath.log1p(mpmath.exp(x)), -700, 700),
    "mish": (real_functions.mish, lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))), -700, 700),
    "swish": (real_functions.swish, lambda x: x / (1 + mpmath.exp(-x)), -700, 700),
}


def draw(low: float, high: float) -> Tensor:
    """Return numbers of all sizes between two."""
    rng = np.random.default_rng(0)
    sizes = rng.choice((-1.0, 1.0), 300) * 10 ** rng.uniform(-300, np.log10(max(-low, high)), 300)
    return torch.from_numpy(np.concatenate([rng.uniform(low, high, 300), sizes[(sizes > low) & (sizes < high)]]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_float64(name: str) -> None:
    function, exact, low, high = FUNCTIONS[name]
    with mpmath.workprec(200):
        for x, y in zip((points := draw(low, high)).tolist(), function(points).tolist(), strict=True):
            value = exact(mpmath.mpf(x))
            # Results that are no normal numbers have an absolute error instead.
            assert abs(y - value) <= error_bounds.DOUBLE_SHARE * abs(value) + 1e-300, x


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_rounded_correctly_far_below_zero(approximate: str) -> None:
    subject = Subject(parse(f'g (double[40] x) => (double[40] y) {{ y = Gelu<approximate = "{approximate}">(x) }}', 20))
    points = np.linspace(-37, 0, 40) if approximate == "none" else np.linspace(-21, 0, 40)
    y = subject.analyse({"x": points}, {"x": points}, Setting(runtimes=("exact",))).bounds["y"]
    assert y is not None
    low, high = (end.tolist() for end in y.expand())
    with mpmath.workprec(200):
        for i, x in enumerate(map(mpmath.mpf, points.tolist())):
            cubic = x + mpmath.mpf("0.044715") * x**3
            value = {
                "none": x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
                "tanh": x / (1 + mpmath.exp(-2 * mpmath.sqrt(2 / mpmath.pi) * cubic)),
            }[approximate]
            assert low[i] <= value <= high[i], x


def _add_up(terms: list[Fraction], rng: np.random.Generator) -> tuple[Fraction, Fraction]:
    """Return the sum of terms, added in a random tree, and the magnitudes of all partial sums together."""
    if len(terms) == 1:
        return terms[0], Fraction(0)
    order = [terms[i] for i in rng.permutation(len(terms))]
    cut = 1 if rng.random() < 0.5 else int(rng.integers(1, len(terms)))
    (left, first), (right, second) = _add_up(order[:cut], rng), _add_up(order[cut:], rng)
    return left + right, abs(left + right) + first + second


@pytest.mark.parametrize("seed", range(20))
def test_partial_sums_of_any_tree_come_to_no_more_than_is_bounded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    ends = np.sort(rng.normal(rng.normal(), 1.0, (2, count)), axis=0)
    none = np.zeros((2, int(rng.integers(3))))
    bound = float(error_bounds.bound_partial_sums(*torch.from_numpy(np.concatenate([none, ends], 1)).unsqueeze(1)))
    for _ in range(200):
        terms = [Fraction(rng.choice([low, high, rng.uniform(low, high)])) for low, high in ends.T]
        # All of one sign one after another is about the worst that there is.
        ordered = sorted(terms, reverse=bool(rng.integers(2)))
        running = [sum(ordered[: k + 1], Fraction(0)) for k in range(1, count)]
        assert _add_up(terms, rng)[1] <= bound
        assert sum(map(abs, running), Fraction(0)) <= bound


def test_sums_of_nothing_have_no_partial_sums() -> None:
    nothing = torch.zeros(3, 4, dtype=torch.float64)
    assert error_bounds.bound_partial_sums(nothing, nothing).tolist() == [0.0, 0.0, 0.0]
    assert not len(error_bounds.bound_partial_sums(nothing[:0], nothing[:0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("terms", [1, 30, 1000, 100_000])
def test_a_sum_strays_by_its_partial_sums_and_roundings(dtype: torch.dtype, terms: int) -> None:
    share, partial = error_bounds.partial_sum_shares(terms, dtype, 8)
    # Of terms of one sign, n additions that each add up nearly all of them: as much as of any sum.
    most = (1 + gamma(terms, dtype)) * (1 + compound(8, dtype)) - 1
    assert share + partial * terms >= most * NEARLY
