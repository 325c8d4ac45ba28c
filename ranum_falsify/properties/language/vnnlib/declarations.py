"""Names in a query: elements of inputs and outputs.

Version 1 declares each element, X_3 or Y_0, and means one network, N; elements are counted in row-major order, through
all inputs, or all outputs, in the order of the model.  Version 2 declares networks with their tensors.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dnnv.properties import Expression
from dnnv.properties.expressions import Constant, Network, Subscript, Symbol

from ranum_falsify.properties.language.elements import NamedTensor
from ranum_falsify.properties.language.vnnlib.syntax import Node, SyntaxProblem

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
