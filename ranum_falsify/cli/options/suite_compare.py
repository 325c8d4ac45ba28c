"""Options of `suite compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from ranum_falsify.cli.options.shared import CommonOptions
from ranum_falsify.option_marks import Argument, Option


@dataclass(frozen=True, kw_only=True)
class CompareOptions(CommonOptions):
    """Compare the results of two runs of a suite, or two tools.

    Attributes:
        results: Two results.
        cactus: Write an SVG plot of how many instances each decides in how much time.
        json: Write the comparison as JSON here; - is standard output.
    """

    example: ClassVar[str] = "results.jsonl expected.csv"
    epilog: ClassVar[str] = """\
A and B are results.jsonl or results.csv of suites, the results of a tool at VNN-COMP, or an expected.csv.

exit status: 0 no disagreement, 1 one says sat and the other unsat, 2 usage or input error"""

    results: Annotated[tuple[str, ...], Argument("RESULTS", many=True)]
    cactus: Annotated[Path | None, Option(metavar="FILE", group="output")] = None
    json: Annotated[str | None, Option(metavar="PATH", group="output")] = None
