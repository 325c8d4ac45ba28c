"""The section of benchmarks/zoo.md on training data adds up, and replaces the one before it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"

ROW: dict[str, Any] = {"runs": 10, "trained": 3, "untrained": 4, "strategies": {}, "processor_seconds": 0.5}
MORE = {"runs": 30, "processor_seconds": 1.5, "seconds": [9.0]}
NATURAL = "real, natural data"
BY_ITSELF = {"runs": 4, "trained": 2, "failing": ["exp", "exp", "log", ""], "steps": [7, 1200, 40, 1000]}
MEASURED: dict[str, Any] = {
    "facts": {"machine": "m", "versions": "v", "command": "c"},
    "defects": [
        {"id": "1", "operator": "Log", "node": "log", "levels": {"strict": {**ROW, "seconds": [1.0, 2.0]}}},
        {"id": "2", "operator": "Exp", "node": "exp", "levels": {"strict": {**ROW, **MORE}, NATURAL: BY_ITSELF}},
    ],
}


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


def test_totals_add_up() -> None:
    text = importlib.import_module("lab.bench.training_page").section(MEASURED)
    assert "| strict | 40 | 6 | 8 | 14 | 1.00 | 1.25 | 2.00 | 4.00 |" in text
    assert "| 1 | Log | 3 + 4 of 10 | 0.50 |" in text


def test_columns_stand_in_one_order_however_they_were_measured() -> None:
    levels = {level: ROW for level in ("real", "strict, random", "ranum")}
    measured = {**MEASURED, "defects": [{**MEASURED["defects"][0], "levels": levels}]}
    text = importlib.import_module("lab.bench.training_page").section(measured)
    assert "| id | operator | ranum | s | strict, random | s | real | s |" in text


def test_training_by_itself_tells_the_documented_operator_from_others() -> None:
    text = importlib.import_module("lab.bench.training_page").section(MEASURED)
    assert "| 2 | Exp | drawn | 4 | 2 | 7 to 1,200 | `log` | 40 |" in text
    assert "real, natural data | " not in text  # no column of the searches


def test_files_are_compared_with_the_search_of_the_zoo() -> None:
    def row(outcome: str, seconds: float) -> dict[str, Any]:
        zoo = {"trained": 1, "steps": [1000], "processor_seconds": 4.0}
        return {"rule": "--optimizer sgd", "batch": 9, "outcome": outcome, "steps": 8, "processor_seconds": seconds} | {
            "zoo": zoo
        }

    rows = {"a": row("trained", 6.0), "b": row("trained", 10.0), "c": row("none", 2.0)}
    defects = [{"id": i, "operator": "Log", "node": "l", "levels": {"real, files": x}} for i, x in rows.items()]
    text = importlib.import_module("lab.bench.training_page").section(
        {**MEASURED, "defects": [*MEASURED["defects"], *defects]}
    )
    assert "Found: 2 of 3, 1 of them within twice the time; 1.50 times in the median, 2.50 at most." in text
    assert "| a | Log `l` | 9 | `--optimizer sgd` | 8 | 6.00 | 1,000 | 4.00 | 1.50 |" in text
    assert "| c | Log `l` | 9 | `--optimizer sgd` | none | 2.00 |" in text
