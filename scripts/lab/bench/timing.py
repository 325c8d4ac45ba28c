"""Paired measurements: both sides in turn, so that a busy machine slows both alike."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Paired", "load_text", "seconds_of", "time_pairs"]


@dataclass(frozen=True)
class Paired:
    """Seconds of two sides, and the median of the ratios of the pairs.

    Attributes:
        ours: Median of the first side.
        theirs: Median of the second side.
        ratio: Median of first / second over the pairs.
        spread: Smallest and largest ratio.
    """

    ours: float
    theirs: float
    ratio: float
    spread: tuple[float, float]


def seconds_of(run: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def time_pairs(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> Paired:
    """Run both sides in turn, each side first in every other round; each returns its own seconds."""
    pairs = []
    for number in range(rounds):
        if number % 2:
            b = theirs()
            a = ours()
        else:
            a = ours()
            b = theirs()
        pairs.append((a, b))
    ratios = [a / b for a, b in pairs]
    return Paired(
        ours=statistics.median(a for a, _ in pairs),
        theirs=statistics.median(b for _, b in pairs),
        ratio=statistics.median(ratios),
        spread=(min(ratios), max(ratios)),
    )


def load_text() -> str:
    """Return the load of the machine, without which no figure means much."""
    if not hasattr(os, "getloadavg"):
        return f"{os.cpu_count()} cores"
    return f"{os.cpu_count()} cores, load average {', '.join(f'{x:.1f}' for x in os.getloadavg())}"
