"""The package's layers, and the rules that hold for each of its files."""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.imports import PACKAGE, import_cycle, imported, walk_run_time

ROOT = Path(__file__).resolve().parent.parent

# Each layer imports only itself and what stands above it here.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"checker"}),
    frozenset(
        {
            "bundle",
            "config",
            "errors",
            "escaping",
            "file_content",
            "lazy",
            "model_builder",
            "option_marks",
            "process",
            "saving",
            "upstream",
            "version",
        }
    ),
    frozenset({"network"}),
    frozenset({"domain"}),
    frozenset({"validity"}),
    frozenset({"operators"}),
    frozenset({"selfcheck"}),
    frozenset({"properties"}),
    frozenset({"verify"}),
    frozenset({"rewrite"}),
    frozenset({"repair"}),
    frozenset({"witness"}),
    frozenset({"zoo"}),
    frozenset({"suite"}),
    frozenset({"results"}),
    frozenset({"api", "testing"}),
    frozenset({"monitor"}),
    frozenset({"cli"}),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# The package root offers the public names, and __main__ starts the command
# line, so both may import everything, and no layer imports them.
ABOVE_ALL = frozenset({"", "__main__"})

# Within a folder, each of these imports only itself and what stands before it;
# what is not named, the folder's `__init__` too, may import them all.
ROOMS: dict[str, tuple[str, ...]] = {
    "operators": ("support", "relations", "rows"),
    "properties": ("language", "formula", "problem"),
    "verify": ("replay", "prove", "search"),
    "domain/rules": ("support",),
}

# Child processes start without the package, because importing it would cost
# seconds and a malformed model may crash them.
STAND_ALONE = frozenset(
    {"process/child_server.py", "network/optimiser_worker.py"}
    | {
        f"verify/replay/worker/{name}.py"
        for name in "__init__ graph levels model operators recurrent session stops".split()
    }
)


def package_files() -> list[str]:
    """Every module of the package, as a path relative to the package."""
    folder = ROOT / PACKAGE
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.py"))


@cache
def read(relative: str) -> ast.Module:
    return ast.parse((ROOT / PACKAGE / relative).read_text(encoding="utf-8"))


def unit(relative: str) -> str:
    """The name that a file has in LAYERS: its folder or module directly below the package."""
    first = relative.split("/")[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imported_units(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and unit of every import from the package; names of the root itself count as ''."""
    for line, name in imported(tree):
        package, *rest = name.split(".")
        if package == PACKAGE:
            first = rest[0] if rest else ""
            yield line, first if first in RANK or first == "__main__" else ""


def layer_faults(relative: str, tree: ast.AST) -> list[str]:
    """What a file imports although its layer may not."""
    if relative in STAND_ALONE:
        return [f"line {line}: stand-alone, yet imports {PACKAGE}" for line, _ in imported_units(tree)]
    here = unit(relative)
    if here in ABOVE_ALL:
        return []
    return [
        f"line {line}: {here} must not import {there or PACKAGE}"
        for line, there in imported_units(tree)
        if there in ABOVE_ALL or RANK[there] > RANK[here]
    ]


def room_faults(relative: str, tree: ast.AST) -> list[str]:
    """What a file imports from its folder although its room may not."""
    faults = []
    for folder, rooms in ROOMS.items():
        start = [PACKAGE, *folder.split("/")]
        here = relative.removeprefix(f"{folder}/").split("/")[0]
        if not relative.startswith(f"{folder}/") or here not in rooms:
            continue
        allowed = rooms[: rooms.index(here) + 1]
        for line, name in imported(tree):
            parts = name.split(".")
            if parts[: len(start)] == start and (there := ".".join(parts[len(start) :][:1])) not in allowed:
                faults.append(f"line {line}: {here} must not import {there or folder}")
    return faults


def import_style_faults(tree: ast.AST) -> list[str]:
    """Relative and star imports."""
    faults = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                faults.append(f"line {node.lineno}: relative import")
            if any(alias.name == "*" for alias in node.names):
                faults.append(f"line {node.lineno}: star import")
    return faults


def surroundings_faults(tree: ast.AST) -> list[str]:
    """Uses of the terminal, the command line and the environment."""
    forbidden = {"sys.argv", "sys.stdout", "sys.stderr", "os.environ", "os.getenv", "os.putenv"}
    faults = [f"line {line}: imports {name}" for line, name in imported(tree) if name in forbidden]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (name := f"{node.value.id}.{node.attr}") in forbidden:
                faults.append(f"line {node.lineno}: uses {name}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"print", "input"}:
            faults.append(f"line {node.lineno}: calls {node.func.id}")
    return faults


def has_public_names(tree: ast.Module) -> bool:
    """Whether a module says what it offers, in `__all__`."""
    targets: list[ast.expr] = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign):
            targets.append(node.target)
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


FILES = package_files()


def test_there_are_files_to_check() -> None:
    assert FILES


def faults_by_file(check: Callable[[str], Sequence[str]], files: Iterable[str] = FILES) -> dict[str, Sequence[str]]:
    """What a check says of the files that have faults."""
    return {relative: faults for relative in files if (faults := check(relative))}


def test_every_file_belongs_to_a_layer() -> None:
    assert [relative for relative in FILES if unit(relative) not in RANK.keys() | ABOVE_ALL] == []


def test_a_file_imports_only_its_own_layer_and_those_before() -> None:
    assert faults_by_file(lambda relative: layer_faults(relative, read(relative))) == {}


def test_a_room_imports_only_itself_and_those_before() -> None:
    assert faults_by_file(lambda relative: room_faults(relative, read(relative))) == {}


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert import_cycle({relative: read(relative) for relative in FILES}) == []


def test_no_relative_and_no_star_imports() -> None:
    faults = faults_by_file(lambda relative: import_style_faults(read(relative)))
    # Child processes import such a package by its path, so it has no absolute name.
    assert [(file, f) for file, found in faults.items() for f in found if file not in STAND_ALONE or "star" in f] == []


# The root sets what libraries read when they are loaded, before anything loads them.
FREE = frozenset({"cli", *ABOVE_ALL})
# It reads the variables by which users choose kernels.
FREE_FILES = STAND_ALONE | {"api/kernels.py"}


def test_nothing_below_the_command_line_touches_its_surroundings() -> None:
    files = [file for file in FILES if unit(file) not in FREE and file not in FREE_FILES]
    assert faults_by_file(lambda relative: surroundings_faults(read(relative)), files) == {}


# Modules that users import from, and the one that stands for a class of the standard library.  Everything else is for
# the package alone, and an underscore says what is for one module alone.
PUBLIC = frozenset({"errors.py", "lazy.py", "properties/language/vocabulary.py", "testing.py"})


def test_what_is_public_is_said_where_it_is_public() -> None:
    said = {file for file in FILES if has_public_names(read(file))}
    assert {file for file in said if not file.endswith("__init__.py")} == PUBLIC


def upstream_faults(relative: str) -> list[str]:
    """What keeps a file from the form of DNNV that works: no folder, or one whose `__init__` does not import it."""
    at_run_time = ast.Module([node for node in walk_run_time(read(relative)) if isinstance(node, ast.stmt)], [])
    if not {"dnnv", "dnnf"} & {name.split(".")[0] for _, name in imported(at_run_time)}:
        return []
    if "/" not in relative:
        return ["give it a folder, whose `__init__` can import it"]
    start = f"{unit(relative)}/__init__.py"
    names = [name for _, name in imported(read(start))]
    return [] if any(name.startswith(f"{PACKAGE}.upstream") for name in names) else [f"{start} does not import it"]


def test_dnnv_is_made_to_work_before_it_is_imported() -> None:
    files = [file for file in FILES if unit(file) != "upstream" and file not in STAND_ALONE]
    assert faults_by_file(upstream_faults, files) == {}


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {(ROOT / PACKAGE / relative).parent for relative in FILES}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def classes_named_twice(sources: Mapping[str, ast.AST]) -> list[str]:
    """Names that several classes have, private and nested ones too."""
    nodes = [node for tree in sources.values() for node in ast.walk(tree)]
    counts = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in counts.items() if count > 1)


def test_no_two_classes_have_one_name() -> None:
    assert classes_named_twice({relative: read(relative) for relative in FILES}) == []


@pytest.mark.parametrize(
    ("relative", "source", "faults"),
    [
        ("network/reader.py", "from ranum_falsify.errors import RanumFalsifyError", 0),
        ("network/reader.py", "import ranum_falsify.network.order", 0),
        ("network/reader.py", "from ranum_falsify import __version__", 1),
        ("network/reader.py", "from ranum_falsify import operators", 1),
        ("network/reader.py", "import ranum_falsify.verify.search.search", 1),
        ("network/reader.py", "def f():\n    from ranum_falsify.cli import main", 1),
        ("network/reader.py", "import ranum_falsify.__main__", 1),
        ("config.py", "import ranum_falsify.network", 1),
        ("errors.py", "import ranum_falsify.upstream", 0),
        ("cli/__init__.py", "import ranum_falsify.verify.search, ranum_falsify.network", 0),
        ("__init__.py", "from ranum_falsify.cli import main", 0),
        ("verify/replay/worker/model.py", "import ranum_falsify.errors", 1),
        ("verify/replay/worker/model.py", "import onnxruntime", 0),
        ("verify/search/search.py", "import ranum_falsify_other.cli", 0),
    ],
)
def test_the_layer_check_sees_faults(relative: str, source: str, faults: int) -> None:
    assert len(layer_faults(relative, ast.parse(source))) == faults


@pytest.mark.parametrize(
    ("relative", "source", "faults"),
    [
        ("operators/support/gates.py", "from ranum_falsify.operators.relations import fused", 1),
        ("operators/support/gates.py", "import ranum_falsify.operators", 1),
        ("operators/support/gates.py", "import ranum_falsify.operators.support.functions", 0),
        ("operators/rows/cast.py", "from ranum_falsify.operators.relations.fused import summed", 0),
        ("operators/__init__.py", "from ranum_falsify.operators import rows", 0),
        ("properties/formula/terms.py", "if TYPE_CHECKING:\n    from ranum_falsify.properties.problem import box", 1),
        ("domain/rules/support/real_functions.py", "from ranum_falsify.domain.rules.cast import converted", 1),
        ("domain/rules/cast.py", "from ranum_falsify.domain.rules.support import real_functions", 0),
    ],
)
def test_the_room_check_sees_faults(relative: str, source: str, faults: int) -> None:
    assert len(room_faults(relative, ast.parse(source))) == faults


@pytest.mark.parametrize(
    ("sources", "cycle"),
    [
        ({"a.py": "import ranum_falsify.b", "b.py": "def f():\n    from ranum_falsify.a import g"}, "a b a"),
        ({"a.py": "from ranum_falsify import b", "b.py": "if TYPE_CHECKING:\n    import ranum_falsify.a"}, "a b a"),
        ({"c/a.py": "from .b import f", "c/b.py": "from . import a"}, "c.a c.b c.a"),
        ({"c/__init__.py": "from .b import f", "c/b.py": "from ranum_falsify.c import g"}, "c c.b c"),
        ({"c/__init__.py": "from .b import f", "c/b.py": "", "a.py": "import ranum_falsify.c"}, ""),
    ],
)
def test_the_cycle_check_sees_cycles(sources: dict[str, str], cycle: str) -> None:
    found = import_cycle({relative: ast.parse(source) for relative, source in sources.items()})
    turned = [[*found[turn:-1], *found[: turn + 1]] for turn in range(len(found) - 1)] or [[]]
    assert [f"{PACKAGE}.{name}" for name in cycle.split()] in turned


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("from . import errors", 1),
        ("from .network import reader", 1),
        ("from torch import *", 1),
        ("from torch import nn", 0),
    ],
)
def test_the_import_style_check_sees_faults(source: str, faults: int) -> None:
    assert len(import_style_faults(ast.parse(source))) == faults


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("print('x')", 1),
        ("import sys\nsys.argv[1:]", 1),
        ("from sys import argv", 1),
        ("import os\nos.environ.get('X')", 1),
        ("import os\nos.getenv('X')", 1),
        ("from os import environ", 1),
        ("console.print('x')\nimport sys\nsys.modules", 0),
    ],
)
def test_the_surroundings_check_sees_faults(source: str, faults: int) -> None:
    assert len(surroundings_faults(ast.parse(source))) == faults


@pytest.mark.parametrize(
    ("source", "public"),
    [("__all__ = ['f']", True), ("__all__: list[str] = []", True), ("x = 1", False)],
)
def test_the_check_for_public_names_sees_them(source: str, public: bool) -> None:
    assert has_public_names(ast.parse(source)) is public


def test_the_check_of_class_names_sees_what_is_named_twice() -> None:
    sources = {"a.py": "class A: ...\nclass B: ...", "b.py": "def f():\n    class A: ...\nclass _B: ..."}
    assert classes_named_twice({relative: ast.parse(source) for relative, source in sources.items()}) == ["A"]
