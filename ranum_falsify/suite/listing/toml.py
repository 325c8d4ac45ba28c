"""Our `suite.toml`: groups of models, what is asked of each, and with which options."""

from __future__ import annotations

import glob
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranum_falsify.errors import UsageError
from ranum_falsify.suite.instance import Instance
from ranum_falsify.suite.listing.files import read_text

__all__ = ["GroupOptions", "ReadOptions", "read_toml"]

_OWN = ("name", "models", "properties")
_KEYS = {"models": "a pattern, or several", "properties": "files, or patterns of them"}


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """Options of a group, as an instance holds them."""

    question: Mapping[str, Any]
    options: Mapping[str, Any]
    parameters: Mapping[str, str]
    timeout: float | None


ReadOptions = Callable[[Path, str, Mapping[str, Any], bool], GroupOptions]
"""Returns what a table of options means, given the file, what to call the table, and whether there are property files.

It raises UsageError.
"""


def read_toml(path: Path, read_options: ReadOptions) -> Iterator[Instance]:
    """Yield the instances of a suite.

    Args:
        path: Its file; paths in it are relative to its folder.
        read_options: Reads the options of a group.

    Raises:
        UsageError: It is not of this form, or a pattern matches no file.
    """
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

    def _instance(self, model: str, prop: str | None, found: GroupOptions) -> Instance:
        shown = model, "box" if prop is None else prop
        names = "".join(f" {name}={value}" for name, value in found.parameters.items())
        return Instance(
            id=f"{self._category}/{'/'.join(shown)}{names}",
            category=self._category,
            model=shown[0],
            property=f"{shown[1]}{names}",
            networks={"": self._place(model)},
            property_path=None if prop is None else self._place(prop),
            question=found.question,
            parameters=found.parameters,
            options=found.options,
            timeout=found.timeout,
        )

    def _place(self, name: str) -> str:
        return os.path.normpath(self._folder / name)

    def _files(self, key: str) -> list[str]:
        """Return the files that patterns match, relative to the suite, each once.

        Raises:
            UsageError: One matches none.
        """
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
