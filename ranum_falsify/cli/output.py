"""Standard output and standard error: every line that a command shows goes through here.

Both may be closed, full, or unable to show a character.  None of that changes a verdict: one line reports what cannot
be written, and the exit status stays the verdict's.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from ranum_falsify.cli.commands import PROGRAM
from ranum_falsify.errors import RanumFalsifyError, reason_of
from ranum_falsify.escaping import escape, json_text
from ranum_falsify.results.progress import ProgressDisplay


def open_streams() -> None:
    """Make the standard streams usable, whatever the caller left of them.

    A closed one reads and writes nothing: the next file to be opened would have its number, and get what is meant for
    it. A character that the terminal does not know is written as its escape sequence.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the least number that is free
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def complain(lines: Iterable[str]) -> None:
    """Print lines to standard error, escaped; where that fails, there is nobody left to tell."""
    try:
        for line in lines:
            print(escape(line), file=sys.stderr)
        sys.stderr.flush()
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Point a stream at nothing, so that what it still holds does not fail again when the process ends."""
    with suppress(OSError, ValueError):  # it is not a file: nothing will be flushed
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)


@contextmanager
def verdict_stands() -> Iterator[None]:
    """While a verdict is reported: report on standard error what cannot be written; raise nothing.

    A reader that closes its pipe has seen enough; nothing is reported.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
    except RanumFalsifyError as error:
        complain([f"{PROGRAM}: {error}"])
    except OSError as error:
        discard(sys.stdout)
        complain([f"{PROGRAM}: standard output: cannot be written ({reason_of(error)}); see the exit status"])


def settle() -> None:
    """Write what the streams still hold; what cannot be written must not change the exit status at the very end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            discard(stream)


_VERDICT = re.compile(r"(?P<before>\S*[./]\S*: )?(?P<word>violated|holds|unknown|proved|open|accepted|rejected)\b")
_RED, _GREEN, _YELLOW = 31, 32, 33
_COLOURS = {"violated": _RED, "rejected": _RED, "unknown": _YELLOW, "open": _YELLOW}


def say(lines: Iterable[str]) -> None:
    """Print lines to standard output, escaped: a line feed within one of them ends no line.

    Verdicts at the start of a line have a colour on terminals, unless the user wants none (https://no-color.org).
    """
    paint = _paint if _has_colours() else str
    for line in lines:
        print(paint(escape(line)))
    sys.stdout.flush()


def _has_colours() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
    )


def _paint(line: str) -> str:
    found = _VERDICT.match(line)
    if found is None:
        return line
    colour = _COLOURS.get(found["word"], _GREEN)
    return f"{found['before'] or ''}\x1b[1;{colour}m{found['word']}\x1b[0m{line[found.end() :]}"


def align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table, the cells of each column below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def say_json(value: Any) -> None:
    """Print a value to standard output as JSON."""
    print(json_text(value), end="", flush=True)


def say_form(content: bytes) -> None:
    """Print a report in a form that other programs read; what makes it has escaped the names in it."""
    print(content.decode(), end="", flush=True)


@contextmanager
def say_safely() -> Iterator[None]:
    """Send libraries' warnings and logs to standard error, escaped, while the context is open."""
    handler = _Handler(logging.WARNING)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        logging.getLogger().addHandler(handler)
        try:
            yield
        finally:
            logging.getLogger().removeHandler(handler)


class _Handler(logging.Handler):
    """Logs to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        complain(self.format(record).split("\n"))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    complain(warnings.formatwarning(message, category, filename, lineno, line).rstrip().split("\n"))


def show_progress(verbosity: int = 0) -> ProgressDisplay:
    """Return what shows the steps of a command; see `ProgressDisplay`."""
    return ProgressDisplay(verbosity, say=complain, is_terminal=sys.stderr.isatty())
