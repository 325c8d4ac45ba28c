"""The imports of source files."""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "ranum_falsify"
_WITH_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement, a tenth of all nodes: no import stands in an expression."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, _WITH_STATEMENTS):
            yield from statements(child)


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of everything that is imported anywhere, `from a import b` as `a.b`."""
    for node in statements(tree):
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


def walk_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement but those under `if TYPE_CHECKING`."""
    if isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test):
        return
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, _WITH_STATEMENTS):
            yield from walk_run_time(child)


def module_of(relative: str) -> str:
    """Dotted name of a file."""
    return f"{PACKAGE}/{relative}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def import_cycle(sources: Mapping[str, ast.AST]) -> list[str]:
    """Modules each of which imports the next; the last imports the first.  Imports in functions and for types count."""
    modules = {module_of(relative): relative for relative in sources}
    graph: dict[str, set[str]] = {}
    for module, relative in modules.items():
        package = module if relative.endswith("__init__.py") else module.rpartition(".")[0]
        named: set[str] = set()
        for node in statements(sources[relative]):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                above = package.rsplit(".", node.level - 1)[0] if node.level else ""
                source = ".".join(filter(None, (above, node.module)))
                found = {f"{source}.{alias.name}" for alias in node.names}
                named |= {name if name in modules else source for name in found}
        graph[module] = named & modules.keys() - {module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []
