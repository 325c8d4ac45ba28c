"""Search for wide ranges within which something is proved.

The bounds of interval analysis are monotone: what they prove on a box they prove on every box inside it.  So each end
of a range that can be moved outward without loss of the proof is a gain, and no derivatives are needed.  All tensors
start as single values, an anchor.  Their original ends are released one after another, as many at once as possible;
what cannot be released is moved outward as far as the proof holds.  Two results for different tensors that share a
dimension, of which one makes almost a constant of a tensor, are halved: each then holds on one half of that dimension;
or both tensors are narrowed, each less than alone.
Where elements of a tensor matter differently, by the derivatives of margins, their widths are made to differ, too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

import torch

from ranum_falsify.domain import Interval
from ranum_falsify.repair.abstraction.ranges import Ends, Ranges, is_same, join, pin, share_kept, stretch

_BRUTAL = 0.01
"""A tensor of which less than this share is left is almost a constant."""

_PENALTY = 1.0
"""What a tensor that is almost a constant counts beyond the share that it lost."""

_GAIN = 0.03
"""Fractions of the way to the original ends above this are found finely."""

_LEAST = 1e-6
"""The least fraction that counts."""

_FINE, _COARSE = 0.02, 0.15
"""How close fractions are found, relative to them: in general, and of small ones."""

_RANDOM = 12
"""How many random anchors of either kind are tried where no other one is valid."""

_WIDENED, _TOLERANCE = 2, 0.25
"""How many results are widened, and by how much these may be worse than the best one."""

_WORTH = 1.05
"""How many times as much must be kept for elements to have ranges of their own."""

_POINTS = 1 << 16
"""Up to how many elements a tensor has an anchor that differs from element to element."""

_ENDS: tuple[Ends, ...] = ("lower", "upper")

_LAYOUTS = 12
"""How many ways to halve two results are tried."""


@dataclass(frozen=True, eq=False)
class ProvedBox:
    """Ranges within which the proof holds."""

    ranges: Ranges
    score: float


class BoxExpansion:
    """Finds wide ranges of some tensors.

    Args:
        whole: The original ranges.
        holds: Tells whether the proof may hold on narrower ranges: quick, and often right.
        proves: Tells whether it does.
        rate_elements: Returns how much each element of tensors matters, within given ranges; those of tensors whose
            elements are not known to differ may be missing.
    """

    def __init__(
        self,
        whole: Ranges,
        holds: Callable[[Ranges], bool],
        proves: Callable[[Ranges], bool],
        rate_elements: Callable[[Ranges], Mapping[str, torch.Tensor]] = lambda ranges: {},
    ) -> None:
        self._whole = whole
        self._names = tuple(whole)
        self._holds = holds
        self._proves = proves
        self._rate_elements = rate_elements

    def findings(self) -> Iterator[ProvedBox]:
        """Yield ranges, each better than those before; none if no anchor is valid."""
        quick = list(self._release_all(self._holds))
        released = [finding for finding in quick if self._proves(finding.ranges)]
        if quick and not released:
            released = list(self._release_all(self._proves))
        released = _drop_alike(sorted(released, key=lambda finding: -finding.score))
        best: ProvedBox | None = None
        widened: list[ProvedBox] = []
        worst = released[0].score - _TOLERANCE if released else 0.0
        for finding in [finding for finding in released if finding.score >= worst][:_WIDENED]:
            widened.append(self._rate(self._widen(finding.ranges)))
            if best is None or widened[-1].score > best.score:
                best = widened[-1]
                yield best
        if best is None:
            return
        others = widened + released[len(widened) :]
        for combine in (self._halve, self._share):
            for better in combine(best, others):
                if better.score > best.score:
                    best = better
                    yield better
        yield from self._spread(best)

    # anchors and release ------------------------------------------------------------------------------------------

    def _release_all(self, holds: Callable[[Ranges], bool]) -> Iterator[ProvedBox]:
        """Yield what remains narrow from each anchor, in topological order and backward."""
        most = len(self._names)
        for anchor in self._valid_anchors(holds):
            for backward in (False, True):
                release = _Release(self._whole, holds, backward=backward)
                ranges = release.run(anchor, most=most)
                if ranges is not None:
                    found = self._rate(ranges)
                    narrow = sum(self._is_narrower(ranges, name) for name in self._names)
                    most = min(most, narrow + self._is_brutal(ranges))
                    yield found

    def _valid_anchors(self, holds: Callable[[Ranges], bool]) -> Iterator[Ranges]:
        """Yield single values of all tensors for which the proof holds: zeros, least and greatest ones; else others."""
        zeros, _, least, greatest = zip(*(_values(whole) for whole in self._whole.values()), strict=True)
        found = False
        for anchor in map(self._pin, (zeros, least, greatest)):
            if holds(anchor):
                found = True
                yield anchor
        if not found:
            yield from islice(filter(holds, self._other_anchors()), 1)

    def _other_anchors(self) -> Iterator[Ranges]:
        """Yield the centres, then random values: in turn one for all elements of a tensor, and one for each."""
        yield self._pin([_values(whole)[1] for whole in self._whole.values()])
        rng, generator = random.Random(0), torch.Generator().manual_seed(0)
        for _ in range(_RANDOM):
            yield self._pin([rng.choice(_values(whole)) for whole in self._whole.values()])
            yield self._pin([_draw(whole, generator) for whole in self._whole.values()])

    def _pin(self, values: Sequence[torch.Tensor]) -> Ranges:
        return {name: pin(whole, value) for (name, whole), value in zip(self._whole.items(), values, strict=True)}

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
            return self._proves(moved(fraction))

        if all(is_same(moved(1.0)[n], ranges[n]) for n in names):
            return ranges
        if holds(1.0):
            return moved(1.0)
        distance = max(_greatest_distance(ranges[name], self._whole[name]) for name in names)
        if ends == "both":
            return moved(_bisect(holds, least=_LEAST / max(1.0, distance)))
        gain = min(_GAIN, 0.1 * max(_greatest_width(ranges[name]) for name in names) / distance)
        return moved(_bisect(holds, low=gain)) if gain and holds(gain) else ranges

    # halving ------------------------------------------------------------------------------------------------------

    def _halve(self, best: ProvedBox, findings: Sequence[ProvedBox]) -> Iterator[ProvedBox]:
        """Yield a better combination of two results, each for one half of a dimension."""
        if not self._is_brutal(best.ranges):
            return
        for other in findings:
            for ranges in islice(self._layouts(best.ranges, other.ranges), _LAYOUTS):
                if self._rate(ranges).score > best.score and self._proves(ranges):
                    yield self._rate(self._widen(ranges))
                    return

    def _share(self, best: ProvedBox, findings: Sequence[ProvedBox]) -> Iterator[ProvedBox]:
        """Yield combinations of two results in which the tensors of both are narrowed, each less."""
        if not self._is_brutal(best.ranges):
            return
        for other in findings:
            if other is not best:
                both = {name: best.ranges[name].meet(other.ranges[name]) for name in self._names}
                yield self._rate(self._widen(both))

    def _layouts(self, first: Ranges, second: Ranges) -> Iterator[Ranges]:
        """Yield the ways in which each result holds on one half of a dimension of all that only one of them narrows."""
        narrow = {n: (self._is_narrower(first, n), self._is_narrower(second, n)) for n in self._names}
        whole = {**first, **{n: first[n].meet(second[n]) for n, found in narrow.items() if all(found)}}
        names = [n for n, (a, b) in narrow.items() if a != b]
        shapes = [self._whole[name].shape for name in names]
        common = set(shapes[0]).intersection(*shapes) - {1} if shapes else set()
        for size in sorted(common, reverse=True):
            for axes in product(*([a for a, s in enumerate(shape) if s == size] for shape in shapes)):
                yield {**whole, **{n: join(first[n], second[n], axis) for n, axis in zip(names, axes, strict=True)}}

    # elements -----------------------------------------------------------------------------------------------------

    def _spread(self, best: ProvedBox) -> Iterator[ProvedBox]:
        """Yield better ranges, in which elements that matter little are narrowed less."""
        costs = self._rate_elements(best.ranges)
        for name in [name for name in self._names if name in costs and self._is_narrower(best.ranges, name)]:
            found = self._rate(self._weigh_elements(best.ranges, name, costs[name]))
            before, after = (share_kept(ranges[name], self._whole[name])[0] for ranges in (best.ranges, found.ranges))
            if found.score > best.score and after > _WORTH * before:
                best = found
                yield best

    def _weigh_elements(self, ranges: Ranges, name: str, costs: torch.Tensor) -> Ranges:
        """Return ranges in which the width of each element of a tensor is inverse to its cost.

        Of all widths with the same sum of widths times costs, these have the greatest product.
        """
        part, whole = ranges[name], self._whole[name]
        point = pin(part, torch.zeros_like(part.lower))
        # Ends that need not move in stay where they are.
        lower = part.lower if torch.equal(part.lower, whole.lower) else point.lower
        upper = part.upper if torch.equal(part.upper, whole.upper) else point.upper
        start = Interval.of(lower, upper, whole.shape)

        def weighed(share: float) -> Ranges:
            fractions = (share * costs.amax() / costs).nan_to_num(1.0, 1.0).clamp(max=1.0)
            return {**ranges, name: stretch(start, whole, fractions, "both")}

        share = _bisect(lambda share: self._proves(weighed(share)))
        return weighed(share) if share else ranges

    def _is_narrower(self, ranges: Ranges, name: str) -> bool:
        return not is_same(ranges[name], self._whole[name])

    def _is_brutal(self, ranges: Ranges) -> bool:
        return any(share_kept(ranges[name], self._whole[name])[0] < _BRUTAL for name in self._names)

    def _rate(self, ranges: Ranges) -> ProvedBox:
        kept = [share_kept(ranges[name], self._whole[name])[0] for name in self._names]
        return ProvedBox(ranges, sum(kept) - _PENALTY * sum(share < _BRUTAL for share in kept))


class _Release:
    """Gives the tensors of an anchor their original ranges back, one after another."""

    def __init__(self, whole: Ranges, holds: Callable[[Ranges], bool], *, backward: bool) -> None:
        self._whole = whole
        self._holds = holds
        self._backward = backward

    def run(self, anchor: Ranges, *, most: int) -> Ranges | None:
        """Return ranges with the original ends wherever the proof still holds; None if more than `most` stay narrow."""
        names = tuple(anchor)[::-1] if self._backward else tuple(anchor)
        found, first, narrow = dict(anchor), 0, 0
        while first < len(names):
            if narrow and self._holds(self._release_first(found, names[first:])):
                return self._release_first(found, names[first:])
            if narrow == most:
                return None
            count = self._count_released(found, names[first:])
            found = self._release_first(found, names[first : first + count])
            first += count
            found[names[first]] = self._release_end(found, names[first])
            first, narrow = first + 1, narrow + 1
        return found

    def _release_first(self, ranges: Ranges, names: Sequence[str]) -> dict[str, Interval]:
        return {**ranges, **{name: self._whole[name] for name in names}}

    def _count_released(self, ranges: Ranges, names: Sequence[str]) -> int:
        """Return how many of some tensors, not all, can have their original ranges at once, counted from the first."""
        # The last tensors of a network matter most: most of the others are released at once.
        low, high, step = 0, len(names), 1
        while high - low > 1:
            middle = low + step if self._backward else high - step
            if not low < middle < high:
                middle = (low + high) // 2
            if self._holds(self._release_first(ranges, names[:middle])):
                low, step = middle, 2 * step if self._backward else high
            else:
                high, step = middle, high if self._backward else 2 * step
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


def _values(whole: Interval) -> tuple[torch.Tensor, ...]:
    """Return values to start from: 0, the centre, both ends."""
    zero = torch.zeros_like(whole.lower)
    centre = whole.lower.double() / 2 + whole.upper.double() / 2
    return zero, centre if whole.is_floating else centre.floor(), whole.lower, whole.upper


def _greatest_width(part: Interval) -> float:
    return float((part.upper.double() - part.lower.double()).amax())


def _draw(whole: Interval, generator: torch.Generator) -> torch.Tensor:
    """Return a random value of each element, or of all where there are many."""
    shape = whole.shape if whole.size <= _POINTS else whole.lower.shape
    share = torch.rand(tuple(shape), generator=generator, dtype=torch.float64)
    return whole.lower.double() * (1 - share) + whole.upper.double() * share


def _greatest_distance(part: Interval, whole: Interval) -> float:
    below = (part.lower.double() - whole.lower.double()).amax()
    return float(torch.maximum(below, (whole.upper.double() - part.upper.double()).amax()))


def _drop_alike(findings: Sequence[ProvedBox]) -> list[ProvedBox]:
    """Return findings without those that narrow the same ends as one before."""
    kept: list[ProvedBox] = []
    for finding in findings:
        if not any(all(is_same(finding.ranges[name], other.ranges[name]) for name in finding.ranges) for other in kept):
            kept.append(finding)
    return kept


def _bisect(holds: Callable[[float], bool], *, low: float = 0.0, least: float = _LEAST) -> float:
    """Return a fraction that holds, close to the greatest; 1 does not."""
    high = 1.0
    while high - low > (_FINE if high > _GAIN else _COARSE) * high and high > least:
        middle = (low + high) / 2 if low > high / 4 else math.sqrt(max(low, least) * high)
        if holds(middle):
            low = middle
        else:
            high = middle if low or middle > 2 * least else least
    return low
