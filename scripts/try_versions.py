#!/usr/bin/env python3
"""Run the whole quick tier in environments with other versions, and put what it said into docs/installation.md.

    scripts/try_versions.py /path/to/python ...

Each is the interpreter of an environment in which this package is installed with its extra `test`, such as one that was
made by `python -m venv` and `pip install -e ".[test]"`, which holds the newest versions.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from ranum_falsify.selfcheck.family import processor

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "installation.md"
HEADER = "| Python | PyTorch | ONNX | ONNX Runtime | NumPy | tests |"
VERSIONS = (
    "import platform; from importlib.metadata import version;"
    "print(platform.python_version(), *map(version, ('torch', 'onnx', 'onnxruntime', 'numpy')))"
)


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an interpreter of an environment in this checkout."""
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    command = [str(python), *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True)


def try_versions(python: Path, jobs: int) -> str:
    """Run the quick tier; return its row of the table.

    Raises:
        RuntimeError: The environment lacks a package, or pip finds conflicts in it.
    """
    versions = run(python, "-c", VERSIONS)
    conflicts = run(python, "-m", "pip", "check")
    for done in (versions, conflicts):
        if done.returncode:
            raise RuntimeError(f"{python}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    done = run(python, "-m", "pytest", "-q", "-n", str(jobs), "--dist", "worksteal", "--tb=short", "-rfE")
    lines = done.stdout.splitlines()
    print("\n".join(line for line in lines if line.startswith(("FAILED ", "ERROR ", "E  "))), flush=True)
    counts = re.findall(r"\d+ (?:passed|skipped|failed|errors?)", lines[-1] if lines else "")
    if not counts:
        raise RuntimeError(f"{python}: no tests ran; {done.stderr.strip()[-300:]}")
    said = f"the quick tier: {', '.join(counts)}; {processor()}, {time.strftime('%B %Y')}"
    return f"| {' | '.join(versions.stdout.split())} | {said} |"


def write_row(page: Path, row: str) -> None:
    """Put a row into the table of the page, in place of one of the same versions."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = lines.index(HEADER) + 2
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    versions = row.rsplit("|", 2)[0]
    kept = [line for line in lines[start:end] if line.rsplit("|", 2)[0] != versions]
    page.write_text("\n".join([*lines[:start], row, *kept, *lines[end:]]) + "\n", encoding="utf-8")


def main() -> int:
    """Try each environment in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", type=Path, metavar="PYTHON", help="interpreters of environments")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    for python in options.pythons:
        try:
            row = try_versions(python.absolute(), options.jobs)
        except (RuntimeError, OSError) as error:
            print(error, file=sys.stderr)
            return 2
        write_row(PAGE, row)
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
