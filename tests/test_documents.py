"""The documentation is true: its examples print what it shows."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

import ranum_falsify
from ranum_falsify import errors
from ranum_falsify.results.page import make_page
from tests.snippets import ROOT, RUN, Session, blocks, matches, rerun

PAGE_PARTS = ROOT / "ranum_falsify" / "report" / "page_parts"
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").glob("*.md"))]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@pytest.mark.few(1)
@every_page
def test_the_examples_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    # The first page is what users try first, so its commands are processes, as theirs are.
    session = Session(tmp_path, processes=page.name == "README.md")
    assert rerun(text, session) == text, "run scripts/refresh_docs.py, and read what it changed"


@every_page
def test_every_block_is_one_that_the_test_above_understands(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = [block for block, _ in blocks(text)]
    fences = re.findall(r"^[ \t]*(?:```|~~~)", text, re.MULTILINE)
    assert len(fences) == sum(2 if block.output is None else 4 for block in found)
    unused = [block.line for block in found if block.reason and (block.language not in RUN or block.title)]
    assert unused == [], "only blocks that would be run need a reason not to be"
    hidden = [block.line for block in found if block.language not in RUN and block.text.startswith("$ ")]
    assert hidden == [], "commands stand in console blocks"


def test_the_readme_is_one_page_and_its_first_example_short() -> None:
    page = PAGES[0].read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 130
    example = next(block for block, _ in blocks(page) if block.language == "python")
    assert len([line for line in example.text.splitlines() if line]) <= 12


def test_the_figures_of_the_readme_are_measured() -> None:
    shown = re.findall(r"\[(\d+ of \d+)\]\(([\w/]+\.md)\)", PAGES[0].read_text(encoding="utf-8"))
    assert shown
    assert [figure for figure, page in shown if f"| {figure} |" not in (ROOT / page).read_text(encoding="utf-8")] == []


def test_a_first_counterexample_takes_ten_lines() -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    example = next(block for block, _ in blocks(page) if block.language == "python" and block.title is None)
    assert example.output is not None and example.output.startswith("violated")
    assert len([line for line in example.text.splitlines() if line]) <= 10


def test_the_glossary_is_that_of_the_reports() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = json.loads((PAGE_PARTS / "glossary.json").read_text(encoding="utf-8"))
    table = "".join(f"| **{word}** | {meaning} |\n" for word, meaning in words.items())
    assert table in page
    assert "<dt>only because of</dt>" in make_page([]).decode()


def test_the_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = {entry.rpartition(".")[2] for entry in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}
    assert "errors" in named, "which has all of them"
    public = {name for name in ranum_falsify.__all__ if not name.startswith("__") and name not in errors.__all__}
    assert public <= named


class TestSnippets:
    @pytest.mark.parametrize(
        ("shown", "found", "same"),
        [
            ("holds\n", "holds\n", True),
            ("holds\n", "unknown\n", False),
            ("kernels: onnxruntime 1.31.1 (avx)\n", "kernels: onnxruntime 1.31.1 (avx512)\n", True),
            ("holds\n", "holds\nnotice: PyTorch 3.0 was not measured on processors of the family avx2, only 2\n", True),
            ("of: N = m.onnx (sha256 0123)\n", "of: N = m.onnx (sha256 abcd)\n", True),
            ("of: N = m.onnx (sha256 0123)\n", "of: N = other.onnx (sha256 0123)\n", False),
            ("holds\n", "holds\ntime: read 0.00 s\n", True),
            ("a\n...\n", "a\nb\nc\n", True),
            ("a\n...\nd\n", "a\nb\nc\n", False),
            ("proved: 3 operators\n", "proved: 4 operators\n", False),
            ("1 passed in 3.20s\n", "1 passed in 61.33s (0:01:01)\n", True),
            ("x: shape [1, 64], values in [0.002, 0.946]\n", "x: shape [1, 64], values in [0.37, 0.5]\n", True),
        ],
    )
    def test_outputs_are_compared_but_for_what_changes(self, shown: str, found: str, same: bool) -> None:
        assert matches(shown, found) is same

    def test_outputs_are_replaced_where_they_differ(self, tmp_path: Path) -> None:
        page = "```python\nprint(6 * 7)\n```\n\n```text\n{}\n```\n\n```console\n$ echo a\n{}\n$ echo b\nb\n```\n"
        assert rerun(page.format(41, "c"), Session(tmp_path)) == page.format(42, "a")

    def test_blocks_of_a_page_share_names_and_files(self, tmp_path: Path) -> None:
        page = (
            '```python title="mine.py"\nvalue = 7\n```\n```python\nfrom pathlib import Path\nn = 6\n```\n'
            '```python\nassert n == 6 and "7" in Path("mine.py").read_text()\n```\n'
        )
        assert rerun(page, Session(tmp_path)) == page

    def test_a_block_that_fails_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(AssertionError, match="block at line 3"):
            rerun("Text.\n\n```python\n1 / 0\n```\n", Session(tmp_path))

    def test_a_block_with_a_reason_is_not_run(self, tmp_path: Path) -> None:
        page = "<!-- not run: {} -->\n```python\n1 / 0\n```\n"
        session = Session(tmp_path)
        assert rerun(page.format("it fails"), session) == page.format("it fails")
        with pytest.raises(AssertionError):
            rerun(page.format(""), session)

    def test_the_script_writes_the_outputs_anew(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(ROOT / "scripts"))
        page = tmp_path / "page.md"
        page.write_text("```console\n$ ranum-falsify --version\nnone\n```\n")
        assert importlib.import_module("refresh_docs").main([str(page)]) == 0
        assert page.read_text().startswith("```console\n$ ranum-falsify --version\nranum-falsify ")
