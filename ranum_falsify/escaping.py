"""Text from files, made safe to show: names in a model are chosen by whoever wrote it.

A name may hold characters that move a terminal's cursor, reverse the direction of reading or begin another line, or
text that the CI system that keeps the log reads as an order.
"""

from __future__ import annotations

import json
import re
from typing import Any

_HASHES = r"##(?=\w*\[)"  # Azure Pipelines (##vso[, ##[), GitHub Actions (##[) and TeamCity: anywhere in a line
_ORDER = re.compile(
    rf"^\s*(?:::|--- |\+\+\+ |~~~ |\^\^\^ |section_\w+:|travis_\w+:)"  # GitHub Actions, Buildkite, GitLab, Travis CI
    rf"|{_HASHES}"
)


def escape(line: str) -> str:
    r"""Return text as one line of printable characters that gives no order to a CI system.

    Other characters, and the first character of what would be an order, are written as in Python: `\n`, `\x1b`,
    `\u202e`.
    Printable characters stay as they are, backslashes included.
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
    # The standard library leaves this control character as it is; and number signs occur in strings alone.
    return re.sub(_HASHES, r"\\u0023#", text.replace("\x7f", r"\u007f"))


def _as_text(order: re.Match[str]) -> str:
    indent = len(order[0]) - len(order[0].lstrip())
    return f"{order[0][:indent]}\\x{ord(order[0][indent]):02x}{order[0][indent + 1 :]}"
