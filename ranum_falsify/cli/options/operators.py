"""Options of `operators`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ranum_falsify.cli.options.shared import CommonOptions
from ranum_falsify.option import Switch

__all__ = ["OperatorsOptions"]


@dataclass(frozen=True, kw_only=True)
class OperatorsOptions(CommonOptions):
    """How `operators` prints its table: `text`, `json` or `markdown`."""

    style: Annotated[
        str, Switch("--json", value="json", help="as JSON"), Switch("--markdown", value="markdown", help="as Markdown")
    ] = "text"
