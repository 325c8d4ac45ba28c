"""Inputs at which a number is one of those that ONNX Runtime's kernels fail at, as ONNX Runtime computes it too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.errors import ReplayError
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.verify.replay.confirmer import Confirmer, feeds_of
from ranum_falsify.verify.search.bisection import Bisection, Observation
from ranum_falsify.verify.search.kernels import KernelPath, find_numbers, find_paths
from ranum_falsify.verify.search.search import Region, SearchContext, find_worst_vertices
from ranum_falsify.verify.search.starts import Box, sample_starts

_NUMBERS, _AIMS = 16, 8
"""Numbers that are tried, and pairs of a number and an element that is to be equal to it."""

_HALVINGS = 12
"""Enough to bring points so near to each other that one element decides."""

_TOGETHER, _GROUPS = 2, 4
"""Elements that are moved in one run, each alone, and how many such runs follow one another."""

_STARTS = 6
"""Points to pair up with those that come nearest."""

_SECONDS = 5.0
"""Time for one target, which only slow networks take."""


@dataclass(kw_only=True)
class Aiming:
    """Looks for inputs at which a number that decides an operand is one at which ONNX Runtime's kernels fail.

    Attributes:
        confirmer: Runs the network, and parts of it.
        graph: The network.
        boxes: Bounds of what is searched, on the CPU.
        generator: Source of randomness.
        feeds: Returns what the network is given at a position of a batch, `(batch, *shape)` per box, by input name.
        replay: Replays the point at a position of a batch; returns whether to stop.
        is_over: Whether time is up.
    """

    confirmer: Confirmer
    graph: Graph
    boxes: Sequence[Box]
    generator: torch.Generator
    feeds: Callable[[Sequence[Tensor], int], Mapping[str, np.ndarray]]
    replay: Callable[[Sequence[Tensor], int], bool]
    is_over: Callable[[], bool]
    _nearest: list[tuple[float, list[Tensor]]] = field(default_factory=list, init=False)
    _is_done: bool = field(default=False, init=False)

    def run(self, target: Target, starts: Sequence[Tensor]) -> None:
        """Search for one condition, from points `(batch, *shape)` per box, between which the numbers must lie."""
        with suppress(ReplayError):  # what ONNX Runtime refuses to run shows nothing
            for path in find_paths(self.graph, target):
                seen = self._measure(path, starts)
                known = seen[seen.isfinite()]
                numbers = find_numbers(self.confirmer, path, known.min(), known.max()) if len(known) else known
                if len(numbers) and not self._is_done:
                    self._aim(path, starts, seen, *self._choose_aims(path, numbers, seen))

    def _choose_aims(self, path: KernelPath, numbers: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Return numbers, and the places of elements whose reach they lie in, `(aims,)` each."""
        kept = numbers[self._permute(len(numbers))[:_NUMBERS]]
        # A kernel may compute the elements of a whole vector otherwise than a few.
        margins = [path.measure(self.confirmer, x.expand(path.shape).contiguous()).reshape(-1) for x in kept]
        reached = (seen.amin(0) <= kept[:, None]) & (kept[:, None] <= seen.amax(0))
        pairs = (reached & (torch.stack(margins) < 0)).nonzero()
        pairs = pairs[self._permute(len(pairs))[:_AIMS]]
        return kept[pairs[:, 0]], pairs[:, 1]

    def _aim(self, path: KernelPath, starts: Sequence[Tensor], seen: Tensor, numbers: Tensor, places: Tensor) -> None:
        """Aim at each of some numbers between starts, whose elements are given, unless one of them is there already."""
        met = (seen[:, places] == numbers).any(1).nonzero()[:, 0].tolist()
        self._is_done = any(self.replay(starts, position) for position in met)
        for column in range(len(numbers)):
            if self._is_done or self.is_over():
                return
            bisection = self._bisect(path, numbers, places, column)
            reached = seen[:, places[column]].double() - numbers[column].double()
            # Mostly the nearest points on both sides, not always the same.
            noisy = reached * torch.rand(len(reached), generator=self.generator, dtype=torch.float64)
            below, above = (torch.where(side > 0, side, math.inf).argmin()[None] for side in (-noisy, noisy))
            self._nearest = [(math.inf, []), (math.inf, [])]
            replace(bisection, halvings=_HALVINGS).run_between([x[below] for x in starts], [x[above] for x in starts])
            # Where the tensor jumps, an element may decide on one side alone.
            sides = [self._list_moves(point) for _, point in sorted(self._nearest, key=lambda side: side[0]) if point]
            for ends in chain.from_iterable(zip(*sides, strict=True)):
                if not self._is_done:
                    bisection.run_between(*ends)

    def _bisect(self, path: KernelPath, numbers: Tensor, places: Tensor, column: int) -> Bisection:
        """Return what aims at one of some numbers, and sees where any of them is hit."""

        def observe(points: Sequence[Tensor]) -> Observation:
            crossing = self._measure(path, points)[:, places].double() - numbers.double()
            self._note(crossing[:, column], points)
            missed = torch.where((crossing == 0).any(1), 0.0, crossing[:, column].abs().nan_to_num(nan=math.inf))
            return Observation(missed[:, None], crossing[:, column : column + 1])

        return Bisection(
            observe=observe,
            visit=self._visit,
            boxes=self.boxes,
            generator=self.generator,
            is_over=self.is_over,
            interpolates=True,
            shakes=0,
        )

    def _note(self, crossing: Tensor, points: Sequence[Tensor]) -> None:
        """Remember the nearest points on both sides of a number."""
        for side, sizes in enumerate((-crossing, crossing)):
            least, position = torch.where(sizes > 0, sizes, math.inf).min(0)
            if float(least) < self._nearest[side][0]:
                self._nearest[side] = float(least), [x[int(position)][None] for x in points]

    def _visit(self, distances: Tensor, points: Sequence[Tensor]) -> bool:
        hits = (distances[:, 0] == 0).nonzero()[:, 0].tolist()
        self._is_done = any(self.replay(points, place) for place in hits)
        return self._is_done

    def _measure(self, path: KernelPath, points: Sequence[Tensor]) -> Tensor:
        """Return the elements of the source at points as ONNX Runtime computes them, `(points, elements)`."""
        fields = spec_of(path.reader).operands_of(path.reader)
        place = next(number for number, value in enumerate(fields) if value is path.source)
        rows = []
        for position in range(len(points[0])):
            found = self.confirmer.operands(self.graph, path.reader, self.feeds(points, position))[place]
            assert found is not None, "the source is an operand of its reader"
            rows.append(to_torch(found).reshape(-1))
        return torch.stack(rows)

    def _list_moves(self, point: Sequence[Tensor]) -> Iterator[list[list[Tensor]]]:
        """Yield pairs of batches that are a point but for one element of each, at the ends of its range.

        Small inputs come first: they are added or multiplied last, as biases are, where nothing else rounds.
        """
        order = sorted(range(len(point)), key=lambda number: point[number].numel())
        free = [[(number, place) for place in self._draw_places(self.boxes[number])] for number in order]
        moves = [places[turn] for turn in range(_TOGETHER) for places in free if turn < len(places)]
        for begin in range(0, min(len(moves), _TOGETHER * _GROUPS), _TOGETHER):
            group = moves[begin : begin + _TOGETHER]
            yield [[self._move(n, x, group, end) for n, x in enumerate(point)] for end in ("lower", "upper")]

    def _draw_places(self, box: Box) -> list[int]:
        places = (box.lower < box.upper).reshape(-1).nonzero()[:, 0] if box.dtype.is_floating_point else torch.empty(0)
        return [int(place) for place in places[self._permute(len(places))[:_TOGETHER]]]

    def _move(self, number: int, x: Tensor, group: Sequence[tuple[int, int]], end: str) -> Tensor:
        moved = x.expand(len(group), *x.shape[1:]).clone()
        for row, (of, place) in enumerate(group):
            if of == number:
                moved[row].view(-1)[place] = getattr(self.boxes[number], end).reshape(-1)[place]
        return moved

    def _permute(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator)


def aim(
    context: SearchContext,
    target: Target,
    region: Region,
    near: Sequence[Tensor],
    replay: Callable[[Sequence[Tensor], int], bool],
) -> None:
    """Look for inputs at which ONNX Runtime's kernels make the operator of a target invalid.

    At points nearby, its margin is small; `replay` replays the point at a position of a batch, and returns whether to
    stop.
    """
    call = context.problem.goals[target.goal].call
    graph = context.model_of(call).graph
    # What depends on draws is never the same number twice.
    draws = any(spec_of(op).is_random(op) for op in graph.nodes)
    if draws or next(find_paths(graph, target), None) is None:
        return
    downhill = find_worst_vertices(context.objective([target]), region, 1)
    drawn = sample_starts(region.boxes, _STARTS, context.generator)
    starts = [torch.cat([x.cpu() for x in parts]) for parts in zip(near, downhill, drawn, strict=True)]
    aiming = Aiming(
        confirmer=context.confirmer,
        graph=graph,
        boxes=region.boxes,
        generator=context.generator,
        feeds=lambda points, at: feeds_of(context.problem, call, context.arrays(points, at), context.confirmer),
        replay=replay,
        is_over=lambda: context.budget.expired,
    )
    with context.budget.end_within(_SECONDS):
        aiming.run(target, starts)
