"""Backward passes: linear functionals of tensors, followed step by step to the inputs, as linear lower bounds.

A functional of the inputs has a least value over a box.

Source: H. Zhang et al., Efficient Neural Network Robustness Certification with General Activation Functions, 2018,
https://arxiv.org/abs/1811.00866 (CROWN).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import TOTALS_SHARE, double_share, vanishing
from ranum_falsify.domain.linear.steps import Box, Step, flatten, minimise


@dataclass(frozen=True)
class BoundedTensor:
    """A tensor of the graph.

    Attributes:
        shape: Its shape.
        box: Its bounds by the interval analysis, `(1, *shape)`; may be infinite.
    """

    shape: tuple[int, ...]
    box: Box


@dataclass
class Program:
    """Steps in topological order.

    Attributes:
        variables: Every floating tensor that depends on the inputs, by number.
        steps: The steps that compute them; variables that no step writes are free within their boxes.
        inputs: Variables of the graph's inputs; None for those that are not floating or have one value.
        numbers: Variable of each operation, and of constants that do not have a single value, by id.
        writers: The step that writes each variable.
    """

    variables: list[BoundedTensor] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    inputs: list[int | None] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    writers: dict[int, int] = field(default_factory=dict)

    def add(self, variable: BoundedTensor) -> int:
        """Add a variable and return its number."""
        self.variables.append(variable)
        return len(self.variables) - 1

    def append(self, step: Step) -> None:
        """Append a step."""
        self.writers.update(dict.fromkeys(step.writes, len(self.steps)))
        self.steps.append(step)

    def select_before(self, targets: Sequence[int]) -> list[int]:
        """Return the steps on which variables depend, last first."""
        needed, found = set(targets), []
        for number in reversed(range(len(self.steps))):
            step = self.steps[number]
            if not needed.isdisjoint(step.writes):
                needed.update(step.reads)
                found.append(number)
        return found


class BoxBatch:
    """Boxes over which passes go.

    Attributes:
        program: The steps.
        boxes: Bounds `(boxes, *shape)` of some variables; the others have those of the program.
    """

    def __init__(self, program: Program, boxes: dict[int, Box]) -> None:
        """Start with bounds of some variables."""
        self.program = program
        self.boxes = dict(boxes)
        self._prepared: dict[int, object] = {}
        self._sizes: dict[int, Tensor] = {}
        self._losses: dict[int, Tensor] = {}

    def box(self, variable: int) -> Box:
        """Return the bounds of a variable, `(boxes or 1, *shape)`."""
        return self.boxes.get(variable) or self.program.variables[variable].box

    def size(self, variable: int) -> Tensor:
        """Return the greatest magnitudes of a variable, `(boxes or 1, *shape)`."""
        if variable not in self._sizes:
            low, high = self.box(variable)
            self._sizes[variable] = torch.maximum(low.abs(), high.abs())
        return self._sizes[variable]

    def loss(self, variable: int) -> Tensor:
        """Return what may be lost where coefficients of a variable vanish, `(boxes or 1, 1)`, over `TOTALS_SHARE`."""
        if variable not in self._losses:
            size = self.size(variable)
            size = flatten(size, 1)
            lost = vanishing(size.shape[1]) / TOTALS_SHARE
            self._losses[variable] = (1 + torch.where(size.isfinite(), size, 0.0).sum(1, keepdim=True)) * lost
        return self._losses[variable]

    def rounding(self, variable: int, weight: Tensor) -> Tensor:
        """Return what the sum of a linear function of a variable may lose, `(boxes, rows)`, over `TOTALS_SHARE`."""
        size = self.size(variable)
        return double_share(size[0].numel()) / TOTALS_SHARE * spread(weight, size)

    def narrow(self, variable: int, box: Box) -> None:
        """Set the bounds of a variable that no pass has gone through yet."""
        self.boxes[variable] = box
        self._sizes.pop(variable, None)
        self._losses.pop(variable, None)

    def prepare(self, number: int) -> object:
        """Return what a step has prepared for the boxes."""
        if number not in self._prepared:
            self._prepared[number] = self.compute(number)
        return self._prepared[number]

    def kept(self, variable: int) -> Tensor | None:
        """Return the part `(boxes, *shape)` of the coefficients of a variable that meets its bounds; None for none.

        Only the others go on to the step that computes the variable.  Any part is sound: it is a multiplier of the
        variable's bounds, which need not follow from what the step reads.
        """
        return None

    def see(self, number: int, weights: Sequence[Tensor]) -> None:
        """Do nothing with the coefficients that come to a step."""

    def compute(self, number: int) -> object:
        """Return what a step needs to know of the boxes."""
        step = self.program.steps[number]
        return step.prepare([self.box(v) for v in step.watched])


def descend(weights: dict[int, Tensor], region: BoxBatch) -> tuple[Tensor, dict[int, Tensor]]:
    """Return lower bounds of linear functionals of variables over boxes.

    Args:
        weights: Coefficients `(boxes, rows, *shape)` by variable, of at least one.
        region: The boxes.

    Returns:
        The bounds `(boxes, rows)`, and the coefficients of the graph's inputs by variable.
    """
    program, weights = region.program, dict(weights)
    shape = next(iter(weights.values())).shape[:2]
    total = torch.zeros(shape, dtype=torch.float64)
    slack = torch.zeros(shape, dtype=torch.float64)
    for number in program.select_before(list(weights)):
        step = program.steps[number]
        given = [
            weights.pop(v) if v in weights else torch.zeros(*shape, *program.variables[v].shape, dtype=torch.float64)
            for v in step.writes
        ]
        region.see(number, given)
        for position, v in enumerate(step.writes):
            kept = region.kept(v)
            if kept is not None:
                part = kept.unsqueeze(1)
                share, rest = minimise(part, region.box(v)), given[position] - part
                # The difference is rounded, too.
                lost = share.abs() + region.rounding(v, part) + region.rounding(v, rest)
                given[position], total, slack = rest, total + share, slack + lost
        passed, constant = step.back(given, region.prepare(number))
        total, slack = total + constant, slack + constant.abs()
        for v, weight in zip(step.reads, passed, strict=True):
            weights[v] = weights[v] + weight if v in weights else weight
            slack = slack + region.loss(v)
    for v, weight in weights.items():
        share = minimise(weight, region.box(v))
        total, slack = total + share, slack + share.abs() + region.rounding(v, weight)
    ends = {v: weights[v] for v in program.inputs if v in weights}
    return torch.nan_to_num(total - TOTALS_SHARE * slack, nan=-math.inf, posinf=math.inf, neginf=-math.inf), ends


def spread(weight: Tensor, size: Tensor) -> Tensor:
    """Return the sums of magnitudes `(boxes, rows)` of linear functions of variables of at most some sizes."""
    worst = weight.abs() * size.unsqueeze(1)
    return torch.where(weight == 0, 0.0, worst).reshape(*weight.shape[:2], -1).sum(-1)


_EXPECTED = 0.1
"""Seconds of passes that the expected price of estimates is worth."""


class Allowance:
    """Multiplications that passes may still take.

    Attributes:
        left: How many.
        is_short: Whether it was not enough for something.
    """

    def __init__(self, left: float, speed: float | None = None, price: float = 1.0) -> None:
        """Grant an amount.

        Args:
            left: Multiplications.
            speed: How many of them a second counts for, so that time is spent in place of what passes are estimated to
                take; None to spend the estimates, whatever they take.
            price: What one of an estimate is expected to cost before any has been timed.
        """
        self.left, self.is_short = left, False
        self._speed, self._price = speed, price
        # What is computed for the first time takes longer than what is like it, so that the expectation counts, too.
        self._spent = 0.0 if speed is None else _EXPECTED * speed
        self._estimated = self._spent / price

    def affords(self, cost: float, share: float = 1.0) -> bool:
        """Tell whether an estimate is within a share of what is left."""
        enough = cost * self._price <= share * self.left
        self.is_short |= not enough
        return enough

    @contextmanager
    def spend(self, cost: float) -> Iterator[None]:
        """Take what the block costs, given its estimate."""
        began = time.monotonic()
        try:
            yield
        finally:
            spent = cost if self._speed is None else (time.monotonic() - began) * self._speed
            self.left -= spent
            self._estimated, self._spent = self._estimated + cost, self._spent + spent
            self._price = self._spent / self._estimated if self._estimated else self._price
