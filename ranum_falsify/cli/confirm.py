"""The command `confirm`: unit tests for the operators that are not proved, as files that need no ranum-falsify."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ranum_falsify.api.loading import BoundProblem
from ranum_falsify.api.making_tests import UnitTestGenerator
from ranum_falsify.cli.files import check_writable, is_stream, output_folder, write_json
from ranum_falsify.cli.options.confirm import ConfirmOptions
from ranum_falsify.cli.output import say
from ranum_falsify.cli.progress import show_progress
from ranum_falsify.cli.reading import load_files
from ranum_falsify.cli.streams import complain, verdict_stands
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.errors import UsageError
from ranum_falsify.escaping import json_text
from ranum_falsify.results.confirm_report import lines, list_files, summary
from ranum_falsify.saving import save_together
from ranum_falsify.witness.unit_test import write_arrays

_REPORT = "confirm.json"


def run(options: ConfirmOptions) -> int:
    """Run the command.

    Raises:
        RanumFalsifyError: The user's input is invalid.
    """
    began = time.monotonic()
    if options.json is not None and options.json != "-" and not is_stream(Path(options.json)):
        check_writable("--json", Path(options.json))
    if options.out is not None:
        output_folder("--out", options.out)
        check_writable("--out", options.out / _REPORT)
    loaded = load_files(
        options.property_path,
        options.networks,
        parameters=options.parameters,
        dims=options.dims,
        strict=options.strict,
        dtype=options.dtype,
        memory=options.memory,
    )
    if options.training:
        from ranum_falsify.cli.confirm_training import run as run_training

        return run_training(options, loaded)
    if options.plot is not None:
        raise UsageError(f"--plot {options.plot}: there is nothing to draw; add --training")
    work = _Work(options, loaded)
    try:
        work.do()
    except KeyboardInterrupt:
        work.finish(time.monotonic() - began, interrupted="Ctrl-C")  # what is finished counts
    except Exception:
        work.write(time.monotonic() - began)
        raise
    else:
        work.finish(time.monotonic() - began)
    return work.status


class _Work:
    """The unit tests of all operators, and the files that they leave."""

    def __init__(self, options: ConfirmOptions, loaded: BoundProblem) -> None:
        self._options = options
        self._loaded = loaded
        self._full = False
        self._workshop = UnitTestGenerator(
            loaded,
            options,
            name=options.property_path.name,
            self_check=options.self_check,
            store=self._store,
        )

    @property
    def status(self) -> int:
        """Exit status."""
        return self._workshop.status

    def do(self) -> None:
        """Make the tests; each file is written at once, so that no two tests need to be in memory."""
        with show_progress(self._options.verbosity) as progress:
            self._workshop.work(progress)

    def _store(self, name: str, arrays: Mapping[str, np.ndarray]) -> bool:
        if self._options.out is None or self._full:
            return False
        self._full = True  # the others are not saved either; say so once
        with verdict_stands():
            save_together({self._options.out / name: lambda stream: write_arrays(stream, arrays)})
            self._full = False
        return not self._full

    def finish(self, seconds: float, interrupted: str = "") -> None:
        """Write what the tests have in common, and report."""
        self._workshop.interrupt(interrupted)
        report = self.write(seconds)
        if self._options.json is not None:
            with verdict_stands():
                write_json(self._options.json, report)
        if self._options.json != "-":
            with verdict_stands():
                self._print(report["test_file"])

    def write(self, seconds: float) -> dict[str, Any]:
        """Write what the tests have in common; return the report."""
        test_file, contents = self._workshop.make_common_files()
        report = self._workshop.report(test_file, sorted(contents.keys() - {test_file}), seconds)
        if self._options.out is None:
            return report
        with verdict_stands():
            older = _list_earlier_files(self._options.out) - list_files(report)
            contents[_REPORT] = json_text(report).encode()
            save_together({self._options.out / name: content for name, content in contents.items()})
            if older:
                named = ", ".join(str(self._options.out / name) for name in sorted(older))
                complain([f"{PROGRAM}: {named}: left by an earlier run; delete what you do not need"])
            return report
        return self._workshop.report(None, (), seconds)

    def _print(self, test_file: str | None) -> None:
        tested, standing = self._workshop.collect_tested(), self._workshop.standing
        several = len({call.network for call in self._loaded.problem.calls}) > 1
        verbosity = self._options.verbosity
        if verbosity >= 0:
            for operator in tested:
                say(lines(operator, several=several, verbosity=verbosity))
        started = self._workshop.is_started
        say([summary(tested, standing) if started else "interrupted before any operator was tested"])
        if test_file is not None and self._options.out is not None and verbosity >= 0:
            say([f"run them: python -m pytest {self._options.out / test_file}"])
        say(standing.lines(verbose=verbosity > 0))


def _list_earlier_files(folder: Path) -> set[str]:
    """Return the files in a folder that the report of an earlier run there names."""
    try:
        report = json.loads((folder / _REPORT).read_text(encoding="utf-8"))
        return {name for name in list_files(report) if (folder / name).is_file()}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()
