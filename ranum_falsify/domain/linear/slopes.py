"""Bounds of steps, improved for each functional by gradient ascent on its lower bound.

Lines of any slope are sound, and so are planes at any point; each bound comes of a whole pass with these as they are,
so that bounds hold however far the ascent gets.

Source: K. Xu et al., Fast and Complete: Enabling Complete Verification with Massively Parallel Incomplete Verifiers,
2021, https://arxiv.org/abs/2011.13824 (alpha-CROWN).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ranum_falsify.domain.linear.passes import BoxBatch, descend
from ranum_falsify.domain.linear.steps import PlaneChoice

__all__ = ["ASCENT_PASSES", "ascend"]

_ROUNDS = 8
"""Passes of one ascent."""

ASCENT_PASSES = 4 * _ROUNDS
"""The time of an ascent, in passes without derivatives."""

_RATE, _DECAY = 0.5, 0.75
"""Length of the first step, as a share of the range of what is chosen, and that of each later one of the one before."""

_MEMORY = 0.5
"""Share of earlier gradients in the direction of a step."""


def ascend(weights: dict[int, Tensor], region: BoxBatch) -> Tensor:
    """Return lower bounds of linear functionals over one box, each with bounds of steps of its own.

    Args:
        weights: Coefficients `(1, rows, *shape)` by variable, of at least one.
        region: The box.

    Returns:
        The bounds `(rows,)`, the best of all passes.
    """
    # What is done for each box is done for each row here.
    turned = {v: weight.transpose(0, 1).contiguous() for v, weight in weights.items()}
    rows = len(next(iter(turned.values())))
    chosen = _find_choices(region, list(turned), rows)
    best = torch.full((rows,), -torch.inf, dtype=torch.float64)
    rate = _RATE
    for _ in range(_ROUNDS if chosen else 1):
        with torch.enable_grad():
            bound = descend(turned, _ChosenBox(region, chosen))[0][:, 0]
            # A functional without a bound has no direction either.
            total = torch.where(bound.isfinite(), bound, 0.0).sum()
        best = torch.maximum(best, bound.detach())
        if total.requires_grad:
            shares = [share for of in chosen.values() for share in of.shares]
            gradients = iter(torch.autograd.grad(total, shares, allow_unused=True))
            for of in chosen.values():
                of.step([next(gradients) for _ in of.shares], rate)
        rate *= _DECAY
    return best


class _Chosen:
    """What is chosen of one step for each row.

    Attributes:
        shares: The numbers, `(rows, ...)` each.
    """

    def __init__(self, choice: PlaneChoice, rows: int) -> None:
        self._make = choice.make
        self.shares = [x.expand(rows, *x.shape[1:]).clone().requires_grad_() for x in choice.starts]
        self._directions = [torch.zeros_like(share) for share in self.shares]

    def make(self) -> object:
        """Return what the step knows of the box."""
        return self._make(self.shares)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor | None], rate: float) -> None:
        """Move shares along the signs of the gradients."""
        for share, direction, gradient in zip(self.shares, self._directions, gradients, strict=True):
            if gradient is not None:
                direction.mul_(_MEMORY).add_(gradient.nan_to_num(0.0, 0.0, 0.0).sign())
                share.add_(direction, alpha=rate * (1 - _MEMORY)).clamp_(0, 1)


class _ChosenBox(BoxBatch):
    """A box, with what is chosen for some steps."""

    def __init__(self, region: BoxBatch, chosen: dict[int, _Chosen]) -> None:
        super().__init__(region.program, region.boxes)
        self._chosen = chosen

    def compute(self, number: int) -> object:
        """Return what a step knows of the box."""
        return self._chosen[number].make() if number in self._chosen else super().compute(number)


def _find_choices(region: BoxBatch, targets: Sequence[int], rows: int) -> dict[int, _Chosen]:
    """Return the choices that steps before some variables leave."""
    found = {}
    for number in region.program.select_before(targets):
        step = region.program.steps[number]
        choice = step.find_choice([region.box(v) for v in step.watched])
        if choice is not None:
            found[number] = _Chosen(choice, rows)
    return found
