"""Options in `[tool.ranum-falsify]` of a `pyproject.toml`, as if they stood on the command line.

Such a file may be a stranger's: it starts no program, and writes only below its folder.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ranum_falsify.cli.options.fields import OptionField, Values, all_options, overlay, read
from ranum_falsify.cli.options.toml_words import MismatchError, describe_kind, to_words
from ranum_falsify.cli.usage import PROGRAM, Parser, find_near
from ranum_falsify.errors import UsageError, reason_of
from ranum_falsify.option import Argument

__all__ = ["SettingsFile", "find_settings"]

_NAME = "pyproject.toml"
_MAIN = "falsify"
"""The table of the main command, which has no name."""
_LARGEST = 2**20  # bytes
_IGNORE = "correct it, or ignore it with --isolated"


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
        raise UsageError(f"{path}: tool.{PROGRAM} is {describe_kind(table)} where a table is needed; {_IGNORE}")
    return table


@dataclass(frozen=True)
class SettingsFile:
    """What a `pyproject.toml` says.

    Attributes:
        path: The file, seen from the working folder.
        table: Its table `tool.ranum-falsify`, or another with options.
        title: What messages call the table.
    """

    path: Path
    table: Mapping[str, Any]
    title: str = f"tool.{PROGRAM}"

    def read(self, name: str, parser: Parser, classes: Mapping[str, type]) -> Values:
        """Return what it gives a command: options of all commands, overlaid by those of its own table.

        Args:
            name: The command, "" for the main one.
            parser: Its parser.
            classes: The classes of the options of all commands.

        Raises:
            UsageError: It has an unknown key, or a value of the wrong type.
        """
        known: dict[str, dict[str, OptionField | None]] = {}
        for command, settings in classes.items():
            known.setdefault(_name_table(command), {}).update(_map_options(settings))
        everywhere = {key: value for key, value in self.table.items() if key not in known}
        self._check_keys("", everywhere, ChainMap(*known.values(), dict.fromkeys(known)))
        for command, keys in known.items():
            self._check_keys(command, self.table.get(command, {}), keys)
        own = _name_table(name)
        tables = {"": everywhere, own: self.table.get(own, {})}
        shared, special = (self._read_values(title, table, parser, classes[name]) for title, table in tables.items())
        return overlay(shared, special)

    def _check_keys(self, title: str, table: Any, known: Mapping[str, OptionField | None]) -> None:
        if not isinstance(table, dict):
            raise UsageError(f"{self._name_place(title)}: is {describe_kind(table)} where a table is needed")
        for key in table:
            if _spell(key) not in known:
                near = find_near(key, (other if o is None else _name_key(o.name) for other, o in known.items()))
                raise UsageError(f"{self._name_place(title)} {key}: there is no such option{near}")

    def _read_values(self, title: str, table: Mapping[str, Any], parser: Parser, settings: type) -> Values:
        """Return the values of a table as far as they are options of a command."""
        options = _map_options(settings)
        words: list[str] = []
        for key, value in table.items():
            if (option := options.get(_spell(key))) is None:
                continue
            try:
                given = list(to_words(option, value, self.path.parent))
                read(parser, settings, given)
            except (MismatchError, UsageError) as error:
                detail = str(error).removeprefix(f"argument {'/'.join(option.names)}: ").partition(f"; {PROGRAM}")[0]
                raise UsageError(f"{self._name_place(title)} {key}: {detail}") from error
            words += given
        try:
            return read(parser, settings, words)
        except UsageError as error:
            raise UsageError(f"{self._name_place(title)}: {str(error).partition(f'; {PROGRAM}')[0]}") from error

    def _name_place(self, title: str) -> str:
        return f"{self.path}: [{'.'.join(filter(None, [self.title, title]))}]"


def _name_table(command: str) -> str:
    return command.split(" ")[0] or _MAIN


@cache
def _map_options(settings: type) -> Mapping[str, OptionField]:
    """Return the options that may stand in a file, by all their names without dashes in front."""
    options = (o for o in all_options(settings) if not isinstance(o.mark, Argument) and o.mark.in_files)
    return {_spell(_name_key(name)): option for option in options for name in option.names if name.startswith("--")}


def _name_key(option: str) -> str:
    """Return the key of an option."""
    return option.removeprefix("--").removesuffix(".NAME")


def _spell(key: str) -> str:
    """Return a key as it is looked up: `n_starts` and `n-starts` are one."""
    return key.replace("_", "-")
