"""Refresh the outputs of the examples in the documentation.

Usage: scripts/refresh_docs.py PAGE ...

Runs the examples of each page, as the tests do, and replaces the outputs that are no longer what they print. Read the
difference before you commit it: an output that got worse is a defect.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Refresh pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="+", type=Path, help="a Markdown page, such as docs/proofs.md")
    pages: list[Path] = parser.parse_args(arguments).page
    sys.path.insert(0, str(ROOT))
    from tests.snippets import Session, rerun

    for page in pages:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            fresh = rerun(text, Session(Path(folder)))
        if fresh != text:
            page.write_text(fresh, encoding="utf-8")
            print(f"{page}: changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
