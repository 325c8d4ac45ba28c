"""What inputs range over where users do not say: by element type, by what reads them, by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ranum_falsify.network import Graph
from ranum_falsify.network.string_inputs import string_inputs
from ranum_falsify.operators.relations.views import find_index_ranges

_IMAGES = frozenset("image images img imgs pixel pixels photo photos picture pictures frame frames rgb bgr".split())
_MASKS = frozenset("mask masks masked".split())
_COLOURS = (1, 3, 4)
_LEAST_SIDE = 16  # pixels


@dataclass(frozen=True, kw_only=True)
class DefaultRange:
    """What an input ranges over by default.

    Attributes:
        lower: Least value.
        upper: Greatest value.
        reason: What it is taken for.
    """

    lower: float
    upper: float
    reason: str


def default_range(graph: Graph, position: int) -> DefaultRange | None:
    """Return what an input ranges over unless users say otherwise; None where nothing tells.

    Floating numbers range over [-1, 1], images over [0, 1]: what has such a name, or the shape of one with 1, 3 or 4
    colours.  Booleans are both, strings may be any; numbers that choose from a table are its indices, labels of a loss
    are the classes that it has scores of, masks are 0 and 1, and integers of 8 bits all there are.

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
    if ranges := list(find_index_ranges(graph, source)):
        fewest = min(ranges, key=lambda one: one.count)
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
    return None


def _greatest(dtype: np.dtype[Any]) -> float:
    """Return the greatest number of a dtype."""
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def _is_image(shape: tuple[int, ...]) -> bool:
    """Tell whether this is the shape of a batch of images, the colours first or last."""
    if len(shape) != 4:
        return False
    sides = ((shape[1], shape[2:]), (shape[3], shape[1:3]))
    return any(colours in _COLOURS and min(rest) >= _LEAST_SIDE for colours, rest in sides)
