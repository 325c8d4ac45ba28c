"""Strategies: what a search for training data makes small."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ranum_falsify.verify.search.slopes import CLIPPED, Estimates, Logarithms


class Strategy(ABC):
    """What a search makes small, as a function of the trained weights.

    Attributes:
        name: Its name in reports.
        descends: Whether it follows gradients.
        bisects: Whether it looks for exact zeros between points of different signs.
        hits: Whether it takes several weights to 0 at once.
        aims: Whether it aims at numbers at which ONNX Runtime's kernels fail.
        is_precise: Whether it computes gradients in float64, where fewer of them vanish.
        point: The inference input that it is about, in the order of the task's data; None where any will do.
    """

    name: str
    descends = True
    bisects = False
    hits = False
    aims = False
    is_precise = False
    point: Sequence[Tensor] | None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Surround the computation of margins, and of the loss."""
        yield

    @abstractmethod
    def loss(self, trained: Sequence[Tensor], margin: Tensor) -> Tensor:
        """Return a number that is small where training leads into the defect, differentiable.

        Args:
            trained: The weights after training.
            margin: The margin of one of the operator's conditions at the inference input, negative where violated.
        """


class Unrolling(Strategy):
    """The margin of the operator itself, through all training steps."""

    name = "unrolling"
    point = None

    def loss(self, trained: Sequence[Tensor], margin: Tensor) -> Tensor:
        """Return the margin."""
        return margin


class PreciseUnrolling(Unrolling):
    """The same with gradients in float64, where exponentials neither overflow nor vanish so early."""

    name = "unrolling in float64"
    is_precise = True


class LogarithmicUnrolling(Unrolling):
    """The logarithm of the margin where it is made of exponentials, which neither overflows nor vanishes."""

    name = "unrolling in logarithms"

    def __init__(self) -> None:
        self._logarithms = Logarithms()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Find logarithms, and estimate the slopes of what is clipped."""
        self._logarithms = Logarithms()
        with self._logarithms, Estimates(CLIPPED):
            yield

    def loss(self, trained: Sequence[Tensor], margin: Tensor) -> Tensor:
        """Return the logarithm of the margin, or a constant where it is not known."""
        found = self._logarithms.find(margin)
        return torch.zeros_like(margin) if found is None else found


@dataclass
class GradientMatching(Strategy):
    """The distance of the trained weights from those of a unit test.

    After one step of gradient descent, that is the distance of the gradient from the one that leads there, as in Deep
    Gradient Leakage.

    Attributes:
        point: The unit test's inputs.
        wanted: Its weights.
    """

    point: Sequence[Tensor]
    wanted: Sequence[Tensor]
    name = "gradient matching"

    def loss(self, trained: Sequence[Tensor], margin: Tensor) -> Tensor:
        """Return the mean square of the differences."""
        squares = [(w - v).square().sum() for w, v in zip(trained, self.wanted, strict=True)]
        return torch.stack(squares).sum() / max(1, sum(w.numel() for w in trained))


@dataclass
class MarginWeights(Strategy):
    """The distance of those weights on which a unit test's margin depends from its span.

    Attributes:
        point: The unit test's inputs.
        lower: The least weights of the span.
        upper: The greatest.
        matters: Which elements the margin depends on.
    """

    point: Sequence[Tensor]
    lower: Sequence[Tensor]
    upper: Sequence[Tensor]
    matters: Sequence[Tensor]
    name = "margin weights"

    def loss(self, trained: Sequence[Tensor], margin: Tensor) -> Tensor:
        """Return the mean square of how far these weights are outside."""
        rows = zip(trained, self.lower, self.upper, self.matters, strict=True)
        outside = [((low - w).clamp_min(0) + (w - high).clamp_min(0)) * m for w, low, high, m in rows]
        return torch.stack([x.square().sum() for x in outside]).sum() / max(1, sum(int(m.sum()) for m in self.matters))


class Bisecting(Unrolling):
    """No descent: where a single value must not be 0, data between which its sign changes are brought together."""

    name = "bisection"
    descends = False
    bisects = True


class Hitting(Unrolling):
    """No descent: where an operand is a norm of weights, each of them is made 0 to its last bit."""

    name = "hitting zeros"
    descends = False
    hits = True


class Aimed(Unrolling):
    """No descent but to vertices: a number is made one of those at which ONNX Runtime's kernels alone fail."""

    name = "aiming at numbers"
    aims = True


class RandomData(Unrolling):
    """No descent: data are drawn at random."""

    name = "random"
    descends = False
