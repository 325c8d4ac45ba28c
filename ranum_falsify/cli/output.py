"""Output of text: every line that the command shows, on standard output or standard error, goes through here."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ranum_falsify.cli.streams import complain
from ranum_falsify.escaping import escape, json_text

__all__ = ["say", "say_form", "say_json", "say_safely"]


def say(lines: Iterable[str]) -> None:
    """Print lines to standard output, escaped: a line feed within one of them ends no line."""
    for line in lines:
        print(escape(line))
    sys.stdout.flush()


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
