"""The way to a node that lies in subgraphs of a model: what it is called outside, and where it is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import onnx

from ranum_falsify.network.nesting import name_of

__all__ = ["NodeOrigin", "SubgraphPath"]


@dataclass(frozen=True)
class NodeOrigin:
    """Where a node lies in a model.

    Attributes:
        path: The subgraphs that lead to it: the first output of each node that holds one, and the attribute it is.
        output: The first tensor that the node writes.
        name: Its name after those of the nodes that hold it; all iterations of a loop have one.
    """

    path: tuple[tuple[str, str], ...]
    output: str
    name: str


class SubgraphPath:
    """The subgraphs in which nodes are built at the moment."""

    def __init__(self) -> None:
        self._prefix, self._label = "", ""
        self._numbers = tuple[int, ...]()
        self._path = tuple[tuple[str, str], ...]()

    @property
    def is_nested(self) -> bool:
        """Whether they are in subgraphs that their names show."""
        return bool(self._prefix)

    def title_of(self, node: onnx.NodeProto) -> str:
        """Return a node's name, after the path to the subgraph that it is in, and with the number of its iteration."""
        return self._qualify(name_of(node))

    def name_outputs(self, node: onnx.NodeProto) -> tuple[str, ...]:
        """Return the names of what a node writes, likewise."""
        return tuple(name and self._qualify(name) for name in node.output)

    def origin_of(self, node: onnx.NodeProto) -> NodeOrigin | None:
        """Return where a node lies; None where that is in no subgraph."""
        name = name_of(node)
        label = f"{self._label}{name.lstrip('/')}" if self._label else name
        return NodeOrigin(self._path, node.output[0], label) if self._path else None

    @contextmanager
    def inside(
        self, node: onnx.NodeProto, attribute: str, number: int | None = None, *, shows: bool = True, names: bool = True
    ) -> Iterator[None]:
        """Build nodes as those of a subgraph.

        Args:
            node: The node that has it.
            attribute: The attribute that it is.
            number: The number of the iteration that they belong to.
            shows: Whether origins are named by their path.
            names: Whether nodes and tensors are, too.
        """
        before = self._prefix, self._label, self._numbers, self._path
        step = f"{name_of(node)}/{attribute}/"
        if names and shows:
            self._prefix += step.lstrip("/" if self._prefix else "")
        if shows:
            self._label += step.lstrip("/" if self._label else "")
        if number is not None:
            self._numbers = (*self._numbers, number)
        self._path = (*self._path, (node.output[0], attribute))
        try:
            yield
        finally:
            self._prefix, self._label, self._numbers, self._path = before

    def _qualify(self, name: str) -> str:
        numbers = f"[{','.join(map(str, self._numbers))}]" if self._numbers else ""
        return f"{self._prefix}{name.lstrip('/')}{numbers}" if self._prefix else name
