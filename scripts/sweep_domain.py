#!/usr/bin/env python3
"""Look for unsound bounds and false proofs, on many boxes of all rows and in many random models.

A case is an operator with its attributes, a box of its operands and a sample, run on every runtime available: ONNX
Runtime with and without optimisations, PyTorch on the CPU and, if there is one, on the GPU.  The operators and
attributes are those of the tables in `tests/operators/cases`, with operands also in other floating types.

Prints each fault with the arguments that reproduce it, rows that no runtime ran, and the counts.  Exit status 1 if
there is a fault.

    scripts/sweep_domain.py --cases 200000 --graphs 2000 --jobs 2
    scripts/sweep_domain.py --match '^Softmax' --cases 5000 --graphs 0
    scripts/sweep_domain.py --attacks 20000 --cases 0 --graphs 0
    scripts/sweep_domain.py --attacks 12 --graphs 12 --cases 0 --emulate avx2   # needs qemu-x86_64
    scripts/sweep_domain.py --graphs 300 --emulate sve     # needs qemu-aarch64 and scripts/make_arm64.py
    scripts/sweep_domain.py --job case:17 --job graph:4 --job attack:260

An attack is a random model that ONNX Runtime's optimiser rewrites, whose constants lie at the ends of their type, and
the same model with operators after an output that its bounds just prove: see `tests/domain/attack`.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ml_dtypes
import numpy as np
import torch

from lab.crew import Failure, run_jobs
from lab.kernels.emulator import MACHINES, emulator
from ranum_falsify.network import list_supported
from tests.domain.attack.sweep import sweep_attack
from tests.domain.random_graphs import sweep_graph
from tests.domain.search import Tally
from tests.domain.soundness import moved, retyped, sweep_case
from tests.operators.harness import OperatorCase
from tests.operators.test_operators import CASES

_JOB_SECONDS, _EMULATED_SECONDS = 120, 600
_BOXES, _SAMPLES, _ROUNDS = 3, 14, 3
_TYPES = (None, None, None, np.float64, np.float16, ml_dtypes.bfloat16)
# ONNX Runtime computes some operators by definitions that hold at opset 18 alone.
_OPSETS = (None, None, None, 18)

_SHARES = {"case": 1, "graph": 2, "attack": 2}
"""How many times longer than a case a job of each kind takes, approximately."""

Job = tuple[str, int]
"""`case`, `graph` or `attack`, and the number of the job, which is its seed."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job.

    Attributes:
        job: The job.
        row: Operator whose row it checked, with its domain; None for models.
        tally: Numbers of what was run.
        error: What stopped it: an exception of the checker, a crash, a hang.
    """

    job: Job
    row: tuple[str, str] | None = None
    tally: Tally = field(default_factory=Tally)
    error: str = ""


def make_case(number: int, rows: list[list[OperatorCase]]) -> OperatorCase:
    """Return the case of a job: it goes through the rows in turn, and through the cases of each row.

    Some have operands of another type; some are in a model of another opset.
    """
    cases = rows[number % len(rows)]
    case = cases[number // len(rows) % len(cases)]
    rng = np.random.default_rng(number)
    dtype, opset = _TYPES[int(rng.integers(len(_TYPES)))], _OPSETS[int(rng.integers(len(_OPSETS)))]
    case = case if opset is None else moved(case, opset) or case
    return case if dtype is None else retyped(case, dtype) or case


def run_job(job: Job, rows: list[list[OperatorCase]], family: str = "") -> Outcome:
    """Run one job in this process; if a family is given, its libraries run models on an emulated processor."""
    kind, number = job
    case = make_case(number, rows) if kind == "case" else None
    row = None if case is None else (case.op_type, case.domain)
    try:
        emulated = _choose_emulated(family) if family else {}
        if case is None:
            sweep = sweep_attack if kind == "attack" else sweep_graph
            return Outcome(job, row, sweep(number, **emulated))
        amount = {"samples": _SAMPLES, "rounds": _ROUNDS} | emulated
        return Outcome(job, row, sweep_case(case, seed=number, boxes=_BOXES, **amount))
    except Exception as error:
        return Outcome(job, row, error=f"{case.id if case else 'model'}: {type(error).__name__}: {error}")


def _choose_emulated(family: str) -> dict[str, Any]:
    """Return what to pass to sweeps: emulated libraries, what bounds must cover, and fewer points: they are slow."""
    machine = MACHINES[family]
    played = [library for library in machine.libraries if machine.is_available(library)]
    further = tuple(runtime for library in played if (runtime := machine.runtime_of(library)) != library)
    sessions = {library: emulator(family, library).load for library in played}
    return {"sessions": sessions, "further": further, "samples": 5, "rounds": 1}


# a runtime may crash or hang on odd operands -----------------------------------------------------------------------


def _prepare(match: str, family: str) -> Callable[[Job], Outcome]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    return partial(run_job, rows=_find_matching(match), family=family)


class Sweep:
    """Hands out jobs until enough cases and models have been checked.

    Attributes:
        cases: Samples of operator cases so far.
        models: Models so far, by kind of job.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._listed = [_parse(job) for job in given.job or ()]
        self._next = Counter(dict.fromkeys(_SHARES, given.first))
        self.cases = 0
        self.models: Counter[str] = Counter()
        self.outcomes: list[Outcome] = []

    def _jobs(self) -> Iterator[Job]:
        if self._listed:
            yield from self._listed
            return
        until = time.monotonic() + self._given.seconds
        while time.monotonic() < until:
            wanted = {"graph": self._given.graphs, "attack": self._given.attacks}
            kinds = [kind for kind, count in wanted.items() if self._make(kind) < count]
            kinds += ["case"] if self.cases < self._given.cases else []
            if not kinds:
                return
            # Cases and models in turn, so that a run that is cut short has seen both.
            kind = min(kinds, key=lambda kind: self._make(kind) * _SHARES[kind])
            number = self._next[kind]
            self._next[kind] += 1
            yield kind, number

    def _make(self, kind: str) -> int:
        made: int = self._next[kind] - self._given.first
        return made

    def run(self) -> Iterator[Outcome]:
        """Run all jobs; yield their outcomes in their order."""
        given = self._given
        limit = _EMULATED_SECONDS if given.emulate else _JOB_SECONDS
        for outcome in run_jobs(self._jobs(), _prepare, given.match, given.emulate, workers=given.jobs, limit=limit):
            if isinstance(outcome, Failure):
                outcome = Outcome(outcome.job, error=f"{outcome.kind}, {outcome.detail}")
            self._count(outcome)
            yield outcome

    def _count(self, outcome: Outcome) -> None:
        if outcome.job[0] == "case":
            self.cases += outcome.tally.samples
        else:
            self.models[outcome.job[0]] += 1


# the script ---------------------------------------------------------------------------------------------------------


def _find_matching(pattern: str) -> list[list[OperatorCase]]:
    """Return the cases whose name matches, by row."""
    rows: dict[tuple[str, str], list[OperatorCase]] = {}
    for case in CASES:
        if re.search(pattern, case.id):
            rows.setdefault((case.op_type, case.domain), []).append(case)
    return list(rows.values())


def _parse(job: str) -> Job:
    kind, _, number = job.partition(":")
    return kind, int(number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000, help="how many (default: %(default)s)")
    parser.add_argument("--graphs", type=int, default=200, help="how many random models (default: %(default)s)")
    parser.add_argument("--attacks", type=int, default=200, help="how many attacks (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first job (default: %(default)s)")
    parser.add_argument("--match", default="", help="pattern that the names of the cases match")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no job after so long")
    parser.add_argument(
        "--emulate", default="", choices=["", *MACHINES], help="family of processors that QEMU emulates for all of it"
    )
    parser.add_argument("--job", action="append", metavar="KIND:NUMBER", help="run this job; may be repeated")
    return parser


def _report(sweep: Sweep, totals: dict[str, Tally], rows: set[Any], seconds: float, whole: bool) -> None:
    for kind, tally in totals.items():
        runs = ", ".join(f"{name} {count}" for name, count in sorted(tally.runs.items()))
        proved = f", {tally.proved} of {tally.outputs} outputs proved" if tally.outputs else ""
        print(f"{kind}s: {tally.boxes} boxes{proved}, {tally.samples} samples ({runs}), {len(tally.faults)} faults")
    if whole:
        missing = [spec.op_type for spec in list_supported() if (spec.op_type, spec.domain) not in rows]
        print(
            f"rows run: {len(rows)} of {len(list_supported())}"
            + (f"; not run: {', '.join(missing)}" if missing else "")
        )
        bare = [spec.op_type for spec in list_supported() if spec.interval is None]
        if bare:
            print(f"rows without a rule: {', '.join(bare)}")
    print(f"{sweep.cases} cases, {sweep.models['graph']} models, {sweep.models['attack']} attacks, {seconds:.0f} s")


def main(argv: list[str] | None = None) -> int:
    """Run the script."""
    given = _parser().parse_args(argv)
    if given.emulate and not any(map(MACHINES[given.emulate].is_available, MACHINES[given.emulate].libraries)):
        needed = "qemu-user, and scripts/make_arm64.py for ARM64"
        print(f"--emulate {given.emulate}: cannot be emulated here; it needs {needed}", file=sys.stderr)
        return 2
    if not _find_matching(given.match):
        print(f"--match {given.match!r}: no case has such a name", file=sys.stderr)
        return 2
    began, sweep = time.monotonic(), Sweep(given)
    totals, rows, errors = {kind: Tally() for kind in _SHARES}, set[Any](), 0
    again = f" --match '{given.match}'" if given.match else ""
    again += f" --emulate {given.emulate}" if given.emulate else ""
    for outcome in sweep.run():
        kind, number = outcome.job
        totals[kind].add(outcome.tally)
        if outcome.tally.samples and outcome.row:
            rows.add(outcome.row)
        for line in (*outcome.tally.faults, *([outcome.error] if outcome.error else ())):
            print(f"[{again.strip()} --job {kind}:{number}] {line}", flush=True)
        errors += bool(outcome.error)
    _report(sweep, totals, rows, time.monotonic() - began, whole=not (given.match or given.job or given.emulate))
    if not (errors or sweep.models.total() or any(tally.samples for tally in totals.values())):
        print("nothing was run; ask for more cases, models or attacks", file=sys.stderr)
        return 2
    if errors:
        print(f"{errors} jobs stopped early")
    return 1 if errors or any(tally.faults for tally in totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
