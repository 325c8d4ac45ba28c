"""Errors in the arguments, and the exit status that they lead to."""

from __future__ import annotations

from collections.abc import Iterable

PROGRAM = "ranum-falsify"

ERROR_STATUS = 2
"""Exit status of usage and input errors."""


def find_near(name: str, names: Iterable[str]) -> str:
    """Return a question after the name that is meant, empty where none is similar."""
    from difflib import get_close_matches  # only after an error

    return "".join(f"; did you mean {near}?" for near in get_close_matches(name, names, n=1))
