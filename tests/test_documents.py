"""The documentation is true: its examples run and print what it shows, its pages are built, its links lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snippets import ROOT, RUN, Session, blocks, matches, rerun

PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    # The first page is what users try first, so its commands are processes, as theirs are.
    session = Session(tmp_path, processes=page.name == "README.md")
    assert rerun(text, session) == text, "run scripts/refresh_docs.py, and read what it changed"
