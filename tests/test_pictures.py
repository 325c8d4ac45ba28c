"""The pictures of the documentation show what reports show now, and are drawn by what draws reports."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.snippets import ROOT

PLOTS = ("bounds", "margins")
LAYERS = "layers"
EVERY = {path.stem for path in (ROOT / "docs" / "pictures").glob("*.svg")}
NAMES = sorted(EVERY.difference(PLOTS, [LAYERS]))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("draw_pictures")


def rounded(graph: dict[str, Any]) -> Any:
    """What a reader sees of numbers: processors may differ in the last bits."""
    return json.loads(json.dumps(graph), parse_float=lambda text: f"{float(text):.3g}")


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_current(script: Any, name: str, tmp_path: Path) -> None:
    shown = script.recorded(name)
    graph, _ = script.ask(name, tmp_path)
    again = f"run scripts/draw_pictures.py {name}, and look at it"
    assert rounded(shown["graph"]) == rounded(graph), again
    assert shown["drawn_by"] == script.drawn_by(), again


def test_every_picture_is_drawn_and_shown(script: Any) -> None:
    assert {*script.PICTURES, *PLOTS, LAYERS} == EVERY
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"pictures/(\w+)\.svg", page.read_text(encoding="utf-8"))}
    assert shown == EVERY


@pytest.mark.slow
@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_current(script: Any, name: str) -> None:
    plots = importlib.import_module("draw_plots")
    assert set(plots.PLOTS) == set(PLOTS)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    kept = script.recorded(name)
    shown, _ = plots.PLOTS[name]()
    again = f"run scripts/draw_plots.py {name}, and look at it"
    assert rounded(kept["shown"]) == rounded(shown), again
    assert kept["drawn_by"] == plots.drawn_by(), again


def test_the_layers_are_those_of_the_package(script: Any) -> None:
    layers = importlib.import_module("draw_layers")
    assert layers.draw(importlib.import_module("tests.test_layers").LAYERS) == layers.PICTURE.read_text()
