"""The text of a VNN-LIB query as nested lists of words, and its names: elements of inputs and outputs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from dnnv.properties import Expression
from dnnv.properties.expressions import Constant, Network, Subscript, Symbol

from ranum_falsify.properties.language.walk import NamedTensor

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


_ELEMENT = re.compile(r"([XY])((?:_\d+)+)")
_NAME = re.compile(r"[A-Za-z]\w*")
_INDEXED = re.compile(r"([A-Za-z]\w*)(?:\[([^\]]*)\])?")
_SHAPE = re.compile(r"\[\s*(?:\d+(?:[\s,]+\d+)*)?\s*\]")
_TYPES = {"float16", "bfloat16", "float32", "float64", "bool"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_GENERIC = "real"


@dataclass
class _Declared:
    """A network of a query: the name of its model, and its inputs."""

    network: str
    inputs: list[NamedTensor] = field(default_factory=list)


class Declarations:
    """The names of a query."""

    def __init__(self) -> None:
        self._elements: dict[str, tuple[NamedTensor, tuple[int, ...]]] = {}
        self._tensors: dict[str, NamedTensor] = {}
        self._networks: dict[str, _Declared] = {}
        self._outputs: dict[str, list[NamedTensor]] = {}
        self._mentioned: set[int] = set()
        symbol = Symbol("X")
        self._flat = {
            "X": NamedTensor("X", symbol, None, None),
            "Y": NamedTensor("Y", Network("N")(symbol), None, None),
        }

    @property
    def variables(self) -> list[str]:
        """The quantified inputs."""
        if not self._networks:
            return ["X"]
        return [tensor.name for declared in self._networks.values() for tensor in declared.inputs]

    def list_unmentioned(self) -> list[tuple[NamedTensor, tuple[int, ...]]]:
        """Return an element of an output of each network of which no output was looked up."""
        outputs = self._outputs or {"N": [self._flat["Y"]]}
        return [
            (tensors[0], (0,) * len(tensors[0].shape or (0,)))
            for tensors in outputs.values()
            if self._mentioned.isdisjoint(map(id, tensors))
        ]

    def declare_element(self, node: Sequence[Node | str], line: int) -> None:
        """Take a declaration of one element, as in `(declare-const X_0 Real)`."""
        words = [part for part in node if isinstance(part, str)]
        if len(words) != 3 or len(words) != len(node) - (words[:1] == ["declare-fun"]):
            raise SyntaxProblem("a declaration is written (declare-const X_0 Real)", line)
        _, name, sort = words
        if self._networks:
            raise SyntaxProblem("declare-network and declare-const cannot stand in one query", line)
        if sort not in ("Real", "Int", "Bool"):
            raise SyntaxProblem(f"unknown sort {sort!r}; elements are Real, Int or Bool", line)
        if name in self._elements:
            raise SyntaxProblem(f"identifier {name!r} is declared twice", line)
        match = _ELEMENT.fullmatch(name)
        if match is None:
            raise SyntaxProblem(f"{name!r} is neither an input X_i nor an output Y_j", line)
        index = tuple(map(int, match[2][1:].split("_")))
        if max(index) >= 2**63:
            raise SyntaxProblem(f"no tensor has as many elements as {name!r} needs", line)
        self._elements[name] = (self._flat[match[1]], index)

    def declare_network(self, node: Node) -> None:
        """Take a declaration of a network with its tensors."""
        name, parts = node[1] if len(node) > 1 else None, node[2:]
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not all(isinstance(p, Node) for p in parts):
            raise SyntaxProblem(
                "a network is declared as (declare-network N (declare-input X float32 [1,2]) (declare-output ...))",
                node.line,
            )
        if self._elements:
            raise SyntaxProblem("declare-network and declare-const cannot stand in one query", node.line)
        if name in self._networks:
            raise SyntaxProblem(f"network {name!r} is declared twice", node.line)
        declared = self._networks[name] = _Declared(name)
        outputs: list[Node] = []
        for part in parts:
            assert isinstance(part, Node)
            keyword = part.keyword
            if keyword == "declare-input":
                declared.inputs.append(self._tensor(part, Symbol))
            elif keyword == "declare-output":
                outputs.append(part)
            elif keyword in ("equal-to", "isomorphic-to"):
                self._relate(declared, part)
            elif keyword == "declare-hidden":
                raise SyntaxProblem("hidden tensors are not supported; make the tensor an output", part.line)
            else:
                raise SyntaxProblem(f"unexpected {keyword or '('!r} in the declaration of a network", part.line)
        if not declared.inputs or not outputs:
            raise SyntaxProblem(f"network {name!r} has no declare-input or no declare-output", node.line)
        call = Network(declared.network)(*(tensor.tensor for tensor in declared.inputs))
        for number, output in enumerate(outputs):
            value = call if len(outputs) == 1 else Subscript(call, Constant(number))
            tensor = self._tensor(output, lambda _, value=value: value)  # type: ignore[misc]
            self._outputs.setdefault(declared.network, []).append(tensor)

    def resolve(self, word: str, line: int) -> tuple[NamedTensor, tuple[int, ...]]:
        """Return the element that a word names.

        Raises:
            SyntaxProblem: It names none.
        """
        if not self._networks:
            if word not in self._elements:
                raise self._unknown(word, line, list(self._elements))
            self._mentioned.add(id(self._elements[word][0]))
            return self._elements[word]
        match = _INDEXED.fullmatch(word)
        tensor = self._tensors.get(match[1]) if match else None
        if match is None or tensor is None or tensor.shape is None:
            raise self._unknown(word, line, list(self._tensors))
        texts = (match[2] or "").replace(",", " ").split()
        shape = tensor.shape
        if (
            len(texts) != len(shape)
            or not all(text.isdecimal() for text in texts)
            or any(int(text) >= size for text, size in zip(texts, shape, strict=True))
        ):
            raise SyntaxProblem(f"{word!r} is no element: {tensor.name} has shape {list(shape)}", line)
        self._mentioned.add(id(tensor))
        return tensor, tuple(map(int, texts))

    def _tensor(self, node: Node, value_of: Callable[[str], Expression]) -> NamedTensor:
        words = [part for part in node if isinstance(part, str)]
        # A name in quotes is that of the model's own tensor, which its position tells as well.
        if not 4 <= len(words) <= 5 or len(words) != len(node) or (len(words) == 5 and not words[4].startswith('"')):
            raise SyntaxProblem(f"a tensor is declared as ({node.keyword} X float32 [1,2])", node.line)
        _, name, dtype, shape = words[:4]
        if not _NAME.fullmatch(name):
            raise SyntaxProblem(f"{name!r} is no name of a tensor", node.line)
        if name in self._tensors:
            raise SyntaxProblem(f"identifier {name!r} is declared twice", node.line)
        if dtype.lower() != _GENERIC and dtype not in _TYPES:
            near = difflib.get_close_matches(dtype, sorted(_TYPES), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SyntaxProblem(f"element type {dtype!r} is not supported{hint}", node.line)
        if not _SHAPE.fullmatch(shape):
            raise SyntaxProblem(f"{shape!r} is no shape; write [1,2]", node.line)
        sizes = tuple(map(int, shape[1:-1].replace(",", " ").split()))
        known = None if dtype.lower() == _GENERIC else dtype
        self._tensors[name] = tensor = NamedTensor(name, value_of(name), sizes, known)
        return tensor

    def _relate(self, declared: _Declared, node: Node) -> None:
        """Take another network's model for this one, if they are said to be equal."""
        other = node[1] if len(node) == 2 else None
        if not isinstance(other, str) or other not in self._networks or other == declared.network:
            raise SyntaxProblem(f"{node.keyword} names a network that is declared before", node.line)
        if node.keyword == "equal-to":
            declared.network = self._networks[other].network

    @staticmethod
    def _unknown(word: str, line: int, known: Sequence[str]) -> SyntaxProblem:
        near = difflib.get_close_matches(word, known, n=1) if len(known) < 1000 else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return SyntaxProblem(f"unknown identifier {word!r}{hint}", line)
