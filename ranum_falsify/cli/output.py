"""Output of text: every line that the command shows, on standard output or standard error, goes through here."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ranum_falsify.cli.streams import complain
from ranum_falsify.escaping import escape, json_text

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
