"""Many inputs run one after the other, and those told that show something new."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .graph import Status

_EACH = 4
"""Inputs that are told of those on which the same tensors are not finite: not all need meet a side condition."""

Show = Callable[[Mapping[str, np.ndarray]], Mapping[str, Status]]
"""Runs one input; returns the status of each tensor that is not finite."""


def find_revealing(samples: Mapping[str, np.ndarray], runs: Sequence[Show], seconds: float) -> list[int]:
    """Return the positions of the inputs on which a tensor is not finite, a few of those that show the same.

    The ways to run one input `(count, *shape)` take turns; after some seconds no further input is run.
    """
    until = time.monotonic() + seconds
    seen: Counter[tuple[int, frozenset[tuple[str, Status]]]] = Counter()
    told = []
    for position in range(len(next(iter(samples.values()), ()))):
        way = position % len(runs)
        # ONNX Runtime rejects NumPy scalars, so that an input without dimensions stays an array.
        bad = runs[way]({name: np.asarray(array[position]) for name, array in samples.items()})
        shown = (way, frozenset(bad.items()))
        if bad and seen[shown] < _EACH:
            seen[shown] += 1
            told.append(position)
        if time.monotonic() >= until:
            break
    return told
