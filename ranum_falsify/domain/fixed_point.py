"""Bounds that hold however often a step is taken: a fixed point with widening, and with one narrowing pass after it.

Source: P. Cousot, R. Cousot, Abstract Interpretation: A Unified Lattice Model for Static Analysis of Programs by
Construction or Approximation of Fixpoints, POPL 1977.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.order import SIGNED, make_ordered

States = tuple[Interval, ...]
"""Bounds of what one iteration hands to the next."""

Step = Callable[[States], "States | None"]
"""`step(states)`: bounds of what an iteration leaves for the next; None if a shape depends on the input."""

_FOLLOWED = 64
"""Up to so many iterations are followed one by one."""

_DELAY = 8
"""After so many of more iterations, bounds that still grow are widened."""

_ROUNDS = 64
"""After so many steps, bounds that still grow are given up."""

_FLOAT_STEPS = (0.0, 1.0, 16.0, 2.0**8, 2.0**16, 2.0**32, 2.0**64)
_INTEGER_STEPS = (0, 16, 2**8, 2**16, 2**30, 2**62)


def find_invariant(step: Step, initial: States, most: int | None) -> States | None:
    """Return bounds of the states in which any iteration may begin.

    Args:
        step: The iteration.
        initial: Bounds of the states in which the first iteration begins.
        most: How many iterations there are at most; None if there is no limit.

    Returns:
        The bounds, which hold the initial ones; None if none are found.
    """
    initial = tuple(replace(x, gap=0.0) for x in initial)
    states = initial
    delay = _FOLLOWED if most is not None and most <= _FOLLOWED else _DELAY
    for count in range(_ROUNDS + 1):
        # Before the last of the iterations, one less has been taken.
        if most is not None and count >= most - 1:
            return states
        after = step(states)
        if after is None:
            return None
        joined = _join(states, after)
        if all(_is_same(x, y) for x, y in zip(states, joined, strict=True)):
            return _narrow(step, initial, states)
        states = joined if count < delay else tuple(map(_widen, states, joined))
    return None


def _narrow(step: Step, initial: States, states: States) -> States:
    """Narrow an invariant once: meet it with the step applied to it."""
    after = step(states)
    if after is None:
        return states
    return tuple(x.meet(y) for x, y in zip(states, _join(initial, after), strict=True))


def _join(first: States, second: States) -> States:
    return tuple(replace(x.hull(y), gap=0.0) for x, y in zip(first, second, strict=True))


def _is_same(x: Interval, y: Interval) -> bool:
    pairs = ((x.lower, y.lower), (x.upper, y.upper))
    return all(bool((make_ordered(a) == make_ordered(b)).all()) for a, b in pairs)


def _widen(old: Interval, new: Interval) -> Interval:
    """Return bounds that hold new ones, and lie further out where these grew."""
    if new.dtype is torch.bool or new.dtype in SIGNED:
        return new if _is_same(old, new) else Interval.top(new.shape, new.dtype)
    least, greatest = dtype_range(new.dtype)
    steps = [s for s in (_FLOAT_STEPS if new.is_floating else _INTEGER_STEPS) if s < greatest]
    lower, upper = torch.full_like(new.lower, least), torch.full_like(new.upper, greatest)
    for end in sorted({*steps, *(-s for s in steps if -s > least)}):
        lower = torch.where(new.lower >= end, torch.full_like(lower, end), lower)
    for end in sorted({*steps, *(-s for s in steps if -s > least)}, reverse=True):
        upper = torch.where(new.upper <= end, torch.full_like(upper, end), upper)
    if new.is_floating:
        lower, upper = torch.minimum(lower, new.lower), torch.maximum(upper, new.upper)
    low = torch.where(new.lower < old.lower, lower, new.lower)
    return Interval.of(low, torch.where(new.upper > old.upper, upper, new.upper), new.shape)
