"""Arithmetic on bounds encloses what it says, against exact fractions; NaN passes through."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure

MANY = settings(deadline=None, derandomize=True)
COUNT = 4

# Sums and products of integers of this size are exact in float64.
numbers = st.integers(-(2**24), 2**24) | st.integers(-3, 3)
rows = st.lists(numbers, min_size=COUNT, max_size=COUNT).map(lambda row: torch.tensor(row, dtype=torch.float64))


@st.composite
def enclosed(draw: st.DrawFn) -> tuple[Enclosure, Tensor]:
    """Return bounds, some stored once, and numbers between them."""
    ends, inside = torch.stack([draw(rows), draw(rows)]), draw(rows)
    if draw(st.booleans()):
        return Enclosure(inside, inside), inside
    low, high = ends.amin(0), ends.amax(0)
    return Enclosure(low, high), torch.minimum(torch.maximum(inside, low), high)


def fractions(x: Tensor) -> list[Fraction]:
    return [Fraction(value) for value in x.reshape(-1).tolist()]


def assert_encloses(bounds: Enclosure, values: list[Fraction], share: Fraction = Fraction(0)) -> None:
    for low, value, high in zip(fractions(bounds.low), values, fractions(bounds.high), strict=True):
        assert low - share * abs(low) <= value <= high + share * abs(high)


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (Enclosure.add, operator.add),
        (Enclosure.subtract, operator.sub),
        (Enclosure.multiply, operator.mul),
        (lambda x, y: x.map(torch.maximum, y), max),
    ],
    ids=["add", "subtract", "multiply", "map"],
)
@MANY
@given(a=enclosed(), b=enclosed())
def test_functions_of_two_enclose_the_exact_results(
    function: Callable[[Enclosure, Enclosure], Enclosure],
    exact: Callable[[Fraction, Fraction], Fraction],
    a: tuple[Enclosure, Tensor],
    b: tuple[Enclosure, Tensor],
) -> None:
    (x, p), (y, q) = a, b
    result = function(x, y)
    assert_encloses(result, [exact(u, v) for u, v in zip(fractions(p), fractions(q), strict=True)])
    # No wider than the results at the corners.
    corners = [[exact(u, v) for u, v in zip(fractions(m), fractions(n), strict=True)] for m in x for n in y]
    assert fractions(result.low) == [min(values) for values in zip(*corners, strict=True)]
    assert fractions(result.high) == [max(values) for values in zip(*corners, strict=True)]


@MANY
@given(a=enclosed(), b=enclosed(), positive=st.booleans())
def test_quotients_enclose_the_exact_results(
    a: tuple[Enclosure, Tensor], b: tuple[Enclosure, Tensor], positive: bool
) -> None:
    (x, p), (y, q) = a, b
    size = y.map_even(torch.abs).map(lambda end: end + 1)
    divisor, point = (size, q.abs() + 1) if positive else (size.negate(), -(q.abs() + 1))
    exact = [u / v for u, v in zip(fractions(p), fractions(point), strict=True)]
    assert_encloses(x.divide(divisor), exact, Fraction(1, 2**53))


@MANY
@given(a=enclosed())
def test_functions_of_one_enclose_the_exact_results(a: tuple[Enclosure, Tensor]) -> None:
    x, p = a
    assert_encloses(x.negate(), [-u for u in fractions(p)])
    assert_encloses(x.map_falling(lambda end: 1 - end), [1 - u for u in fractions(p)])
    assert_encloses(x.map_even(torch.square), [u * u for u in fractions(p)])
    assert_encloses(x.map_even(lambda end: end.abs() + 1, least=1.0), [abs(u) + 1 for u in fractions(p)])
    assert bool((x.map_even(torch.abs).low >= 0).all())
    assert_encloses(Enclosure(-x.size, x.size), fractions(p))
    centre, radius = x.ball
    assert_encloses(Enclosure(centre, centre).widen(radius), fractions(p))


@MANY
@given(a=enclosed(), b=enclosed(), mask=st.lists(st.booleans(), min_size=COUNT, max_size=COUNT))
def test_hull_and_choice_enclose_what_they_unite(
    a: tuple[Enclosure, Tensor], b: tuple[Enclosure, Tensor], mask: list[bool]
) -> None:
    (x, p), (y, q) = a, b
    both = x.hull(y)
    assert_encloses(both, fractions(p))
    assert_encloses(both, fractions(q))
    chosen = torch.tensor(mask)
    assert_encloses(x.where(chosen, y), fractions(torch.where(chosen, p, q)))


def test_known_numbers_have_one_corner_and_stay_known() -> None:
    two, three = (torch.full((2,), value, dtype=torch.float64) for value in (2.0, 3.0))
    known = Enclosure(two, two)
    assert len(known.corners(torch.mul, known)) == 1
    assert len(known.corners(torch.mul, Enclosure(two, three))) == 2
    product = known.multiply(known)
    assert product.low is product.high and product.low.tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.add(y),
        lambda x, y: x.subtract(y),
        lambda x, y: x.multiply(y),
        lambda x, y: x.divide(y),
        lambda x, y: x.hull(y),
        lambda x, y: x.negate(),
        lambda x, y: x.map_even(torch.square),
        lambda x, y: x.widen(1.0),
    ],
    ids=["add", "subtract", "multiply", "divide", "hull", "negate", "map_even", "widen"],
)
def test_nan_passes_through(function: Callable[[Enclosure, Enclosure], Enclosure]) -> None:
    nan, one = torch.full((1,), math.nan, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    result = function(Enclosure(nan, nan.clone()), Enclosure(one, one + 1))
    assert bool(result.low.isnan().all()) and bool(result.high.isnan().all())


def test_shapes_move_both_ends_alike() -> None:
    low = torch.arange(6, dtype=torch.float64).reshape(1, 6)
    x = Enclosure(low, low + 0.5)
    assert [part.low.tolist() for part in x.chunk(3)] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert x.last(1, 3).high.tolist() == [[1.5, 2.5]]
    assert x.spread(2, 6).high.tolist() == [x.high[0].tolist()] * 2
    stacked = Enclosure.stack([x, x.negate()], 1)
    assert stacked.low.shape == (1, 2, 6) and stacked.low[0, 1].tolist() == (-x.high[0]).tolist()
