"""The tutorial as a notebook: the page, executed."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from tests.snippets import ROOT, matches

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("make_notebook")


def outputs(notebook: Any) -> list[str]:
    """What each cell of code shows, as text."""
    return ["".join(map(text_of, cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"]


def text_of(output: Any) -> str:
    assert output.output_type != "error", output
    return str(output.text if "text" in output else output.data["text/plain"])


def test_it_is_the_page(script: Any) -> None:
    kept = nbformat.read(script.NOTEBOOK, 4)
    fresh = script.make(script.PAGE.read_text(encoding="utf-8"))
    again = "run scripts/make_notebook.py"
    assert [(one.cell_type, one.source) for one in kept.cells] == [
        (one.cell_type, one.source) for one in fresh.cells
    ], again
    assert [text for text in outputs(kept) if text.startswith("violated")], "what was executed is shown"
    rich = [one.data["text/html"] for cell in kept.cells for one in cell.get("outputs", ()) if "data" in one]
    assert len(rich) == 2 and "<iframe" in rich[0] and "<iframe" not in rich[1]


@pytest.mark.slow
def test_it_runs(script: Any) -> None:
    kept = nbformat.read(script.NOTEBOOK, 4)
    found = script.execute(script.make(script.PAGE.read_text(encoding="utf-8")))
    for before, now in zip(outputs(kept), outputs(found), strict=True):
        assert matches(before, now), "run scripts/make_notebook.py, and read what it changed"


@pytest.mark.slow
def test_a_long_run_shows_its_progress_and_leaves_nothing(script: Any) -> None:
    code = """
import time
from types import SimpleNamespace
import ranum_falsify as rf
from ranum_falsify.results.progress import follow
with follow(None) as report:
    for done in range(4):
        report(SimpleNamespace(stage="search", done=done / 4, text="round 1"))
        time.sleep(0.6)
"""
    notebook = script.v4.new_notebook(cells=[script.v4.new_code_cell(code)], metadata=script.KERNEL)
    shown: list[str] = []
    clean = script._clean
    script._clean = lambda done, folder: done
    try:
        (cell,) = script.execute(notebook).cells
    finally:
        script._clean = clean
    shown = [re.sub(r"\s+", " ", one.data["text/html"]) for one in cell.outputs]
    assert shown == [""], "the bar is gone"
