"""Projected descent: all starts of a round step together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ranum_falsify.verify.search.starts import Box


@dataclass(frozen=True, kw_only=True)
class StepSizes:
    """How far a step goes.

    Attributes:
        largest: First step of the boldest start, as a share of the box's half width.
        smallest: First step of the most careful start; those of the others are spread evenly between on a log scale.
        decay: Factor per step.
    """

    largest: float = 0.5
    smallest: float = 0.02
    decay: float = 0.97

    def draw_initial(self, count: int, generator: torch.Generator) -> Tensor:
        """Return the first step of each start, shape `(count,)`."""
        share = torch.rand(count, generator=generator)
        return self.smallest * (self.largest / self.smallest) ** share


class Descent:
    """State of one round: positions, first and second moments of the gradients (Adam, arXiv:1412.6980).

    Every other start follows the sign of the first moment, the rest the first moment over the root of the second.
    The signed half crosses flat stretches, the other half settles in narrow ones.
    """

    def __init__(self, boxes: Sequence[Box], starts: Sequence[Tensor], sizes: StepSizes, generator: torch.Generator):
        self.boxes = boxes
        self.inputs = [x.clone() for x in starts]
        self.sizes = sizes
        count = len(starts[0])
        device = starts[0].device
        self._first = [torch.zeros_like(x) if x.is_floating_point() else None for x in starts]
        self._second = [torch.zeros_like(x) if x.is_floating_point() else None for x in starts]
        sizes_now = sizes.draw_initial(count, generator).to(device)
        signed = torch.arange(count, device=device) % 2 == 0
        self._gain = [_gain(signed, x) if x.is_floating_point() else None for x in starts]
        self._scale = [
            _column(sizes_now, x) * _half_width(box) if x.is_floating_point() else None
            for x, box in zip(starts, boxes, strict=True)
        ]
        self.steps = 0

    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Move every start against its gradient and back into the box; NaN gradients count as 0."""
        self.steps += 1
        decay = self.sizes.decay ** (self.steps - 1)
        correction = (1 - 0.999**self.steps) ** 0.5 / (1 - 0.9**self.steps)
        for i, gradient in enumerate(gradients):
            first, second, scale, gain = self._first[i], self._second[i], self._scale[i], self._gain[i]
            if gradient is None or gradient.numel() == 0:
                continue
            if first is None or second is None or scale is None or gain is None:
                continue
            gradient = _make_usable(gradient)
            first.lerp_(gradient, 0.1)
            second.lerp_(gradient.square_(), 0.001)
            direction = first / second.sqrt().add_(torch.finfo(first.dtype).tiny)
            # The bias correction of the moments is taken out of the bounds and put into the step.
            direction.mul_(gain).clamp_(-1 / correction, 1 / correction)
            moved = torch.addcmul(self.inputs[i], direction, scale, value=-decay * correction)
            self.inputs[i] = self.boxes[i].project(moved)

    def replace(self, which: Tensor, points: Sequence[Tensor]) -> None:
        """Put new points in the places of starts that are stuck (boolean, shape `(count,)`)."""
        for i, new in enumerate(points):
            mask = which.reshape(-1, *([1] * (new.dim() - 1)))
            self.inputs[i] = torch.where(mask, new.to(self.inputs[i].device), self.inputs[i])
            for moment in (self._first[i], self._second[i]):
                if moment is not None:
                    moment.masked_fill_(mask, 0)


def _column(values: Tensor, like: Tensor) -> Tensor:
    """Return one value per sample in a shape that broadcasts with the samples."""
    return values.to(like.dtype).reshape(-1, *([1] * (like.dim() - 1)))


def _gain(signed: Tensor, like: Tensor) -> Tensor:
    """Return factors for a direction before it is clamped: so large that only the sign is left, or 1."""
    return _column(torch.ones(len(like), device=like.device).masked_fill(signed, torch.inf), like).clamp_max(
        torch.finfo(like.dtype).max
    )


def _half_width(box: Box) -> Tensor:
    return (box.upper.double() / 2 - box.lower.double() / 2).to(box.dtype)


def _make_usable(gradient: Tensor) -> Tensor:
    """Scale each start's gradient to at most 1, so that its square neither overflows nor vanishes."""
    largest = torch.finfo(gradient.dtype).max
    gradient = torch.nan_to_num(gradient, nan=0.0, posinf=largest, neginf=-largest)
    top = gradient.abs()
    if gradient.dim() > 1:
        top = top.amax(tuple(range(1, gradient.dim())), keepdim=True)
    return gradient.div_(top.clamp_min_(torch.finfo(gradient.dtype).tiny))
