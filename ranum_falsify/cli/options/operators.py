"""Arguments of `operators`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ranum_falsify.cli.options.shared import make_parser

__all__ = ["OperatorsOptions", "parse_operators"]


@dataclass(frozen=True, kw_only=True)
class OperatorsOptions:
    """How `operators` prints its table: `text`, `json` or `markdown`."""

    style: str = "text"


def parse_operators(arguments: Sequence[str]) -> OperatorsOptions:
    """Return what `operators` is asked for.

    Raises:
        UsageError: There is no such option.
    """
    parser = make_parser("operators", "List the supported operators with what makes their operands valid.")
    style = parser.add_mutually_exclusive_group()
    for name in ("json", "markdown"):
        style.add_argument(
            f"--{name}", action="store_const", const=name, default="text", dest="style", help=f"as {name}"
        )
    return OperatorsOptions(style=parser.parse_args(arguments).style)
