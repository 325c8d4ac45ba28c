"""Ask whether a property holds, and report: what the main command and `check` have in common."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranum_falsify.api.sizes import UNREAD, list_sizes
from ranum_falsify.cli.files import write_json
from ranum_falsify.cli.options.search import AskOptions
from ranum_falsify.cli.output import say
from ranum_falsify.cli.paths import base_for
from ranum_falsify.cli.progress import show_progress
from ranum_falsify.cli.reports import write_reports
from ranum_falsify.cli.streams import complain, verdict_stands
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.process.starting import pause_for_imports
from ranum_falsify.results import text
from ranum_falsify.results.counterexample import Origin, Saved, save
from ranum_falsify.results.explanation import explanation, list_operators
from ranum_falsify.results.forms import record_of
from ranum_falsify.results.places import Base
from ranum_falsify.results.plain import as_json
from ranum_falsify.results.run_report import make_report
from ranum_falsify.saving import save_together
from ranum_falsify.suite.record import Instance, InstanceRecord
from ranum_falsify.verify.search.result import Answer

if TYPE_CHECKING:
    from ranum_falsify.api.loading import BoundProblem
    from ranum_falsify.api.result import Result
    from ranum_falsify.config import Options
    from ranum_falsify.verify.prove.precision import KeepList

STATUS = {"holds": 0, "violated": 1, "unknown": 3}
"""Exit status by verdict."""

Load = Callable[[Mapping[str, int]], "BoundProblem"]
"""Reads what is asked, in some sizes of symbolic dimensions."""


def ask(
    options: AskOptions,
    asked: Instance,
    load: Load,
    *,
    owns_process: bool,
    gather: Callable[[InstanceRecord], None] | None = None,
) -> int:
    """Prove or search, and report.

    Args:
        options: How, and what is shown of it.
        asked: What is asked, as reports name it.
        load: Reads what is asked.
        owns_process: Whether the process may be ended where a library does not return in time.
        gather: Takes what the run came to, if it is one of several, whose reports are written together.

    Returns:
        The exit status.

    Raises:
        RanumFalsifyError: The user's input is invalid.
    """
    reporter = _Reporter(options, asked, base_for(options), gather)
    if options.backends != ("pgd",):
        from ranum_falsify.verify.search.attacks import check_backends  # imports torch

        check_backends(options)
    with pause_for_imports():  # takes longer than some timeouts
        import ranum_falsify.operators  # noqa: F401
        from ranum_falsify.api.entry_points import answer_loaded, ask_all_sizes, ask_in_time, read_in_time
        from ranum_falsify.api.timekeeper import Exit

    exit = Exit(partial(_leave, reporter), options.timeout) if owns_process else None
    if options.list_operators or options.explain is not None:
        loaded, _ = read_in_time(partial(load, list_sizes(options.dims)[0]), options, exit)
        return _show(options, loaded, reporter)

    def ask_one(one: Options) -> Result:
        return ask_in_time(partial(load, one.sizes), answer_loaded, one, exit)

    with show_progress(options.verbosity) as progress:
        result = ask_all_sizes(replace(options, progress=progress), ask_one)
    reporter.report(result.answer, result.read, result.kept)
    undecided = result.verdict == "unknown" and options.fail_on == "open"
    return STATUS["violated" if undecided else result.verdict]


def _show(options: AskOptions, loaded: BoundProblem | None, reporter: _Reporter) -> int:
    """Show what needs no answer, unless time was up before it was read; return the exit status."""
    if loaded is None:
        reporter.report(UNREAD)
        return STATUS[UNREAD.verdict]
    if options.explain is None:
        say(list_operators(loaded.problem))
    else:
        from ranum_falsify.verify.prove.explaining import histories, list_varying  # imports torch

        shown = loaded.problem, options.explain, options
        say(explanation(histories(*shown), list_varying(*shown)))
    return 0


def _leave(reporter: _Reporter) -> None:
    """Report and end the process while its main thread is busy; children end with their input."""
    reporter.report(UNREAD)
    sys.stdout.flush()
    os._exit(STATUS[UNREAD.verdict])


@dataclass(frozen=True)
class _Reporter:
    """Saves and shows the result of a run.

    Attributes:
        options: What is shown, and where.
        asked: What is asked.
        base: Where counterexamples go, None for nowhere.
        gather: See `ask`; what is shown then begins with the model.
        began: When the run began.
    """

    options: AskOptions
    asked: Instance
    base: Base | None
    gather: Callable[[InstanceRecord], None] | None = None
    began: float = field(default_factory=time.monotonic)

    def report(self, result: Answer, loaded: BoundProblem | None = None, kept: KeepList | None = None) -> None:
        """Save and show a result; a failure is reported and does not prevent the rest.

        Args:
            result: What was found.
            loaded: What was asked, None if there was no time to read it.
            kept: What must stay in float32.
        """
        saved = self._save(result, loaded)
        shown = None
        if self.options.report is not None and loaded is not None:
            from ranum_falsify.api.result import illustrate  # imports torch

            shown = illustrate(result, loaded, self.options)

        def as_report(folder: Path) -> dict[str, Any]:
            found: dict[str, Any] = as_json(make_report(result, saved, folder, kept=kept, illustration=shown))
            return found

        if self.options.json not in (None, "-"):
            with verdict_stands():
                write_json(self.options.json, as_report(Path(self.options.json).parent))
        if self.options.proof is not None and loaded is not None:
            from ranum_falsify.api.result import proof_of  # imports torch

            with verdict_stands():
                save_together({self.options.proof: proof_of(result, loaded, self.options)})
        if self.gather is None:
            write_reports(self.options, lambda: [self._record(as_report(Path.cwd()), saved)])
        else:
            self.gather(self._record(as_report(Path.cwd()), saved))
        if self.options.form == "text":
            count = 0 if loaded is None else len({call.network for call in loaded.problem.calls})
            with verdict_stands():
                lines = text.report(result, saved, verbosity=self.options.verbosity, network_count=count, kept=kept)
                if self.gather is not None:
                    lines = chain((f"{self.asked.id}: {next(lines)}",), lines)
                say(islice(lines, 1 if self.options.verbosity < 0 else None))

    def _save(self, result: Answer, loaded: BoundProblem | None) -> Saved:
        """Write the counterexamples."""
        saved = Saved()
        if self.base is not None:
            with verdict_stands():
                origin, models = (Origin(), {}) if loaded is None else (loaded.origin, loaded.in_memory)
                saved = save(result, origin, self.base, models)
        elif self.options.save_violation is not None and loaded is not None:
            from ranum_falsify.api.assignments import save_assignments

            with verdict_stands():
                saved = save_assignments(result, loaded, self.options.save_violation)
        if saved.older:
            older = ", ".join(map(str, saved.older))
            complain([f"{PROGRAM}: {older}: left by an earlier run, not of this result; delete what you do not need"])
        return saved

    def _record(self, report: dict[str, Any], saved: Saved) -> InstanceRecord:
        """Return what a suite of this one run would write."""
        return record_of(self.asked, report, saved, time.monotonic() - self.began)
