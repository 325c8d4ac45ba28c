"""Mutations of property files, token by token."""

from __future__ import annotations

import ast
import random
import re

__all__ = ["mutate_text", "mutate_tree"]

_TOKEN = re.compile(r"\s+|\w+(?:\.\w+)*|[<>=!]=|.", re.DOTALL)
_WORDS = (
    *("x", "y", "N", "N(x)", "N(x)[0]", "N(x)[0, 1]", "N[0:1](x)", "N[5:](x)", "N[:, 0](x)", "N.compose(N)(x)", "X_0"),
    *("0", "1", "-1", "1e999", "-1e999", "1e-320", "2**70", "float('nan')", "float('inf')", "np.nan", "-np.inf", "1j"),
    *("None", "True", "False", "''", "'Log'", "b'x'", "[]", "[1, [2]]", "()", "{}", "...", "lambda: 0", "np", "abs"),
    *("Forall", "Exists", "Implies", "And", "Or", "Not", "IfThenElse", "Parameter", "Network", "Image", "Constant"),
    *("no_invalid_input", "free", "free(N, 'W')(x)", "no_invalid_input(N(x))", "only=", "nodes=['a']", "gradient=True"),
    *("np.argmax", "np.zeros((1, 8))", "np.ones((2, 2))", "np.load('none.npy')", "max", "min", "sum", "len", "range"),
    *(
        "<=",
        "<",
        ">=",
        ">",
        "==",
        "!=",
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "**",
        "@",
        "&",
        "|",
        "~",
        "not ",
        " and ",
        " or ",
    ),
    *("(", ")", "[", "]", ",", ":", ";", "=", "\n", "\t", "#", "'", '"""', "\\", "if x:", "for i in x: pass", "del x"),
    *(
        "assert",
        "declare-const",
        "Real",
        "Int",
        "or",
        "and",
        "Y_0",
        "Y_99",
        "X_99",
        "(assert (<= X_0 Y_0))",
        "=>",
        "let",
    ),
    *("é", "λ", "\u2028", "\x00", "\ufeff", "\uff10", "((((((((((" * 20, "-" * 300, "9" * 5000),
)


def mutate_text(text: str, rng: random.Random) -> str:
    """Return the text after one to eight mutations of its tokens or lines."""
    tokens = _TOKEN.findall(text)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        if not tokens:
            break
        position = rng.randrange(len(tokens))
        what = rng.randrange(6)
        if what <= 1:
            tokens[position] = rng.choice(_WORDS)
        elif what == 2:
            tokens.insert(position, rng.choice(_WORDS))
        elif what == 3:
            del tokens[position : position + rng.choice((1, 1, 3, 20))]
        elif what == 4:
            other = rng.randrange(len(tokens))
            tokens[position], tokens[other] = tokens[other], tokens[position]
        else:
            piece = tokens[position : position + rng.choice((1, 5, 40))]
            at = rng.randrange(len(tokens) + 1)
            tokens[at:at] = piece
    return "".join(tokens)


def mutate_tree(text: str, rng: random.Random) -> str:
    """Return a Python text after one or two of its expressions were replaced by others; its syntax stays valid."""
    tree = ast.parse(text)
    for _ in range(rng.choice((1, 1, 2))):
        expressions = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and _is_value(node)]
        old = rng.choice(expressions)
        new = rng.choice(expressions) if rng.random() < 0.3 else rng.choice(_EXPRESSIONS)
        changed = ast.fix_missing_locations(_Replacement(old, new).visit(tree))
        tree = ast.parse(ast.unparse(changed))  # without shared nodes, which the next replacement would loop through
    return ast.unparse(tree) + "\n"


def _is_value(node: ast.expr) -> bool:
    """Tell whether any other value may replace a node: not for targets, slices and parts of texts."""
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and not isinstance(node, ast.Slice | ast.JoinedStr)


class _Replacement(ast.NodeTransformer):
    """Replaces one node by another."""

    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self._old = old
        self._new = ast.parse(ast.unparse(new), mode="eval").body

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else super().visit(node)


def _select_parsed(words: tuple[str, ...]) -> list[ast.expr]:
    """Return those words that are expressions."""
    found = []
    for word in words:
        try:
            found.append(ast.parse(word, mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return found


_EXPRESSIONS = _select_parsed(_WORDS)
