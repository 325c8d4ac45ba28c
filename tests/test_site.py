"""The site: no link leads nowhere, nothing comes from elsewhere, and every page works on a phone and in the dark."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.snippets import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = (1400, 400)
SCHEMES = ("light", "dark")
# Pages between which all that pages are made of occurs.
KINDS = ("index.html", "api.html", "json.html", "training.html", "BENCHMARKS.html")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
RULES = ["color-contrast", "document-title", "heading-order", "html-has-lang", "image-alt", "link-name"]
LAYOUT = """() => ({
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    headings: document.querySelectorAll("h1").length,
    without_alt: [...document.images].filter((image) => !image.alt).map((image) => image.src),
})"""
SOUND = {"overflow": 0, "headings": 1, "without_alt": []}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `mkdocs build --strict` does, which takes a warning for an error."""
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def test_it_has_every_page(site: Path) -> None:
    sources = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    assert {path.with_suffix(".html").name for path in sources} <= {path.name for path in site.iterdir()}
    assert "produces NaN or infinity" in (site / "index.html").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page.name for page in sorted((ROOT / "docs").glob("*.md")) if f": {page.name}\n" not in listed] == []


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=SCHEMES)
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A window that keeps to a colour scheme."""
    with browser.new_context(color_scheme=request.param) as context:
        yield context.new_page()


def listen(page: Page, address: str) -> list[str]:
    """Return a list that gets what goes wrong in a window: errors of scripts, and requests to elsewhere."""
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    at_home = (address, "data:", "blob:")
    page.on("request", lambda request: None if request.url.startswith(at_home) else wrong.append(request.url))
    return wrong


def test_pages_fit_and_their_scripts_run(site: Path, address: str, page: Page) -> None:
    wrong = listen(page, address)
    faults: dict[str, Any] = {}
    for name in sorted(path.name for path in site.glob("*.html")):
        page.goto(address + name)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            if (layout := page.evaluate(LAYOUT)) != SOUND:
                faults[f"{name} at {width} px"] = layout
        if wrong:
            faults[name] = list(wrong)
            wrong.clear()
    assert faults == {}


@pytest.mark.slow
def test_pages_can_be_read(address: str, page: Page) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    faults = {}
    for name in KINDS:
        page.goto(address + name)
        found = axe.run(page, options={"runOnly": RULES}).response["violations"]
        if found:
            faults[name] = [(one["id"], one["nodes"][0]["html"]) for one in found]
    assert faults == {}
