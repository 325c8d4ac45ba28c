"""Files that the command writes: checked before the work, whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import platformdirs

from ranum_falsify.cli.output import say_json
from ranum_falsify.cli.usage import UsageError
from ranum_falsify.errors import SaveError, reason_of
from ranum_falsify.escaping import json_text
from ranum_falsify.saving import check_place, save_together

__all__ = [
    "cache_folder",
    "check_writable",
    "is_plain_name",
    "is_stream",
    "make_safe_name",
    "output_folder",
    "unique_names",
    "write_json",
]

_LONGEST_NAME = 80


def cache_folder() -> Path | None:
    """Return the folder of this program in the user's cache, which need not exist; None where the user has no home."""
    try:
        return platformdirs.user_cache_path("ranum-falsify", appauthor=False)
    except RuntimeError:
        return None


def check_writable(option: str, path: Path) -> None:
    """Check that a file can be written before doing the work whose result goes into it.

    Args:
        option: The option that named the file, for the message.
        path: The file, which may exist.

    Raises:
        UsageError: The folder is missing or not writable, or the path is something else than a file.
    """
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise UsageError(f"{option} {path}is {what}; give the path of a file")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {str(path.parent)!r}; create it first")
    try:
        check_place(path)
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be written ({reason_of(error)}); choose another path") from error


def output_folder(option: str, path: Path) -> Path:
    """Return a folder that the user named, made where its parent exists.

    Args:
        option: The option that named the folder, for the message.
        path: The folder.

    Raises:
        UsageError: It cannot be made.
    """
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {str(path.parent)!r}; create it first")
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be created ({reason_of(error)}); choose another folder") from error
    return path


def is_plain_name(name: str) -> bool:
    """Tell whether a name from a file names a file beside it, rather than a path elsewhere."""
    return Path(name).name == name and name not in ("", "..")


def is_stream(path: Path) -> bool:
    """Tell whether a path is a pipe or a terminal, such as /dev/stdout, which renaming would replace."""
    return path.is_fifo() or path.is_char_device()


def write_json(target: str, report: dict[str, Any]) -> None:
    """Write a report; `-` is standard output.

    Raises:
        SaveError: The file cannot be written.
    """
    if target == "-":
        say_json(report)
    elif is_stream(Path(target)):
        try:
            Path(target).write_text(json_text(report), encoding="utf-8")
        except OSError as error:
            raise SaveError(f"{target}: cannot be written ({reason_of(error)}); choose another path") from error
    else:
        save_together({Path(target): json_text(report).encode()})


def make_safe_name(name: str) -> str:
    """Return a node's or an input's name as part of a file name: letters, digits, `_`, `-`, `.`."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("._")[:_LONGEST_NAME] or "unnamed"


def unique_names(names: Iterable[str], taken: set[str]) -> list[str]:
    """Return safe names that differ from each other and from those taken, letter case aside; they become taken."""
    unique = []
    for name in names:
        safe, count = make_safe_name(name), 1
        while safe.lower() in taken:
            count += 1
            safe = f"{make_safe_name(name)}_{count}"
        taken.add(safe.lower())
        unique.append(safe)
    return unique
