"""Search for training data after which a quantity that must not be 0 is exactly 0."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ranum_falsify.confirm.training.search import DataSearch
from ranum_falsify.search.bisection import Bisection, Observation

__all__ = ["ZeroSearch"]

_STARTS = 32
"""Points between which a round looks for changes of sign."""


class ZeroSearch(DataSearch):
    """Bisects between training data after which the quantity has different signs."""

    def explore(self, target: int, count: int, steps: int, *, first: bool) -> None:
        """Bisect between points of which some have a large loss, and so large gradients."""
        # Most conditions have no sign that changes, and need no training to see that.
        point = self.split([x[0] for x in self.draw(1, first=False)])[1]
        with torch.no_grad():
            if len(self.task.crossings(target, self.initial, point)) < 2:
                return

        def observe(points: Sequence[Tensor]) -> Observation:
            self.stop_in_time()
            with torch.no_grad():
                seen = self.map_trained(lambda w, x: self.task.crossings(target, w, x), self.harden(points))
            return Observation(seen[:, :1], seen[:, 1:])

        def visit(margins: Tensor, points: Sequence[Tensor]) -> bool:
            self.replay_best(margins[:, 0], self.harden(points))
            return False

        bisection = Bisection(
            observe=observe,
            visit=visit,
            boxes=self.boxes,
            generator=self.generator,
            is_over=lambda: False,
        )
        bisection.run_between(*self._draw_segments(first=first))
        bisection.run(self.draw(_STARTS, first=first))

    def _draw_segments(self, *, first: bool) -> tuple[list[Tensor], list[Tensor]]:
        """Return pairs of points between which a single element of a single tensor moves.

        The other tensors are at vertices of their boxes uphill of the loss: large losses saturate what can saturate,
        and few terms are left that could cancel.
        """
        points = self.draw(_STARTS, first=first)
        moved = torch.randint(len(points), (_STARTS,), generator=self.generator)
        ends, starts = [], []
        for position, (x, box) in enumerate(zip(points, self.boxes, strict=True)):
            zero = box.find_nearest(torch.zeros_like(x, dtype=torch.float64))
            single = torch.zeros_like(x, dtype=torch.bool).reshape(_STARTS, -1)
            place = torch.randint(single.shape[1], (_STARTS, 1), generator=self.generator)
            single = single.scatter(1, place, value=True).reshape(x.shape)
            alone = (moved == position).reshape(-1, *([1] * (x.dim() - 1)))
            at_end = torch.where(single, box.at(torch.randint(2, x.shape, generator=self.generator).double()), zero)
            ends.append(torch.where(alone, at_end, x))
            starts.append(torch.where(alone, zero, x))
        uphill = self._climb(ends)
        for position, x in enumerate(uphill):
            alone = (moved == position).reshape(-1, *([1] * (x.dim() - 1)))
            ends[position] = torch.where(alone, ends[position], x)
            starts[position] = torch.where(alone, starts[position], x)
        return starts, ends

    def _climb(self, points: Sequence[Tensor]) -> list[Tensor]:
        """Return the vertices of the box that lie uphill of the loss of the first steps."""
        leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in points]
        losses = self.measure_loss(leaves)
        floating = [x for x in leaves if x.requires_grad]
        if not losses.requires_grad:
            return list(points)
        slopes = iter(torch.autograd.grad(losses.sum(), floating, allow_unused=True))
        found = []
        for x, leaf, box in zip(points, leaves, self.boxes, strict=True):
            slope = next(slopes) if leaf.requires_grad else None
            if slope is None:
                found.append(x)
            else:
                found.append(torch.where(slope > 0, box.upper, torch.where(slope < 0, box.lower, x)))
        return found
