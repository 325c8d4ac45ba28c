"""VNN-LIB queries as properties.

A query asserts what a counterexample satisfies, so its property is the negation.  Sources: the standard's grammar
(https://www.vnnlib.org) for version 2; for version 1, what VNN-COMP's benchmarks use of SMT-LIB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from dnnv.properties import Expression
from dnnv.properties.expressions import (
    Add,
    Constant,
    Context,
    Divide,
    Equal,
    Forall,
    GreaterThan,
    GreaterThanOrEqual,
    IfThenElse,
    Implies,
    LessThan,
    LessThanOrEqual,
    Multiply,
    Negation,
    Not,
    NotEqual,
    Subtract,
    Symbol,
)

from ranum_falsify.properties.language.vnnlib.declarations import (
    Declarations,
    Node,
    SyntaxProblem,
    is_number,
    number_of,
    read_nodes,
)
from ranum_falsify.properties.language.walk import AllOf, AnyOf, BoundKind, ElementBounds, Elements, NamedTensor

_IGNORED = {"set-logic", "set-info", "set-option", "check-sat", "get-model", "exit"}
_VERSIONS = ("1", "2")
_BEYOND: tuple[BoundKind, ...] = ("<", ">")
_COMPARISONS: dict[str, tuple[Any, BoundKind, BoundKind]] = {
    "<=": (LessThanOrEqual, "<=", ">="),
    ">=": (GreaterThanOrEqual, ">=", "<="),
    "<": (LessThan, "<", ">"),
    ">": (GreaterThan, ">", "<"),
    "=": (Equal, "==", "=="),
    "==": (Equal, "==", "=="),
    "!=": (NotEqual, "!=", "!="),
    "distinct": (NotEqual, "!=", "!="),
}
"""For each comparison: its expression, how bounds call it, and what it is with its sides exchanged."""
_Element = tuple[NamedTensor, tuple[int, ...]]
_ARITHMETIC: dict[str, Callable[..., Expression]] = {"+": Add, "*": Multiply, "-": Subtract, "/": Divide}


def parse_text(text: str) -> Expression:
    """Return the property of a query, over its networks and their inputs.

    In version 1 these are the network N and the input X.

    Raises:
        SyntaxProblem: It is not VNN-LIB, or uses what is not supported.
    """
    declarations = Declarations()
    assertions: list[Node] = []
    with Context():
        # The expressions keep the context, so that it may end here.
        for node in read_nodes(text):
            _take(node, declarations, assertions)
        if not assertions:
            raise SyntaxProblem("no assertion; a query asserts what a counterexample satisfies")
        formulas = [part for node in assertions for part in node[1:]]
        asserted = _FormulaReader(declarations).conjunction(formulas, assertions[0].line)
        phi: Expression = Not(AllOf(asserted, *map(_say_nothing, declarations.list_unmentioned())))
        for name in reversed(declarations.variables):
            phi = Forall(Symbol(name), phi)
        return phi


def _say_nothing(element: tuple[NamedTensor, tuple[int, ...]]) -> Expression:
    """Return what is true of any number, and NaN, so that a query that is only about inputs is one about networks."""
    tensor, index = element
    return Not(AllOf(*(ElementBounds(Elements(tensor, [index]), kind, [0.0]) for kind in _BEYOND)))


def _take(node: Node, declarations: Declarations, assertions: list[Node]) -> None:
    keyword = node.keyword
    if keyword == "assert":
        if len(node) != 2:
            raise SyntaxProblem("an assertion is written (assert (<= X_0 1))", node.line)
        assertions.append(node)
    elif keyword in ("declare-const", "declare-fun"):
        declarations.declare_element(node, node.line)
    elif keyword == "declare-network":
        declarations.declare_network(node)
    elif keyword == "vnnlib-version":
        version = str(node[1]).strip("<>") if len(node) == 2 else ""
        if version.partition(".")[0] not in _VERSIONS:
            raise SyntaxProblem(f"VNN-LIB {version} is not supported; versions 1 and 2 are", node.line)
    elif keyword not in _IGNORED:
        raise SyntaxProblem(f"unexpected {keyword or '('!r}; a query declares names and asserts formulas", node.line)


class _FormulaReader:
    """Reads formulas and terms over declared names."""

    def __init__(self, declarations: Declarations) -> None:
        self._declarations = declarations
        self._known: dict[str, _Element] = {}

    # formulas -----------------------------------------------------------------------------------------------------

    def conjunction(self, parts: Sequence[Node | str], line: int) -> Expression:
        """Return the conjunction; bounds of elements become few comparisons of many."""
        bounds: dict[tuple[int, BoundKind, int], tuple[NamedTensor, list[tuple[int, ...]], list[float]]] = {}
        others: list[Expression] = []
        pending = list(reversed(parts))
        while pending:
            part = pending.pop()
            bound = self._bound(part)
            if bound is not None:
                (tensor, index), kind, value = bound
                key = id(tensor), kind, len(index)
                if key not in bounds:
                    bounds[key] = tensor, [], []
                _, indices, values = bounds[key]
                indices.append(index)
                values.append(value)
            elif isinstance(part, Node) and part.keyword == "and":
                pending.extend(reversed(part[1:]))
            else:
                others.append(self._formula(part, line))
        groups = [
            ElementBounds(Elements(tensor, indices), kind, values)
            for (_, kind, _), (tensor, indices, values) in bounds.items()
        ]
        every = [*groups, *others]
        return every[0] if len(every) == 1 else AllOf(*every)

    def _bound(self, part: Node | str) -> tuple[_Element, BoundKind, float] | None:
        """Return a comparison of an element with a number, the element on its left."""
        if not isinstance(part, Node) or len(part) != 3:
            return None
        keyword, left, right = part
        # A query may have hundreds of thousands of them.
        if not (isinstance(keyword, str) and isinstance(left, str) and isinstance(right, str)):
            return None
        if keyword not in _COMPARISONS:
            return None
        _, kind, mirrored = _COMPARISONS[keyword]
        if left not in self._known and is_number(left):
            left, right, kind = right, left, mirrored
            if is_number(left):
                return None
        return (self._resolve(left, part.line), kind, number_of(right, part.line)) if is_number(right) else None

    def _resolve(self, word: str, line: int) -> _Element:
        """Return the element that a word names; a query may name each thousands of times."""
        found = self._known.get(word)
        if found is None:
            found = self._known[word] = self._declarations.resolve(word, line)
        return found

    def _formula(self, part: Node | str, line: int) -> Expression:
        if isinstance(part, str):
            if part in ("true", "false"):
                return Constant(part == "true")
            raise SyntaxProblem(f"a formula is needed in place of {part!r}", line)
        keyword, operands = part.keyword, part[1:]
        if keyword in _COMPARISONS:
            left, right = self._terms(part, operands, least=2, most=2)
            return _COMPARISONS[keyword][0](left, right)
        if keyword == "and":
            return self.conjunction(self._count(part, operands, 1), part.line)
        if keyword == "or":
            parts = [self.conjunction([operand], part.line) for operand in self._count(part, operands, 1)]
            return parts[0] if len(parts) == 1 else AnyOf(*parts)
        if keyword == "not":
            return Not(self.conjunction(self._count(part, operands, 1, 1), part.line))
        if keyword == "=>":
            premise, conclusion = self._count(part, operands, 2, 2)
            return Implies(self.conjunction([premise], part.line), self.conjunction([conclusion], part.line))
        raise self._unknown(part)

    # terms --------------------------------------------------------------------------------------------------------

    def _terms(self, part: Node, operands: Sequence[Node | str], *, least: int, most: int = 10**6) -> list[Expression]:
        return [self._term(operand, part.line) for operand in self._count(part, operands, least, most)]

    def _term(self, part: Node | str, line: int) -> Expression:
        if isinstance(part, str):
            if is_number(part):
                return Constant(number_of(part, line))
            tensor, index = self._resolve(part, line)
            return Elements(tensor, [index])
        keyword, operands = part.keyword, part[1:]
        if keyword == "ite":
            condition, chosen, otherwise = self._count(part, operands, 3, 3)
            return IfThenElse(
                self.conjunction([condition], part.line),
                self._term(chosen, part.line),
                self._term(otherwise, part.line),
            )
        if keyword not in _ARITHMETIC:
            raise self._unknown(part)
        terms = self._terms(part, operands, least=1)
        if keyword == "-" and len(terms) == 1:
            return Negation(terms[0])
        return reduce(_ARITHMETIC[keyword], terms)

    @staticmethod
    def _count(part: Node, operands: Sequence[Node | str], least: int, most: int = 10**6) -> Sequence[Node | str]:
        if not least <= len(operands) <= most:
            raise SyntaxProblem(f"{part.keyword!r} has {len(operands)} operands", part.line)
        return operands

    @staticmethod
    def _unknown(part: Node) -> SyntaxProblem:
        if part.keyword == "let":
            return SyntaxProblem("'let' is not currently supported; write the term in its place", part.line)
        what = f"unknown identifier {part.keyword!r}" if part.keyword else "an operator is missing"
        return SyntaxProblem(what, part.line)
