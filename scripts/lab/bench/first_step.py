"""Run the command until its first attack step, then print the time and end: `first_step.py ARGUMENTS...`."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from ranum_falsify.cli import main
from ranum_falsify.verify.search.descent import Descent

__all__: list[str] = []


def _end(*_: Any) -> None:
    # Nothing after this moment is measured: neither destructors nor the child process that replays.
    print(f"first step at {time.time()!r}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    setattr(Descent, "step", _end)  # noqa: B010 - mypy knows what a method is
    sys.exit(f"no step was made, exit status {main(sys.argv[1:])}")
