"""Invariants of steps that are taken any number of times."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.domain.fixed_point import States, find_invariant
from ranum_falsify.domain.interval import Interval, dtype_range

FLOATS = st.floats(-8, 8, width=16)


def box(low: float, high: float, dtype: torch.dtype = torch.float32) -> Interval:
    return Interval.fill(low, high, (2,), dtype)


def affine(slope: float, shift: float, limit: float) -> tuple[object, object]:
    """Return `clamp(slope * x + shift)` on bounds, and on numbers."""

    def step(states: States) -> States:
        (x,) = states
        ends = torch.stack([(slope * end.double() + shift).clamp(-limit, limit) for end in (x.lower, x.upper)])
        return (Interval.of(ends.amin(0).float(), ends.amax(0).float(), x.shape),)

    return step, lambda x: float(np.float32(np.clip(slope * x + shift, -limit, limit)))


@settings(deadline=None)
@given(
    slope=st.sampled_from([-1.5, -1.0, -0.5, 0.0, 0.5, 0.999, 1.0, 1.25]),
    shift=FLOATS,
    ends=st.tuples(FLOATS, FLOATS),
    limit=st.sampled_from([3.0, 1e3, 1e30]),
    most=st.one_of(st.none(), st.integers(1, 100)),
)
def test_an_invariant_holds_every_state(
    slope: float, shift: float, ends: tuple[float, float], limit: float, most: int | None
) -> None:
    step, number = affine(slope, shift, limit)
    found = find_invariant(step, (box(min(ends), max(ends)),), most)  # type: ignore[arg-type]
    assert found is not None
    low, high = found[0].extremes
    for x in (*ends, sum(ends) / 2):
        for _ in range(120 if most is None else most):
            assert low <= x <= high
            x = number(x)  # type: ignore[operator]


def test_a_few_iterations_are_followed_one_by_one() -> None:
    found = find_invariant(lambda s: (box(s[0].lower.item() + 1, s[0].upper.item() + 1),), (box(0, 0),), 20)
    assert found is not None and found[0].extremes == (0, 19)


def test_what_grows_is_widened_and_then_narrowed() -> None:
    def step(states: States) -> States:
        return (box(states[0].lower.min().item(), min(states[0].upper.max().item() + 1, 1000)),)

    found = find_invariant(step, (box(0, 0),), None)
    assert found is not None and found[0].extremes == (0, 1000)


def test_what_grows_without_a_limit_may_be_anything_finite() -> None:
    found = find_invariant(lambda s: (box(-1, min(s[0].upper.max().item() * 2, 3e38)),), (box(1, 1),), None)
    assert found is not None
    low, high = found[0].extremes
    assert low == -1 and 3e38 <= high <= dtype_range(torch.float32)[1]


def test_integers_do_not_jump_to_where_they_wrap() -> None:
    def step(states: States) -> States:
        (i,) = states
        wraps = i.upper.max().item() == 2**63 - 1
        return (box(*((-(2**63), 2**63 - 1) if wraps else (i.lower.min().item() + 1, 10_000)), dtype=torch.int64),)

    found = find_invariant(step, (box(0, 0, torch.int64),), None)
    assert found is not None and found[0].extremes == (0, 10_000)


def test_a_shape_that_depends_on_the_input_has_no_invariant() -> None:
    assert find_invariant(lambda states: None, (box(0, 1),), None) is None
