#!/usr/bin/env python3
"""Write the pages of benchmarks/ from the records beside them, which the `bench_*.py` scripts measure.

scripts/write_pages.py
scripts/write_pages.py --folder /tmp
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lab.bench.pages import write_pages

_FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="where the records are, and pages go")
    given = parser.parse_args(argv)
    written = write_pages(given.folder)
    if not written:
        print(f"{given.folder}: there are no records; run scripts/bench_zoo.py", file=sys.stderr)
        return 2
    print(*(given.folder / f"{page}.md" for page in written), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
