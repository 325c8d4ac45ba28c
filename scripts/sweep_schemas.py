#!/usr/bin/env python3
"""Look for what rows say of forms of operators that ONNX Runtime's kernels do not compute.

A form is a case of the tables in `tests/operators/cases`, changed in a few slots that the operator's schemas have: an
attribute of another value, an operand left out, of another type, shape or value, another opset.  Forms that ONNX
Runtime runs are the start of further ones.  A case is a form with operands drawn from a box: bounds, shapes and
conditions of the row against results of ONNX Runtime, optimised and not, and of PyTorch.

Prints each fault with the arguments that reproduce it; crashes and hangs of ONNX Runtime; and for each row how many of
its forms ran.  Exit status 1 if there is a fault.

    scripts/sweep_schemas.py --cases 1000000 --jobs 2
    scripts/sweep_schemas.py --match '^Resize$' --cases 20000
    scripts/sweep_schemas.py --job Resize:17
    scripts/sweep_schemas.py --exhaustive --jobs 2

With `--exhaustive`, elementwise operators compute all numbers of each type of 8 and of float16, two operands all pairs
of integers; a case is a number, or a tuple of numbers.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from lab.crew import Failure, run_jobs
from tests.domain.exhaustive import SMALL_TYPES, exhaust, small_forms
from tests.domain.forms import FormTally, describe, limit_memory, walk_forms
from tests.operators.forms.walk import Form
from tests.operators.harness import OperatorCase
from tests.operators.test_operators import CASES

_JOB_SECONDS, _EXHAUSTIVE_SECONDS = 30, 1800
_FORMS = 24

Job = tuple[str, str]
"""A row, as `domain::op_type` or `op_type`, and the seed of its walk, or a small type all of whose numbers it gets."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job: what its walk found, or what stopped it."""

    job: Job
    found: FormTally = field(default_factory=FormTally)
    error: str = ""


def rows_matching(pattern: str) -> dict[str, list[OperatorCase]]:
    """Return the cases of the rows whose name matches, by name."""
    rows: dict[str, list[OperatorCase]] = {}
    for case in CASES:
        name = f"{case.domain}::{case.op_type}" if case.domain else case.op_type
        if re.search(pattern, name) or re.search(pattern, case.op_type):
            rows.setdefault(name, []).append(case)
    return rows


def run_job(job: Job, rows: dict[str, list[OperatorCase]], folder: str) -> Outcome:
    """Run one job in this process; leave in the folder which form it is at."""
    name, way = job
    place = Path(folder, f"{name.replace(':', '.')}-{way}")

    def note(form: Form) -> None:
        place.write_text(describe(form))

    try:
        if way in SMALL_TYPES:
            return Outcome(job, _all_numbers(rows[name], way))
        found = walk_forms(rows[name], seed=int(way), forms=_FORMS, note=note)
    except Exception as error:
        where = f"{place.read_text()}: " if place.exists() else ""
        return Outcome(job, error=f"{where}{type(error).__name__}: {error}")
    place.unlink(missing_ok=True)
    return Outcome(job, found)


def _all_numbers(cases: list[OperatorCase], kind: str) -> FormTally:
    found = FormTally()
    for form, places in small_forms(cases, kind):
        tally = exhaust(form, places, kind)
        found.forms["ran" if tally.samples else "refused by ONNX Runtime"] += 1
        found.tally.add(tally)
    return found


def _prepare(match: str, folder: str) -> Callable[[Job], Outcome]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    limit_memory()
    return partial(run_job, rows=rows_matching(match), folder=folder)


class Sweep:
    """Hands out walks, row by row in turn, until enough cases have been checked.

    Attributes:
        rows: What was found, by row.
        stopped: Forms that ended or held up a process, by row.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self.rows: dict[str, FormTally] = {name: FormTally() for name in rows_matching(given.match)}
        self.stopped: Counter[str] = Counter()

    @property
    def _limit(self) -> float:
        return _EXHAUSTIVE_SECONDS if self._given.exhaustive else _JOB_SECONDS

    @property
    def cases(self) -> int:
        """Cases so far."""
        return sum(found.tally.samples for found in self.rows.values())

    def _jobs(self) -> Iterator[Job]:
        if self._given.job:
            for job in self._given.job:
                name, _, way = job.rpartition(":")
                yield name, way
            return
        if self._given.exhaustive:
            yield from ((name, kind) for name in list(self.rows) for kind in SMALL_TYPES)
            return
        until = time.monotonic() + self._given.seconds
        # The row with the fewest cases comes next, so that hard rows get as many as easy ones; within reason.
        handed: Counter[str] = Counter()
        while self.cases < self._given.cases and time.monotonic() < until:
            name = min(self.rows, key=lambda name: self.rows[name].tally.samples + 60 * handed[name])
            handed[name] += 1
            yield name, str(self._given.seed * 1_000_000 + handed[name])

    def run(self) -> Iterator[Outcome]:
        """Run all jobs; yield their outcomes in their order."""
        with tempfile.TemporaryDirectory() as folder:
            jobs = run_jobs(
                self._jobs(), _prepare, self._given.match, folder, workers=self._given.jobs, limit=self._limit
            )
            for outcome in jobs:
                if isinstance(outcome, Failure):
                    outcome = self._note(outcome, Path(folder))
                self.rows.setdefault(outcome.job[0], FormTally()).add(outcome.found)
                yield outcome

    def _note(self, failure: Failure[Job], folder: Path) -> Outcome:
        name, way = failure.job
        place = folder / f"{name.replace(':', '.')}-{way}"
        form = place.read_text() if place.exists() else "before its first form"
        self.stopped[name] += 1
        return Outcome(failure.job, error=f"{failure.kind}, {failure.detail}: {form}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000, help="how many (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all walks (default: %(default)s)")
    parser.add_argument("--match", default="", help="pattern that the names of the rows match")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no walk after so long")
    parser.add_argument("--job", action="append", metavar="ROW:WALK", help="run this walk, or type; may be repeated")
    parser.add_argument("--exhaustive", action="store_true", help="all numbers of small types, and no walk")
    parser.add_argument("--refusals", action="store_true", help="print why rows refuse what ONNX Runtime runs")
    parser.add_argument("--slots", action="store_true", help="print how many forms ran by slot")
    return parser


def _report(sweep: Sweep, given: argparse.Namespace, seconds: float) -> None:
    for name, found in sorted(sweep.rows.items()):
        made = found.forms.total() - found.forms["not a model"]
        ran = found.forms["ran"] + found.forms["refused by the row"]
        print(
            f"{name}: {found.tally.samples} cases, {found.tally.boxes} boxes, {made} forms,"
            f" {ran / max(made, 1):.0%} run by ONNX Runtime, {found.forms['refused by the row']} of these refused by"
            f" the row, {len(found.tally.faults)} faults, {sweep.stopped[name]} stopped"
        )
        if given.refusals:
            for reason, count in found.refusals.most_common(12):
                print(f"    {count} {reason}")
        if given.slots:
            for (slot, outcome), count in sorted(found.slots.items()):
                print(f"    {slot}: {outcome} {count}")
    faults = sum(len(found.tally.faults) for found in sweep.rows.values())
    print(f"{sweep.cases} cases, {len(sweep.rows)} rows, {faults} faults, {seconds:.0f} s")


def main(argv: list[str] | None = None) -> int:
    """Run the script."""
    given = _parser().parse_args(argv)
    if not rows_matching(given.match):
        print(f"--match {given.match!r}: no row has such a name", file=sys.stderr)
        return 2
    began, sweep, errors = time.monotonic(), Sweep(given), 0
    for outcome in sweep.run():
        name, way = outcome.job
        for line in (*outcome.found.tally.faults, *([outcome.error] if outcome.error else ())):
            print(f"[--job {name}:{way}] {line}", flush=True)
        errors += outcome.error.startswith("error") or (bool(outcome.error) and not sweep.stopped[name])
    _report(sweep, given, time.monotonic() - began)
    if not sweep.cases:
        print("nothing was run; ask for more cases", file=sys.stderr)
        return 2
    return 1 if errors or any(found.tally.faults for found in sweep.rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
