"""Data that programs of the zoo write out, all of which they train on in every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_Numbers = Sequence[float] | Sequence[Sequence[float]]

_HOURS: dict[str, _Numbers] = {
    "x": [[1, 2], [2, 3], [3, 1], [4, 3], [5, 3], [6, 2]],
    "y": [0, 0, 0, 1, 1, 1],
}

_ROWS: _Numbers = [
    [1, 2, 1, 1],
    [2, 1, 3, 2],
    [3, 1, 3, 4],
    [4, 1, 5, 5],
    [1, 7, 5, 5],
    [1, 2, 5, 6],
    [1, 6, 6, 6],
    [1, 7, 7, 7],
]
_ONE_HOT: _Numbers = [*([[0, 0, 1]] * 3), *([[0, 1, 0]] * 3), *([[1, 0, 0]] * 2)]
_CLASSES: dict[str, _Numbers] = {"x": _ROWS, "oh": _ONE_HOT}

SAMPLES: Mapping[str, Mapping[str, _Numbers]] = {
    "26": _HOURS,
    "32": _CLASSES,
    "33": _HOURS,
    "34": {"x": _ROWS, "y": [2, 2, 2, 1, 1, 1, 0, 0]},
    "37": _HOURS,
    "38": {"x": [[0, 0], [0, 1], [1, 0], [1, 1]], "y": [0, 1, 1, 0]},
    "47": _CLASSES,
    "53": {
        "x": [1, 2, 3, 4, 5, 2.5, 3.5, 0, 3.1, 2.7, 2.8, 2.9],
        "y": [1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1],
    },
    "54": _CLASSES,
    "56": _HOURS,
}
"""By the id of the model and the name of the input."""
