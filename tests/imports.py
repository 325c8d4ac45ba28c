"""The imports of source files."""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of everything that is imported anywhere, `from a import b` as `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def third_party(paths: Iterable[Path]) -> set[str]:
    """Return the packages from elsewhere that files, and the test modules that they use, import anywhere."""
    own = {"ranum_falsify", "tests", "lab", *(path.stem for path in (ROOT / "scripts").glob("*.py"))}
    waiting, seen, found = list(paths), set[Path](), set[str]()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        for _, name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            parts = name.split(".")
            if not (path.parent / f"{parts[0]}.py").is_file():  # a module beside it
                found.add(parts[0])
            if parts[0] == "tests":
                # The last part may be a module or a name in a module.
                waiting += [ROOT.joinpath(*parts[:-1]).with_suffix(".py"), ROOT.joinpath(*parts).with_suffix(".py")]
    return found - own - sys.stdlib_module_names
