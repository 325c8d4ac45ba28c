"""The text of a VNN-LIB query as nested lists of words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

_COMMENT = re.compile(r'"[^"]*"|;[^\n]*')
_LONGEST_WORD = 2000  # the longest decimal expansion of a float64 has 1077 characters
_LONG_WORD = re.compile(rf"[^\s()]{{{_LONGEST_WORD + 1}}}")
_DEEPEST = 100
_TOKEN = re.compile(r'\([^()"\[\]]*\)|[()]|[^\s()"\[\]]*\[[^\[\]()"]*\]|[^\s()"\[\]]+|"[^"]*"|\S')
_GREATEST = {2**63 - 1, 2**64 - 1}  # of integer inputs; boxes know how to reach them
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


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


class Node(list["Node | str"]):
    """What stands between two parentheses, with the line of the first."""

    __slots__ = ("line",)

    def __init__(self, line: int) -> None:
        self.line = line

    @property
    def keyword(self) -> str:
        """The word that it begins with, if it does."""
        return self[0] if self and isinstance(self[0], str) else ""


def read_nodes(text: str) -> Iterator[Node]:
    """Yield the commands of a query, without its comments.

    Raises:
        SyntaxProblem: Parentheses do not match, or a word or the nesting is larger than any query needs.
    """
    text = _COMMENT.sub(lambda match: "" if match[0].startswith(";") else match[0], text)
    if max(map(len, text.split()), default=0) > _LONGEST_WORD and (match := _LONG_WORD.search(text)):
        raise _excess(text, match.start())
    open_nodes: list[Node] = []
    for line, row in enumerate(text.split("\n"), 1):
        for token in _TOKEN.findall(row):
            if token[0] == "(":
                if len(open_nodes) == _DEEPEST:
                    raise SyntaxProblem(
                        f"parentheses are nested more than {_DEEPEST} deep; write the formula flatter", line
                    )
                node = Node(line)
                node.extend(token[1:-1].split())
                if token == "(":
                    open_nodes.append(node)
                elif open_nodes:
                    open_nodes[-1].append(node)
                else:
                    yield node
            elif token == ")":
                if not open_nodes:
                    raise SyntaxProblem("unexpected ')'", line)
                node = open_nodes.pop()
                if open_nodes:
                    open_nodes[-1].append(node)
                else:
                    yield node
            elif len(token) == 1 and token in '[]"':
                raise SyntaxProblem(f"unexpected character {token!r}", line)
            elif not open_nodes:
                raise SyntaxProblem(f"unexpected {token!r}; a query consists of commands in parentheses", line)
            else:
                open_nodes[-1].append(token)
    if open_nodes:
        line = text.rstrip().count("\n") + 1
        raise SyntaxProblem(f"unexpected end of file; '(' of line {open_nodes[-1].line} is not closed", line)


def _excess(text: str, start: int) -> SyntaxProblem:
    match = re.compile(r"[^\s()]*").match(text, start)
    assert match is not None, "the pattern matches anything"
    return SyntaxProblem(
        f"a word of {len(match[0]):,} characters ({match[0][:20]}...); numbers and names have at most "
        f"{_LONGEST_WORD}, so round the number",
        text.count("\n", 0, start) + 1,
    )


def is_number(word: str) -> bool:
    """Tell whether a word is a number."""
    return word[0] in "0123456789-+." and _NUMBER.fullmatch(word) is not None


def number_of(word: str, line: int) -> float:
    """Return the float64 number nearest to a word.

    Raises:
        SyntaxProblem: There is none near it.
    """
    value = float(word)
    if 0 < abs(value) <= 2**53:
        return value
    exact = Decimal(word)
    kept = word if len(word) <= 40 else f"{word[:40]}..."
    if abs(value) == float("inf") or abs(exact.adjusted()) > _LONGEST_WORD:
        problem = "is beyond every number format" if exact.adjusted() > 0 else "is 0 in every number format"
        raise SyntaxProblem(f"the number {kept} {problem}; write a different one", line)
    if word.lstrip("+-").isdigit() and int(value) != int(word) and int(word) not in _GREATEST:
        raise SyntaxProblem(f"{kept} is not a float64 number; take one that is, such as {int(value)}", line)
    return value
