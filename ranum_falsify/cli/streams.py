"""Standard output and standard error, which may be closed, full, or unable to show a character.

None of that changes a verdict: one line reports what cannot be written, and the exit status stays the verdict's.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.errors import RanumFalsifyError, reason_of
from ranum_falsify.escaping import escape


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
