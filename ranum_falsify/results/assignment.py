"""Counterexamples as the tools of VNN-COMP exchange them: `((X_0 0.5) (X_1 -1.0) (Y_0 2.25))`, a pair on each line.

All inputs, and all outputs, are numbered in the order of the model, their elements in row-major order.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ranum_falsify.errors import UsageError, reason_of
from ranum_falsify.network.resource_limits import OversizeError, content_of

_LARGEST = 2**30  # bytes
_WANTED = "write ((X_0 0.5) (X_1 1.0) (Y_0 2.0)), or use --save-violation"
_PAIR = re.compile(r"\(\s*([XY])_(\d{1,12})\s+([^\s()]+)\s*\)")


@dataclass(frozen=True)
class Assignment:
    """What a file assigns: the numbers of all inputs, and of all outputs, as text."""

    inputs: Sequence[str]
    outputs: Sequence[str]


def write_assignment(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bytes:
    """Return a counterexample as text; each number is exact.

    Args:
        inputs: An array for each input of the model.
        outputs: An array for each output.

    Raises:
        ValueError: One holds no numbers.
    """
    pairs = [f"({pair})" for name, arrays in (("X", inputs), ("Y", outputs)) for pair in _assign(name, arrays)]
    return f"({chr(10).join(pairs)})\n".encode()


def _assign(name: str, arrays: Sequence[np.ndarray]) -> Iterator[str]:
    values = [value for array in arrays for value in array.reshape(-1)]
    return (f"{name}_{number} {_as_text(value)}" for number, value in enumerate(values))


def _as_text(value: Any) -> str:
    kind = np.dtype(type(value)).kind
    if kind in "iub":
        return str(int(value))
    if kind not in "fV":  # bfloat16 is of kind V
        raise ValueError(f"{value!r} is no number")
    return repr(float(value))


def read_assignment(path: Path) -> Assignment:
    """Read a counterexample; a line `sat` before it, as the competition's results have it, is skipped.

    Raises:
        UsageError: It cannot be read, or is of another format.
    """
    try:
        text = content_of(path, most=_LARGEST).decode("ascii").strip()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({reason_of(error)}); check the path") from error
    except OversizeError as error:
        raise UsageError(f"{path}: {error}, larger than any counterexample; check the path") from error
    except (UnicodeDecodeError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: is no text, or truncated; {_WANTED}") from error
    text = text.removeprefix("sat").strip()
    rest = _PAIR.sub("", text[1:-1])
    if not (text.startswith("(") and text.endswith(")")) or rest.strip():
        raise UsageError(f"{path}: is no counterexample of VNN-COMP; {_WANTED}")
    values: dict[str, dict[int, str]] = {"X": {}, "Y": {}}
    for name, number, value in _PAIR.findall(text):
        if values[name].setdefault(int(number), value) is not value:
            raise UsageError(f"{path}: {name}_{number} has two values; give it one")
    return Assignment(_in_order(path, "X", values["X"]), _in_order(path, "Y", values["Y"]))


def _in_order(path: Path, name: str, values: Mapping[int, str]) -> list[str]:
    missing = next((number for number in range(len(values)) if number not in values), None)
    if missing is not None:
        raise UsageError(
            f"{path}: {name}_{missing} is missing; give every number from {name}_0 to {name}_{max(values)}"
        )
    return [values[number] for number in range(len(values))]
