"""Which of several repairs is the best."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ranum_falsify.repair.repair import Repair

_EXACT = 1e-4
"""Errors up to this one are those of float32 and its order of operations."""


def rank(repairs: Iterable[Repair]) -> list[Repair]:
    """Return repairs, the best first.

    It destroys nothing, is proved, no clip, computes what the original means wherever that has a value, is a rewrite,
    keeps ranges and gradients, and has few operations, in this order.
    """
    return sorted(repairs, key=_rank)


def _rank(repair: Repair) -> tuple[float, ...]:
    error = 0.0 if repair.outputs is None else max(repair.outputs.away, repair.outputs.beyond)
    return (
        float(repair.loss > 0),
        float(repair.standing != "proved"),
        float(len(repair.left)),
        float("clip" in repair.kinds),
        repair.loss,
        _digits_lost(error),
        float(repair.kinds != ("rewrite",)),
        -round(min(repair.kept.values(), default=1.0), 3),
        float(not repair.keeps_gradient),
        float(repair.operations),
    )


def _digits_lost(error: float) -> float:
    """Return how many decimal digits an error costs beyond rounding."""
    return max(0.0, math.log10(error / _EXACT) // 1) if 0 < error < math.inf else error
