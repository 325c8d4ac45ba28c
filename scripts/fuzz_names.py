"""Give the command models, properties and arguments with hostile names, and read everything that it writes.

    python scripts/fuzz_names.py                  # 1,000 cases
    python scripts/fuzz_names.py --case 123       # one of them again, with its files and what it writes

Names hold control characters, line breaks, characters that reverse the direction of reading, orders to CI systems,
quotes and
bytes that are not text.  Reports are what the command writes to standard output and standard error, at the level of the
process, JSON files, unit tests, and names of files.  Every line of them must be printable UTF-8 and no order to a CI
system; JSON and Python must parse; the exit status must be one that the command documents.  Exits 1 when a case fails.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import numpy as np  # noqa: E402 - the checkout comes first

from lab.crew import Failure, run_jobs  # noqa: E402 - the checkout comes first
from lab.fuzz.names import NamedCase, make_named_case  # noqa: E402 - the checkout comes first

__all__ = ["Outcome", "faults_of", "main", "run_case"]

_CASE_SECONDS = 60
_STATUSES = (0, 1, 2, 3)
_EVERY = 10  # unit tests are run for one case in this many
_ORDERS: dict[str, Callable[[str], bool]] = {
    "GitHub Actions": lambda line: line.lstrip().startswith("::") or "##[" in line,
    "Azure Pipelines": lambda line: re.search(r"##(vso)?\[", line, re.IGNORECASE) is not None,
    "TeamCity": lambda line: "##teamcity[" in line,
    "GitLab": lambda line: re.match(r"section_(start|end):", line) is not None,
    "Travis CI": lambda line: line.startswith("travis_"),
    "Buildkite": lambda line: re.match(r"(---|\+\+\+|~~~|\^\^\^) ", line) is not None,
}
"""Whether a CI system takes a line for an order, written independently of what the package escapes."""


@dataclass
class Outcome:
    """How a case ended.

    Attributes:
        number: Number of the case.
        command: The kind of run.
        reports: How many texts were read, by kind.
        faults: The faults found in them.
        statuses: Exit statuses.
    """

    number: int
    command: str = ""
    reports: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)


class _LateError(BaseException):
    """Raised by the alarm; no handler for ordinary errors catches it."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise _LateError


def faults_of(data: bytes) -> Iterator[str]:
    """Yield what makes a report unfit to be shown."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        yield f"no UTF-8: {error}"
        return
    for line in text.removesuffix("\n").split("\n"):
        if not line.isprintable():
            yield f"not printable: {line!r:.300}"
        yield from (f"an order to {name}: {line!r:.300}" for name, is_order in _ORDERS.items() if is_order(line))


# ------------------------------------------------------------------ one case


def run_case(case: NamedCase, folder: Path) -> Outcome:
    """Run one case in this process, in a folder that must be empty."""
    for name, data in case.files.items():
        (folder / name).write_bytes(data)
    outcome = Outcome(case.number, case.command)
    debug = ["--debug"] if case.debug else []
    signal.signal(signal.SIGALRM, _alarm)
    with contextlib.chdir(folder):
        for arguments in (case.arguments, *case.then):
            signal.alarm(_CASE_SECONDS)
            try:
                _run([*arguments, *debug], outcome)
            except _LateError:
                outcome.faults.append(f"more than {_CASE_SECONDS} s")
            finally:
                signal.alarm(0)
    _read_files(folder, case, outcome)
    if case.number % _EVERY == 0:
        _run_tests(folder, outcome)
    return outcome


def _run(arguments: list[str], outcome: Outcome) -> None:
    from ranum_falsify.cli import main as command

    with _capture() as captured:
        try:
            status = command(arguments)
        except Exception as error:
            outcome.faults.append(f"exception: {error!r:.300}")
            return
    out, err = captured
    outcome.statuses.append(status)
    for kind, data in (("standard output", out), ("standard error", err)):
        outcome.reports[kind] += bool(data)
        outcome.faults += [f"{kind}: {fault}" for fault in faults_of(data)]
    if status not in _STATUSES:
        outcome.faults.append(f"exit status {status}")
    if status == 2 and not re.search(rb"(?<![^\n])ranum-falsify: .*\n\Z", err):
        outcome.faults.append(f"no line says why: {err!r:.300}")
    if b"internal error" in err:
        outcome.faults.append(f"internal error: {err[-300:]!r}")
    if out and arguments[-2:] == ["--json", "-"]:
        json.loads(out)


@contextlib.contextmanager
def _capture() -> Iterator[list[bytes]]:
    """Collect what is written to the descriptors 1 and 2 in the block, by native code too; filled at its end."""
    found: list[bytes] = []
    kept = [(os.dup(number), stream) for number, stream in ((1, sys.stdout), (2, sys.stderr))]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        for number, file in ((1, out), (2, err)):
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        try:
            yield found
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            (_, sys.stdout), (_, sys.stderr) = kept
            for number, (saved, _) in enumerate(kept, 1):
                os.dup2(saved, number)
                os.close(saved)
            for file in (out, err):
                file.seek(0)
                found.append(file.read())


def _read_files(folder: Path, case: NamedCase, outcome: Outcome) -> None:
    """Read the files in the folder that were not given; the user chose the first part of a path, not the rest."""
    given = {arguments.removeprefix("./") for arguments in case.arguments} | set(case.files)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        relative = path.relative_to(folder)
        if str(relative) in case.files:
            continue
        chosen = max((text for text in given if str(relative).startswith(text)), key=len, default="")
        outcome.faults += [f"name of a file: {f}" for f in faults_of(os.fsencode(str(relative)[len(chosen) :]))]
        if path.suffix in (".json", ".py"):
            data = path.read_bytes()
            kind = "JSON file" if path.suffix == ".json" else "unit test"
            outcome.reports[kind] += 1
            outcome.faults += [f"{kind}: {fault}" for fault in faults_of(data)]
            try:
                json.loads(data) if path.suffix == ".json" else ast.parse(data)
            except (ValueError, SyntaxError) as error:
                outcome.faults.append(f"{kind}: does not parse: {error!r:.300}")


def _run_tests(folder: Path, outcome: Outcome) -> None:
    """Run the unit tests of a folder, as they are and where they fail; read pytest's output."""
    for path in folder.rglob("test_*.py"):
        for spoil in (False, True):
            for file in path.parent.glob("*.npz") if spoil else ():
                with np.load(file) as arrays:
                    ones = {name: np.ones_like(array) for name, array in arrays.items()}
                np.savez(file, **ones)
            command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path.name)
            done = subprocess.run(command, cwd=path.parent, capture_output=True, timeout=300)
            outcome.reports["run of unit tests"] += 1
            outcome.faults += [f"run of unit tests: {fault}" for fault in faults_of(done.stdout + done.stderr)]
            if done.returncode not in ((0, 1) if spoil else (0,)):
                outcome.faults.append(f"run of unit tests: {done.stdout[-300:]!r}")


# ------------------------------------------------------------------ workers and the script


def _prepare(seed: int) -> Callable[[int], Outcome]:
    import torch

    torch.set_num_threads(1)

    def run(number: int) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="fuzz-names-") as folder:
            return run_case(make_named_case(number, seed), Path(folder))

    return run


def _show_case(number: int, seed: int) -> int:
    case, folder = make_named_case(number, seed), Path(tempfile.mkdtemp(prefix=f"fuzz-names-{number}-"))
    outcome = run_case(case, folder)
    print(f"files: {folder}\narguments: {case.arguments!r}\nthen: {case.then!r}\nexit statuses: {outcome.statuses}")
    print("\n".join(outcome.faults) or "no fault")
    if not outcome.faults:
        shutil.rmtree(folder)
    return 1 if outcome.faults else 0


def main(argv: list[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of all cases (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--case", type=int, help="run this one case, and keep its files where it fails")
    given = parser.parse_args(argv)
    if given.case is not None:
        return _show_case(given.case, given.seed)
    began, failed, reports, ends = time.monotonic(), 0, Counter[str](), Counter[tuple[str, int]]()
    numbers = range(given.first, given.first + given.cases)
    for outcome in run_jobs(numbers, _prepare, given.seed, workers=given.workers, limit=5.0 * _CASE_SECONDS):
        if isinstance(outcome, Failure):
            outcome = Outcome(outcome.job, faults=[f"{outcome.kind}: {outcome.detail}"])
        reports += outcome.reports
        ends.update((outcome.command, status) for status in outcome.statuses)
        if outcome.faults:
            failed += 1
            print(f"case {outcome.number} ({outcome.command}): {outcome.faults[0]}", flush=True)
    for command in sorted({command for command, _ in ends}):
        print(f"{command:10}" + "".join(f"  status {s}: {ends[command, s]:4}" for s in _STATUSES))
    print(", ".join(f"{kind} {count}" for kind, count in sorted(reports.items())))
    print(f"{given.cases} cases, {reports.total()} reports, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
