"""The site: no link leads nowhere, nothing comes from elsewhere, and every page works on a phone and in the dark."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.results.browser import CHROMIUM, Browser, Tab
from tests.snippets import ROOT

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed, which shows the pages")

WIDTHS = (1400, 400)
# Pages between which all that pages are made of occurs.
KINDS = ("index.html", "gallery.html", "api.html", "json.html", "training.html", "benchmarks/zoo.html")
READY = "location.href !== 'about:blank' && document.readyState === 'complete'"
RULES = ["color-contrast", "document-title", "heading-order", "html-has-lang", "image-alt", "link-name"]
LAYOUT = """({
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    headings: document.querySelectorAll("h1").length,
    without_alt: [...document.images].filter((image) => !image.alt).map((image) => image.src),
})"""
SETTLING = 2.0  # seconds
SOUND = {"overflow": 0, "headings": 1, "without_alt": []}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `mkdocs build --strict` does, which takes a warning for an error."""
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.mark.slow
def test_it_has_every_page(site: Path) -> None:
    sources = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    assert {path.with_suffix(".html").name for path in sources} <= {path.name for path in site.iterdir()}
    assert "Can an operator" in (site / "index.html").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page.name for page in sorted((ROOT / "docs").glob("*.md")) if f": {page.name}\n" not in listed] == []


@pytest.mark.slow
def test_it_fetches_nothing(site: Path) -> None:
    for page in site.glob("*.html"):
        fetched = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(//|\w+://[^\"]*)", page.read_text())
        assert fetched == [], page.name


class Handler(SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served: read from the disk, it has no search."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module", params=[False, True], ids=["light", "dark"])
def tab(address: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """The first page of the site, in one of its colour schemes."""
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        tab = browser.open(address, dark=request.param, ready=READY)
        tab.wait_for(f"document.body.dataset.mdColorScheme === '{'slate' if request.param else 'default'}'")
        yield tab


def layout_of(tab: Tab) -> Any:
    """Return how a page lies in its window, once it has had time to settle after a change of size."""
    end = time.monotonic() + SETTLING
    while (layout := tab.run(LAYOUT)) != SOUND and time.monotonic() < end:
        time.sleep(0.05)
    return layout


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("names", [KINDS, pytest.param(None, marks=pytest.mark.slow)], ids=["kinds", "all"])
def test_pages_fit_and_their_scripts_run(site: Path, address: str, tab: Tab, names: tuple[str, ...] | None) -> None:
    faults: dict[str, Any] = {}
    for name in names or sorted(path.name for path in site.glob("*.html")):
        tab.problems.clear()
        tab.go(address + name, f"{READY} && location.href === '{address}{name}'")
        for width in WIDTHS:
            tab.resize(width)
            if (layout := layout_of(tab)) != SOUND:
                faults[f"{name} at {width} px"] = layout
        if tab.problems:
            faults[name] = list(tab.problems)
    assert faults == {}
    assert [url for url in tab.requests if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.slow
@needs_chromium
def test_pages_can_be_read(site: Path, address: str, tab: Tab) -> None:
    axe = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    faults = {}
    for name in sorted(path.name for path in site.glob("*.html")):
        tab.go(address + name, f"{READY} && location.href === '{address}{name}'")
        tab.run(f"{axe}; null")
        found = tab.run(f"axe.run({{runOnly: {RULES}}}).then((done) => done.violations)")
        if found:
            faults[name] = [(one["id"], one["nodes"][0]["html"]) for one in found]
    assert faults == {}
