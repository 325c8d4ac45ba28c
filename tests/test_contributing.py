"""CONTRIBUTING.md is true: its map is that of the layers, and its example, done as it says, passes the tests."""

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


def with_block(text: str, block: str) -> str:
    """Return a file with a block's imports among its own, and the rest of the block at its end."""
    lines, added = text.splitlines(), block.splitlines()
    new = [node for node in ast.parse(block).body if isinstance(node, ast.Import | ast.ImportFrom)]
    own = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    imports = [line for node in new for line in added[node.lineno - 1 : node.end_lineno]]
    last, start = own[-1].end_lineno or 0, new[-1].end_lineno or 0
    return "\n".join([*lines[:last], *imports, *lines[last:], *added[start:], ""])


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy of the repository, on its package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment = kept | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the example done."""
    folder = tmp_path_factory.mktemp("copy")
    for name in (PACKAGE, "tests"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name, block in BLOCKS:
        path = folder / name
        path.write_text(with_block(path.read_text(encoding="utf-8"), block), encoding="utf-8")
    sorting = run(folder, "-m", "ruff", "check", "--no-cache", "--fix", "--quiet", ROW, CASES)
    assert sorting.returncode == 0, sorting.stdout + sorting.stderr
    return folder


def test_the_map_is_that_of_the_layers() -> None:
    table = PAGE.partition("| layer | holds |")[2].partition("\n\n")[0]
    first_cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert [frozenset(re.findall(r"`(\w+)`", cell)) for cell in first_cells] == list(LAYERS)


def test_what_the_page_names_exists() -> None:
    named = set(re.findall(r"(?:`| |\()((?:\w+/)+(?:[\w-]+\.\w+|\w+)?)", re.sub(r"https?://\S+", "", PAGE)))
    assert {"domain/rules/", "scripts/sweep_domain.py", "docs/what-runs.md"} <= named
    assert [name for name in sorted(named) if not any((at / name).exists() for at in (ROOT, ROOT / PACKAGE))] == []


def test_the_example_touches_one_family_and_one_table_of_cases(copy: Path) -> None:
    changed = [
        path.relative_to(copy).as_posix()
        for name in (PACKAGE, "tests")
        for path in sorted((copy / name).rglob("*.py"))
        if path.read_bytes() != (ROOT / path.relative_to(copy)).read_bytes()
    ]
    assert changed == [name for name, _ in BLOCKS] == [ROW, CASES]
    formatting = run(copy, "-m", "ruff", "format", "--no-cache", "--check", *changed)
    assert formatting.returncode == 0, formatting.stdout


def test_the_example_passes_the_tests_of_its_operator(copy: Path) -> None:
    files = ["test_operators.py", "test_kernels_of_rows.py"]
    paths = [*(f"tests/operators/{file}" for file in files), "tests/domain/test_soundness.py", "tests/conformance"]
    done = run(copy, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-q", *paths, "-k", OPERATOR)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = set(re.findall(rf"^PASSED \S+::(\w+)\[{OPERATOR}[^\]]*\]$", done.stdout, re.MULTILINE))
    assert passed >= {
        "test_agrees_with_the_oracle",
        "test_batch_is_its_samples",
        "test_gradient_is_that_of_finite_differences",
        "test_row_has_a_case",
        "test_rule_encloses_what_runtimes_compute",
        "test_cases_of_operator",
    }
    assert "SKIPPED" not in done.stdout


def test_a_row_that_leaves_a_part_out_is_an_error_at_import(copy: Path, tmp_path: Path) -> None:
    (message,) = re.findall(r"^```\n(TypeError: .*)\n```$", PAGE, re.MULTILINE)
    part = message.split()[-1]
    shutil.copytree(copy / PACKAGE, tmp_path / PACKAGE)
    start, row = (tmp_path / ROW).read_text(encoding="utf-8").rsplit("@across(", 1)
    shorter, count = re.subn(rf"^    {part}=.*\n", "", row, flags=re.MULTILINE)
    assert count == 1
    (tmp_path / ROW).write_text(f"{start}@across({shorter}", encoding="utf-8")
    done = run(tmp_path, "-c", f"import {PACKAGE}.operators")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == message
