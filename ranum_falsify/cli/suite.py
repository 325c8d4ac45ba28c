"""The command `suite`: many instances, on this machine or a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import psutil

from ranum_falsify.cli.files import check_writable
from ranum_falsify.cli.options.suite import SuiteOptions
from ranum_falsify.cli.output import say
from ranum_falsify.cli.streams import complain
from ranum_falsify.cli.suite_groups import read_group
from ranum_falsify.cli.suite_progress import SuiteDisplay, describe_counts
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.errors import RanumFalsifyError, UsageError
from ranum_falsify.suite.comparison import read_times
from ranum_falsify.suite.crew import Crew, LocalCrew, make_crew
from ranum_falsify.suite.listing import list_instances
from ranum_falsify.suite.planning import Planned, choose, override, plan
from ranum_falsify.suite.results import ResultsFile, write_table
from ranum_falsify.suite.running import InstanceLimits, SuiteStanding, run_suite

_RUNNER = "ranum_falsify.api.instances"
_OPEN = 3
_CORES = os.cpu_count() or 1


def run(options: SuiteOptions) -> int:
    """Run the command.

    Raises:
        RanumFalsifyError: The user's input is invalid.
    """
    if not hasattr(os, "fork"):
        raise UsageError("suite: needs a system on which processes fork; run it on Linux, or in WSL")
    instances = choose(list_instances(options.suite, read_group), options.filter, options.shard)
    given = dict(options.given)
    timeout = given.pop("timeout", None)
    instances = [override(one, given, timeout) for one in instances]
    if options.list_only:
        say(one.id for one in instances)
        return 0
    former = {} if options.former is None else read_times(options.former)
    return _SuiteWork(options, plan(instances, former), former).do()


class _SuiteWork:
    """A run of a suite, and the files that it leaves."""

    def __init__(self, options: SuiteOptions, planned: list[Planned], former: Mapping[str, float]) -> None:
        self._options = options
        self._planned = planned
        self._former = former
        self._table = options.results
        self._records = options.results.with_suffix(".jsonl")
        self._standing = SuiteStanding(total=len(planned))

    def do(self) -> int:
        """Run what is not done, and return the exit status.

        Raises:
            RanumFalsifyError: The results cannot be read or written, or there are no workers.
        """
        self._check_outputs()
        ended, is_new = "", not self._records.exists()
        with ResultsFile(self._records, keep=True) as results:
            try:
                left = self._skip_done(results)
                if left:
                    self._run(left, results)
            except KeyboardInterrupt:
                ended = "interrupted"
            except RanumFalsifyError:
                if is_new and not self._standing.done:
                    self._records.unlink()
                raise
            finally:
                if self._records.exists():
                    write_table(self._records, self._table)
        return self._report(ended)

    def _check_outputs(self) -> None:
        if self._table.suffix != ".csv":
            raise UsageError(f"--results {self._table}: is a table; give it a name that ends in .csv")
        for path in (self._table, self._records):
            check_writable("--results", path)
        if not self._options.resume and self._records.exists() and self._records.stat().st_size:
            raise UsageError(
                f"{self._records}: has results of a former run; go on with it by --resume, delete it, or choose "
                "another --results"
            )

    def _skip_done(self, results: ResultsFile) -> list[Planned]:
        """Return the instances that are not done; drop results of theirs that are out of date."""
        done, dropped = results.keep({one.instance.id: one.fingerprint for one in self._planned})
        if dropped:
            complain([f"{PROGRAM}: {dropped} results are of other files or options; these instances run again"])
        for status in done.values():
            self._standing.counts[status] += 1
        self._standing.former = len(done)
        return [one for one in self._planned if one.instance.id not in done]

    def _run(self, left: list[Planned], results: ResultsFile) -> None:
        jobs = min(self._options.jobs or _CORES, len(left))
        minutes = self._options.max_minutes
        until = None if minutes is None else time.monotonic() + 60 * minutes
        folder = self._table.parent / f"{self._table.stem}.counterexamples"
        with self._make_crew(jobs) as crew, SuiteDisplay(self._options.verbosity) as show:
            run_suite(
                left,
                crew,
                results,
                folder,
                limits=self._limit(jobs, until),
                standing=self._standing,
                show=show,
                former=self._former,
            )

    def _make_crew(self, jobs: int) -> Crew:
        kind, scheduler = self._options.cluster, self._options.scheduler
        if kind is None and scheduler is None:
            return LocalCrew(_RUNNER, jobs)
        crew: Crew = make_crew(_RUNNER, jobs, kind=kind, scheduler=scheduler)
        return crew

    def _limit(self, jobs: int, until: float | None) -> InstanceLimits:
        """Return what instances may use: on other machines, one core of each, and what memory there is."""
        memory, is_here = self._options.memory, self._options.scheduler is None and self._options.cluster is None
        if is_here:
            memory = memory or int(psutil.virtual_memory().total) // jobs
        return InstanceLimits(memory=memory, processors=max(1, _CORES // jobs) if is_here else 1, until=until)

    def _report(self, ended: str) -> int:
        standing = self._standing
        open_ = standing.total - standing.done
        lines = [f"{standing.done} of {standing.total} instances: {describe_counts(standing)}"]
        if open_:
            lines.append(f"{ended or '--max-minutes'}: {open_} are not done; --resume goes on")
        lines.append(f"written: {self._table}, {self._records}")
        say(lines)
        if standing.counts["sat"]:
            return 1
        return 0 if standing.counts["unsat"] == standing.total else _OPEN
