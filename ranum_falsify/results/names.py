"""Names from models as parts of file names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_LONGEST_NAME = 80


def is_plain_name(name: str) -> bool:
    """Tell whether a name from a file names a file beside it, rather than a path elsewhere."""
    return Path(name).name == name and name not in ("", "..")


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
