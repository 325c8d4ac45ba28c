"""Inputs on which models are compared: over the whole box, its ends, tiny and equal numbers, and near known weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from dnnv.nn.utils import TensorDetails

from ranum_falsify.network.random_inputs import DEVIATIONS, Draw
from ranum_falsify.properties.problem.problem import InputVariable

_SPREADS = (1.0, 0.1, 0.01, 0.001)
_WAVES = 3
_LEAST_WAVE = 64
"""How long the last dimension of an input is that gets waves now and then, as recordings have."""


def draw_values(rng: np.random.Generator, variable: InputVariable, known: np.ndarray | None, number: int) -> np.ndarray:
    """Return values of one input: any of the box, waves, ends, numbers of any order, or near those in the file.

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
    turn = number % (2 * len(_SPREADS))
    if turn < len(_SPREADS):
        centre = np.clip(np.zeros(()) if known is None else np.asarray(known, np.float64), low, high)
        drawn = centre + _SPREADS[turn] * (drawn - centre)
    else:
        drawn = _extreme(rng, drawn, low, high, float(np.finfo(variable.dtype).tiny))
    inside: np.ndarray = np.clip(drawn.astype(variable.dtype), variable.lower, variable.upper)
    return inside


def _extreme(rng: np.random.Generator, drawn: np.ndarray, low: np.ndarray, high: np.ndarray, tiny: float) -> np.ndarray:
    """Return numbers as rarely come up by themselves.

    Args:
        rng: Where random numbers come from.
        drawn: Numbers from all over the box.
        low: Their least values.
        high: Their greatest values.
        tiny: The least normal number of their type.
    """
    most = np.maximum(np.maximum(np.abs(low), np.abs(high)), tiny)
    orders = np.log(most) - math.log(tiny)
    each = np.exp(math.log(tiny) + orders * rng.random(drawn.shape))
    common = np.minimum(np.exp(math.log(tiny) + orders.max(initial=0.0) * rng.random()), most)
    sign = np.where((rng.random(drawn.shape) < 0.5) & (low < 0) | (high <= 0), -1.0, 1.0)
    is_other = rng.random(drawn.shape) < 0.5
    kinds = (
        lambda: sign * each,
        lambda: sign * common * rng.random(drawn.shape),
        lambda: np.where(is_other, drawn, sign * each),
        lambda: np.where(is_other, drawn, 0.0),
        lambda: np.where(is_other, low, high),
        lambda: np.broadcast_to(drawn.flat[0] if drawn.size else 0.0, drawn.shape),
        lambda: np.round(drawn),
    )
    made: np.ndarray = kinds[int(rng.integers(len(kinds)))]()
    return made


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
