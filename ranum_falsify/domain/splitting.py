"""Branch and bound: a box is cut into smaller ones until backward linear bounds decide each.

The steps of the graph are those of the whole box, whose bounds on rounding hold for every part of it.  Many boxes go
through them at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.condensing import condensed
from ranum_falsify.domain.linear_bounds import Functional, LinearAnalysis, LinearBounds, descend
from ranum_falsify.domain.linear_program import Program
from ranum_falsify.domain.linear_steps import Box

__all__ = ["SplitResult", "split_and_bound"]

_COEFFICIENTS = 1 << 20
"""Coefficients of one variable in one pass over many boxes: what the caches of a core hold."""

_MOST_OPEN = 1 << 20
"""Boxes that may wait."""

_OWN = 1e-12
"""Share of the magnitudes by which narrowed bounds are moved outward for our own arithmetic."""

Decision = Callable[[LinearBounds], Tensor]
"""Tells of each box, from the bounds `(boxes, rows)`, whether it is proved: booleans `(boxes,)`."""


@dataclass(frozen=True)
class SplitResult:
    """What became of a box.

    Attributes:
        proved: Whether every part of it is proved.
        boxes: How many boxes were bounded.
        open_boxes: For each input of the graph, lower and upper bounds `(count, *shape)` in float64 of parts that
            stay open, the worst first; None for an input that is not floating or has one value.
    """

    proved: bool
    boxes: int
    open_boxes: tuple[tuple[Tensor, Tensor] | None, ...]


def split_and_bound(
    analysis: LinearAnalysis,
    ops: Sequence[Operation],
    rows: Tensor | None,
    is_proved: Decision,
    *,
    deadline: float,
    keep: int = 64,
) -> SplitResult:
    """Prove something of linear functionals over the box of an analysis by cutting it.

    Args:
        analysis: The analysis of the whole box, run.
        ops: What the functionals read; see :func:`ranum_falsify.domain.linear_bounds.bound_functional`.
        rows: Their coefficients `(rows, elements)`; each element for itself if not given.
        is_proved: Decides for each box.  It must be monotone: true of bounds, it is true of narrower ones.
        deadline: When to stop, on the clock of `time.monotonic`.
        keep: How many of the open boxes are returned.
    """
    return _Search(analysis, Functional.of(analysis, analysis.program, ops, rows), is_proved).run(deadline, keep)


class _Search:
    def __init__(self, analysis: LinearAnalysis, functional: Functional, is_proved: Decision) -> None:
        self._functional, self._is_proved = functional, is_proved
        self._program: Program = condensed(analysis.program, functional.variables)
        self._root = analysis.boxes
        self._inputs = [v for v in self._program.inputs if v is not None]
        order = self._program.before(functional.variables)
        watched = {v for i in reversed(order) for v in self._program.steps[i].watched if v in self._program.writers}
        self._watched = sorted(watched)
        sizes = [math.prod(self._program.variables[v].shape) for i in order for v in self._program.steps[i].reads]
        rows = max([len(functional.constant), *(2 * self._size(v) for v in self._watched)])
        self._batch = max(1, _COEFFICIENTS // (max(sizes, default=1) * rows))

    def _size(self, variable: int) -> int:
        return math.prod(self._program.variables[variable].shape)

    def run(self, deadline: float, keep: int) -> SplitResult:
        """Cut until nothing is open or time is up."""
        low = torch.cat([self._root[v][0].flatten(1) for v in self._inputs], dim=1)
        high = torch.cat([self._root[v][1].flatten(1) for v in self._inputs], dim=1)
        count = 0
        while len(low) and time.monotonic() < deadline and len(low) <= _MOST_OPEN:
            part = (low[-self._batch :], high[-self._batch :])
            rest = (low[: -self._batch], high[: -self._batch])
            bounds = self.bound(part)
            count += len(part[0])
            stays = ~self._is_proved(bounds)
            if not bool((part[0][stays] < part[1][stays]).any(1).all()):
                # A point that is not proved can be cut no further.
                return SplitResult(False, count, self._named(*part, keep))
            cut = _halves(part[0][stays], part[1][stays], self._scores(bounds, part)[stays])
            low, high = torch.cat([rest[0], cut[0]]), torch.cat([rest[1], cut[1]])
        return SplitResult(not len(low), count, self._named(low.flip(0), high.flip(0), keep))

    def bound(self, part: tuple[Tensor, Tensor]) -> LinearBounds:
        """Bound the functional over boxes, given as flat bounds of all inputs `(boxes, elements)`."""
        count = len(part[0])
        boxes = dict(self._root)
        boxes.update(self._boxes(part))
        for variable in self._watched:
            boxes[variable] = self._narrowed(variable, boxes, count)
        weights = {v: w.expand(count, *w.shape[1:]) for v, w in self._functional.weights.items()}
        lower, coefficients = descend(self._program, weights, boxes)
        lower = torch.maximum(lower + self._functional.constant, self._functional.coarse)
        size = lower.shape[1] // 2
        ends = [None if v is None else coefficients[v] for v in self._program.inputs]
        return LinearBounds(
            lower[:, :size],
            -lower[:, size:],
            tuple(None if x is None else x[:, :size] for x in ends),
            tuple(None if x is None else -x[:, size:] for x in ends),
        )

    def _boxes(self, part: tuple[Tensor, Tensor]) -> dict[int, Box]:
        sizes = [self._size(v) for v in self._inputs]
        return {
            v: (low.reshape(-1, *self._program.variables[v].shape), high.reshape(-1, *self._program.variables[v].shape))
            for v, low, high in zip(self._inputs, *(bound.split(sizes, dim=1) for bound in part), strict=True)
        }

    def _narrowed(self, variable: int, boxes: dict[int, Box], count: int) -> Box:
        """Bound a watched variable over boxes, where the whole box leaves it a width."""
        shape = self._program.variables[variable].shape
        low, high = (bound.flatten(1).expand(count, -1).clone() for bound in self._root[variable])
        chosen = (low[0] < high[0]).nonzero().flatten()
        rows = torch.zeros(len(chosen), low.shape[1], dtype=torch.float64)
        rows[torch.arange(len(chosen)), chosen] = 1.0
        weight = torch.cat([rows, -rows]).reshape(1, -1, *shape)
        lower, _ = descend(self._program, {variable: weight.expand(count, *weight.shape[1:])}, boxes)
        least, greatest = lower[:, : len(chosen)], -lower[:, len(chosen) :]
        # Rounding may cross two bounds that are one point.
        low[:, chosen] = torch.maximum(low[:, chosen], torch.minimum(least, greatest))
        high[:, chosen] = torch.minimum(high[:, chosen], torch.maximum(least, greatest))
        high = torch.maximum(low, high)
        return low.reshape(count, *shape), high.reshape(count, *shape)

    def _scores(self, bounds: LinearBounds, part: tuple[Tensor, Tensor]) -> Tensor:
        """Return for each box and input element how much of the functionals' spread is due to it."""
        size = torch.zeros_like(part[0])
        for coefficients in (bounds.lower_coefficients, bounds.upper_coefficients):
            size += torch.cat([x.flatten(2).abs().sum(1) for x in coefficients if x is not None], dim=1)
        width = part[1] - part[0]
        return torch.where(width > 0, size * width + 1e-9 * width, -1.0)

    def _named(self, low: Tensor, high: Tensor, keep: int) -> tuple[tuple[Tensor, Tensor] | None, ...]:
        boxes = self._boxes((low[:keep], high[:keep]))
        return tuple(None if v is None else boxes[v] for v in self._program.inputs)


def _halves(low: Tensor, high: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return both halves of boxes `(boxes, elements)`, cut along the element of the highest score."""
    boxes, element = torch.arange(len(low)), scores.argmax(1)
    middle = (low[boxes, element] + high[boxes, element]) / 2
    left, right = high.clone(), low.clone()
    left[boxes, element], right[boxes, element] = middle, middle
    return torch.cat([low, right]), torch.cat([left, high])
