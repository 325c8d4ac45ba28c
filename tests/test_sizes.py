"""No file and no function is too long."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MOST_LINES = 400
# path -> why it is longer than MOST_LINES
LONG_FILES: dict[str, str] = {
    "scripts/lab/bench/hazardous_models.py": "a table: a row for each model",
    "ranum_falsify/validity.py": "all kinds of conditions, each with all that it serves",
    "ranum_falsify/prove/prover.py": "the prover and its regions, which share every setting",
}
MOST_FUNCTION_LINES = 40
# path and function -> why it is longer than MOST_FUNCTION_LINES
LONG_FUNCTIONS = {
    "ranum_falsify/network/registry.py operator": "its arguments are all that a row may say, each named",
    "tests/operators/fused_variants.py _convolutions": "a table: a row for each model",
}


def python_files() -> dict[str, str]:
    """The text of every Python file, by its path."""
    folders = ("ranum_falsify", "properties", "scripts", "tests")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def function_lines(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Name and length of every function, without decorators and its docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start, end = node.lineno, node.end_lineno
            if ast.get_docstring(node) is not None:
                start += (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            yield node.name, (end or 0) - start + 1


def test_no_file_and_no_function_is_too_long() -> None:
    texts = python_files()
    files = {path for path, text in texts.items() if len(text.splitlines()) > MOST_LINES}
    assert files == set(LONG_FILES), "the list of long files names too few or too many"
    lengths = ((path, *found) for path, text in texts.items() for found in function_lines(ast.parse(text)))
    functions = {f"{path} {name}" for path, name, lines in lengths if lines > MOST_FUNCTION_LINES}
    assert functions == set(LONG_FUNCTIONS), "the list of long functions names too few or too many"
    assert all((LONG_FILES | LONG_FUNCTIONS).values()), "every long file and function needs a reason"


def test_functions_are_measured_without_their_docstrings() -> None:
    source = 'class A:\n    @b\n    def f(self):\n        """One.\n\n        Two.\n        """\n\n        return 1\n'
    assert list(function_lines(ast.parse(source))) == [("f", 3)]
