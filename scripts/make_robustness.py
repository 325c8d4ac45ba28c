"""Train classifiers of handwritten digits and write questions of their robustness, as `bench_vnncomp.py` reads them.

python scripts/make_robustness.py FOLDER [--family residual ...] [--pictures 5]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.bench.robustness import FAMILIES, write_questions


def main(argv: Sequence[str] | None = None) -> int:
    """Write a folder for each family."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--family", action="append", choices=list(FAMILIES))
    arguments.add_argument("--pictures", type=int, default=5)
    given = arguments.parse_args(argv)
    for line in write_questions(given.folder, given.family or list(FAMILIES), given.pictures):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
