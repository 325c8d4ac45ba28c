"""Lists of instances: our `suite.toml`, VNN-COMP's `instances.csv`, and DNNV's lists of problems."""

from __future__ import annotations

import csv
import glob
import gzip
import math
import os
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ranum_falsify.errors import UsageError, reason_of
from ranum_falsify.file_content import is_compressed
from ranum_falsify.suite.record import Instance

_LARGEST = 64 * 2**20  # bytes
_WANTED = "an instances.csv or a suite.toml"


def read_text(path: Path, wanted: str = _WANTED) -> str:
    """Return the text of a file, decompressed if gzip compressed it, without a byte order mark.

    Raises:
        UsageError: It cannot be read, is no text, or too large for a list.
    """
    try:
        with gzip.open(path) if is_compressed(path) else path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise UsageError(f"{path}: is larger than any list; give {wanted}")
        return data.decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is no text, or truncated; give {wanted}") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({reason_of(error)}); give {wanted}") from error


def read_rows(path: Path, wanted: str = _WANTED) -> list[list[str]]:
    """Return the rows of a table without those that are empty, their cells without spaces around them.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        rows = csv.reader(read_text(path, wanted).splitlines(), skipinitialspace=True, strict=True)
        return [[cell.strip() for cell in row] for row in rows if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise UsageError(f"{path}: is no table of values separated by commas ({error}); correct it") from error


def _find_present(folder: Path, name: str) -> str:
    """Return the path of a file that a list names, or of the same compressed by gzip where that is what is there."""
    path = Path(os.path.normpath(folder / name))
    compressed = path.with_name(f"{path.name}.gz")
    return str(compressed if not path.exists() and compressed.exists() else path)


def _make_unique(names: Iterable[str]) -> list[str]:
    """Return names of which repeated ones have a number."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return found


_OWN = ("name", "models", "properties")
_KEYS = {"models": "a pattern, or several", "properties": "files, or patterns of them"}


ReadOptions = Callable[[Path, str, Mapping[str, Any], bool], Mapping[str, Any]]
"""Returns fields of instances that a table of options says: given the file, its title, the table, and whether there are
property files.

It raises UsageError.
"""


def _read_toml(path: Path, read_options: ReadOptions) -> Iterator[Instance]:
    """Yield the instances of a suite."""
    try:
        data = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not TOML ({error}); correct it") from error
    groups = data.pop("group", [])
    name = data.pop("name", path.resolve().parent.name)
    if not isinstance(name, str) or not isinstance(groups, list) or not all(isinstance(each, dict) for each in groups):
        raise UsageError(f"{path}: name is a text, and each [[group]] a table; see docs/suites.md")
    if not groups:
        raise UsageError(f"{path}: has no [[group]]; see docs/suites.md")
    for number, group in enumerate(groups, 1):
        title = f"group {group.get('name', number)!s}"
        yield from _Group(path, title, name, {**data, **group}).instances(read_options)


class _Group:
    """A table `[[group]]`, overlaid on what the file says of all groups."""

    def __init__(self, path: Path, title: str, suite: str, table: Mapping[str, Any]) -> None:
        self._path = path
        self._folder = path.parent
        self._title = title
        self._table = table
        own = table.get("name")
        self._category = f"{suite}/{own}" if own else suite

    def instances(self, read_options: ReadOptions) -> Iterator[Instance]:
        models = self._files("models")
        if not models:
            raise UsageError(
                f"{self._path}: [{self._title}] models is missing; name files, such as models = 'onnx/*.onnx'"
            )
        properties: Sequence[str | None] = self._files("properties") or [None]
        others = {key: value for key, value in self._table.items() if key not in _OWN}
        found = read_options(self._path, self._title, others, properties != [None])
        for model in models:
            for prop in properties:
                yield self._instance(model, prop, found)

    def _instance(self, model: str, prop: str | None, found: Mapping[str, Any]) -> Instance:
        shown = model, "box" if prop is None else prop
        names = "".join(f" {name}={value}" for name, value in found["parameters"].items())
        if passes := found["question"].get("passes"):
            names += f" after {' '.join(passes)}"
        return Instance(
            id=f"{self._category}/{'/'.join(shown)}{names}",
            category=self._category,
            model=shown[0],
            property=f"{shown[1]}{names}",
            networks={"": self._place(model)},
            property_path=None if prop is None else self._place(prop),
            **found,
        )

    def _place(self, name: str) -> str:
        return os.path.normpath(self._folder / name)

    def _files(self, key: str) -> list[str]:
        """Return the files that patterns match, relative to the suite, each once."""
        given = self._table.get(key, [])
        patterns: Sequence[Any] = [given] if isinstance(given, str) else given
        if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
            raise UsageError(
                f"{self._path}: [{self._title}] {key} is no text, and no list of texts; write {_KEYS[key]}"
            )
        found: dict[str, None] = {}
        for pattern in patterns:
            matched = sorted(glob.glob(pattern, root_dir=self._folder, recursive=True))
            if not matched:
                raise UsageError(
                    f"{self._path}: [{self._title}] {key}: {pattern!r} matches no file in {self._folder}; correct it"
                )
            found.update(dict.fromkeys(Path(each).as_posix() for each in matched))
        return list(found)


def _read_vnncomp(path: Path, rows: Sequence[Sequence[str]]) -> Iterator[Instance]:
    """Yield the instances of a list."""
    category = path.resolve().parent.name
    for number, row in enumerate(rows, 1):
        if len(row) not in (2, 3):
            raise UsageError(f"{path}: row {number} has {len(row)} columns; write model, property and time limit")
        model, prop = row[:2]
        timeout = _parse_seconds(path, number, row[2]) if len(row) == 3 else None
        yield Instance(
            id=f"{category}/{_shorten(model)}/{_shorten(prop)}",
            category=category,
            model=model,
            property=prop,
            networks={"": _find_present(path.parent, model)},
            property_path=_find_present(path.parent, prop),
            options={"n_starts": -1},
            timeout=timeout,
        )


def _parse_seconds(path: Path, number: int, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"{path}: row {number}: {text!r} is no number of seconds; write a time limit")
    return seconds


def _shorten(path: str) -> str:
    """Return a file's name without what all of its kind end in."""
    name = Path(path).name.removesuffix(".gz")
    return name.removesuffix(".onnx").removesuffix(".vnnlib")


_NEEDED = ("problem_id", "property_filename", "network_names", "network_filenames")
_SEPARATOR = ":"


def _is_dnnv(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether the first row of a list names DNNV's columns."""
    return bool(rows) and set(_NEEDED) <= set(rows[0])


def _read_dnnv(path: Path, rows: Sequence[Sequence[str]]) -> Iterator[Instance]:
    """Yield the problems of a list."""
    category = path.resolve().parent.name
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(rows[0]):
            raise UsageError(f"{path}: row {number} has {len(row)} columns, not {len(rows[0])}; correct it")
        cells = dict(zip(rows[0], row, strict=True))
        networks = _pair(path, number, cells, "network_names", "network_filenames")
        parameters = _pair(path, number, cells, "parameter_names", "parameter_values")
        yield Instance(
            id=f"{category}/{cells['problem_id']}",
            category=category,
            model=" ".join(networks.values()),
            property=" ".join([cells["property_filename"], *(f"{name}={text}" for name, text in parameters.items())]),
            networks={name: _find_present(path.parent, file) for name, file in networks.items()},
            property_path=_find_present(path.parent, cells["property_filename"]),
            parameters=parameters,
        )


def _pair(path: Path, number: int, cells: Mapping[str, str], names: str, values: str) -> dict[str, str]:
    """Return what two cells of a row say together."""
    keys, texts = (cells[column].split(_SEPARATOR) if cells.get(column) else [] for column in (names, values))
    if len(keys) != len(texts) or len(set(keys)) != len(keys):
        raise UsageError(f"{path}: row {number}: {names} and {values} do not match; write as many, separated by ':'")
    return dict(zip(keys, texts, strict=True))


_LISTS = ("suite.toml", "instances.csv", "instances.csv.gz")
_PROBLEMS = "problems*.csv"


def list_instances(path: Path, read_options: ReadOptions) -> list[Instance]:
    """Return the instances of a suite, each with an id of its own.

    Args:
        path: A list; or a folder with one, or with folders that have one each.
        read_options: Reads the options of a group of a `suite.toml`.

    Raises:
        UsageError: There is no list, it lists nothing, or is of another form.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder; give a folder, an instances.csv, or a suite.toml")
    lists = _find_lists(path) if path.is_dir() else [path]
    if not lists:
        raise UsageError(
            f"{path}: has no {', '.join(_LISTS)} or {_PROBLEMS}, nor has a folder in it; give a folder that has"
        )
    found = [instance for each in lists for instance in _read(each, read_options)]
    if not found:
        raise UsageError(f"{path}: lists no instances; add some")
    ids = _make_unique(instance.id for instance in found)
    return [replace(instance, id=name) for instance, name in zip(found, ids, strict=True)]


def _find_lists(folder: Path) -> list[Path]:
    """Return the lists of a folder; where it has none, those of the folders in it."""
    own = _find_own(folder)
    return own or [each for inner in sorted(folder.iterdir()) if inner.is_dir() for each in _find_own(inner)]


def _find_own(folder: Path) -> list[Path]:
    for name in _LISTS:
        if (folder / name).is_file():
            return [folder / name]
    return sorted(folder.glob(_PROBLEMS))


def _read(path: Path, read_options: ReadOptions) -> Iterator[Instance]:
    if path.suffix == ".toml":
        yield from _read_toml(path, read_options)
        return
    rows = read_rows(path)
    yield from _read_dnnv(path, rows) if _is_dnnv(rows) else _read_vnncomp(path, rows)
