"""What is known of one operator stands in its row, its rules or a relation: engines name no operator."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.network import list_supported

PACKAGE = Path(__file__).resolve().parent.parent / "ranum_falsify"
NAMES = {spec.op_type for spec in list_supported()}

# Where operators are at home: rows and relations, their rules and curves, what was measured of their kernels and how to
# measure it, what passes rewrite, and the networks of the zoo.
HOMES = (
    "operators/",
    "domain/rules/",
    "domain/kernels/",
    "domain/linear/curves.py",
    "selfcheck/measuring/",
    "selfcheck/running.py",
    "selfcheck/subjects.py",
    "checker/",
    "rewrite/passes/",
    "zoo/",
)

# file -> the operators that it names all the same, and why
WAIVERS: dict[str, tuple[set[str], str]] = {
    "rewrite/operands.py": ({"Identity"}, "a constant under another name"),
    "rewrite/checks/joining.py": (
        {"Abs", "Add", "Cast", "Concat", "Constant", "Identity", "Mul", "Reshape", "Sub"},
        "writes nodes: the difference of two models; a tensor under another name",
    ),
    "rewrite/vnnlib_export.py": (
        {"Concat", "Reshape", "Slice"},
        "writes nodes: one vector of several inputs, and of what a property asks about",
    ),
    "api/exporting.py": ({"Cast"}, "writes nodes: outputs of modules in half precision"),
    "api/sources.py": (
        {"Div", "Exp", "Log", "MatMul", "Sqrt"},
        "which expression of Python an operator is; rows know no Python",
    ),
    "monitor/limits.py": (
        {"Acos", "Acosh", "Asin", "Atanh", "Div", "Exp", "Log", "Pow", "Reciprocal", "Sqrt"},
        "PyTorch's operators have no rows: whose conditions are theirs",
    ),
    "repair/meaning.py": ({"Cast", "Erf"}, "the two whose reference takes floats alone"),
    "repair/editing.py": (
        {"Add", "Clip", "Constant", "Less", "Max", "Min", "Mul", "Where"},
        "writes nodes, and says which: guards and clips",
    ),
    "witness/exposed.py": ({"Cast"}, "writes nodes: NumPy has no bfloat16"),
    "verify/replay/confirmer.py": ({"If"}, "subgraphs are part of the graph, and are looked into"),
    "verify/search/converter.py": ({"Add", "MatMul"}, "a kernel of PyTorch computes both at once"),
    "verify/replay/worker/graph.py": ({"Constant"}, "a stored tensor, spelled as a node"),
    "verify/replay/worker/session.py": ({"Cast"}, "writes nodes: NumPy has no bfloat16"),
    "network/tensorise.py": ({"Constant"}, "a stored tensor, spelled as a node"),
    "network/string_inputs.py": ({"Gather"}, "writes nodes: the choice of a string by its number"),
    "network/random_inputs.py": ({"CastLike", "Less"}, "writes nodes: a comparison with what is drawn"),
    "network/precision.py": ({"Cast"}, "writes nodes, and removes what a converter wrote"),
    "network/sequence_accumulators.py": (
        {"Concat", "Constant", "Identity", "If", "Reshape", "Shape", "Slice", "Transpose"},
        "writes nodes: what becomes of lists that loops fill",
    ),
    "network/narrow.py": (
        {"BitCast", "Cast", "CastLike", "Clip", "Constant", "DequantizeLinear", "Div", "QuantizeLinear", "Reshape"},
        "writes nodes, for those that make numbers of a type that is none of the graph's",
    ),
    "network/builder.py": (
        {"Identity", "If"},
        "branches are part of the graph; constants that are outputs need nodes",
    ),
    "network/nesting.py": ({"Identity"}, "a tensor under another name"),
    "network/unrolling.py": (
        {"Concat", "Gather", "Identity", "Unsqueeze"},
        "writes nodes: what loops take apart, and collect",
    ),
    "network/writer.py": ({"Identity"}, "writes nodes: an output that is another one's copy"),
}


def words_of(text: str) -> set[str]:
    """Return the operators that a text lists, none if it says anything else."""
    words = set(text.split())
    return words if words <= NAMES else set()


def named(tree: ast.Module) -> Iterator[str]:
    """Yield operators in strings and among imported nodes; what a module exports under such a name is its own."""
    exported = {id(inner) for node in tree.body if _is_export(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in exported:
            yield from words_of(node.value)
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith(("dnnv.nn", "ranum_falsify.operators")):
            yield from NAMES.intersection(alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("operations"):
            yield from NAMES.intersection([node.attr])


def _is_export(node: ast.stmt) -> bool:
    target = (
        node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
    )
    return isinstance(target, ast.Name) and target.id == "__all__"


def engines() -> list[str]:
    files = (path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py")))
    return [file for file in files if not file.startswith(HOMES)]


def test_no_engine_names_an_operator() -> None:
    found = {file: set(named(ast.parse((PACKAGE / file).read_text(encoding="utf-8")))) for file in engines()}
    assert {file: names for file, names in found.items() if names} == {
        file: names for file, (names, _) in WAIVERS.items()
    }


def test_waivers_are_for_engines_and_have_a_reason() -> None:
    assert set(WAIVERS) <= set(engines())
    assert all(reason for _, reason in WAIVERS.values())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('_RULES = {"Add": 1}', {"Add"}),
        ('_RANDOM = set("Bernoulli Multinomial".split())', {"Bernoulli", "Multinomial"}),
        ('if node.op_type == "Dropout":\n    pass', {"Dropout"}),
        ("from dnnv.nn.operations import Input, Relu\nisinstance(op, Relu)", {"Relu"}),
        ("from dnnv.nn import operations\nisinstance(op, operations.Relu)", {"Relu"}),
        ("from ranum_falsify.operators.rows.cast import CastLike", {"CastLike"}),
        ('__all__ = ["NonZero"]', set()),
        ('raise ValueError("Add is not supported")', set()),
        ('f"{node}: Add"', set()),
    ],
)
def test_the_check_sees_names(source: str, found: set[str]) -> None:
    assert set(named(ast.parse(source))) == found
