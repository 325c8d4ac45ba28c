"""Boxes that wait to be bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Boxes", "halve", "join", "take"]

_MOST_BYTES = 1 << 30
"""Memory that boxes may take while they wait."""

_DEPTH = 64
"""Cuts of a box, one inside another, for which there is room."""


@dataclass(frozen=True)
class Boxes:
    """Boxes that wait.

    Attributes:
        low: Flat lower bounds `(boxes, elements)` of the inputs, and of the watched variables after them.
        high: The upper bounds.
        own: What else is kept of each, `(boxes, ...)`; both halves have it.
    """

    low: Tensor
    high: Tensor
    own: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, part: slice | Tensor) -> Boxes:
        return Boxes(self.low[part], self.high[part], tuple(x[part] for x in self.own))

    @property
    def bytes(self) -> int:
        """Memory of all."""
        return sum(x.numel() * x.element_size() for x in (self.low, self.high, *self.own))

    def columns(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the bounds of some elements."""
        return self.low[:, start:stop], self.high[:, start:stop]


def join(parts: Sequence[Boxes]) -> Boxes:
    """Return boxes one after another."""
    own = tuple(torch.cat(of) for of in zip(*(part.own for part in parts), strict=True))
    return Boxes(torch.cat([part.low for part in parts]), torch.cat([part.high for part in parts]), own)


def take(waiting: list[Boxes], size: int) -> Boxes:
    """Take the boxes that were cut last, at most some: they are neighbours, in which the same operands are bent."""
    # The fewer are cut at once, the fewer wait: of each cut, one half, as deep as the cuts go.
    room = _MOST_BYTES - sum(part.bytes for part in waiting)
    size = max(1, min(size, room // (_DEPTH * max(1, waiting[-1][:1].bytes))))
    taken, count = [], 0
    while waiting and count < size:
        last = waiting.pop()
        room = size - count
        if len(last) > room:
            waiting.append(last[: len(last) - room])
            last = last[len(last) - room :]
        taken.append(last)
        count += len(last)
    return join(taken)


def halve(boxes: Boxes, element: Tensor, at: Tensor) -> Boxes:
    """Return both halves of boxes, each cut at a value of one of its elements; halves of one box stay neighbours."""
    number = torch.arange(len(boxes))
    left, right = boxes.high.clone(), boxes.low.clone()
    left[number, element], right[number, element] = at, at
    own = tuple(x.repeat_interleave(2, 0) for x in boxes.own)
    return Boxes(_interleave(boxes.low, right), _interleave(left, boxes.high), own)


def _interleave(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first, second], 1).flatten(0, 1)
