"""Feed the command mutated property and model files: no traceback, no hang, no crash.

    python scripts/fuzz_inputs.py                 # 10,000 cases
    python scripts/fuzz_inputs.py --case 1234     # one of them again, with its files and traceback

Every case goes through reading and reduction; some of those that survive are searched briefly.  Cases are numbered,
and a number and a seed determine a case.  Exits 1 when a case fails.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from crewlib import Failure, run_jobs  # noqa: E402 - the checkout comes first
from fuzzlib.cases import Case, make_case  # noqa: E402 - the checkout comes first

__all__ = ["Outcome", "main", "run_case", "run_cases"]

_CASE_SECONDS = 20
_MEMORY = 6 * 2**30  # bytes of address space, so that an absurd shape cannot take the machine down
_SEARCH = ("--n_starts", "4", "--n_steps", "2", "--timeout", "5")
_GOOD = ("refused", "accepted", "searched")


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        number: Number of the case.
        kind: `property` or `model`.
        result: `refused`, `accepted`, `searched`; or what went wrong.
        detail: The line on standard error, or what was wrong.
        seconds: How long it took.
    """

    number: int
    kind: str
    result: str
    detail: str
    seconds: float


class _LateError(BaseException):
    """Raised by the alarm; no handler for ordinary errors catches it."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise _LateError


def _command(arguments: list[str]) -> tuple[int, str]:
    """Run the command in this process; return its exit status and what it wrote to standard error."""
    from ranum_falsify.cli import main as command

    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        status = command(arguments)
    return status, errors.getvalue()


def _judge(status: int, errors: str) -> str | None:
    """Return what is wrong with how the command ended, None if nothing is."""
    if status == 2:
        if "internal error" in errors:
            return "internal error"
        return None if errors.count("\n") == 1 and errors.startswith("ranum-falsify: ") else "not one line"
    if status not in (0, 1, 3):
        return f"exit status {status}"
    return "noise on standard error" if errors else None


def run_case(case: Case, folder: Path, *, search: bool, debug: bool = False) -> Outcome:
    """Run one case in this process; a hang ends after some seconds."""
    arguments = [*case.write(folder), *(["--debug"] if debug else [])]
    began = time.monotonic()
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(_CASE_SECONDS)
    try:
        result = "accepted"
        status, errors = _command([*arguments, "--list-operators"])
        fault = _judge(status, errors)
        if fault is None and status == 2:
            result = "refused"
        elif fault is None and search:
            result = "searched"
            status, errors = _command([*arguments, *_SEARCH])
            fault = _judge(status, errors)
    except _LateError:
        fault, errors = "hang", f"more than {_CASE_SECONDS} s"
    except BaseException as error:
        fault, errors = "exception", repr(error)
    finally:
        signal.alarm(0)
    return Outcome(case.number, case.kind, fault or result, errors.strip(), time.monotonic() - began)


# ------------------------------------------------------------------ workers


@contextlib.contextmanager
def _prepare(seed: int, search_every: int) -> Iterator[Callable[[int], Outcome]]:
    import torch

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # whatever a mutated property writes ends there

        def run(number: int) -> Outcome:
            return run_case(make_case(number, seed), Path(folder), search=number // 2 % search_every == 0)

        yield run


def make_kind(number: int) -> str:
    """Return the kind of a case without making it."""
    return "property" if number % 2 else "model"


def run_cases(numbers: range, *, seed: int, workers: int, search_every: int) -> Iterator[Outcome]:
    """Run cases in worker processes; yield their outcomes as they come.

    Args:
        numbers: Which cases.
        seed: Of all cases.
        workers: Number of processes.
        search_every: Search every so many cases, if they survive the reading.
    """
    # A case ends itself after some seconds, where it does not hang in native code.
    crew, limit = min(workers, len(numbers)), 3.0 * _CASE_SECONDS
    for outcome in run_jobs(numbers, _prepare, seed, search_every, workers=crew, limit=limit):
        if isinstance(outcome, Failure):
            number = outcome.job
            outcome = Outcome(number, make_kind(number), outcome.kind, outcome.detail, outcome.seconds)
        yield outcome


# ------------------------------------------------------------------ the script


def _show_case(number: int, seed: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{number}-"))
    outcome = run_case(make_case(number, seed), folder, search=True, debug=True)
    print(f"files: {folder}\n{outcome.result} after {outcome.seconds:.2f} s\n{outcome.detail}")
    return 0 if outcome.result in _GOOD else 1


def _print_table(outcomes: list[Outcome]) -> None:
    kinds = ("property", "model")
    counts = Counter((outcome.kind, outcome.result) for outcome in outcomes)
    results = [*_GOOD, *sorted({outcome.result for outcome in outcomes} - set(_GOOD))]
    print(f"{'':26}" + "".join(f"{kind:>10}" for kind in kinds))
    for result in results:
        print(f"{result:26}" + "".join(f"{counts[kind, result]:>10}" for kind in kinds))
    print(f"{'longest case':26}" + "".join(f"{_longest(outcomes, kind):>9.1f}s" for kind in kinds))


def _longest(outcomes: list[Outcome], kind: str) -> float:
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
