"""Files that the command writes: checked before the work, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranum_falsify.cli.output import say, say_json
from ranum_falsify.errors import SaveError, UsageError, reason_of
from ranum_falsify.escaping import json_text
from ranum_falsify.saving import check_place, save_together


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
        raise UsageError(f"{option} {path}: is {what}; give the path of a file")
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
    else:
        write_text(target, json_text(report))


def write_text(target: str, text: str) -> None:
    """Write a text; `-` is standard output.

    Raises:
        SaveError: The file cannot be written.
    """
    if target == "-":
        say(text.splitlines())
    elif is_stream(Path(target)):
        try:
            Path(target).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SaveError(f"{target}: cannot be written ({reason_of(error)}); choose another path") from error
    else:
        save_together({Path(target): text.encode()})
