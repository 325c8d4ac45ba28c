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

from ranum_falsify.api.loading import BoundProblem
from ranum_falsify.errors import SaveError, UsageError, reason_of
from ranum_falsify.network import Graph
from ranum_falsify.network.resource_limits import OversizeError, content_of
from ranum_falsify.properties.formula.terms import NetworkCall, ValidityGoal
from ranum_falsify.results.counterexample import Saved, group_counterexamples
from ranum_falsify.results.places import SUFFIX, unique_names
from ranum_falsify.saving import Content, save_together
from ranum_falsify.verify.replay.confirmer import Confirmer
from ranum_falsify.verify.search.result import Answer, Counterexample

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


_TOLERANCE = 1e-4
"""The competition's."""


def save_assignments(answer: Answer, loaded: BoundProblem, path: Path) -> Saved:
    """Write the counterexamples of an answer, each distinct one once: the first as named, others with their operators.

    Args:
        answer: What was found.
        loaded: What it is of.
        path: Where the first goes, `<stem>.vnnlib.txt`; others are `<stem>.<node>.vnnlib.txt`.

    Raises:
        SaveError: A file cannot be written, or the format cannot say what is in one.
    """
    contents: dict[Path, Content] = {}
    files: dict[int, Mapping[str, Path]] = {}
    taken: set[str] = set()
    stem = path.name.removesuffix(SUFFIX)
    for example, twins, violated in group_counterexamples(answer):
        target = path
        if contents:
            (label,) = unique_names([violated[0].node if violated else "property"], taken)
            target = path.with_name(f"{stem}.{label}{SUFFIX}")
        contents[target] = assignment_of(loaded, example, path)
        files |= {id(twin): {"": target} for twin in twins}
    save_together(contents)
    return Saved(files)


def assignment_of(loaded: BoundProblem, example: Counterexample, path: Path) -> bytes:
    """Return a counterexample as text.

    Raises:
        SaveError: The format cannot say it.
    """
    _check_expressible(loaded, path)
    call = loaded.problem.calls[0]
    with Confirmer([call.graph]) as confirmer:
        if example.network:
            feeds = example.feeds
        else:
            feeds = _find_feeds(loaded, example, confirmer)
        outputs = confirmer.outputs(call.graph, feeds)
    try:
        return write_assignment([feeds[name] for name in call.graph.input_names], outputs)
    except ValueError as error:
        raise SaveError(f"{path}: {error}, which the format cannot say; give --save-violation cex.npy") from error


def _check_expressible(loaded: BoundProblem, path: Path) -> None:
    """Check that the format can say what a counterexample of a question is: inputs of one model, applied once."""
    calls = loaded.problem.calls
    made = [how.title for how in loaded.sources.rewritten.values()]
    if len(calls) == 1 and calls[0].network in loaded.models and loaded.origin.dtype is None and not made:
        return
    shown = ", ".join(made or (call.network for call in calls))
    raise SaveError(
        f"{path}: VNN-COMP's format is for inputs of one model as it is, and this is about {shown}"
        f"{f' in {loaded.origin.dtype}' if loaded.origin.dtype else ''}; give --save-violation cex.npy"
    )


def _find_feeds(loaded: BoundProblem, example: Counterexample, confirmer: Confirmer) -> Mapping[str, np.ndarray]:
    """Return what the network is applied to where a property over outputs is false."""
    applied: list[tuple[np.ndarray, ...]] = []

    def run(call: NetworkCall, arguments: tuple[np.ndarray, ...]) -> Sequence[np.ndarray]:
        applied.append(arguments)
        return confirmer.apply(call, arguments)

    def is_valid(goal: ValidityGoal, arguments: tuple[np.ndarray, ...]) -> bool:
        applied.append(arguments)
        return True

    loaded.problem.holds(example.inputs, run, is_valid)
    return dict(zip(loaded.problem.calls[0].graph.input_names, applied[0], strict=True))


def split_inputs(path: Path, inputs: Sequence[tuple[str, tuple[int, ...], np.dtype[Any]]]) -> dict[str, np.ndarray]:
    """Return the inputs that a file assigns, by name.

    Raises:
        UsageError: It cannot be read, or assigns another number of elements.
    """
    given = read_assignment(path)
    sizes = [int(np.prod(shape, dtype=np.int64)) for _, shape, _ in inputs]
    if len(given.inputs) != sum(sizes):
        listed = ", ".join(f"{name} {list(shape)}" for name, shape, _ in inputs)
        raise UsageError(
            f"{path}: has {len(given.inputs)} inputs X_i, the model takes {sum(sizes)} ({listed}); give its own model"
        )
    arrays, begin = {}, 0
    for (name, shape, dtype), size in zip(inputs, sizes, strict=True):
        arrays[name] = _as_array(path, begin, given.inputs[begin : begin + size], dtype).reshape(shape)
        begin += size
    return arrays


def _as_array(path: Path, begin: int, texts: Sequence[str], dtype: np.dtype[Any]) -> np.ndarray:
    convert = int if dtype.kind in "iub" else float
    values = []
    for number, text in enumerate(texts, begin):
        try:
            values.append(convert(text))
            np.asarray(values[-1]).astype(dtype, casting="unsafe")
        except (ValueError, OverflowError) as error:
            raise UsageError(f"{path}: X_{number}: {text!r} is no value of {dtype}; correct it") from error
    return np.array(values).astype(dtype)


def differences(path: Path, given: Assignment, graph: Graph, feeds: Mapping[str, np.ndarray]) -> list[str]:
    """Return a notice where the outputs of a file are not those of ONNX Runtime."""
    if not given.outputs:
        return []
    with Confirmer([graph]) as confirmer:
        computed = np.concatenate(
            [np.asarray(y, dtype=np.float64).reshape(-1) for y in confirmer.outputs(graph, feeds)]
        )
    if len(computed) != len(given.outputs):
        return [f"{path}: has {len(given.outputs)} outputs Y_i, the model gives {len(computed)}"]
    written = np.array([float(text) for text in given.outputs])
    gap = np.abs(np.where(written == computed, 0.0, written - computed))
    gap[np.isnan(written) & np.isnan(computed)] = 0.0
    worst = int(np.argmax(np.nan_to_num(gap, nan=np.inf)))
    if gap[worst] <= _TOLERANCE:
        return []
    return [f"{path}: Y_{worst} = {given.outputs[worst]}, where ONNX Runtime gives {computed[worst]:.9g}"]
