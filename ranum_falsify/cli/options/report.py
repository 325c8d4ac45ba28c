"""Options of `report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ranum_falsify.cli.options.shared import CommonOptions, OutputPath
from ranum_falsify.option import Argument, Group, Option

__all__ = ["REPORT_EPILOG", "ReportOptions"]

REPORT_EPILOG = """\
The main command and `check` write the same about a single run: --report PATH, --junit PATH, --sarif PATH.
"""
_MISSING = "report: no results are given; write ranum-falsify report results.jsonl -o report.html"


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CommonOptions):
    """What `report` is asked for.

    Attributes:
        results: The results of a suite, results.jsonl, or those of each of its parts.
        output: Write a page about them here, as HTML.
        junit: Write the instances as tests here, in JUnit XML.
        sarif: Write the violated operators here, in SARIF 2.1.0.
    """

    results: Annotated[tuple[Path, ...], Argument("RESULTS", many=True, missing=_MISSING)]
    output: Annotated[Path | None, Option("-o --output", metavar="PATH", in_files=False), Group("output")] = None
    junit: OutputPath = None
    sarif: OutputPath = None
