"""Initial weights, and the range in which training may move them.

A weight ranges over the span of its initial distribution, widened by its full width on each side, as in RANUM; one
that is constant at first has no width and ranges over its value plus or minus 10.  Normal distributions count as 4
standard deviations wide on each side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

_REACH = 10.0
"""How far a weight may go that is constant at first."""

_DEVIATIONS = 4.0
"""Half the width of a normal distribution, in standard deviations."""


@dataclass(frozen=True)
class Initial:
    """A distribution of initial weights.

    Attributes:
        text: Its name and parameters.
        draw: Draws an array of a given shape.
        low: Smallest value of the weight, also in training.
        high: Largest value.
    """

    text: str
    draw: Draw
    low: float
    high: float


def constant(value: float) -> Initial:
    """Every element equal."""
    return Initial(f"{value:g}", lambda rng, shape: np.full(shape, value), value - _REACH, value + _REACH)


def zeros() -> Initial:
    """Every element 0."""
    return constant(0.0)


def values(numbers: Sequence[float]) -> Initial:
    """Return the given numbers, in the order of the elements."""
    low, high = _widen(min(numbers), max(numbers))
    return Initial("given", lambda rng, shape: np.reshape(np.asarray(numbers, dtype=np.float64), shape), low, high)


def uniform(least: float, greatest: float) -> Initial:
    """All numbers of a range with equal probability."""
    low, high = _widen(least, greatest)
    return Initial(
        f"uniform({least:.4g}, {greatest:.4g})", lambda rng, shape: rng.uniform(least, greatest, shape), low, high
    )


def normal(deviation: float) -> Initial:
    """A normal distribution around 0."""
    low, high = _widen(-_DEVIATIONS * deviation, _DEVIATIONS * deviation)
    return Initial(f"normal({deviation:g})", lambda rng, shape: rng.normal(0.0, deviation, shape), low, high)


def truncated_normal(deviation: float) -> Initial:
    """A normal distribution around 0, redrawn beyond two standard deviations, as in TensorFlow."""
    low, high = _widen(-2 * deviation, 2 * deviation)

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        drawn = rng.normal(0.0, 1.0, shape)
        while (beyond := np.abs(drawn) > 2).any():
            drawn[beyond] = rng.normal(0.0, 1.0, int(beyond.sum()))
        return deviation * drawn

    return Initial(f"truncated_normal({deviation:g})", draw, low, high)


def xavier(inputs: int, outputs: int) -> Initial:
    """The uniform distribution of Glorot and Bengio, AISTATS 2010."""
    bound = math.sqrt(6 / (inputs + outputs))
    return uniform(-bound, bound)


def torch_linear(inputs: int) -> Initial:
    """The distribution from which `torch.nn.Linear` draws weights and biases."""
    bound = 1 / math.sqrt(inputs)
    return uniform(-bound, bound)


def _widen(least: float, greatest: float) -> tuple[float, float]:
    width = greatest - least
    return least - width, greatest + width
