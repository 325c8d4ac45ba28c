"""Refresh the outputs of the examples in the documentation, and the JSON Schema of reports.

Usage: scripts/refresh_docs.py PAGE ...

Runs the examples of each page, as the tests do, and replaces the outputs that are no longer what they print. Read the
difference before you commit it: an output that got worse is a defect. The page `docs/report.schema.json` is written
from the record of a run.
"""

from __future__ import annotations

import argparse
import json
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
    from ranum_falsify.results.run_report import schema
    from tests.snippets import Session, rerun

    for page in pages:
        text = page.read_text(encoding="utf-8")
        if page.suffix == ".json":
            fresh = json.dumps(schema(), indent=2) + "\n"
        else:
            with tempfile.TemporaryDirectory() as folder:
                fresh = rerun(text, Session(Path(folder)))
        if fresh != text:
            page.write_text(fresh, encoding="utf-8")
            print(f"{page}: changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
