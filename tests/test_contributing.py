"""CONTRIBUTING.md is true: its map is that of the layers, and its example is the code of the repository."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.imports import PACKAGE
from tests.snippets import blocks
from tests.test_layers import LAYERS

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
OPERATOR = "Col2Im"
ROW, CASES = f"{PACKAGE}/operators/rows/convolution.py", "tests/operators/cases/nn_windows.py"

BLOCKS = [(block.title, block.text) for block, _ in blocks(PAGE) if block.title is not None]
"""Each block of the example, with the file that it goes into."""


def split_imports(text: str) -> tuple[set[str], str]:
    """Return what Python code imports, by name, and the code after the last import."""
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {f"{getattr(node, 'module', '')}.{alias.name}" for node in imports for alias in node.names}
    return names, "\n".join(text.splitlines()[imports[-1].end_lineno or 0 :]).strip()


def test_the_map_is_that_of_the_layers() -> None:
    table = PAGE.partition("| layer | holds |")[2].partition("\n\n")[0]
    first_cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert [frozenset(re.findall(r"`(\w+)`", cell)) for cell in first_cells] == list(LAYERS)


def test_what_the_page_names_exists() -> None:
    named = set(re.findall(r"(?:`| |\()((?:\w+/)+(?:[\w-]+\.\w+|\w+)?)", re.sub(r"https?://\S+", "", PAGE)))
    assert {"domain/rules/", "scripts/sweep_domain.py", "docs/what-runs.md"} <= named
    assert [name for name in sorted(named) if not any((at / name).exists() for at in (ROOT, ROOT / PACKAGE))] == []


def test_the_example_is_one_row_and_one_table_of_cases() -> None:
    assert [name for name, _ in BLOCKS] == [ROW, CASES]


@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_the_example_stands_in_its_files(name: str, block: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    (wanted, code), (found, _) = split_imports(block), split_imports(text)
    assert f"\n\n{code}\n" in text
    assert wanted <= found


@pytest.mark.slow
def test_a_row_that_leaves_a_part_out_is_an_error_at_import(tmp_path: Path) -> None:
    (message,) = re.findall(r"^```\n(TypeError: .*)\n```$", PAGE, re.MULTILINE)
    part = message.split()[-1]
    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE)
    (tmp_path / "third_party").symlink_to(ROOT / "third_party")
    before, name, after = (tmp_path / ROW).read_text(encoding="utf-8").rpartition(f"class {OPERATOR}(")
    start, row = before.rsplit("@across(", 1)
    shorter, count = re.subn(rf"^    {part}=.*\n", "", row, flags=re.MULTILINE)
    assert count == 1
    (tmp_path / ROW).write_text(f"{start}@across({shorter}{name}{after}", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", f"import {PACKAGE}.operators"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == message
