"""Options of the groups of a `suite.toml`: those of `check`, or of the main command where there are property files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any

from ranum_falsify.cli.options.search import SearchOptions
from ranum_falsify.cli.options.suite import PropertyGroup, QuestionGroup, to_keywords
from ranum_falsify.cli.parser import Parser
from ranum_falsify.cli.settings_file import SettingsFile
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.errors import UsageError
from ranum_falsify.suite.listing import GroupOptions

_PARSERS = {has: Parser(kind, name=PROGRAM) for has, kind in ((True, PropertyGroup), (False, QuestionGroup))}
"""By whether a group has property files; a suite may have thousands of groups."""
_QUESTION = ("box", "only", "nodes", "gradient", "free", "weights", "passes")


def read_group(path: Path, title: str, table: Mapping[str, Any], has_properties: bool) -> GroupOptions:
    """Return what a table of options means.

    Args:
        path: The file.
        title: What messages call the table.
        table: The options.
        has_properties: Whether the group has property files.

    Raises:
        UsageError: There is no such option, or it does not take that value.
    """
    values = SearchOptions.finish(SettingsFile(path, table, title).read(table, _PARSERS[has_properties]), ())
    for name in ("memory", "networks"):
        if name in values:
            raise UsageError(f"{path}: [{title}] {name}: is no option of a group; see docs/suites.md")
    question = {name: values[name] for name in _QUESTION if name in values}
    options = to_keywords(values)
    return GroupOptions(
        question=question | ({"box": _plain_box(question["box"])} if "box" in question else {}),
        timeout=options.pop("timeout", None),
        options=options,
        parameters=values.get("parameters", {}),
    )


def _plain_box(box: Mapping[str | EllipsisType, Any]) -> dict[str, Any]:
    """Return a box as JSON holds it; "" stands for inputs that are not named."""
    return {
        "" if isinstance(name, EllipsisType) else name: list(bounds) if isinstance(bounds, tuple) else bounds
        for name, bounds in box.items()
    }
