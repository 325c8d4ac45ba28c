"""From values of a TOML file to the words that mean the same on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ranum_falsify.cli.options.fields import OptionField
from ranum_falsify.option import Option, Switch

__all__ = ["MismatchError", "describe_kind", "to_words"]

_KINDS = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array", dict: "a table"}
_PATHS = ("PATH", "FILE", "DIR")
"""How the names of values end that are paths."""
_OUTPUT = "output"
"""The heading of options that name files to write."""


class MismatchError(ValueError):
    """A value of a type that the option does not take."""


def describe_kind(value: object) -> str:
    """Return what a value is, in words."""
    return _KINDS.get(type(value), "a date or time")


def to_words(option: OptionField, value: Any, folder: Path) -> Iterator[str]:
    """Yield what gives an option a value.

    Args:
        option: The option.
        value: The value of its key.
        folder: What relative paths are relative to.

    Raises:
        MismatchError: The option does not take such a value.
    """
    mark, name = option.mark, option.name
    if isinstance(mark, Switch):
        if not isinstance(value, bool):
            raise MismatchError(f"is {describe_kind(value)} where true or false is needed")
        yield from [name] if value else []
        return
    assert isinstance(mark, Option)
    if option.keyed:
        yield from (f"{option.keyed}{key}={_read_scalar(each)}" for key, each in _read_mapping(value).items())
    elif isinstance(mark.metavar, tuple):
        for keys, each in _walk_leaves(value, len(mark.metavar) - 1):
            yield from (name, *keys, _find_place(option, _read_scalar(each), folder))
    elif mark.count is not None:
        for key, each in value.items() if isinstance(value, dict) else [("", value)]:
            numbers = ",".join(map(_read_scalar, _read_array(each)))
            yield f"{name}={key}={numbers}" if key else f"{name}={numbers}"
    elif "=" in mark.metavar:
        for key, each in _read_mapping(value).items():
            yield f"{name}={key}={_find_place(option, _read_scalar(each), folder)}"
    elif mark.many:
        yield from (name, *map(_read_text, _read_array(value)))
    elif mark.gather is not None:
        yield from (f"{name}={_read_text(each)}" for each in _read_array(value))
    elif {int, float} & {*option.kinds}:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MismatchError(f"is {describe_kind(value)} where a number is needed")
        yield f"{name}={value}"
    else:
        yield f"{name}={_find_place(option, _read_text(value), folder)}"


def _read_scalar(value: object) -> str:
    if not isinstance(value, str | int | float):
        raise MismatchError(f"is {describe_kind(value)} where a string or a number is needed")
    return str(value)


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise MismatchError(f"is {describe_kind(value)} where a string is needed")
    return value


def _read_array(value: Any) -> list[Any]:
    """Return the elements of an array; anything else stands for an array of one."""
    return value if isinstance(value, list) else [value]


def _read_mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MismatchError(f"is {describe_kind(value)} where a table is needed")
    return value


def _walk_leaves(value: Any, depth: int) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of nested tables, each with its keys."""
    if not depth:
        yield (), value
        return
    for key, each in _read_mapping(value).items():
        yield from (((key, *keys), leaf) for keys, leaf in _walk_leaves(each, depth - 1))


def _find_place(option: OptionField, text: str, folder: Path) -> str:
    """Return a path seen from the working folder, and what is no path as it is."""
    metavar = option.mark.metavar if isinstance(option.mark, Option) else ""
    if text == "-" or not (metavar if isinstance(metavar, str) else metavar[-1]).endswith(_PATHS):
        return text
    path = folder / text
    if option.group == _OUTPUT and not path.resolve().is_relative_to(folder.resolve()):
        raise MismatchError(f"{text} lies outside the folder of this file; give it on the command line")
    return str(path)
