"""Search for wide ranges within which something holds.

The bounds of interval analysis are monotone: what they prove on a box they prove on each box inside it.  So every end of
a range that is moved outward without loss of the proof is a gain, and no descent is needed.  All tensors start as single
values (an anchor); ends are released one after another, as many at once as hold; what cannot be released is moved
outward as far as it goes.  Two results for different tensors that share a dimension, each of which makes almost a
constant of its tensor, are halved: one holds for one half of the dimension, the other for the other.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

import torch

from ranum_falsify.domain import Interval
from ranum_falsify.fix.abstraction.ranges import Ends, Ranges, is_same, join, pin, share_kept, stretch

__all__ = ["Finding", "Widening"]

_BRUTAL = 0.01
"""A tensor of which less than this share is left is almost a constant."""

_PENALTY = 0.5
"""What a tensor that is almost a constant counts beyond the share that it lost."""

_STEPS = 7
"""Bisections per end: of the logarithm first, then of the range."""

_RANDOM = 24
"""How many random anchors are tried where no other one is valid."""

_ENDS: tuple[Ends, ...] = ("lower", "upper")

_LAYOUTS = 12
"""How many ways to halve two results are tried."""


@dataclass(frozen=True, eq=False)
class Finding:
    """Ranges within which the proof holds.

    Attributes:
        ranges: Bounds of the tensors that may be narrowed.
        score: The greater, the better.
    """

    ranges: Ranges
    score: float


class Widening:
    """Finds wide ranges of some tensors.

    Args:
        whole: The original ranges.
        holds: Tells whether the proof holds on narrower ranges.
    """

    def __init__(self, whole: Ranges, holds: Callable[[Ranges], bool]) -> None:
        self._whole = whole
        self._names = tuple(whole)
        self._holds = holds

    def findings(self) -> Iterator[Finding]:
        """Yield ranges, each better than those before; none if no anchor is valid."""
        released = sorted(self._release_all(), key=lambda finding: -finding.score)
        best: Finding | None = None
        widened: list[Finding] = []
        for finding in _drop_alike(released)[:2]:
            widened.append(self._rate(self._widen(finding.ranges)))
            if best is None or widened[-1].score > best.score:
                best = widened[-1]
                yield best
        for halved in self._halve(widened + released, best):
            best = halved
            yield halved

    # anchors and release ------------------------------------------------------------------------------------------

    def _release_all(self) -> Iterator[Finding]:
        found = False
        for anchor in self._anchors():
            if self._holds(anchor):
                found = True
                yield from (self._rate(self._release(anchor, backward=backward)) for backward in (False, True))
        rng = random.Random(0)
        for _ in range(0 if found else _RANDOM):
            choices = {name: list(_values(whole)) for name, whole in self._whole.items()}
            anchor = {name: pin(self._whole[name], rng.choice(values)) for name, values in choices.items()}
            if self._holds(anchor):
                yield from (self._rate(self._release(anchor, backward=backward)) for backward in (False, True))
                return

    def _anchors(self) -> Iterator[Ranges]:
        """Yield single values of all tensors: zero or what is nearest, the centres, the least and the greatest."""
        seen: list[Ranges] = []
        for values in zip(*(_values(whole) for whole in self._whole.values()), strict=True):
            anchor = {name: pin(self._whole[name], value) for name, value in zip(self._names, values, strict=True)}
            if not any(all(torch.equal(anchor[n].lower, other[n].lower) for n in anchor) for other in seen):
                seen.append(anchor)
                yield anchor

    def _release(self, ranges: Ranges, *, backward: bool) -> Ranges:
        """Return ranges with the original ends wherever, in topological order or backward, the proof still holds."""
        names = self._names[::-1] if backward else self._names
        found, first = dict(ranges), 0
        while first < len(names):
            # Of all tensors at once it is known that the proof fails.
            count = self._count_released(found, names[first:], backward=backward, few=not first)
            found.update({name: self._whole[name] for name in names[first : first + count]})
            first += count
            if first < len(names):
                found[names[first]] = self._release_end(found, names[first])
                first += 1
        return found

    def _count_released(self, ranges: Ranges, names: Sequence[str], *, backward: bool, few: bool) -> int:
        """Return how many of some tensors can have their original ranges at once, counted from the first.

        Args:
            ranges: The other ranges.
            names: The tensors.
            backward: Whether the first ones are the last of the network, which is where ranges matter most.
            few: Whether they cannot all have them.
        """

        def holds(count: int) -> bool:
            return self._holds({**ranges, **{name: self._whole[name] for name in names[:count]}})

        if not few and holds(len(names)):
            return len(names)
        low, high, step = 0, len(names), 1
        while high - low > 1:
            middle = low + step if backward else high - step
            if not low < middle < high:
                middle = (low + high) // 2
            if holds(middle):
                low, step = middle, 2 * step if backward else high
            else:
                high, step = middle, high if backward else 2 * step
        return low

    def _release_end(self, ranges: Ranges, name: str) -> Interval:
        """Return the range of a tensor with one of its original ends, or with one that is 0."""
        part, whole = ranges[name], self._whole[name]
        for end in _ENDS:
            wider = stretch(part, whole, 1.0, end)
            if not is_same(wider, part) and self._holds({**ranges, name: wider}):
                return wider
        wider = part.hull(pin(whole, torch.zeros_like(whole.lower)))
        return wider if not is_same(wider, part) and self._holds({**ranges, name: wider}) else part

    # widening -----------------------------------------------------------------------------------------------------

    def _widen(self, ranges: Ranges) -> Ranges:
        """Return ranges with the ends that were not released moved outward: all together, then each on its own."""
        narrow = [name for name in self._names if self._is_narrower(ranges, name)]
        found = self._move({**ranges}, narrow, "both")
        for name, end in product(narrow, _ENDS):
            found = self._move(found, [name], end)
        return found

    def _move(self, ranges: Ranges, names: Sequence[str], ends: Ends) -> Ranges:
        """Return ranges with some ends moved outward together, as far as the proof holds."""

        def moved(fraction: float) -> Ranges:
            return {**ranges, **{n: stretch(ranges[n], self._whole[n], fraction, ends) for n in names}}

        def holds(fraction: float) -> bool:
            return self._holds(moved(fraction))

        if all(is_same(moved(1.0)[n], ranges[n]) for n in names):
            return ranges
        distance = max(_greatest_distance(ranges[name], self._whole[name]) for name in names)
        return moved(_bisect(holds, least=1e-6 / max(1.0, distance), first=len(names) > 1 or ends == "both"))

    # halving ------------------------------------------------------------------------------------------------------

    def _halve(self, findings: Sequence[Finding], best: Finding | None) -> Iterator[Finding]:
        """Yield better combinations of two results that hold for one half of a dimension each."""
        if best is None or not any(share_kept(best.ranges[n], self._whole[n])[0] < _BRUTAL for n in self._names):
            return
        for other in findings:
            if other is best:
                continue
            for ranges in islice(self._layouts(best.ranges, other.ranges), _LAYOUTS):
                halved = self._rate(ranges)
                if halved.score > best.score and self._holds(ranges):
                    yield self._rate(self._widen(ranges))
                    return

    def _layouts(self, first: Ranges, second: Ranges) -> Iterator[Ranges]:
        """Yield the ways in which two results can be halved along a dimension that all narrowed tensors have."""
        names = [n for n in self._names if self._is_narrower(first, n) or self._is_narrower(second, n)]
        if all(self._is_narrower(first, n) == self._is_narrower(second, n) for n in names):
            return
        shapes = [self._whole[name].shape for name in names]
        common = set(shapes[0]).intersection(*shapes) - {1}
        for size in sorted(common, reverse=True):
            for axes in product(*([a for a, s in enumerate(shape) if s == size] for shape in shapes)):
                halves = {n: join(first[n], second[n], axis) for n, axis in zip(names, axes, strict=True)}
                yield {**first, **halves}

    def _is_narrower(self, ranges: Ranges, name: str) -> bool:
        return not is_same(ranges[name], self._whole[name])

    def _rate(self, ranges: Ranges) -> Finding:
        kept = [share_kept(ranges[name], self._whole[name])[0] for name in self._names]
        return Finding(ranges, sum(kept) - _PENALTY * sum(share < _BRUTAL for share in kept))


def _values(whole: Interval) -> tuple[torch.Tensor, ...]:
    """Return values to start from: 0, the centre, both ends."""
    zero = torch.zeros_like(whole.lower)
    centre = whole.lower.double() / 2 + whole.upper.double() / 2
    return zero, centre if whole.is_floating else centre.floor(), whole.lower, whole.upper


def _greatest_distance(part: Interval, whole: Interval) -> float:
    below = (part.lower.double() - whole.lower.double()).amax()
    return float(torch.maximum(below, (whole.upper.double() - part.upper.double()).amax()))


def _drop_alike(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings without those that narrow the same ends as one before."""
    kept: list[Finding] = []
    for finding in findings:
        if not any(all(is_same(finding.ranges[name], other.ranges[name]) for name in finding.ranges) for other in kept):
            kept.append(finding)
    return kept


def _bisect(holds: Callable[[float], bool], *, least: float, first: bool) -> float:
    """Return a fraction that holds, close to the greatest; 0 does.

    Args:
        holds: Tells of a fraction.
        least: The least fraction that counts.
        first: Whether much may be gained; if not, a small gain is tried first.
    """
    if holds(1.0):
        return 1.0
    low, high = 0.0, 1.0
    if not first and not holds(0.03):
        return 0.0
    if not first:
        low = 0.03
    for _ in range(_STEPS if low else 2 * _STEPS):
        if high - low < 0.02 * high:
            break
        middle = (low + high) / 2 if low > high / 4 else math.sqrt(max(low, least) * high)
        if holds(middle):
            low = middle
        elif middle <= least * 1.01:
            break
        else:
            high = middle
    return low
