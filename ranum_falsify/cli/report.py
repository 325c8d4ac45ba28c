"""The command `report`: the results of a suite as a page, and in the forms that other programs read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ranum_falsify.cli.files import check_outputs
from ranum_falsify.cli.options.tools import ReportOptions
from ranum_falsify.cli.output import say, say_form
from ranum_falsify.errors import UsageError
from ranum_falsify.results.forms import SUITE_MAKERS
from ranum_falsify.saving import save_together
from ranum_falsify.suite.record import InstanceRecord
from ranum_falsify.suite.results import read_records


def run(options: ReportOptions) -> int:
    """Run the command."""
    named = {"-o": options.output, "--junit": options.junit, "--sarif": options.sarif}
    chosen = {option: path for option, path in named.items() if path is not None}
    if not chosen and options.output_format is None:
        raise UsageError(
            "report: no output is named; add -o report.html, --junit PATH, --sarif PATH or --output-format github"
        )
    check_outputs(chosen, dict.fromkeys(options.results, "RESULTS"))
    contents = {path: _make(options.results, "report" if name == "-o" else name[2:]) for name, path in chosen.items()}
    printed = None if options.output_format is None else _make(options.results, options.output_format)
    if contents:
        save_together(contents)
    if printed is None:
        say([f"written: {', '.join(map(str, contents))}"])
    else:
        say_form(printed)
    return 0


def _make(results: Sequence[Path], form: str) -> bytes:
    """Return a report; the results are read anew for each, because they need not all fit into memory."""
    reader = _PartsReader(results)
    try:
        return SUITE_MAKERS[form](reader.read())
    except UsageError as error:
        prefix = f"{reader.path}: "
        raise error if str(error).startswith(prefix) else UsageError(f"{prefix}{error}") from error


class _PartsReader:
    """Reads the results of a suite, or of its parts one after the other; its path is that of the file at hand."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self.path = paths[0]

    def read(self) -> Iterator[InstanceRecord]:
        """Yield the records."""
        places: dict[str, Path] = {}
        for path in self._paths:
            self.path = path
            for record in read_records(path):
                if (other := places.setdefault(record.instance.id, path)) != path:
                    raise UsageError(f"instance {record.instance.id!r} is in {other}, too; give one of them")
                yield _see_from_here(record, path.parent)


def _see_from_here(record: InstanceRecord, folder: Path) -> InstanceRecord:
    """Return a record whose files are named as the models are: seen from the working folder, not from the results."""

    def place(files: Any) -> Any:
        # What is no mapping of names to files is refused where reports are read.
        return {name: str(folder / str(file)) for name, file in files.items()} if isinstance(files, dict) else files

    report = record.report
    if report is not None and isinstance(report.get("operators"), list):
        operators = [
            one | {"counterexample": place(one.get("counterexample"))} if isinstance(one, dict) else one
            for one in report["operators"]
        ]
        report = {**report, "counterexample": place(report.get("counterexample")), "operators": operators}
    return replace(record, files=place(record.files), report=report)
