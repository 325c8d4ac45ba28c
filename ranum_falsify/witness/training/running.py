"""Training runs, as functions of initial weights and data that autograd can follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from ranum_falsify.verify.search.starts import Box
from ranum_falsify.witness.training.optimisers import Optimiser


class HasLoss(Protocol):
    """What a training run needs to know."""

    @property
    def ranges(self) -> Sequence[Box]:
        """The weights' ranges."""

    def loss(self, weights: Sequence[Tensor], data: Sequence[Tensor]) -> Tensor:
        """Return the loss of one batch, differentiable."""


_FEW = 10
"""Steps up to which a search follows them all."""

_HORIZON = 3
"""Steps that it follows of more."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained.

    Attributes:
        optimiser: The optimiser.
        steps: Number of steps.
        batches: Number of different batches, which the steps take in turn.
        clamps: Whether weights are put back into their ranges after each step.
    """

    optimiser: Optimiser = field(default_factory=Optimiser)
    steps: int = 1
    batches: int = 1
    clamps: bool = False

    @property
    def is_long(self) -> bool:
        """Whether there are too many steps for gradients to follow."""
        return self.steps > _FEW

    @property
    def followed(self) -> Recipe:
        """The part of the training that a search follows; it trains on with what it finds."""
        return replace(self, steps=min(self.steps, max(_HORIZON, self.batches))) if self.is_long else self


def train(
    task: HasLoss,
    recipe: Recipe,
    initial: Sequence[Tensor],
    batches: Sequence[Sequence[Tensor]],
    *,
    smooth: bool = False,
    watch: Callable[[int, Sequence[Tensor]], bool | None] = lambda number, weights: None,
) -> list[Tensor]:
    """Return the weights after a training run, differentiable in the data.

    Args:
        task: What trains.
        recipe: How.
        initial: The weights before the first step.
        batches: Data of each batch, in the order of the task's inputs.
        smooth: See :meth:`Optimiser.step`.
        watch: Called after each step with the number of steps so far, and the weights; returns whether to stop.
    """
    weights, state = list(initial), recipe.optimiser.start(initial)
    if not weights:
        return weights
    gradient = torch.func.grad(lambda w, data: task.loss(w, data))
    for number in range(recipe.steps):
        slopes = gradient(tuple(weights), batches[number % len(batches)])
        weights, state = recipe.optimiser.step(weights, slopes, state, number, smooth=smooth)
        if recipe.clamps:
            weights = [box.project(w) for w, box in zip(weights, task.ranges, strict=True)]
        if watch(number + 1, weights):
            break
    return weights
