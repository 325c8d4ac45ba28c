"""Marks of options: `Annotated` metadata of a settings class's fields, and how words become their values.

The rest is said by the field itself: its name is the option's unless `names` has others, its type says what values it
takes, its default is the option's, and its line in the docstring of the class is the help.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        names: Its spellings, separated by spaces; the field's name with dashes where empty.  `--prop.NAME` stands for
            all options that begin so, each giving the value of one name.
        group: The heading that it stands below in the help.
        metavar: What stands for its value in the help; several of them are as many words.
        parse: From a word to its value; raises ValueError with a message that says what is wrong.  By the field's type
            where None.
        gather: From the values of all its occurrences to the field's; without it, the last occurrence counts.  Raises
            ValueError.
        many: Whether one occurrence takes any number of words.
        count: Of a value that may begin with a minus sign: how many words it takes, given the first; they are joined by
            commas.
        bare: Its value where no word follows.
        least: The smallest whole number.
        off: The spellings that say no, of an option without a value.
        presets: Values that have an option of their own: `--cuda` for `--device cuda`.
        in_files: Whether it may stand in a file.
        reads: The file that it names, as messages ask for it; it must exist.
    """

    names: str = ""
    _: KW_ONLY
    group: str = "options"
    metavar: str | tuple[str, ...] = ""
    parse: Callable[[str], Any] | None = None
    gather: Callable[[list[Any]], Any] | None = None
    many: bool = False
    count: Callable[[str], int] | None = None
    bare: str = ""
    least: int = 0
    off: str = ""
    presets: Mapping[str, Any] = field(default_factory=dict)
    in_files: bool = True
    reads: str = ""


@dataclass(frozen=True)
class Argument:
    """An argument without a name.

    Attributes:
        metavar: What stands for it in the help.
        many: Whether any number may follow.
        reads: The file that it names, as messages ask for it; it must exist.
    """

    metavar: str
    _: KW_ONLY
    many: bool = False
    reads: str = ""


MODEL, MODELS, PROPERTY = "an ONNX model", "a folder or an ONNX model", "a property file"


# from words to values -------------------------------------------------------------------------------------------------


def parse_whole(text: str, least: int = 0) -> int:
    """Return a whole number from `least` on."""
    try:
        value = int(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a whole number") from error
    if not least <= value < 2**63:
        raise ValueError(f"{text} is out of range; at least {least} is needed")
    return value


def parse_seconds(text: str) -> float:
    """Return a positive number of seconds, infinity included."""
    return _parse_positive(text, " seconds")


def parse_minutes(text: str) -> float:
    """Return a positive number of minutes, infinity included."""
    return _parse_positive(text, " minutes")


def parse_rate(text: str) -> float:
    """Return a positive finite number."""
    return _parse_positive(text, below=math.inf)


def _parse_positive(text: str, unit: str = "", below: float | None = None) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number{' of' * bool(unit)}{unit}") from error
    if not value > 0 or (below is not None and value >= below):
        raise ValueError(f"{text} is out of range; it must be more than 0{unit}")
    return value


def parse_duration(text: str) -> float:
    """Return a number of seconds, 0 and infinity included."""
    return 0.0 if text.strip("0") in ("", ".") else parse_seconds(text)


def parse_limit(text: str) -> float | None:
    """Return a positive number of seconds, None for infinity."""
    value = parse_seconds(text)
    return None if value == float("inf") else value


def parse_gigabytes(text: str) -> int:
    """Return a positive number of gigabytes as bytes."""
    return int(_parse_positive(text, " gigabytes", below=2**20) * 2**30)


def parse_pair(text: str) -> tuple[str, str]:
    """Split `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def parse_size(text: str) -> tuple[str, int]:
    """Split `NAME=SIZE`."""
    name, value = parse_pair(text)
    return name, parse_whole(value, 1)


def parse_sizes(text: str) -> tuple[str, int | range]:
    """Split `NAME=SIZE` or `NAME=LOWEST..HIGHEST`."""
    name, value = parse_pair(text)
    low, dots, high = value.partition("..")
    if not dots:
        return name, parse_whole(value, 1)
    least, greatest = parse_whole(low, 1), parse_whole(high, 1)
    if greatest < least:
        raise ValueError(f"{value} holds no size; write the smaller one first")
    return name, range(least, greatest + 1)


# from the values of several options to one ----------------------------------------------------------------------------


def to_mapping(pairs: Iterable[Iterable[Any]]) -> dict[Any, Any]:
    """Return pairs as a mapping; ValueError where a name is given twice."""
    values: dict[Any, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"{name} is given twice; give each name once")
        values[name] = value
    return values


def to_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names, each once."""
    return tuple(dict.fromkeys(names))


def to_paths(pairs: Iterable[Iterable[str]]) -> dict[str, Path]:
    """Return files by name; ValueError where a name is given twice."""
    return {name: Path(path) for name, path in to_mapping(pairs).items()}


def to_settings(triples: Iterable[tuple[str, str, str]]) -> Mapping[str, Mapping[str, Any]]:
    """Return values by owner and name, read as Python literals where they are; ValueError where one is given twice."""
    values: dict[str, dict[str, Any]] = {}
    for owner, name, text in triples:
        if name in values.setdefault(owner, {}):
            raise ValueError(f"{owner} {name} is given twice; give each parameter once")
        try:
            values[owner][name] = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            values[owner][name] = text
    return values
