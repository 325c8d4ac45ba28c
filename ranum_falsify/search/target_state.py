"""What the search knows about one of its targets."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.replay.gradients import DENORMAL

__all__ = ["TargetState"]

_REFUSALS = 16
"""Candidates of a target that ONNX Runtime may refuse before a round of the search turns to others."""


@dataclass
class TargetState:
    """What the search knows about one target.

    Attributes:
        target: The target.
        best: Its least margin so far.
        at_start: The same before descents.
        points: Where that is, with a batch of 1.
        refused: Candidates in this round that ONNX Runtime did not confirm.
        doubtful: The last of them, those of earlier rounds too.
    """

    target: Target
    best: float = float("inf")
    at_start: float = float("inf")
    points: list[Tensor] = field(default_factory=list)
    refused: int = 0
    doubtful: deque[list[Tensor]] = field(default_factory=lambda: deque(maxlen=_REFUSALS))

    @property
    def limit(self) -> float:
        """A margin below this is worth a replay."""
        return DENORMAL if self.target.is_gradient else 0.0

    @property
    def is_given_up(self) -> bool:
        """Whether ONNX Runtime has refused so many candidates that this round tries no more."""
        return self.refused >= _REFUSALS

    def note(self, margins: Tensor, inputs: Sequence[Tensor]) -> None:
        """Remember the best point of a batch, with a batch of 1."""
        least, position = margins.min(0)
        self.best = float(least)
        self.points = _take(inputs, int(position))

    def refuse(self, inputs: Sequence[Tensor], position: int) -> None:
        """Remember a candidate that ONNX Runtime does not confirm."""
        self.refused += 1
        self.doubtful.append(_take(inputs, position))


def _take(inputs: Sequence[Tensor], position: int) -> list[Tensor]:
    return [x[position][None].clone() for x in inputs]
