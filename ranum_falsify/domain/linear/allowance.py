"""What backward passes may cost: a number of multiplications, or the time that these take on the machine at hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Allowance"]

_EXPECTED = 0.1
"""Seconds of passes that the expected price of estimates is worth."""


class Allowance:
    """Multiplications that passes may still take.

    Attributes:
        left: How many.
        is_short: Whether it was not enough for something.
    """

    def __init__(self, left: float, speed: float | None = None, price: float = 1.0) -> None:
        """Grant an amount.

        Args:
            left: Multiplications.
            speed: How many of them a second counts for, so that time is spent in place of what passes are estimated to
                take; None to spend the estimates, whatever they take.
            price: What one of an estimate is expected to cost before any has been timed.
        """
        self.left, self.is_short = left, False
        self._speed, self._price = speed, price
        # What is computed for the first time takes longer than what is like it, so that the expectation counts, too.
        self._spent = 0.0 if speed is None else _EXPECTED * speed
        self._estimated = self._spent / price

    def affords(self, cost: float, share: float = 1.0) -> bool:
        """Tell whether an estimate is within a share of what is left."""
        enough = cost * self._price <= share * self.left
        self.is_short |= not enough
        return enough

    @contextmanager
    def spend(self, cost: float) -> Iterator[None]:
        """Take what the block costs, given its estimate."""
        began = time.monotonic()
        try:
            yield
        finally:
            spent = cost if self._speed is None else (time.monotonic() - began) * self._speed
            self.left -= spent
            self._estimated, self._spent = self._estimated + cost, self._spent + spent
            self._price = self._spent / self._estimated if self._estimated else self._price
