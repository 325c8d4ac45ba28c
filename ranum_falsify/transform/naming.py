"""Names for the nodes that passes make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

import onnx_ir as ir

__all__ = ["NodeNames", "all_nodes"]


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield the nodes of a model's graph, its subgraphs and its local functions."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


class NodeNames:
    """The names of a model's nodes, those that are given included.

    Args:
        nodes: The nodes that the model has.
    """

    def __init__(self, nodes: Iterable[ir.Node]) -> None:
        self._taken = {node.name for node in nodes}

    def name(self, made: Iterable[ir.Node], root: str) -> None:
        """Name new nodes after the one that they replace."""
        for node in made:
            if not node.name:
                node.name = self._fresh(f"{root}/{node.op_type}")

    def _fresh(self, name: str) -> str:
        found = name
        for number in count(2):
            if found not in self._taken:
                break
            found = f"{name}_{number}"
        self._taken.add(found)
        return found
