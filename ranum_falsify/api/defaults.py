"""Default ranges of inputs: by element type, by the operators that read them, by name."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from ranum_falsify.network import Graph
from ranum_falsify.network.string_inputs import string_inputs
from ranum_falsify.operators.relations.uses import find_uses

_IMAGES = frozenset("image images img imgs pixel pixels photo photos picture pictures frame frames rgb bgr".split())
_MASKS = frozenset("mask masks masked".split())
_LENGTHS = frozenset("length lengths len lens".split())
_STEPS = frozenset("timestep timesteps".split())
_LAST_STEP = 999  # diffusion models are trained with 1,000
_COLOURS = (1, 3, 4)
_LEAST_SIDE = 16  # pixels


@dataclass(frozen=True, kw_only=True)
class DefaultRange:
    """What an input ranges over by default.

    Attributes:
        lower: Least value.
        upper: Greatest value.
        reason: What it is taken for.
        is_guess: Whether it may be something else.
    """

    lower: float
    upper: float
    reason: str
    is_guess: bool = False


def default_range(graph: Graph, position: int) -> DefaultRange:
    """Return what an input ranges over unless users say otherwise.

    Floating numbers range over [-1, 1], images over [0, 1]: what has such a name, or the shape of one with 1, 3 or 4
    colours.  Booleans are both, strings may be any; numbers that choose from a table are its indices, labels of a loss
    are the classes that it has scores of, masks are 0 and 1, integers of 8 bits all there are, and others between the
    constants that they are compared with, lengths or steps by their names, or 0 and 1.

    Args:
        graph: The network.
        position: That of the input.
    """
    source, details = graph.inputs[position], graph.input_details[position]
    dtype: np.dtype[Any] = np.dtype(details.dtype)
    if graph.source is not None and (strings := string_inputs(graph.source).get(source.name)):
        return DefaultRange(lower=0, upper=len(strings) - 1, reason="any string")
    words = set(re.findall("[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", source.name).lower()))
    if dtype.kind == "b":
        return DefaultRange(lower=0, upper=1, reason="booleans")
    uses = find_uses(graph, source)
    if uses.ranges:
        fewest = min(uses.ranges, key=lambda one: one.count)
        upper = min(max(fewest.count - 1, 0), _greatest(dtype))
        return DefaultRange(lower=0, upper=upper, reason=fewest.meaning)
    if dtype.kind not in "iu":
        if words & _IMAGES or _is_image(tuple(int(size) for size in details.shape)):
            return DefaultRange(lower=0, upper=1, reason="an image")
        return DefaultRange(lower=-1, upper=1, reason="floating numbers")
    if words & _MASKS:
        return DefaultRange(lower=0, upper=1, reason="a mask")
    if dtype.itemsize == 1:
        ends = np.iinfo(dtype)
        return DefaultRange(lower=int(ends.min), upper=int(ends.max), reason=f"all of {dtype}")
    lower, upper, reason = _guess(graph, words, [x for x in uses.compared if np.isfinite(x).all()])
    upper = min(upper, _greatest(dtype))
    return DefaultRange(lower=max(lower, np.iinfo(dtype).min), upper=upper, reason=reason, is_guess=True)


def _guess(graph: Graph, words: Set[str], compared: Sequence[np.ndarray]) -> tuple[float, float, str]:
    """Return what an input of integers may range over, by its name or the constants that it is compared with."""
    if words & _LENGTHS:
        sizes = [int(size) for one in graph.input_details for size in one.shape]
        return 1, max(sizes, default=1), "a length"
    if words & _STEPS:
        return 0, _LAST_STEP, "a step of diffusion"
    lower, upper = min((x.min() for x in compared), default=0), max((x.max() for x in compared), default=0)
    if lower or upper:
        named = "the number" if lower == upper else "between numbers"
        return int(lower), int(upper), f"{named} that it is compared with"
    return 0, 1, "integers, of which nothing is known"


def _greatest(dtype: np.dtype[Any]) -> float:
    """Return the greatest number of a dtype."""
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def _is_image(shape: tuple[int, ...]) -> bool:
    """Tell whether this is the shape of a batch of images, the colours first or last."""
    if len(shape) != 4:
        return False
    sides = ((shape[1], shape[2:]), (shape[3], shape[1:3]))
    return any(colours in _COLOURS and min(rest) >= _LEAST_SIDE for colours, rest in sides)
