"""Options of `operators`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ranum_falsify.cli.options.shared import CommonOptions
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import Option


@dataclass(frozen=True, kw_only=True)
class OperatorsOptions(CommonOptions):
    """List the supported operators and the conditions on their operands.

    Attributes:
        json: Print JSON.
        markdown: Print Markdown.
    """

    example: ClassVar[str] = "--json"

    json: Annotated[bool, Option()] = False
    markdown: Annotated[bool, Option()] = False

    def __post_init__(self) -> None:
        """Check that there is at most one form."""
        if self.json and self.markdown:
            raise UsageError("--json and --markdown contradict each other; give one of them")
