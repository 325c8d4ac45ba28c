#!/usr/bin/env python3
"""Measure a release of ONNX Runtime or PyTorch, test it, and say what changed.

    scripts/measure_release.py onnxruntime==1.32.0 --jobs 2
    scripts/measure_release.py torch==2.15.0 --python /path/to/python     # an environment that has it already
    scripts/measure_release.py onnxruntime==1.32.0 --families avx512      # on a machine that has it
    scripts/measure_release.py onnxruntime==1.30.0 --into /tmp/trial      # leaves the records and the page as they are

Makes an environment, which is this one with the release over it; measures all kernels of the families of processors
that this machine can run or emulate (by `qemu-x86_64` and, after `scripts/make_arm64.py onnxruntime==VERSION`, by
`qemu-aarch64`, both of the package qemu-user); widens their records by what strays further, and adds the version to
them; then runs the tests of kernels, families, node cases and the optimiser, and writes what changed to
docs/releases.md.  Families that it cannot run are named there, and their records left alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.kernels.families import Play, find_plays, find_unplayed
from lab.kernels.files import path_of, update
from ranum_falsify.domain.kernels.records import FOLDER, Record, read_record
from ranum_falsify.selfcheck.family import processor
from ranum_falsify.selfcheck.measuring import Sweep

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "releases.md"
NATIVE, EMULATED = Sweep(inner=61, every=997), Sweep(inner=997, every=9973)
TESTS = (
    "tests/domain/test_kernels.py",
    "tests/domain/test_vanishing.py",
    "tests/domain/test_families.py",
    "tests/test_selfcheck.py",
    "tests/conformance",
    "tests/domain/test_fused.py",
    "tests/domain/attack/test_fusions.py",
    "tests/operators/test_fused_variants.py",
    "tests/network/test_optimised.py",
    "tests/verify/prove/test_optimised_graph.py",
)


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release in its environment.

    Attributes:
        runtime: `onnxruntime` or `torch`.
        version: The version.
        python: The interpreter of the environment.
        jobs: Processes.
    """

    runtime: str
    version: str
    python: Path
    jobs: int

    def run(self, arguments: Sequence[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run Python in the environment, on the modules of this checkout; return what it printed."""
        path = os.pathsep.join([str(ROOT), str(ROOT / "scripts")])
        environment = {**os.environ, "PYTHONPATH": path, **variables}
        command = [str(self.python), *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@dataclass
class Outcome:
    """What a release brought.

    Attributes:
        how: How each family was measured.
        changes: What its kernels do otherwise than the record says, by family.
        unplayed: Families that were not run.
        tests: The last line of the tests, and those that failed.
        minutes: How long measurements and tests took.
    """

    how: dict[str, str] = field(default_factory=dict)
    changes: dict[str, list[str]] = field(default_factory=dict)
    unplayed: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    minutes: list[float] = field(default_factory=list)


def make_environment(spec: str, folder: Path) -> Path:
    """Make an environment that is this one with a release over it; return its interpreter.

    Raises:
        subprocess.CalledProcessError: The release cannot be installed.
    """
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    paths = {"base": str(folder), "platbase": str(folder)}
    # The release is found before what this environment holds.
    Path(sysconfig.get_path("purelib", "venv", paths), "below.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", spec], check=True)
    return python


def measure_family(release: Release, play: Play, folder: Path) -> tuple[Record, Sweep]:
    """Measure the kernels of a family.

    Raises:
        RuntimeError: That failed.
    """
    sweep = EMULATED if play.emulate else NATIVE
    arguments = ["scripts/measure_kernels.py", "--runtimes", release.runtime, "--jobs", str(release.jobs)]
    arguments += ["--inner", str(sweep.inner), "--every", str(sweep.every), "--into", str(folder)]
    arguments += ["--emulate", play.family] if play.emulate else ["--family", play.family]
    arguments += ["--note", play.note] if play.note else []
    known = path_of(FOLDER, play.runtime, play.family)
    if known.exists():
        # Of Intel's processors only what MKL computes differs.
        arguments += ["--only", *read_record(known).swept]
    done = release.run(arguments, dict(play.variables))
    if done.returncode:
        raise RuntimeError(f"{release.runtime} {play.family}: {done.stderr.strip()[-400:]}")
    record = read_record(path_of(folder, play.runtime, play.family))
    if set(record.versions) != {release.version}:
        raise RuntimeError(f"{release.python} has {', '.join(record.versions)}, not {release.version}")
    return record, sweep


def compare(before: Record, now: Record) -> Iterator[str]:
    """Yield what kernels do otherwise than a record says: those that are new, are gone or stray further."""
    for function in dict.fromkeys([*before.rows, *now.rows]):
        was, of = before.rows.get(function, {}), now.rows.get(function, {})
        for dtype in dict.fromkeys([*was, *of]):
            name = f"{function} in {dtype}"
            if dtype not in was:
                yield f"{name} has a kernel"
            elif dtype not in of:
                yield f"{name} has no kernel"
            else:
                yield from (f"{name}: {text}" for text in _stray(was[dtype], of[dtype]))
        (low, high), (least, most) = before.ends(function), now.ends(function)
        if function in now.saturation and (least < low or most > high):
            yield f"{function} reaches its limits at {least:g} and {most:g}, not {low:g} and {high:g}"


def _stray(was: Sequence[float], now: Sequence[float]) -> Iterator[str]:
    names = ("relative error", "absolute error", "least result", "greatest result", "keeps the sign")
    for place, (name, old, new) in enumerate(zip(names, was, now, strict=True)):
        if (new < old) if place in (2, 4) else (new > old):
            yield f"{name} {new:g}, not {old:g}"


def test(release: Release) -> list[str]:
    """Run the tests of what depends on a release; return their last line, and a line for each that failed."""
    options = ["-q", "-n", str(release.jobs), "--dist", "worksteal", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
    printed = release.run(["-m", "pytest", *options, *TESTS], {}).stdout.splitlines()
    failed = [line.split(" - ")[0] for line in printed if line.startswith(("FAILED ", "ERROR "))]
    return [printed[-1].strip("= ") if printed else "nothing ran", *failed]


def section(release: Release, outcome: Outcome) -> str:
    """Return what the page says of a release."""
    lines = [f"## {release.runtime} {release.version}", ""]
    measured, tested = outcome.minutes
    where = f"On {processor()}, {platform.system()}, Python {platform.python_version()}, {release.jobs} processes"
    lines += [f"{where}: {measured:.0f} minutes to measure, {tested:.0f} to test: {outcome.tests[0]}.", ""]
    lines += ["| family | measured | kernels that the record did not cover |", "|---|---|---|"]
    for family, how in outcome.how.items():
        lines.append(f"| {family} | {how} | {'; '.join(outcome.changes[family]) or 'none'} |")
    lines += [f"| {family} | {_UNMEASURED} | |" for family in outcome.unplayed]
    lines += ["", *(f"- `{line}`" for line in outcome.tests[1:]), ""]
    return "\n".join(lines)


_UNMEASURED = "not with this version"


def write_section(page: Path, text: str) -> None:
    """Put a section into the page, in place of an earlier one of the same title, whose other families stay."""
    title = text.splitlines()[0]
    content = page.read_text(encoding="utf-8") if page.exists() else ""
    start, *others = re.split(r"^(?=## )", content, flags=re.M)
    kept = [other.strip("\n") + "\n" for other in others if other.splitlines()[0] != title]
    before = next((other for other in others if other.splitlines()[0] == title), "")
    rows = {row.split("|")[1]: row for row in before.splitlines() if row.startswith("| ") and _UNMEASURED not in row}
    lines = [rows.get(row.split("|")[1], row) if _UNMEASURED in row else row for row in text.splitlines()]
    here = next(line for line in lines if line.startswith("On "))
    # One run of each machine.
    runs = [line for line in before.splitlines() if line.startswith("On ") and line.split(",")[0] != here.split(",")[0]]
    lines[lines.index(here) : lines.index(here)] = [part for run in runs for part in (run, "")]
    page.write_text("\n".join([start.strip("\n") + "\n", "\n".join(lines).strip("\n") + "\n", *kept]), encoding="utf-8")


def support(release: Release, chosen: Sequence[str] | None, records: Path, folder: Path) -> Outcome:
    """Measure and test a release; widen the records.

    Args:
        release: The release.
        chosen: Families to measure; all that this machine can run where None.
        records: Folder of the records.
        folder: Where temporary files go.
    """
    outcome, start = Outcome(), time.monotonic()
    plays = [
        play for play in find_plays(release.runtime, release.version, folder) if chosen is None or play.family in chosen
    ]
    outcome.unplayed = find_unplayed(release.runtime, plays)
    for play in plays:
        began = time.monotonic()
        now, sweep = measure_family(release, play, folder)
        path = path_of(records, play.runtime, play.family)
        outcome.changes[play.family] = list(compare(read_record(path), now)) if path.exists() else ["all: it is new"]
        update(path, now, sweep=sweep)
        outcome.how[play.family] = f"{now.versions[release.version]}, {sweep}"
        changes = "; ".join(outcome.changes[play.family]) or "all within the record"
        print(f"{play.family} ({(time.monotonic() - began) / 60:.1f} minutes): {changes}", flush=True)
    for family in outcome.unplayed:
        why = "it cannot run here" if chosen is None or family in chosen else "it was not asked for"
        print(f"{family}: not measured, because {why}; its record is left alone", flush=True)
    middle = time.monotonic()
    outcome.tests = test(release)
    outcome.minutes = [(middle - start) / 60, (time.monotonic() - middle) / 60]
    print("\n".join(outcome.tests), flush=True)
    return outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, test, and write records and page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", help="onnxruntime==VERSION or torch==VERSION")
    parser.add_argument("--python", type=Path, help="interpreter of an environment that has the release")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--families", nargs="+", metavar="NAME", help="families to measure; by default all that run here"
    )
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="folder for copies of the records and of the page")
    options = parser.parse_args(argv)
    match = re.fullmatch(r"(onnxruntime|torch)==([\w.]+)", options.release)
    if match is None:
        print(f"{options.release}: no release; say onnxruntime==VERSION or torch==VERSION", file=sys.stderr)
        return 2
    records, page = FOLDER, PAGE
    if options.into is not None:
        records, page = options.into, options.into / PAGE.name
        shutil.copytree(FOLDER, records, dirs_exist_ok=True)
        shutil.copy(PAGE, page)
    with tempfile.TemporaryDirectory() as folder:
        try:
            python = options.python or make_environment(options.release, Path(folder) / "environment")
            release = Release(runtime=match[1], version=match[2], python=python, jobs=options.jobs)
            outcome = support(release, options.families, records, Path(folder))
        except (subprocess.CalledProcessError, RuntimeError, ValueError) as error:
            print(f"{options.release}: {error}", file=sys.stderr)
            return 2
    write_section(page, section(release, outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main())
