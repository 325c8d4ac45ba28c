"""The section of BENCHMARKS.md on training data adds up, and replaces the one before it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"

ROW = {"runs": 10, "trained": 3, "untrained": 4, "strategies": {}, "processor_seconds": 0.5}
MEASURED = {
    "facts": {"machine": "m", "versions": "v", "command": "c"},
    "defects": [
        {"id": "1", "operator": "Log", "levels": {"strict": ROW}},
        {"id": "2", "operator": "Exp", "levels": {"strict": {**ROW, "runs": 30, "processor_seconds": 1.5}}},
    ],
}


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


def test_totals_add_up() -> None:
    text = importlib.import_module("lab.bench.training_page").section(MEASURED)
    assert "| strict | 40 | 6 | 8 | 14 | 1.00 | 1.25 |" in text
    assert "| 1 | Log | 3 + 4 of 10 | 0.50 |" in text


def test_the_section_replaces_the_one_before_it() -> None:
    page = importlib.import_module("lab.bench.training_page")
    once = page.replace_section("# Page\n\ntext\n", page.section(MEASURED))
    assert once.startswith("# Page\n\ntext\n\n## Training data")
    assert page.replace_section(once, page.section(MEASURED)) == once
