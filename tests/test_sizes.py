"""Rooms keep their budgets of lines, and no function is too long to be read at a glance."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Lines that each room of the package may hold.  A room that needs more says why in the commit that raises its budget;
# one that shrinks by a twentieth lowers it.
BUDGETS = {
    "api": 8740,
    "checker": 1460,
    "cli": 4760,
    "domain": 15410,
    "monitor": 1310,
    "network": 6640,
    "operators": 19010,
    "process": 600,
    "properties": 4720,
    "repair": 3230,
    "results": 3360,
    "rewrite": 10570,
    "selfcheck": 1400,
    "suite": 2150,
    "the modules beside them": 2550,
    "verify": 11560,
    "witness": 3580,
    "zoo": 3450,
}
SLACK = 0.05
MOST_FUNCTION_LINES = 50
# path and function -> why it is longer than MOST_FUNCTION_LINES
LONG_FUNCTIONS = {
    "ranum_falsify/network/registry.py operator": "its arguments are all that a row may say, each named",
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


def room_lines() -> dict[str, int]:
    """Lines of each folder of the package, and of the modules beside them together."""
    lines: Counter[str] = Counter()
    for path, text in python_files().items():
        package, room, *rest = path.split("/")
        if package == "ranum_falsify":
            lines[room if rest else "the modules beside them"] += len(text.splitlines())
    return dict(lines)


def test_rooms_keep_their_budgets() -> None:
    lines = room_lines()
    assert lines.keys() == BUDGETS.keys(), "every room has a budget"
    over = {room: (found, BUDGETS[room]) for room, found in lines.items() if found > BUDGETS[room]}
    assert over == {}, "a room holds more than it may: make it smaller, or raise its budget and say why"
    loose = {room: (found, BUDGETS[room]) for room, found in lines.items() if found < (1 - SLACK) * BUDGETS[room]}
    assert loose == {}, "a room became smaller: lower its budget"


def test_no_function_is_too_long() -> None:
    lengths = ((path, *found) for path, text in python_files().items() for found in function_lines(ast.parse(text)))
    functions = {f"{path} {name}" for path, name, lines in lengths if lines > MOST_FUNCTION_LINES}
    assert functions == set(LONG_FUNCTIONS), "the list of long functions names too few or too many"
    assert all(LONG_FUNCTIONS.values()), "every long function needs a reason"


def test_functions_are_measured_without_their_docstrings() -> None:
    source = 'class A:\n    @b\n    def f(self):\n        """One.\n\n        Two.\n        """\n\n        return 1\n'
    assert list(function_lines(ast.parse(source))) == [("f", 3)]
