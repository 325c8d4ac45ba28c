"""Ask whether a property holds, and report: the main command, and what `check` has in common with it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranum_falsify.api.sizes import UNREAD, list_sizes
from ranum_falsify.cli.commands import PROGRAM
from ranum_falsify.cli.files import base_for, list_reports, load_files, write_json
from ranum_falsify.cli.options.questions import FalsifyOptions
from ranum_falsify.cli.options.shared import AskOptions
from ranum_falsify.cli.output import complain, say, say_form, show_progress, verdict_stands
from ranum_falsify.process.starting import pause_for_imports
from ranum_falsify.results import text
from ranum_falsify.results.counterexample import Origin, Saved, save
from ranum_falsify.results.explanation import explanation, list_operators
from ranum_falsify.results.forms import RUN_MAKERS, SUITE_MAKERS, record_of
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


def write_reports(
    options: AskOptions, list_records: Callable[[], Iterable[InstanceRecord]], *, of_suite: bool = False
) -> None:
    """Print or write the reports of one run, or of several; a failure is told and does not prevent the others."""
    makers = SUITE_MAKERS if of_suite else RUN_MAKERS
    if options.form != "text":
        with verdict_stands():
            say_form(makers[options.form](list_records()))
    for option, path in list_reports(options).items():
        with verdict_stands():
            save_together({path: makers[option.removeprefix("--")](list_records())})


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
    """Saves and shows the result of a run; counterexamples go to the base if there is one."""

    options: AskOptions
    asked: Instance
    base: Base | None
    gather: Callable[[InstanceRecord], None] | None = None
    began: float = field(default_factory=time.monotonic)

    def report(self, result: Answer, loaded: BoundProblem | None = None, kept: KeepList | None = None) -> None:
        """Save and show a result of what was read in time; a failure is reported and does not prevent the rest."""
        saved = self._save(result, loaded)
        shown = None
        if self.options.report is not None and loaded is not None:
            from ranum_falsify.api.result import illustrate  # imports torch

            shown = illustrate(result, loaded, self.options)

        def as_report(folder: Path) -> Any:
            return as_json(make_report(result, saved, folder, kept=kept, illustration=shown))

        def as_record() -> InstanceRecord:
            return record_of(self.asked, as_report(Path.cwd()), saved, time.monotonic() - self.began)

        if self.options.json not in (None, "-"):
            with verdict_stands():
                write_json(self.options.json, as_report(Path(self.options.json).parent))
        if self.options.proof is not None and loaded is not None:
            from ranum_falsify.api.result import proof_of  # imports torch

            with verdict_stands():
                save_together({self.options.proof: proof_of(result, loaded, self.options)})
        if self.gather is None:
            write_reports(self.options, lambda: [as_record()])
        else:
            self.gather(as_record())
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


def falsify(options: FalsifyOptions, *, owns_process: bool = False) -> int:
    """Run the main command; see `ask`."""
    models = [str(path) for path in options.networks.values()]
    asked = Instance(
        id=" ".join([str(options.property_path), *models]),
        category="",
        model=" ".join(models),
        property=str(options.property_path),
        networks={name: str(path) for name, path in options.networks.items()},
        property_path=str(options.property_path),
        vnnlib=options.vnnlib,
        parameters=options.parameters,
        timeout=options.timeout,
    )
    return ask(options, asked, partial(load_files, options), owns_process=owns_process)
