"""Ranges of sizes: a question for each size of the symbolic dimensions, and the answer for all of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ranum_falsify.errors import UsageError
from ranum_falsify.verify.search.result import Answer, SizeOutcome

T = TypeVar("T")

UNREAD = Answer(verdict="unknown", interrupted="timeout while reading")
"""The answer where there was no time to read what is asked."""

_MOST = 1000
_MORE = 2.0  # times the seconds of before, for a question to be worth asking again


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


def ask_each(
    sizes: Sequence[Mapping[str, int]],
    timeout: float | None,
    ask: Callable[[Mapping[str, int], float | None], T],
    answer_of: Callable[[T], Answer],
) -> list[T]:
    """Ask about every combination of sizes in the time of one run, until one is violated.

    Each gets an equal share of what is left. What others leave goes to those whose share was too short: the first one
    pays for what is done once, and most need less.

    Args:
        sizes: The combinations.
        timeout: Seconds for all of them, None for no limit.
        ask: Asks about one combination in a number of seconds.
        answer_of: The answer in what it returns.

    Returns:
        What was returned for the first combinations: all of them, unless one ended the run.
    """
    if len(sizes) == 1:
        return [ask(sizes[0], timeout)]
    asked: list[T] = []
    shares: dict[int, float] = {}
    end = math.inf if timeout is None else time.monotonic() + timeout
    turn = list(range(len(sizes)))
    while turn:
        for number, index in enumerate(turn):
            shares[index] = max((end - time.monotonic()) / (len(turn) - number), 0.0)
            found = ask(sizes[index], None if timeout is None else shares[index])
            asked[index : index + 1] = [found]
            if answer_of(found).verdict == "violated" or answer_of(found).interrupted == "Ctrl-C":
                return asked
        short = [index for index in turn if _is_cut_short(answer_of(asked[index]))]
        turn = _choose_again(short, shares, end - time.monotonic())
    return asked


def _is_cut_short(answer: Answer) -> bool:
    return answer.verdict == "unknown" and answer.interrupted.startswith("timeout")


def _choose_again(indices: Sequence[int], shares: Mapping[int, float], left: float) -> list[int]:
    """Return those that get a multiple of their time if they share what is left."""
    chosen: list[int] = []
    for index in sorted(indices, key=lambda index: shares[index]):
        if left / (len(chosen) + 1) > _MORE * shares[index]:
            chosen.append(index)
    return sorted(chosen)


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
    outcomes = [SizeOutcome(dims=one, verdict=verdict) for one, verdict in zip(given, verdicts, strict=True)]
    outcomes.sort(key=lambda one: tuple(one.dims.values()))
    order = ("violated", "unknown", "holds")
    position = min(range(len(answers)), key=lambda i: order.index(answers[i].verdict))
    shown = dataclasses.replace(answers[position], sizes=tuple(outcomes))
    if shown.verdict == "holds" and None in verdicts:
        shown = dataclasses.replace(shown, verdict="unknown")
    if shown.verdict != "violated" and shown.assumptions is not None:
        left = {n: {k: v for k, v in one.items() if k not in ranges} for n, one in shown.assumptions.dims.items()}
        shown = dataclasses.replace(shown, assumptions=dataclasses.replace(shown.assumptions, dims=left))
    return position, shown
