"""Operators of a loop that fail the same way in several iterations, reported once."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

_T = TypeVar("_T")
_NUMBERED = re.compile(r"(.*/body/.*)\[(\d+(?:,\d+)*)\]")
_MOST_RUNS = 3


def group_iterations(entries: Iterable[tuple[str, Hashable, _T]]) -> list[tuple[_T, list[str]]]:
    """Return the first of those entries that are of one operator of a loop and alike, and the iterations of the others.

    Args:
        entries: The name of each, such as `loop/body/log[3]`; what those have in common that are alike; and the entry.
    """
    groups: dict[Hashable, tuple[_T, list[str]]] = {}
    for number, (name, likeness, entry) in enumerate(entries):
        match = _NUMBERED.fullmatch(name)
        key = (match[1], likeness) if match else number
        if key in groups and match:
            groups[key][1].append(match[2])
        else:
            groups[key] = (entry, [])
    return list(groups.values())


def describe_iterations(numbers: Sequence[str]) -> str:
    """Return in which further iterations an operator fails: `likewise in 3 more iterations: 4, 6 to 7`."""
    runs: list[list[str]] = []
    for number in numbers:
        follows = bool(runs) and number.isdigit() and runs[-1][-1].isdigit() and int(number) == int(runs[-1][-1]) + 1
        if follows:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    shown = ", ".join(" to ".join(run) for run in runs[:_MOST_RUNS])
    more = " and others" if len(runs) > _MOST_RUNS else ""
    return f"likewise in {len(numbers)} more iteration{'s' * (len(numbers) > 1)}: {shown}{more}"
