"""Additions of MkDocs to the pages of `docs/`: pages that live elsewhere in the repository.

Links are written as they work in the repository, such as `../benchmarks/zoo.md`; here they become those of the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

__all__ = ["on_files", "on_page_markdown"]

ROOT = Path(__file__).resolve().parents[2]
# where it lives -> where it is in the site
PAGES = {
    "README.md": "index.md",
    "benchmarks/zoo.md": "benchmarks/zoo.md",
    "benchmarks/clips.md": "benchmarks/clips.md",
    "benchmarks/figures.md": "benchmarks/figures.md",
    "benchmarks/repairs.md": "benchmarks/repairs.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "networks/README.md": "networks.md",
    "LICENSE": "LICENSE",
}
_LINK = re.compile(
    r"(?<=\]\()(?!https?:)([^)#\s]+\.(?:md|schema\.json|ipynb)|(?:\.\./)?LICENSE)(?=[)#])"  # a page or a file
    r"|(?<=src=\")docs/[^\"]+(?=\")"  # a picture
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that live elsewhere."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links of a page to where their targets are in the site."""
    here, there = posixpath.dirname(_source(page.file.src_uri)), posixpath.dirname(page.file.src_uri) or "."

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, link[0]))
        return posixpath.relpath(PAGES.get(target, target.removeprefix("docs/")), there)

    return _LINK.sub(moved, markdown)


def _source(place: str) -> str:
    """Return where a page of the site lives in the repository."""
    return next((source for source, target in PAGES.items() if target == place), f"docs/{place}")
