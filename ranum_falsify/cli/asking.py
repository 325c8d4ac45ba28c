"""Ask whether a property holds, and report: what the main command and `check` have in common."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranum_falsify.api.sizes import UNREAD, ask_each, join_answers, list_sizes
from ranum_falsify.api.timekeeper import TimeUp, time_limit
from ranum_falsify.cli.files import write_json
from ranum_falsify.cli.options.search import AskOptions
from ranum_falsify.cli.output import say
from ranum_falsify.cli.paths import base_for
from ranum_falsify.cli.progress import show_progress
from ranum_falsify.cli.reports import write_reports
from ranum_falsify.cli.streams import complain, verdict_stands
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.report import text
from ranum_falsify.report.counterexample import Origin, Saved, save
from ranum_falsify.report.explanation import explanation
from ranum_falsify.report.forms import record_of
from ranum_falsify.report.listing import list_operators
from ranum_falsify.report.places import Base
from ranum_falsify.report.plain import as_json
from ranum_falsify.report.precision import as_text
from ranum_falsify.report.run_report import make_report
from ranum_falsify.saving import save_together
from ranum_falsify.search.result import Answer
from ranum_falsify.starting import pause_collector
from ranum_falsify.suite.instance import Instance
from ranum_falsify.suite.record import InstanceRecord

if TYPE_CHECKING:
    from ranum_falsify.api.loading import Loaded
    from ranum_falsify.prove.precision import KeepList

__all__ = ["STATUS", "ask"]

STATUS = {"holds": 0, "violated": 1, "unknown": 3}
"""Exit status by verdict."""

Load = Callable[[Mapping[str, int]], "Loaded"]
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
        from ranum_falsify.search.attacks import check_backends  # imports torch

        check_backends(options)
    with pause_collector():  # takes longer than some timeouts
        import ranum_falsify.api.question
        import ranum_falsify.operators  # noqa: F401

    sizes = list_sizes(options.dims)
    leave = partial(_leave, reporter) if owns_process else None
    if options.list_operators or options.explain is not None:
        return _show(options, _read(options, partial(load, sizes[0]), leave)[0], reporter)
    end = math.inf if options.timeout is None else time.monotonic() + options.timeout

    def ask_one(one: Mapping[str, int], share: float | None) -> tuple[Answer, Loaded | None]:
        limited = dataclasses.replace(options, timeout=share)
        spare = 0.0 if share is None else max(end - time.monotonic() - share, 0.0)
        loaded, left = _read(limited, partial(load, one), leave, spare)
        return (UNREAD if loaded is None else _search(loaded, left)), loaded

    began = time.monotonic()
    answers = ask_each(sizes, options.timeout, ask_one, lambda asked: asked[0])
    return _conclude(answers, sizes, reporter, _subtract_time(options, time.monotonic() - began))


def _conclude(
    answers: Sequence[tuple[Answer, Loaded | None]],
    sizes: Sequence[Mapping[str, int]],
    reporter: _Reporter,
    left: AskOptions,
) -> int:
    """Report the answer for all sizes; return the exit status."""
    position, result = 0, answers[0][0]
    if len(sizes) > 1:
        position, result = join_answers(reporter.options.dims, sizes, [answer for answer, _ in answers])
    loaded = answers[position][1]
    if loaded is None:
        reporter.report(result)
    else:
        from ranum_falsify.api.running import keep_list  # imports torch

        reporter.report(result, loaded, keep_list(loaded, left))
    return STATUS[result.verdict]


def _read(
    options: AskOptions, load: Callable[[], Loaded], leave: Callable[[], None] | None, spare: float = 0.0
) -> tuple[Loaded | None, AskOptions]:
    """Return what is asked, None if time is up, and the options with the time that is left.

    `spare` are the seconds that are left of the whole run beyond the timeout of these options.
    """
    began = time.monotonic()
    try:
        with time_limit(options.timeout, overdue=leave, spare=spare):
            loaded = load()
    except TimeUp:
        return None, options
    return loaded, _subtract_time(options, time.monotonic() - began)


def _show(options: AskOptions, loaded: Loaded | None, reporter: _Reporter) -> int:
    """Show what needs no answer, unless time was up before it was read; return the exit status."""
    if loaded is None:
        reporter.report(UNREAD)
        return STATUS[UNREAD.verdict]
    if options.explain is None:
        say(list_operators(loaded.problem))
    else:
        from ranum_falsify.prove.explaining import histories, list_varying  # imports torch

        shown = loaded.problem, options.explain, options
        say(explanation(histories(*shown), list_varying(*shown)))
    return 0


def _leave(reporter: _Reporter) -> None:
    """Report and end the process while its main thread is busy; children end with their input."""
    reporter.report(UNREAD)
    sys.stdout.flush()
    os._exit(STATUS[UNREAD.verdict])


def _subtract_time(options: AskOptions, seconds: float) -> AskOptions:
    """Subtract the time that reading took from the timeout."""
    if options.timeout is None:
        return options
    left = max(options.timeout - seconds, 0.0)
    return dataclasses.replace(options, timeout=left)


def _search(loaded: Loaded, options: AskOptions) -> Answer:
    from ranum_falsify.api.running import answer, kernel_notices  # imports torch

    kernels = kernel_notices(options, options.self_check)
    with show_progress(options.verbosity) as progress:
        return answer(loaded, options, notices=kernels, progress=progress)


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

    def report(self, result: Answer, loaded: Loaded | None = None, kept: KeepList | None = None) -> None:
        """Save and show a result; a failure is reported and does not prevent the rest.

        Args:
            result: What was found.
            loaded: What was asked, None if there was no time to read it.
            kept: What must stay in float32.
        """
        saved = self._save(result, loaded)
        shown = None
        if self.options.report is not None and loaded is not None:
            from ranum_falsify.api.illustrating import illustrate  # imports torch

            shown = illustrate(result, loaded, self.options)

        def as_report(folder: Path) -> dict[str, Any]:
            found: dict[str, Any] = as_json(make_report(result, saved, folder, kept=kept, illustration=shown))
            return found

        if self.options.json not in (None, "-"):
            with verdict_stands():
                write_json(self.options.json, as_report(Path(self.options.json).parent))
        if self.options.proof is not None and loaded is not None:
            from ranum_falsify.api.proof_files import proof_of  # imports torch

            with verdict_stands():
                save_together({self.options.proof: proof_of(result, loaded, self.options)})
        if self.gather is None:
            write_reports(self.options, lambda: [self._record(as_report(Path.cwd()), saved)])
        else:
            self.gather(self._record(as_report(Path.cwd()), saved))
        if self.options.form == "text":
            count = 0 if loaded is None else len({call.network for call in loaded.problem.calls})
            with verdict_stands():
                quiet = self.options.verbosity < 0
                lines = text.report(result, saved, verbosity=self.options.verbosity, network_count=count)
                if self.gather is not None:
                    lines = chain((f"{self.asked.id}: {next(lines)}",), lines)
                say(islice(lines, 1 if quiet else None))
                if kept is not None and not quiet:
                    say(as_text(kept))

    def _save(self, result: Answer, loaded: Loaded | None) -> Saved:
        """Write the counterexamples."""
        saved = Saved()
        if self.base is not None:
            with verdict_stands():
                saved = save(result, Origin() if loaded is None else loaded.origin, self.base)
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
