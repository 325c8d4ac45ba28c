"""Search for one trigger, with few starts at first, because most defects of an architecture are hit at once."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from ranum_falsify.errors import ReplayCrashError, ReplayTimeoutError
from ranum_falsify.process.deadline import OutOfTime
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.verify.replay.broken import DENORMAL
from ranum_falsify.verify.search.aiming import aim
from ranum_falsify.verify.search.bisection import bisect
from ranum_falsify.verify.search.objective import Objective
from ranum_falsify.verify.search.scan import NEAR
from ranum_falsify.verify.search.search import Region, SearchContext, descend, find_downhill_vertices
from ranum_falsify.verify.search.starts import Box
from ranum_falsify.witness.oracle import Oracle
from ranum_falsify.witness.unit_test import Trigger

_ROUNDS = ((1, 8), (8, 30), (32, 60), (64, 100))
"""Starts and steps of each round; the last round is repeated while there is time."""

_SHARES = (0.05, 0.2)
"""Where to take the first gradients, as shares of the way from the box's centre to a start."""

_UPPER_SHARE = 0.2
"""Where to look instead in large models, as a share of the way from the box's upper bounds to a start."""

_REPLAYS = 4
"""Candidates of one batch that are replayed."""

_FOLLOWED = 0.3
"""Share of the time that is left for descents of a round where rounding may decide."""

_PATIENCE = 12
"""Replays after a first trigger that fails behind another operator, in the hope of one that fails alone."""


class TriggerSearch:
    """Looks for inputs that make one operator invalid, and none before it if possible.

    Args:
        context: Seed, budget, models.
        targets: The operator's conditions.
        oracle: Decides which candidates count.
        descend: Whether to follow gradients, instead of only drawing points at random.
    """

    def __init__(self, context: SearchContext, targets: Sequence[Target], oracle: Oracle, *, descend: bool) -> None:
        self._context = context
        self._targets = list(targets)
        self._oracle = oracle
        self._descend = descend
        self._found: Trigger | None = None
        self._left = _PATIENCE
        self._nearest: tuple[float, list[Tensor]] = math.inf, []

    def run(self) -> Trigger | None:
        """Search until something is found or time is up."""
        number = 0
        try:
            while not self._is_done:
                count, steps = _ROUNDS[min(number, len(_ROUNDS) - 1)]
                for region in self._context.regions():
                    self._round(region, count, steps, first=number == 1)
                number += 1
        except OutOfTime:
            pass
        return self._found

    @property
    def _is_done(self) -> bool:
        if self._found is not None and (self._found.alone or self._left <= 0):
            return True
        return self._context.budget.expired

    def _round(self, region: Region, count: int, steps: int, *, first: bool) -> None:
        objective = self._context.objective(self._targets)
        if not self._descend:
            boxes = region.boxes
            starts = [b.at(torch.rand((count, *b.lower.shape), generator=self._context.generator)) for b in boxes]
            margins = objective.evaluate(starts).margins
            if not self._visit(margins, starts):
                self._replay(starts, int(margins.amin(1).argmin()))
            return
        starts = self._context.starts(region, count, first=first)
        if first:
            # So that zeros of one input meet ordinary values of the others.
            starts = [x[torch.randperm(count, generator=self._context.generator).to(x.device)] for x in starts]
        margins = objective.evaluate(starts).margins
        if count == 1:
            is_large = self._context.portion == 1  # gradients would take most of the time
            ends = _place_near_upper(region, starts) if is_large else _find_downhill(objective, region, starts)
            self._visit(objective.evaluate(ends).margins, ends)
        if not self._is_done:
            self._visit(margins, starts)
        aims = count > 1 and self._found is None and self._nearest[0] < NEAR
        budget = self._context.budget
        with budget.end_within(_FOLLOWED * budget.left if aims else budget.left):
            for target in self._sort_by_distance(margins):
                if self._is_done:
                    break
                self._follow(target, region, starts, steps)
        for target in self._targets if aims else ():
            if not self._is_done:
                aim(self._context, target, region, self._nearest[1], self._replays)

    def _sort_by_distance(self, margins: Tensor) -> list[Target]:
        """Return the targets to follow, the nearest first."""
        targets = [self._targets[position] for position in margins.amin(0).argsort().tolist()]
        return [target for target in targets if not target.is_remote] or targets

    def _follow(self, target: Target, region: Region, starts: Sequence[Tensor], steps: int) -> None:
        if len(starts[0]) > 1:
            bisect(self._context, target, region, starts, self._visit)
        if self._is_done:
            return
        objective = self._context.objective([target])
        margins, ends = descend(self._context, objective, region, starts, None, self._visit, steps=steps)
        if not self._is_done:
            # A near miss may be a hit on ONNX Runtime, whose kernels stray from torch's.
            self._replay(ends, int(margins.amin(1).argmin()))

    def _replays(self, inputs: Sequence[Tensor], position: int) -> bool:
        self._replay(inputs, position)
        return self._is_done

    def _visit(self, margins: Tensor, inputs: Sequence[Tensor]) -> bool:
        """Replay what torch finds invalid; return whether the search is over."""
        least = margins.amin(1)
        if float(least.amin()) < self._nearest[0]:
            self._nearest = float(least.amin()), [x[least.argmin()][None].clone() for x in inputs]
        for position in least.argsort(stable=True)[: min(int((least < DENORMAL).sum()), _REPLAYS)].tolist():
            self._replay(inputs, position)
            if self._is_done:
                return True
        return self._is_done

    def _replay(self, inputs: Sequence[Tensor], position: int) -> None:
        env = self._context.arrays(inputs, position)
        began = time.monotonic()
        try:
            trigger = self._oracle.judge(self._targets, env)
        except (ReplayCrashError, ReplayTimeoutError):
            return
        finally:
            self._context.budget.replay_seconds += time.monotonic() - began
        if self._found is not None:
            self._left -= 1
        if trigger is not None and (self._found is None or (trigger.alone and not self._found.alone)):
            self._found = trigger


def _find_downhill(objective: Objective, region: Region, starts: Sequence[Tensor]) -> list[Tensor]:
    """Return the vertices of the box that lie downhill from points between its centre and each start.

    Near the centre activations are moderate, and gradients neither vanish nor saturate, as they do where networks with
    free weights compute huge numbers.  A trigger at a vertex that the gradient chose lies far from the border of the
    triggers, so that its span is wide.
    """
    points = [_place_near_centre(x, box) for x, box in zip(starts, region.device_boxes, strict=True)]
    return find_downhill_vertices(objective, region, points, None)


def _place_near_centre(x: Tensor, box: Box) -> Tensor:
    """Return points between the centre of a box and given ones, `(shares * batch, *shape)`; integers stay."""
    if not x.is_floating_point():
        return torch.cat([x] * len(_SHARES))
    centre = (box.lower / 2 + box.upper / 2).expand_as(x)
    return box.project(torch.cat([torch.lerp(centre, x, share) for share in _SHARES]))


def _place_near_upper(region: Region, starts: Sequence[Tensor]) -> list[Tensor]:
    """Return points between the upper bounds of a box and each start; integers stay.

    Sums of large positive numbers neither cancel nor lose their sign within a span.
    """
    return [
        box.project(torch.lerp(box.upper.expand_as(x), x, _UPPER_SHARE)) if x.is_floating_point() else x
        for x, box in zip(starts, region.device_boxes, strict=True)
    ]
