"""Feed the command mutated files, and small ones that ask for huge amounts: no traceback, no crash, within limits.

    python scripts/fuzz_inputs.py                 # 10,000 cases
    python scripts/fuzz_inputs.py --case 1234     # one of them again, with its files and traceback

Every case goes through reading and reduction; some of those that survive are searched briefly.  A case may take two
seconds beyond its timeout, and a gigabyte of memory.  Cases are numbered, and a number and a seed determine a case.
Exits 1 when a case fails.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
# Cases run in forks of a process, which must have no other threads; libraries start theirs as they are imported.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

from lab.crew import Failure, run_jobs  # noqa: E402 - the checkout comes first
from lab.fuzz.cases import Case, kind_of, make_case  # noqa: E402 - the checkout comes first
from lab.fuzz.forking import import_all, run_forked  # noqa: E402 - the checkout comes first

__all__ = ["Outcome", "judge", "main", "run_case", "run_cases"]

_TIMEOUT, _GRACE = 2.0, 2.0  # seconds
_HANG = 20.0  # seconds
_MOST_MEMORY = 10**9  # bytes
_BOMBS_SEARCHED = 3  # every so many
_GOOD = ("refused", "accepted", "searched")


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        number: Number of the case.
        kind: `property`, `model` or `bomb`.
        result: `refused`, `accepted`, `searched`; or the kind of fault.
        detail: The line on standard error, or what was wrong.
        seconds: How long it took.
        peak: The most memory that it held, or a child of it, in bytes.
    """

    number: int
    kind: str
    result: str
    detail: str
    seconds: float
    peak: int


def judge(status: int, errors: str) -> str | None:
    """Return what is wrong with the way in which the command ended, None if nothing is."""
    if status == 2:
        if "internal error" in errors:
            return "internal error"
        return None if errors.count("\n") == 1 and errors.startswith("ranum-falsify: ") else "not one line"
    if status not in (0, 1, 3):
        return f"exit status {status}"
    return "noise on standard error" if errors else None


def run_case(case: Case, folder: Path, *, search: bool, debug: bool = False) -> Outcome:
    """Run one case in children of this process."""
    arguments = [*case.write(folder), *(["--debug"] if debug else [])]
    is_replay = arguments[0] == "replay"
    limits = [] if is_replay else ["--timeout", f"{_TIMEOUT:g}"]
    outcome = _run_once(case, [*arguments, *limits, *([] if is_replay or search else ["--list-operators"])], folder)
    return replace(outcome, result="searched") if search and outcome.result == "accepted" else outcome


def _run_once(case: Case, arguments: list[str], folder: Path) -> Outcome:
    """Run the command; if it is late, up to two more times, because other work may have delayed it."""
    for _ in range(3):
        ran = run_forked(arguments, folder, limit=_HANG)
        fault = "late" if ran.seconds > _TIMEOUT + _GRACE else None
        if fault is None or ran.status is None:
            break
    if ran.status is None:
        fault = "hang"
    elif ran.status < 0:
        fault = f"crash (signal {-ran.status})"
    else:
        fault = judge(ran.status, ran.errors) or fault
    if fault is None and ran.peak > _MOST_MEMORY:
        fault = "memory"
    result = fault or ("refused" if ran.status == 2 else "accepted")
    return Outcome(case.number, case.kind, result, f"{case.bomb.name}: {ran.errors.strip()}", ran.seconds, ran.peak)


# ------------------------------------------------------------------ workers


def _prepare(seed: int, search_every: int) -> Callable[[int], Outcome]:
    import_all()

    def run(number: int) -> Outcome:
        every = _BOMBS_SEARCHED if kind_of(number) == "bomb" else search_every
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            return run_case(make_case(number, seed), Path(folder), search=number // 10 % every == 0)

    return run


def run_cases(numbers: range, *, seed: int, workers: int, search_every: int) -> Iterator[Outcome]:
    """Run cases in worker processes; yield their outcomes in their order.

    Args:
        numbers: Numbers of the cases.
        seed: Seed of all cases.
        workers: Number of processes.
        search_every: Search one case in this many, if they survive the reading.
    """
    count, limit = min(workers, len(numbers)), 4.0 * _HANG
    for outcome in run_jobs(numbers, _prepare, seed, search_every, workers=count, limit=limit):
        if isinstance(outcome, Failure):
            number = outcome.job
            outcome = Outcome(number, kind_of(number), outcome.kind, outcome.detail, 0.0, 0)
        yield outcome


# ------------------------------------------------------------------ the script


def _show_case(number: int, seed: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{number}-"))
    import_all()
    outcome = run_case(make_case(number, seed), folder, search=True, debug=True)
    print(f"files: {folder}\n{outcome.result} after {outcome.seconds:.2f} s, {outcome.peak / 1e6:.0f} MB")
    print(outcome.detail)
    return 0 if outcome.result in _GOOD else 1


def _print_table(outcomes: list[Outcome]) -> None:
    kinds = ("property", "model", "bomb")
    counts = Counter((outcome.kind, outcome.result) for outcome in outcomes)
    results = [*_GOOD, *sorted({outcome.result for outcome in outcomes} - set(_GOOD))]
    print(f"{'':26}" + "".join(f"{kind:>10}" for kind in kinds))
    for result in results:
        print(f"{result:26}" + "".join(f"{counts[kind, result]:>10}" for kind in kinds))
    print(f"{'longest case':26}" + "".join(f"{_find_longest(outcomes, kind):>9.1f}s" for kind in kinds))
    peaks = (max((o.peak for o in outcomes if o.kind == kind), default=0) for kind in kinds)
    print(f"{'most memory':26}" + "".join(f"{peak / 1e6:>8.0f}MB" for peak in peaks))


def _find_longest(outcomes: list[Outcome], kind: str) -> float:
    return max((outcome.seconds for outcome in outcomes if outcome.kind == kind), default=0.0)


def main(argv: list[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of all cases (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--search-every", type=int, default=20, help="search every so many (default: %(default)s)")
    parser.add_argument("--case", type=int, help="run this one case, and keep its files")
    given = parser.parse_args(argv)
    if given.case is not None:
        return _show_case(given.case, given.seed)
    began = time.monotonic()
    numbers = range(given.first, given.first + given.cases)
    outcomes = []
    for outcome in run_cases(numbers, seed=given.seed, workers=given.workers, search_every=given.search_every):
        outcomes.append(outcome)
        if outcome.result not in _GOOD:
            print(f"case {outcome.number} ({outcome.kind}): {outcome.result}: {outcome.detail[-300:]}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{len(outcomes)} of {given.cases}", end="", file=sys.stderr)
    _print_table(outcomes)
    failed = sum(outcome.result not in _GOOD for outcome in outcomes)
    print(f"{len(outcomes)} cases, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
