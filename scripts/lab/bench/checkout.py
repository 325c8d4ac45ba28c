"""Commands of this checkout, and of another, such as the one before a change."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["ROOT", "environment_of", "run_in"]

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def environment_of(checkout: Path) -> dict[str, str]:
    """Return the variables with which Python imports the package of a checkout, compiled as an installed one is."""
    more = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join([str(checkout), *(entry for entry in more if entry and Path(entry) != ROOT)])
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**given, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def run_in(checkout: Path, command: Sequence[str | Path]) -> tuple[float, int]:
    """Run a command with the package of a checkout.

    Returns:
        Its seconds of processor time, its child processes among them, and its exit status.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, env=environment_of(checkout), cwd=checkout, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.returncode
