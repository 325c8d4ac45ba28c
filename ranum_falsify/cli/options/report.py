"""Options of `report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from ranum_falsify.cli.options.shared import CommonOptions
from ranum_falsify.option_marks import Argument, Option


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CommonOptions):
    """Make a page of the results of a suite or of pytest, or a report for CI systems.

    Attributes:
        results: Results (.jsonl) of a suite, of its parts, or of pytest --ranum-falsify-results.
        output_format: What to print: JUnit XML, SARIF, annotations of GitHub Actions, or a code quality report of
            GitLab.
        output: Write an HTML page here.
        junit: Write JUnit XML here, with a test for each instance.
        sarif: Write SARIF 2.1.0 here, with a result for each violated operator.
    """

    example: ClassVar[str] = "results.jsonl -o report.html"
    epilog: ClassVar[str] = """\
The main command and `check` write the same about a single run: --report PATH, --junit PATH, --sarif PATH,
--output-format FORM."""

    results: Annotated[tuple[Path, ...], Argument("RESULTS", many=True, reads="the results of a suite")]
    output_format: Annotated[Literal["junit", "sarif", "github", "gitlab"] | None, Option(group="output")] = None
    output: Annotated[Path | None, Option("-o --output", metavar="PATH", in_files=False, group="output")] = None
    junit: Annotated[Path | None, Option(metavar="PATH", group="output")] = None
    sarif: Annotated[Path | None, Option(metavar="PATH", group="output")] = None
