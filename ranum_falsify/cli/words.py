"""From the words of the command line to values; each converter says what it expected."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ranum_falsify.cli.usage import UsageError
from ranum_falsify.config import RUNTIMES, Runtime

__all__ = [
    "backend",
    "dimension",
    "duration",
    "gigabytes",
    "make_whole_converter",
    "map_by_name",
    "networks",
    "pair",
    "refuse_unnamed",
    "runtimes",
    "seconds",
    "settings",
    "split_parameters",
]

_FOREIGN_BACKENDS = ("dnnf.", "foolbox.", "cleverhans.")


def make_whole_converter(least: int) -> Callable[[str], int]:
    """Return a converter to whole numbers from `least` on."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error
        if not least <= value < 2**63:
            raise argparse.ArgumentTypeError(f"{text} is out of range; at least {least} is needed")
        return value

    return number


def seconds(text: str) -> float:
    """Return a positive number of seconds, infinity included."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from error
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is out of range; it must be more than 0 seconds")
    return value


def duration(text: str) -> float:
    """Return a number of seconds, 0 and infinity included."""
    return 0.0 if text.strip("0") in ("", ".") else seconds(text)


def gigabytes(text: str) -> int:
    """Return a positive number of gigabytes as bytes."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of gigabytes") from error
    if not 0 < value < 2**20:
        raise argparse.ArgumentTypeError(f"{text} is out of range; it must be more than 0 gigabytes")
    return int(value * 2**30)


def runtimes(text: str) -> tuple[Runtime, ...]:
    """Split names of runtimes at commas."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in RUNTIMES:
            raise argparse.ArgumentTypeError(f"{name!r} is unknown; {', '.join(RUNTIMES)} exist")
    return names


def backend(text: str) -> str:
    """Return the name of a back end, if it can be one."""
    if text == "pgd" or text.startswith(_FOREIGN_BACKENDS):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is unknown; pgd, dnnf.pgd, foolbox.NAME and cleverhans.NAME exist")


def pair(text: str) -> tuple[str, str]:
    """Split `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def dimension(text: str) -> tuple[str, int]:
    """Split `NAME=SIZE`."""
    name, value = pair(text)
    return name, make_whole_converter(1)(value)


def map_by_name(option: str, pairs: Sequence[Sequence[Any]] | None) -> dict[str, Any]:
    """Return pairs as a mapping.

    Raises:
        UsageError: A name is given twice.
    """
    values: dict[str, Any] = {}
    for name, value in pairs or ():
        if name in values:
            raise UsageError(f"{option} {name} is given twice; give each name once")
        values[name] = value
    return values


def networks(pairs: Sequence[Sequence[str]] | None) -> dict[str, Path]:
    """Return the model files by network.

    Raises:
        UsageError: A network is named twice.
    """
    return {name: Path(path) for name, path in map_by_name("--network", pairs).items()}


def settings(triples: Sequence[Sequence[str]] | None, backends: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return parameters of back ends by back end and name, their values read as Python literals where they are.

    Raises:
        UsageError: The back end is not used, or a parameter is set twice.
    """
    values: dict[str, dict[str, Any]] = {}
    for method, name, text in triples or ():
        if method not in backends:
            raise UsageError(f"--set {method} {name}: {method!r} is not among the back ends ({', '.join(backends)})")
        if name in values.setdefault(method, {}):
            raise UsageError(f"--set {method} {name} is given twice; give each parameter once")
        try:
            values[method][name] = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            values[method][name] = text
    return values


def refuse_unnamed(text: str) -> str:
    """Refuse the value of a parameter without a name: `--prop.NAME`, abbreviated to `--prop`."""
    raise argparse.ArgumentTypeError(f"{text!r} has no parameter; write --prop.NAME=VALUE")


def split_parameters(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Take `--prop.NAME=VALUE` and `--prop.NAME VALUE` out of the arguments.

    They come out before the other options are read, because a value may start with a minus sign.

    Raises:
        UsageError: A value is missing, or a name is given twice.
    """
    rest: list[str] = []
    pairs: list[tuple[str, str]] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif not word.startswith("--prop."):
            rest.append(word)
        else:
            name, equals, value = word.removeprefix("--prop.").partition("=")
            given = value if equals else next(words, None)
            if not name or given is None or (not equals and given.startswith("--")):
                raise UsageError(f"{word}: a value is missing; write --prop.NAME=VALUE")
            pairs.append((name, given))
    return rest, map_by_name("--prop.NAME", pairs)
