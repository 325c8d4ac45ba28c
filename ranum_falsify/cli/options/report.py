"""Options of `report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from ranum_falsify.cli.options.shared import CommonOptions
from ranum_falsify.option import Argument, Option

__all__ = ["ReportOptions"]


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CommonOptions):
    """Show the results of a suite as a page, or as CI systems read them.

    Attributes:
        results: The results of a suite, results.jsonl, or those of each of its parts.
        output: Write a page about them here, as HTML.
        junit: Write the instances as tests here, in JUnit XML.
        sarif: Write the violated operators here, in SARIF 2.1.0.
    """

    example: ClassVar[str] = "results.jsonl -o report.html"
    epilog: ClassVar[str] = """\
The main command and `check` write the same about a single run: --report PATH, --junit PATH, --sarif PATH."""

    results: Annotated[tuple[Path, ...], Argument("RESULTS", many=True, reads="the results of a suite")]
    output: Annotated[Path | None, Option("-o --output", metavar="PATH", in_files=False, group="output")] = None
    junit: Annotated[Path | None, Option(metavar="PATH", group="output")] = None
    sarif: Annotated[Path | None, Option(metavar="PATH", group="output")] = None
