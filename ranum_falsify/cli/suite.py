"""The command `suite`: many instances, on this machine or a cluster; and `suite compare`, two results of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any

import psutil

from ranum_falsify.cli.commands import PROGRAM
from ranum_falsify.cli.files import check_writable, write_json
from ranum_falsify.cli.options.questions import CompareOptions, PropertyGroup, QuestionGroup, SuiteOptions, to_keywords
from ranum_falsify.cli.options.shared import SearchOptions
from ranum_falsify.cli.output import complain, say, show_progress
from ranum_falsify.cli.parser import Parser
from ranum_falsify.cli.settings_file import SettingsFile
from ranum_falsify.errors import RanumFalsifyError, UsageError
from ranum_falsify.results.progress import ProgressDisplay, ProgressStep
from ranum_falsify.saving import save_together
from ranum_falsify.suite.cactus import cactus_plot
from ranum_falsify.suite.comparison import compare, read_entries, read_times
from ranum_falsify.suite.crew import make_crew
from ranum_falsify.suite.listing import list_instances
from ranum_falsify.suite.planning import Planned, choose, override, plan
from ranum_falsify.suite.record import STATUSES, Instance, InstanceRecord
from ranum_falsify.suite.results import ResultsFile, write_table
from ranum_falsify.suite.running import InstanceLimits, SuiteRun, SuiteStanding

_PARSERS = {has: Parser(kind, name=PROGRAM) for has, kind in ((True, PropertyGroup), (False, QuestionGroup))}
"""By whether a group has property files; a suite may have thousands of groups."""
_QUESTION = ("box", "only", "nodes", "gradient", "free", "weights", "passes")


def read_group(path: Path, title: str, table: Mapping[str, Any], has_properties: bool) -> dict[str, Any]:
    """Return what a table of options means; see `ReadOptions`."""
    values = SearchOptions.finish(SettingsFile(path, table, title).read(table, _PARSERS[has_properties]), ())
    for name in ("memory", "networks"):
        if name in values:
            raise UsageError(f"{path}: [{title}] {name}: is no option of a group; see docs/suites.md")
    question = {name: values[name] for name in _QUESTION if name in values}
    options = to_keywords(values)
    if "box" in question:
        question["box"] = _plain_box(question["box"])
    timeout, parameters = options.pop("timeout", None), values.get("parameters", {})
    return {"question": question, "timeout": timeout, "options": options, "parameters": parameters}


def _plain_box(box: Mapping[str | EllipsisType, Any]) -> dict[str, Any]:
    """Return a box as JSON holds it; "" stands for inputs that are not named."""
    return {
        "" if isinstance(name, EllipsisType) else name: list(bounds) if isinstance(bounds, tuple) else bounds
        for name, bounds in box.items()
    }


def _follow(display: ProgressDisplay, verbosity: int) -> Callable[[SuiteStanding, InstanceRecord | None], None]:
    """Return what shows how far a suite has got, and what came of an instance where that is wanted."""

    def show(standing: SuiteStanding, record: InstanceRecord | None) -> None:
        if record is not None and verbosity > 0:
            seconds = record.preparation + record.seconds
            detail = f": {record.error}" if record.error else ""
            complain([f"{record.instance.id}: {record.status} ({seconds:.2f} s){detail}"])
        left = "" if standing.seconds_left is None else f", about {_describe_seconds(standing.seconds_left)} left"
        text = f"{standing.done}/{standing.total}, {len(standing.running)} running, {_describe_counts(standing)}{left}"
        display(ProgressStep("suite", standing.done / standing.total, text))

    return show


def _describe_counts(standing: SuiteStanding) -> str:
    counts, always = standing.counts, ("sat", "unsat", "unknown")
    return ", ".join(f"{status} {counts[status]}" for status in STATUSES if counts[status] or status in always)


def _describe_seconds(seconds: float) -> str:
    minutes = seconds / 60
    return f"{seconds:.0f} s" if seconds < 100 else f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


_RUNNER = "ranum_falsify.api.instances"
_OPEN = 3
_CORES = os.cpu_count() or 1


def run(options: SuiteOptions) -> int:
    """Run the command."""
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
        """Run what is not done, and return the exit status."""
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
        verbosity = self._options.verbosity
        workers = make_crew(_RUNNER, jobs, kind=self._options.cluster, scheduler=self._options.scheduler)
        with workers as crew, show_progress(min(verbosity, 0)) as display:
            SuiteRun(
                planned=left,
                crew=crew,
                results=results,
                folder=self._table.parent / f"{self._table.stem}.counterexamples",
                limits=self._limit(jobs, until),
                standing=self._standing,
                show=_follow(display, verbosity),
                former=self._former,
            ).run()

    def _limit(self, jobs: int, until: float | None) -> InstanceLimits:
        """Return what instances may use: on other machines, one core of each, and what memory there is."""
        memory, is_here = self._options.memory, self._options.scheduler is None and self._options.cluster is None
        if is_here:
            memory = memory or int(psutil.virtual_memory().total) // jobs
        return InstanceLimits(memory=memory, processors=max(1, _CORES // jobs) if is_here else 1, until=until)

    def _report(self, ended: str) -> int:
        standing = self._standing
        open_ = standing.total - standing.done
        lines = [f"{standing.done} of {standing.total} instances: {_describe_counts(standing)}"]
        if open_:
            lines.append(f"{ended or '--max-minutes'}: {open_} are not done; --resume goes on")
        lines.append(f"written: {self._table}, {self._records}")
        say(lines)
        if standing.counts["sat"]:
            return 1
        return 0 if standing.counts["unsat"] == standing.total else _OPEN


def compare_results(options: CompareOptions) -> int:
    """Run the command."""
    if len(options.results) != 2:
        raise UsageError(f"suite compare: takes two results, not {len(options.results)}; see suite compare --help")
    if options.cactus is not None:
        check_writable("--cactus", options.cactus)
    if options.json not in (None, "-"):
        check_writable("--json", Path(str(options.json)))
    one, other = map(Path, options.results)
    names = (one.name, other.name) if one.name != other.name else (str(one), str(other))
    found = compare(read_entries(one), read_entries(other), names, _replay)
    if options.json is not None:
        write_json(options.json, found.as_json())
    if options.cactus is not None:
        plot = cactus_plot({name: found.times(side) for side, name in enumerate(found.names)})
        save_together({options.cactus: plot.encode()})
    if options.json != "-":
        say(found.lines())
    return 1 if found.disagreements else 0


def _replay(instance: Instance, fingerprint: str, counterexample: Path) -> tuple[bool | None, str]:
    from ranum_falsify.api.instances import replay_claim  # imports torch

    return replay_claim(instance, fingerprint, counterexample)
