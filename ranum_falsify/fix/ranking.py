"""Which of several repairs is the best."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ranum_falsify.fix.repair import Repair

__all__ = ["rank"]

_SAME = 1e-5
"""Relative changes of outputs up to this one count as none: roundings in another order make as much."""


def rank(repairs: Iterable[Repair]) -> list[Repair]:
    """Return repairs, the best first: proved, gentle, with outputs as before, ranges and gradients kept, and cheap."""
    return sorted(repairs, key=_rank)


def _rank(repair: Repair) -> tuple[float, ...]:
    gentleness = {"rewrite": 0, "guard": 1, "clip": 2}
    change = 0.0 if repair.outputs is None else repair.outputs.relative
    return (
        float(repair.standing != "proved"),
        float(len(repair.left)),
        float(max((gentleness[kind] for kind in repair.kinds), default=0)),
        0.0 if change <= _SAME else math.log10(change / _SAME) if change < math.inf else math.inf,
        -round(min(repair.kept.values(), default=1.0), 3),
        float(not repair.keeps_gradient),
        float(repair.operations),
    )
