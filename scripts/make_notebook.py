"""Make the notebook of the tutorial: docs/tutorial.ipynb, from docs/tutorial.md, executed.

Usage: scripts/make_notebook.py

Text becomes cells of Markdown, examples become cells of code, files become cells that write them. A result that an
example prints last is shown as notebooks show it. Look at the difference before you commit it.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import v4

ROOT = Path(__file__).resolve().parent.parent
PAGE, NOTEBOOK = ROOT / "docs" / "tutorial.md", ROOT / "docs" / "tutorial.ipynb"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
_PRINTED = re.compile(r"^print\((\w+|rf\.check\(.+\))\)\s*\Z", re.MULTILINE)


def cells(page: str) -> Iterator[tuple[str, str]]:
    """Yield kind and source of each cell that a page becomes."""
    from tests.snippets import RUN, blocks

    end = 0
    for block, found in blocks(page):
        if block.reason or (block.title is None and block.language not in RUN):
            continue
        yield "markdown", page[end : found.start()]
        if block.title is not None:
            yield "code", f"%%writefile {block.title}\n{block.text}"
        elif block.language == "python":
            yield "code", _PRINTED.sub(r"\1", block.text)
        else:
            commands = re.findall(
                r"^\$ (.*)$" if block.language == "console" else r"^([^#].*)$", block.text, re.MULTILINE
            )
            yield "code", "\n".join(f"!{command}" for command in commands)
        end = found.end()
    yield "markdown", page[end:]


def make(page: str) -> Any:
    """Return the notebook that a page becomes, not executed."""
    makers: dict[str, Any] = {"markdown": v4.new_markdown_cell, "code": v4.new_code_cell}
    parts = [(kind, re.sub(r"<!-- .*? -->\n", "", source).strip()) for kind, source in cells(page)]
    listed = [makers[kind](source, id=f"{kind}-{number}") for number, (kind, source) in enumerate(parts, 1) if source]
    return v4.new_notebook(cells=listed, metadata=KERNEL)


def execute(notebook: Any) -> Any:
    """Execute a notebook in a folder of its own, with this package and this Python first on its paths."""
    sys.path.insert(0, str(ROOT))
    before = dict(os.environ)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before['PATH']}"
    os.environ |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
    try:
        with tempfile.TemporaryDirectory() as folder:
            resources = {"metadata": {"path": folder}}
            NotebookClient(notebook, timeout=600, resources=resources, record_timing=False).execute()
            return _clean(notebook, f"{os.path.realpath(folder)}{os.sep}")
    finally:
        os.environ.clear()
        os.environ.update(before)


def _clean(notebook: Any, folder: str) -> Any:
    """Leave out where a notebook was executed, and progress that is over."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("data", {}).get("text/html", "kept")]
            for one in cell.outputs:
                if "text" in one:
                    one.text = one.text.replace(folder, "")
    notebook.metadata.pop("language_info", None)
    return notebook


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the notebook."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(
        arguments
    )
    sys.path.insert(0, str(ROOT))
    nbformat.write(execute(make(PAGE.read_text(encoding="utf-8"))), NOTEBOOK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
