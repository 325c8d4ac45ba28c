"""Slopes of lines about curves, improved for each functional by gradient ascent on its lower bound.

Lines of any slope are sound, and each bound comes of a whole pass with the slopes as they are, so that bounds hold
however far the ascent gets.

Source: K. Xu et al., Fast and Complete: Enabling Complete Verification with Massively Parallel Incomplete Verifiers,
2021, https://arxiv.org/abs/2011.13824 (alpha-CROWN).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ranum_falsify.domain.linear.passes import BoxBatch, descend
from ranum_falsify.domain.linear.relaxations import Slopes
from ranum_falsify.domain.linear.steps import CurveStep

__all__ = ["ASCENT_PASSES", "ascend"]

_ROUNDS = 8
"""Passes of one ascent."""

ASCENT_PASSES = 4 * _ROUNDS
"""The time of an ascent, in passes without derivatives."""

_RATE, _DECAY = 0.5, 0.75
"""Length of the first step, as a share of the range of slopes, and that of each later one of the step before it."""

_MEMORY = 0.5
"""Share of earlier gradients in the direction of a step."""


def ascend(weights: dict[int, Tensor], region: BoxBatch) -> Tensor:
    """Return lower bounds of linear functionals over one box, each with slopes of its own.

    Args:
        weights: Coefficients `(1, rows, *shape)` by variable, of at least one.
        region: The box.

    Returns:
        The bounds `(rows,)`, the best of all passes.
    """
    # What is done for each box is done for each row here.
    turned = {v: weight.transpose(0, 1).contiguous() for v, weight in weights.items()}
    rows = len(next(iter(turned.values())))
    choices = _find_choices(region, list(turned), rows)
    best = torch.full((rows,), -torch.inf, dtype=torch.float64)
    rate = _RATE
    for _ in range(_ROUNDS if choices else 1):
        with torch.enable_grad():
            tilted = _TiltedBox(region, {number: choice.slopes for number, choice in choices.items()})
            bound = descend(turned, tilted)[0][:, 0]
            # A functional without a bound has no direction either.
            total = torch.where(bound.isfinite(), bound, 0.0).sum()
        best = torch.maximum(best, bound.detach())
        if total.requires_grad:
            shares = [share for choice in choices.values() for share in choice.shares]
            gradients = torch.autograd.grad(total, shares, allow_unused=True)
            for choice, pair in zip(choices.values(), zip(gradients[::2], gradients[1::2], strict=True), strict=True):
                choice.step(pair, rate)
        rate *= _DECAY
    return best


class _SlopeChoice:
    """Slopes of one step for each row, as shares `(rows, *shape)` of the way from one end of their range to the other.

    Attributes:
        shares: Those of the lines below and of those above.
    """

    def __init__(self, first: Slopes, last: Slopes, start: Slopes, rows: int) -> None:
        self._ends = ((first.lower, last.lower), (first.upper, last.upper))
        self.shares = [
            _share_of(own, *ends).expand(rows, *own.shape[1:]).clone().requires_grad_()
            for own, ends in zip((start.lower, start.upper), self._ends, strict=True)
        ]
        self._directions = [torch.zeros_like(share) for share in self.shares]

    @property
    def slopes(self) -> Slopes:
        """The slopes that are chosen."""
        sides = zip(self.shares, self._ends, strict=True)
        return Slopes(*(first + share * (last - first) for share, (first, last) in sides))

    @torch.no_grad()
    def step(self, gradients: tuple[Tensor | None, Tensor | None], rate: float) -> None:
        """Move shares along the signs of the gradients."""
        for share, direction, gradient in zip(self.shares, self._directions, gradients, strict=True):
            if gradient is not None:
                direction.mul_(_MEMORY).add_(gradient.nan_to_num(0.0, 0.0, 0.0).sign())
                share.add_(direction, alpha=rate * (1 - _MEMORY)).clamp_(0, 1)


def _share_of(own: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Return how far a slope is on the way from one end of its range to the other."""
    width = last - first
    return torch.where(width == 0, 0.0, (own - first) / torch.where(width == 0, 1.0, width)).clamp(0, 1)


class _TiltedBox(BoxBatch):
    """A box, with slopes `(rows, *shape)` for some steps."""

    def __init__(self, region: BoxBatch, slopes: dict[int, Slopes]) -> None:
        super().__init__(region.program, region.boxes)
        self._slopes = slopes

    def compute(self, number: int) -> object:
        """Return what a step knows of the box, with the lines that are chosen for it."""
        step = self.program.steps[number]
        if number in self._slopes and isinstance(step, CurveStep):
            return step.tilt(self.box(step.watched[0]), self._slopes[number])
        return super().compute(number)


def _find_choices(region: BoxBatch, targets: Sequence[int], rows: int) -> dict[int, _SlopeChoice]:
    """Return the choices that steps before some variables leave."""
    found = {}
    for number in region.program.select_before(targets):
        step = region.program.steps[number]
        if not isinstance(step, CurveStep):
            continue
        box = region.box(step.watched[0])
        first, last = step.find_range(box)
        if not (torch.equal(first.lower, last.lower) and torch.equal(first.upper, last.upper)):
            lines = step.prepare([box])
            found[number] = _SlopeChoice(first, last, Slopes(lines.lower_slope, lines.upper_slope), rows)
    return found
