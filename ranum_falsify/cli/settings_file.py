"""Options in a TOML file, as if they stood on the command line: `[tool.ranum-falsify]` of a `pyproject.toml`.

Such a file may be a stranger's: it starts no program, and writes only below its folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranum_falsify.cli.commands import COMMANDS, PROGRAM, find_near, load_options
from ranum_falsify.cli.options.shared import Values
from ranum_falsify.cli.parser import OptionField, Parser, list_options
from ranum_falsify.errors import UsageError, reason_of
from ranum_falsify.option_marks import Option

_NAME = "pyproject.toml"
_LARGEST = 2**20  # bytes
_IGNORE = "correct it, or ignore it with --isolated"
_KINDS = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array", dict: "a table"}
_PATHS = ("PATH", "FILE", "DIR")
"""How the names of values end that are paths."""


def find_settings(start: Path) -> SettingsFile | None:
    """Return the nearest file with options, in a folder or its parents.

    Raises:
        UsageError: It cannot be read.
    """
    for folder in (start, *start.parents):
        path = folder / _NAME
        try:
            if not path.is_file():
                continue
            if path.stat().st_size > _LARGEST:
                raise UsageError(f"{path}: is larger than any such file; {_IGNORE}")
            content = path.read_bytes()
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({reason_of(error)}); {_IGNORE}") from error
        # Parsing takes longer than all else that comes before a usage error.
        if PROGRAM.encode() in content and (table := _read_table(path, content)) is not None:
            return SettingsFile(Path(os.path.relpath(path, start)), table)
    return None


def _read_table(path: Path, content: bytes) -> dict[str, Any] | None:
    import tomllib

    try:
        tool = tomllib.loads(content.decode()).get("tool", {})
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not TOML ({error}); {_IGNORE}") from error
    table = tool.get(PROGRAM) if isinstance(tool, dict) else None
    if not isinstance(table, dict | None):
        raise UsageError(f"{path}: tool.{PROGRAM} {_mismatch(table, 'a table')}; {_IGNORE}")
    return table


@dataclass(frozen=True)
class SettingsFile:
    """A table of options.

    Attributes:
        path: The file, seen from the working folder.
        table: Its table `tool.ranum-falsify`, or another with options.
        title: What messages call the table.
    """

    path: Path
    table: Mapping[str, Any]
    title: str = f"tool.{PROGRAM}"

    def read_command(self, command: str, parser: Parser) -> Values:
        """Return what it gives a command: options of all commands, replaced by those of the command's own table.

        Raises:
            UsageError: It has an unknown key, or a value of the wrong type.
        """
        names: dict[str, list[str]] = {}
        for name in COMMANDS:
            names.setdefault(name.split(" ")[0], []).append(name)
        shared = {key: value for key, value in self.table.items() if key not in names}
        groups = {name: self.table[name] for name in names if name in self.table}
        values: Values = {}
        for title, table in {"": shared, **groups}.items():
            if not isinstance(table, dict):
                raise UsageError(f"{self._place(title)}: {_mismatch(table, 'a table')}")
            own = not title or title == command.split(" ")[0]
            if own and not any(_spell(key) not in _list_keys(parser.options) for key in table):
                values |= self.read(table, parser, title)
                continue
            known: dict[str, Any] = dict.fromkeys(names) if not title else {}
            for name in names[title] if title else COMMANDS:
                known |= _list_keys(list_options(load_options(name)))
            self._check_keys(table, known, title)
            if own:
                mine = {key: value for key, value in table.items() if _spell(key) in _list_keys(parser.options)}
                values |= self.read(mine, parser, title)
        return values

    def read(self, table: Mapping[str, Any], parser: Parser, title: str = "") -> Values:
        """Return the values of a table whose keys are all options of a command."""
        known = _list_keys(parser.options)
        self._check_keys(table, known, title)
        words: list[str] = []
        for key, value in table.items():
            try:
                given = list(_Key(*known[_spell(key)], self.path.parent).to_words(value))
                parser.read(given)
            except (ValueError, UsageError) as error:
                detail = str(error).partition(f"; {PROGRAM}")[0]
                raise UsageError(f"{self._place(title)} {key}: {detail}") from error
            words += given
        try:
            return parser.read(words)
        except UsageError as error:
            raise UsageError(f"{self._place(title)}: {str(error).partition(f'; {PROGRAM}')[0]}") from error

    def _check_keys(self, table: Mapping[str, Any], known: Mapping[str, Any], title: str) -> None:
        for key in table:
            if _spell(key) not in known:
                shown = [spelling.lstrip("-") for _, spelling in filter(None, known.values())]
                raise UsageError(f"{self._place(title)} {key}: there is no such option{find_near(key, shown)}")

    def _place(self, title: str) -> str:
        return f"{self.path}: [{'.'.join(filter(None, [self.title, title]))}]"


def _list_keys(options: tuple[OptionField, ...]) -> dict[str, tuple[OptionField, str]]:
    """Return the options that may stand in a file, with the spelling, by all their names without dashes in front."""
    keys = {}
    for option in options:
        if isinstance(option.mark, Option) and option.mark.in_files:
            for name in (*option.names, *option.off, *option.mark.presets):
                if name.startswith("--"):
                    keys[_spell(name.lstrip("-"))] = option, name
    return keys


def _spell(key: str) -> str:
    """Return a key as it is looked up: `n_starts` and `n-starts` are one."""
    return key.replace("_", "-")


def _mismatch(value: object, wanted: str) -> str:
    return f"is {_KINDS.get(type(value), 'a date or time')} where {wanted} is needed"


@dataclass(frozen=True)
class _Key:
    """A key of a file."""

    option: OptionField
    name: str
    folder: Path

    def to_words(self, value: Any) -> Iterator[str]:
        """Yield the words that give the option a value."""
        mark, name = self.option.mark, self.name
        assert isinstance(mark, Option)
        several = value if isinstance(value, list) else [value]
        if self.option.kinds == (bool,) or name in mark.presets:
            if not isinstance(value, bool):
                raise ValueError(_mismatch(value, "true or false"))
            yield from [name] if value else []
        elif self.option.is_keyed:
            yield from (f"{name}.{key}={text}" for key, text in self._walk(value, 1))
        elif isinstance(mark.metavar, tuple):
            for words in self._walk(value, len(mark.metavar) - 1):
                yield from (name, *words)
        elif mark.count is not None:
            for key, each in value.items() if isinstance(value, dict) else [("", value)]:
                numbers = ",".join(map(self._read_scalar, each if isinstance(each, list) else [each]))
                yield f"{name}={key}={numbers}" if key else f"{name}={numbers}"
        elif "=" in mark.metavar:
            yield from (f"{name}={key}={text}" for key, text in self._walk(value, 1))
        elif mark.many:
            yield from (name, *(self._read(each, str) for each in several))
        elif mark.gather is not None:
            yield from (f"{name}={self._read(each, str)}" for each in several)
        elif {int, float} & {*self.option.kinds}:
            yield f"{name}={self._read(value, int, float, wanted='a number')}"
        else:
            yield f"{name}={self._read(value, str)}"

    def _walk(self, value: Any, depth: int) -> Iterator[tuple[str, ...]]:
        """Yield the keys of nested tables, each path of them with its value as a word."""
        if not depth:
            yield (self._read_scalar(value),)
            return
        if not isinstance(value, dict):
            raise ValueError(_mismatch(value, "a table"))
        for key, inner in value.items():
            yield from ((key, *rest) for rest in self._walk(inner, depth - 1))

    def _read_scalar(self, value: Any) -> str:
        return self._read(value, str, int, float, bool, wanted="a string or a number")

    def _read(self, value: Any, *kinds: type, wanted: str = "a string") -> str:
        """Return a value as a word; a path is seen from the working folder."""
        if type(value) not in kinds:
            raise ValueError(_mismatch(value, wanted))
        mark = self.option.mark
        if not isinstance(mark, Option) or value == "-" or not "".join(mark.metavar).endswith(_PATHS):
            return str(value)
        path = self.folder / str(value)
        if mark.group == "output" and not path.resolve().is_relative_to(self.folder.resolve()):
            raise ValueError(f"{value} lies outside the folder of this file; give it on the command line")
        return str(path)
