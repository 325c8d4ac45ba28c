"""Text from files, made safe to show: names in a model are chosen by whoever wrote it.

A name may hold what moves a terminal's cursor, reverses the direction of reading, begins another line, or reads as an
order to the CI system that keeps the log.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["escape", "json_text"]

_HASHES = r"##(?=\w*\[)"  # Azure Pipelines (##vso[, ##[), GitHub Actions (##[) and TeamCity: anywhere in a line
_ORDER = re.compile(
    rf"^\s*(?:::|--- |\+\+\+ |~~~ |\^\^\^ |section_\w+:|travis_\w+:)"  # GitHub Actions, Buildkite, GitLab, Travis CI
    rf"|{_HASHES}"
)


def escape(line: str) -> str:
    r"""Return a line such that it is one line, of printable characters, and no order to a CI system.

    Other characters, and the first of what would be an order, are written as in Python: `\n`, `\x1b`, `\u202e`.
    What is printable stays as it is, backslashes among it.
    """
    if not line.isprintable():
        line = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)
    return _ORDER.sub(_as_text, line)


def json_text(value: Any) -> str:
    """Return a value as JSON in ASCII without control characters, ended by a line feed.

    Raises:
        ValueError: It holds a number that is not finite.
    """
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    # The standard library leaves this control character; and strings alone hold number signs.
    return re.sub(_HASHES, r"\\u0023#", text.replace("\x7f", r"\u007f"))


def _as_text(order: re.Match[str]) -> str:
    indent = len(order[0]) - len(order[0].lstrip())
    return f"{order[0][:indent]}\\x{ord(order[0][indent]):02x}{order[0][indent + 1 :]}"
