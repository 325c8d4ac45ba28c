"""What passes may cost: estimates as they are, or time in place of them."""

from __future__ import annotations

import time

from ranum_falsify.domain.linear.backsubstitution import Allowance


def test_estimates_are_spent_as_they_are() -> None:
    allowance = Allowance(10.0)
    assert allowance.affords(10.0) and not allowance.is_short
    with allowance.spend(6.0):
        time.sleep(0.01)
    assert allowance.left == 4.0
    assert allowance.affords(2.0, 0.5) and not allowance.affords(2.1, 0.5)
    assert allowance.is_short


def test_where_time_counts_what_was_quick_makes_the_next_cheap_and_what_was_slow_dear() -> None:
    quick, slow = (Allowance(100.0, speed=100.0) for _ in range(2))
    assert quick.affords(60.0) and not quick.affords(1e6)
    with quick.spend(1e6):
        pass
    with slow.spend(0.1):
        time.sleep(0.1)
    assert quick.affords(1e6)
    assert slow.left <= 90 and not slow.affords(60.0)
