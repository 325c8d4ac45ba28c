"""VNN-LIB: satisfiability problems over inputs X_i and outputs Y_j, as properties.

A file asserts what a counterexample satisfies, so its property is the negation.  Grammar and meaning are those of
DNNV's parser.  Two things are added.  Numbers such as 1e-05 and comments at the end of the file, which its grammar
refuses, are rewritten first.  And the thousands of assertions that bound one input by one number are read by a pattern
and become two comparisons of vectors, which is fifty times faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import lark
import numpy as np
from dnnv.properties import Expression
from dnnv.properties.expressions import (
    And,
    Call,
    Constant,
    Context,
    Forall,
    GreaterThanOrEqual,
    Implies,
    LessThanOrEqual,
    Network,
    Quantifier,
    Symbol,
)
from dnnv.properties.parser.errors import ParserError
from dnnv.properties.parser.vnnlib.parser import VNNLIBParser, VNNLIBTransformer

__all__ = ["SyntaxProblem", "parse_text"]

_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_COMMENT = re.compile(r";[^\n]*")
_UNUSUAL_NUMBER = re.compile(
    r"(?<=[\s()])[-+]?"
    r"(?:\d+\.?\d*[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?|\d+\.(?=[\s()])|0\d+(?:\.\d*)?)"
    r"(?=[\s()])"
)
_BOUND = re.compile(rf"\(\s*assert\s*\(\s*(<=|>=)\s+(?:(X_\d+)\s+({_NUMBER})|({_NUMBER})\s+(X_\d+))\s*\)\s*\)")
_DECLARATION = re.compile(r"\(\s*declare-const\s+([XY]_\d+)\s+Real\s*\)")
_FUNCTION = re.compile(r"\(\s*declare-fun\s+(\S+)\s+\(\s*\)\s+")
_LONGEST_WORD = 2000  # the longest decimal expansion of a float64 has 1077 characters
_LONG_WORD = re.compile(rf"[^\s()]{{{_LONGEST_WORD + 1}}}")
_PARENTHESIS = re.compile(r"[()]")
_DEEPEST = 100
_IGNORED = re.compile(r"\(\s*(?:set-logic|set-info|set-option|check-sat|get-model|exit)\b[^()]*\)")


class SyntaxProblem(Exception):
    """A text that is not VNN-LIB.

    Attributes:
        reason: What is wrong, on one line.
        line: Line number from 1, None if unknown.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = " ".join(reason.split())
        self.line = line


def parse_text(text: str) -> Expression:
    """Return the property of a VNN-LIB text, over the network N and the input X.

    Raises:
        SyntaxProblem: It is not VNN-LIB, or uses what DNNV's parser does not know.
    """
    text = _COMMENT.sub(_blank, text)
    _refuse_excess(text)
    text = _UNUSUAL_NUMBER.sub(_write_plainly, text)
    text = _IGNORED.sub(_blank, text)
    text = _FUNCTION.sub(lambda match: _pad(f"(declare-const {match[1]} ", match[0]), text)
    if '"' in text:
        # The grammar looks for the end of a text without one in exponential time.
        raise SyntaxProblem("a quoted string cannot be part of a property", _line_at(text, text.index('"')))
    bounds = list(_BOUND.finditer(text))
    rest = _drop_unused_declarations(_BOUND.sub(_blank, text), text, bounds)
    with Context():
        # The expressions keep the context, so that it may end here.
        remainder = _parse(rest)
        formula = remainder.expression
        comparisons = list(_comparisons(bounds))
        if comparisons:
            formula = Implies(And(*comparisons), formula)
        return Forall(Symbol("X"), formula)


def _refuse_excess(text: str) -> None:
    """Refuse words and nesting that take patterns and parser longer than any property needs."""
    if match := _LONG_WORD.search(text):
        length = re.compile(r"[^\s()]*").match(text, match.start())
        assert length is not None, "the pattern matches anything"
        raise SyntaxProblem(
            f"a word of {len(length[0]):,} characters ({length[0][:20]}...); numbers and names have at most "
            f"{_LONGEST_WORD}, so round the number",
            _line_at(text, match.start()),
        )
    depth = 0
    for match in _PARENTHESIS.finditer(text):
        depth += 1 if match[0] == "(" else -1
        if depth > _DEEPEST:
            raise SyntaxProblem(
                f"parentheses are nested more than {_DEEPEST} deep; write the formula flatter",
                _line_at(text, match.start()),
            )


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _blank(match: re.Match[str]) -> str:
    """Blank out a match but keep its line ends, so that line numbers stay right."""
    return "".join("\n" if c == "\n" else " " for c in match[0])


def _pad(new: str, old: str) -> str:
    return new + "\n" * old.count("\n")


def _write_plainly(match: re.Match[str]) -> str:
    """Write a number with digits and point only, exactly."""
    number = Decimal(match[0].lstrip("+"))
    if abs(number.adjusted()) > _LONGEST_WORD:
        kept = match[0] if len(match[0]) <= 40 else f"{match[0][:40]}..."
        problem = "is beyond every number format" if number.adjusted() > 0 else "is 0 in every number format"
        raise SyntaxProblem(
            f"the number {kept} {problem}; write a different one", _line_at(match.string, match.start())
        )
    return format(number, "f")


def _drop_unused_declarations(rest: str, text: str, bounds: list[re.Match[str]]) -> str:
    """Drop the declarations of inputs and outputs that the rest does not use."""
    declared: set[str] = set()
    for match in _DECLARATION.finditer(text):
        if match[1] in declared:
            raise SyntaxProblem(f"identifier {match[1]!r} is declared twice", _line_at(text, match.start()))
        declared.add(match[1])
    for match in bounds:
        name = match[2] or match[5]
        if name not in declared:
            raise SyntaxProblem(f"unknown identifier {name!r}", _line_at(text, match.start()))
    used = set(re.findall(r"[XY]_\d+", _DECLARATION.sub("", rest)))
    return _DECLARATION.sub(lambda match: match[0] if match[1] in used else _blank(match), rest)


def _comparisons(bounds: list[re.Match[str]]) -> Iterator[Expression]:
    """Yield `X[indices] <= values` and `X[indices] >= values`."""
    for kind, comparison in (("<=", LessThanOrEqual), (">=", GreaterThanOrEqual)):
        indices, values = [], []
        for match in bounds:
            swapped = match[2] is None
            if (match[1] == kind) != swapped:
                indices.append(int((match[5] if swapped else match[2])[2:]))
                values.append(float(match[4] if swapped else match[3]))
        if indices:
            flat = Constant(np.array(indices))
            place = Call(Constant(np.unravel_index), (flat, Network("N").input_shape[0]), {})
            yield comparison(Symbol("X")[place], Constant(np.array(values)))


def _parse(text: str) -> Quantifier:
    try:
        return VNNLIBTransformer().transform(VNNLIBParser.parse(text))
    except lark.exceptions.UnexpectedCharacters as error:
        raise SyntaxProblem(f"unexpected character {error.char!r}", error.line) from error
    except lark.exceptions.UnexpectedToken as error:
        line = error.line if isinstance(error.line, int) and error.line > 0 else text.rstrip().count("\n") + 1
        what = "end of file" if error.token.type == "$END" else repr(str(error.token))
        raise SyntaxProblem(f"unexpected {what}", line) from error
    except lark.exceptions.VisitError as error:
        raise _locate(error.orig_exc) from error
    except (RecursionError, lark.exceptions.LarkError) as error:
        raise SyntaxProblem(f"cannot be parsed: {type(error).__name__}") from error


def _locate(error: BaseException) -> SyntaxProblem:
    """Take the line number out of DNNV's message."""
    match = re.match(r"line (\d+)(?:, column \d+)?: (.*)", str(error), re.DOTALL)
    if match:
        return SyntaxProblem(match[2], int(match[1]))
    known = isinstance(error, ParserError | NotImplementedError)
    return SyntaxProblem(str(error) if known else f"{type(error).__name__}: {error}")
