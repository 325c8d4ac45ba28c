"""Inputs on which models are compared: over the whole box, and ever nearer to 0 and to the weights in the file."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from dnnv.nn.utils import TensorDetails

from ranum_falsify.network.draws import DEVIATIONS, Draw
from ranum_falsify.properties.problem.problem import InputVariable

__all__ = ["draw_numbers", "draw_values"]

_SPREADS = (1.0, 0.1, 0.01, 0.001)
_WAVES = 3
_LEAST_WAVE = 64
"""How long the last dimension of an input is that gets waves now and then, as recordings have."""


def draw_values(rng: np.random.Generator, variable: InputVariable, known: np.ndarray | None, number: int) -> np.ndarray:
    """Return values of one input: any of the box, waves, or some near 0, or near its own numbers in the file.

    Args:
        rng: Where random numbers come from.
        variable: The input and its box.
        known: Its numbers in the file, if it has any.
        number: How many inputs were drawn before.
    """
    if variable.dtype.kind == "b":
        flags: np.ndarray = (rng.random(variable.shape) < 0.5) & variable.upper | variable.lower
        return flags
    low, high = variable.lower.astype(np.float64), variable.upper.astype(np.float64)
    if variable.dtype.kind in "iu":
        return np.clip(np.floor(low + rng.random(variable.shape) * (high - low + 1)), low, high).astype(variable.dtype)
    share: np.ndarray = rng.random(variable.shape)
    if known is None and variable.shape and variable.shape[-1] >= _LEAST_WAVE and number // len(_SPREADS) % 2:
        share = _waves(rng, variable.shape)
    drawn: np.ndarray = low + share * (high - low)
    centre = np.clip(np.zeros(()) if known is None else np.asarray(known, np.float64), low, high)
    drawn = centre + _SPREADS[number % len(_SPREADS)] * (drawn - centre)
    inside: np.ndarray = np.clip(drawn.astype(variable.dtype), variable.lower, variable.upper)
    return inside


def _waves(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Return sums of a few sines along the last dimension, between 0 and 1."""
    place = np.arange(shape[-1])
    total = np.zeros(shape)
    for _ in range(_WAVES):
        frequency = math.pi * rng.random((*shape[:-1], 1)) ** 3
        total = total + rng.random((*shape[:-1], 1)) * np.sin(frequency * place + 2 * math.pi * rng.random())
    result: np.ndarray = 0.5 + total / (2 * _WAVES)
    return result


def draw_numbers(rng: np.random.Generator, draw: Draw, details: TensorDetails, *, is_normal: bool) -> np.ndarray:
    """Return numbers as a random operator draws them.

    Args:
        rng: Where random numbers come from.
        draw: The range of the operator's draws.
        details: Their shape and type.
        is_normal: Whether they are normal, else uniform.
    """
    share = rng.random(details.shape)
    if is_normal:
        share = np.clip(0.5 + rng.standard_normal(details.shape) / (2 * DEVIATIONS), 0, 1)
    drawn: np.ndarray = np.asarray(draw.low + share * (draw.high - draw.low)).astype(details.dtype)
    return drawn
