"""Ranges of sizes: a question for each size of the symbolic dimensions, and the answer for all of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

from ranum_falsify.errors import UsageError
from ranum_falsify.search.result import Answer, SizeOutcome

__all__ = ["join_answers", "list_sizes"]

_MOST = 1000


def list_sizes(dims: Mapping[str, int | range]) -> list[dict[str, int]]:
    """Return every combination of sizes, the extreme ones first, because what fails mostly fails there.

    Raises:
        UsageError: There are none, or too many.
    """
    spans = {name: size if isinstance(size, range) else range(size, size + 1) for name, size in dims.items()}
    if empty := [name for name, span in spans.items() if not span]:
        raise UsageError(f"dims: {empty[0]!r} has an empty range; give range(lowest, highest + 1)")
    count = math.prod(map(len, spans.values()))
    if count > _MOST:
        raise UsageError(f"--dim, or dims: {count:,} combinations of sizes, more than {_MOST:,}; give smaller ranges")
    ends = [dict(zip(spans, sizes, strict=True)) for sizes in itertools.product(*map(_ends, spans.values()))]
    every = [dict(zip(spans, sizes, strict=True)) for sizes in itertools.product(*spans.values())]
    return [*ends, *(one for one in every if one not in ends)]


def _ends(span: range) -> Sequence[int]:
    return tuple(dict.fromkeys((span[0], span[-1])))


def join_answers(
    dims: Mapping[str, int | range], sizes: Sequence[Mapping[str, int]], answers: Sequence[Answer]
) -> tuple[int, Answer]:
    """Return the position of the answer to show, and that answer with what holds for the other sizes.

    Args:
        dims: The sizes as the user gave them.
        sizes: Every combination, in the order in which they were asked about.
        answers: Those of the first ones.
    """
    ranges = [name for name, size in dims.items() if isinstance(size, range)]
    given = [{name: one[name] for name in ranges} for one in sizes]
    verdicts = [answer.verdict for answer in answers] + [None] * (len(sizes) - len(answers))
    outcomes = [SizeOutcome(sizes=one, verdict=verdict) for one, verdict in zip(given, verdicts, strict=True)]
    outcomes.sort(key=lambda one: tuple(one.sizes.values()))
    order = ("violated", "unknown", "holds")
    position = min(range(len(answers)), key=lambda i: order.index(answers[i].verdict))
    shown = dataclasses.replace(answers[position], sizes=tuple(outcomes))
    if shown.verdict == "holds" and None in verdicts:
        shown = dataclasses.replace(shown, verdict="unknown")
    if shown.verdict != "violated" and shown.assumptions is not None:
        left = {n: {k: v for k, v in one.items() if k not in ranges} for n, one in shown.assumptions.dims.items()}
        shown = dataclasses.replace(shown, assumptions=dataclasses.replace(shown.assumptions, dims=left))
    return position, shown
