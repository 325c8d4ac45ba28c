"""Counterexamples on disk: .npy files, and a .json file beside them that says what they violate and how.

One input: `cex.npy` is that array.  Several: `cex.<input>.npy` each.  Where operators are violated by different
inputs, the first ones have these names, the others `cex.<node>.npy`.  `cex.json` lists them all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, cast, get_args

import numpy as np

from ranum_falsify.config import HalfPrecision
from ranum_falsify.errors import UsageError, reason_of
from ranum_falsify.escaping import json_text
from ranum_falsify.file_content import sha256
from ranum_falsify.network.resource_limits import OversizeError, content_of
from ranum_falsify.results.places import Base, is_plain_name, unique_names
from ranum_falsify.results.plain import pick, versions
from ranum_falsify.saving import Content, save_together
from ranum_falsify.verify.search.result import Answer, Counterexample, OperatorResult

_FORMAT = 1
_MOST_INPUTS = 1000  # of a counterexample
_LARGEST = 64 * 2**20  # bytes of a description
_VIOLATION = "node op_type constraint reason kind reach optimisations fused runtimes oracle operands"
"""What a description says of an operator."""


@dataclass(frozen=True)
class Saved:
    """What was written, and what was there before.

    Attributes:
        files: The files of each counterexample by input; empty if there is none.
        description: The file that says what they violate, None if there is none.
        older: Files of an earlier run, which were not written again.
        models: The model file of each network, by name.
    """

    files: Mapping[int, Mapping[str, Path]] = field(default_factory=dict)
    description: Path | None = None
    older: Sequence[Path] = ()
    models: Mapping[str, Path] = field(default_factory=dict)

    def of(self, counterexample: Counterexample | None) -> Mapping[str, Path] | None:
        """Return the files of a counterexample by input, None where it was not written."""
        return None if counterexample is None else self.files.get(id(counterexample))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One counterexample of a description.

    Attributes:
        network: The network as the property writes it; "" for a property that is not about validity.
        files: File of each input, by ONNX input name, or by variable where `network` is "".
        violations: The operators that it violates, as objects.
    """

    network: str
    files: Mapping[str, Path]
    violations: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What counterexamples are of.

    Attributes:
        property_path: The property file; None where the property has none.
        vnnlib: Whether it is VNN-LIB even if its suffix does not say so.
        parameters: Values of its parameters, as text.
        dims: Sizes of symbolic dimensions.
        dtype: Half precision that the networks were converted to, None where they were not.
        networks: Model file and its SHA-256 hash, by network.
    """

    property_path: Path | None = None
    vnnlib: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    dtype: HalfPrecision | None = None
    networks: Mapping[str, tuple[Path, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Description(Origin):
    """What a `cex.json` says.  It may come from a stranger: show the paths in it, never open them.

    Attributes:
        entries: The counterexamples.
    """

    entries: Sequence[Entry]


def file_hash(path: Path) -> str:
    """Return the SHA-256 hash of a file's bytes as they are, compressed or not, in hexadecimal.

    Raises:
        UsageError: It cannot be read.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is not a file; check the path")
    try:
        return sha256(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({reason_of(error)}); check the path") from error


# ------------------------------------------------------------------ writing


def save(result: Answer, origin: Origin, base: Base, models: Mapping[str, bytes] | None = None) -> Saved:
    """Write the counterexamples of a result, each distinct one once, and their description.

    Args:
        result: What was found.
        origin: What it is of.
        base: Where they go.
        models: The models that are in no file, by network: they are written beside the counterexamples.

    Raises:
        SaveError: A file cannot be written; then none is.
    """
    older = _find_earlier_files(base)
    groups = group_counterexamples(result)
    if not groups:
        return Saved(older=older)
    origin, contents = _with_models(origin, base, models or {})
    files: dict[int, Mapping[str, Path]] = {}
    entries = []
    taken: set[str] = set()
    for position, (example, twins, violated) in enumerate(groups):
        label = "" if position == 0 else unique_names([violated[0].node if violated else "property"], taken)[0]
        paths = _paths(base, label, list(example), taken)
        contents |= {path: partial(_save_array, example[name]) for name, path in paths.items()}
        files |= dict.fromkeys((id(twin) for twin in twins), paths)
        entries.append(_entry_object(example, paths, violated))
    text = json_text(_description_object(result, origin, entries, models or {}))
    contents[base.description] = text.encode()
    save_together(contents)
    written = {name: path for name, (path, _) in origin.networks.items()}
    return Saved(files, base.description, [path for path in older if path not in contents], written)


def _with_models(origin: Origin, base: Base, models: Mapping[str, bytes]) -> tuple[Origin, dict[Path, Content]]:
    """Return an origin whose networks are all in files, and what goes into those that are not there yet."""
    paths = {name: base.model(name if len(origin.networks) > 1 else None) for name in models}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in models.items()}
    written = {name: (path, hashes[name]) for name, path in paths.items()}
    contents: dict[Path, Content] = {path: models[name] for name, path in paths.items()}
    return replace(origin, networks={**origin.networks, **written}), contents


def describe_groups(
    result: Answer,
) -> list[tuple[str, Mapping[str, np.ndarray], Sequence[Mapping[str, Any]]]]:
    """Return of each distinct counterexample the network, the arrays, and what it violates, as descriptions say it."""
    return [
        (example.network, example, [pick(op, _VIOLATION) for op in violated])
        for example, _, violated in group_counterexamples(result)
    ]


def _find_earlier_files(base: Base) -> list[Path]:
    """Return the files that an earlier run left at a base: the array, the description, and all that it lists."""
    candidates = [base.array]
    with suppress(UsageError):  # another file of this name is not ours
        described = read(base.description)
        candidates += [path for entry in described.entries for path in entry.files.values()]
        candidates.append(base.description)
    return [path for path in dict.fromkeys(candidates) if path.is_file()]


def _save_array(array: np.ndarray, stream: BinaryIO) -> None:
    # To what it takes for a file NumPy writes past Python, and does not say why that fails.
    np.save(cast(Any, SimpleNamespace(write=stream.write)), array, allow_pickle=False)


def group_counterexamples(result: Answer) -> list[tuple[Counterexample, list[Counterexample], list[OperatorResult]]]:
    """Return the distinct counterexamples, each with its equals and the operators that they violate."""
    groups: dict[object, tuple[Counterexample, list[Counterexample], list[OperatorResult]]] = {}
    pairs = [(result.counterexample, None), *((op.counterexample, op) for op in result.operators)]
    for example, operator in pairs:
        if example is None:
            continue
        group = groups.setdefault(_identity(example), (example, [], []))
        group[1].append(example)
        if operator is not None:
            group[2].append(operator)
    return list(groups.values())


def _identity(example: Counterexample) -> object:
    arrays = sorted(example.items())
    return example.network, tuple((name, a.dtype.str, a.shape, a.tobytes()) for name, a in arrays)


def _paths(base: Base, label: str, names: list[str], taken: set[str]) -> dict[str, Path]:
    if len(names) == 1:
        return {names[0]: base.part(label) if label else base.array}
    prefixed = [f"{label}.{name}" if label else name for name in names]
    return {name: base.part(safe) for name, safe in zip(names, unique_names(prefixed, taken), strict=True)}


def _entry_object(example: Counterexample, paths: Mapping[str, Path], violated: Sequence[OperatorResult]) -> Any:
    return {
        "network": example.network,
        "inputs": {name: path.name for name, path in paths.items()},
        "violations": [pick(op, _VIOLATION) for op in violated],
    }


def _description_object(
    result: Answer, origin: Origin, entries: Sequence[Any], beside: Collection[str]
) -> dict[str, Any]:
    """Return a description; of models that lie beside it, it has the names, which stay right where all are moved."""
    return {
        "format": _FORMAT,
        "property": None if origin.property_path is None else str(origin.property_path.resolve()),
        "vnnlib": origin.vnnlib,
        "parameters": dict(origin.parameters),
        "dims": dict(origin.dims),
        "dtype": origin.dtype,
        "networks": {
            name: {"path": path.name if name in beside else str(path.resolve()), "sha256": digest}
            for name, (path, digest) in origin.networks.items()
        },
        "seed": result.seed,
        "counterexamples": list(entries),
        "versions": versions(),
    }


# ------------------------------------------------------------------ reading


def read(path: Path) -> Description:
    """Read a description; the files that it names lie beside it.

    Raises:
        UsageError: It is missing, or no description.
    """
    try:
        data = json.loads(content_of(path, most=_LARGEST))
        if data["format"] != _FORMAT:
            raise UsageError(f"{path}: is in format {data['format']}, not {_FORMAT}; use the version that wrote it")
        if data.get("dtype") not in (None, *get_args(HalfPrecision)):
            raise ValueError(data["dtype"])
        if not data["counterexamples"]:
            raise ValueError("nothing would be replayed, and found not to violate")
        return Description(
            property_path=None if data["property"] is None else Path(data["property"]),
            vnnlib=bool(data["vnnlib"]),
            parameters={str(name): str(value) for name, value in data["parameters"].items()},
            dims={str(name): int(value) for name, value in data["dims"].items()},
            dtype=data.get("dtype"),
            networks={name: (Path(model["path"]), str(model["sha256"])) for name, model in data["networks"].items()},
            entries=[_entry(path, entry) for entry in data["counterexamples"]],
        )
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({reason_of(error)}); check the path") from error
    except UsageError:  # which is a ValueError, too
        raise
    except OversizeError as error:
        raise UsageError(f"{path}: {error}, larger than any description; write it with --save-violation") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise UsageError(f"{path}: does not describe a counterexample; write it with --save-violation") from error


def _entry(path: Path, data: Mapping[str, Any]) -> Entry:
    if len(data["inputs"]) > _MOST_INPUTS:
        raise ValueError("each input is a file to load")
    for file in data["inputs"].values():
        if not is_plain_name(file):
            raise UsageError(f"{path}: names an array in another folder, {file!r}; only files beside it are opened")
    return Entry(
        network=str(data["network"]),
        files={str(name): path.parent / file for name, file in data["inputs"].items()},
        violations=[_violation(violation) for violation in data["violations"]],
    )


def _violation(data: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("node", "op_type"):
        if not isinstance(data[key], str):
            raise TypeError(f"{key} is a name")
    return dict(data)
