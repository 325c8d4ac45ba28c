"""Which of several repairs is the best."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ranum_falsify.fix.repair import Repair

__all__ = ["rank"]


def rank(repairs: Iterable[Repair]) -> list[Repair]:
    """Return repairs, the best first.

    It is proved, no clip, moves no output away from what the original means, keeps ranges and gradients, and has few
    operations, in this order.
    """
    return sorted(repairs, key=_rank)


def _rank(repair: Repair) -> tuple[float, ...]:
    away = 0.0 if repair.outputs is None else repair.outputs.away
    return (
        float(repair.standing != "proved"),
        float(len(repair.left)),
        float("clip" in repair.kinds),
        math.log10(away) if away else -math.inf,
        -round(min(repair.kept.values(), default=1.0), 3),
        float(not repair.keeps_gradient),
        float(repair.operations),
    )
