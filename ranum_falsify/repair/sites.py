"""Places for guards: the nodes of a model, those in its subgraphs included, and the operations that each stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dnnv.nn import Operation

from ranum_falsify.network import Graph
from ranum_falsify.network.order import operands_in
from ranum_falsify.network.shaped import NodeOrigin


@dataclass(frozen=True)
class GuardSite:
    """A node of a model.

    Attributes:
        name: What it is called.
        operations: The names of the operations of the graph that it stands for: one for each iteration of a loop.
        origin: Where it lies, if that is in a subgraph.
    """

    name: str
    operations: tuple[str, ...]
    origin: NodeOrigin | None = None


class GuardSites:
    """All nodes of a graph, and of the branches that an input chooses between.

    Attributes:
        operations: The operations by name, in topological order, those of branches after the node that has them.
    """

    def __init__(self, graph: Graph) -> None:
        self._owners = dict[str, str]()
        self.operations = dict(self._list(graph, None))
        self._order = {name: number for number, name in enumerate(self.operations)}
        several: dict[NodeOrigin, list[str]] = {}
        for name in self.operations:
            if name in graph.origins:
                several.setdefault(graph.origins[name], []).append(name)
        self._sites = {name: GuardSite(name, (name,)) for name in self.operations}
        for origin, names in several.items():
            self._sites.update(dict.fromkeys(names, GuardSite(origin.name, tuple(names), origin)))
        self._before: dict[str, frozenset[str]] = {}

    def _list(self, graph: Graph, owner: str | None) -> Iterator[tuple[str, Operation]]:
        for op in graph.nodes:
            yield op.name, op
            if owner is not None:
                self._owners[op.name] = owner
            for branch in _branches(op):
                yield from self._list(branch, op.name)

    def site_of(self, operation: str) -> GuardSite:
        """Return the node that stands for an operation."""
        return self._sites[operation]

    def outermost(self, operation: str) -> str:
        """Return the operation of the graph itself that an operation in a branch belongs to, or that it is."""
        while operation in self._owners:
            operation = self._owners[operation]
        return operation

    def title_of(self, operation: str) -> str:
        """Return what an operation is called in reports: one in a branch is named by its path."""
        in_branch = operation in self._owners
        return self._sites[operation].name if in_branch and operation in self._sites else operation

    def find(self, title: str) -> list[str]:
        """Return the operations of a name, or of the node of this name; none where there are none."""
        named = [name for name in self.operations if self.title_of(name) == title]
        return named or [name for name, site in self._sites.items() if site.name == title]

    def place(self, site: GuardSite) -> int:
        """Return where a node comes in topological order."""
        return self._order[site.operations[0]]

    def before(self, operation: str) -> frozenset[str]:
        """Return the names of all operations that one depends on, its own and those in its branches included."""
        if operation not in self._before:
            found = {op.name for op in _dependencies(self.operations[operation])} if operation in self._order else set()
            for name in [name for name in found if name in self.operations]:
                found.update(self._inside(name))
            owner = self._owners.get(operation)
            self._before[operation] = frozenset(found | (self.before(owner) if owner is not None else set()))
        return self._before[operation]

    def _inside(self, operation: str) -> Iterator[str]:
        for branch in _branches(self.operations[operation]):
            for op in branch.nodes:
                yield op.name
                yield from self._inside(op.name)

    def nearest_before(self, operation: str, most: int) -> list[str]:
        """Return the operations that one depends on, the nearest first, at most so many."""
        if operation not in self.operations:
            return []
        found = _dependencies(self.operations[operation], most)
        return [op.name for op in found[1 : most + 1] if op.name in self.operations]


def _branches(op: Operation) -> Iterator[Graph]:
    return (value for value in vars(op).values() if isinstance(value, Graph))


def _dependencies(op: Operation, most: int | None = None) -> list[Operation]:
    """Return an operation and those that it depends on in its graph, the nearest first; about so many."""
    found = [op]
    seen = {id(op)}
    for known in found:  # which grows
        if most is not None and len(found) > most:
            break
        for operand in operands_in(known):
            if id(operand) not in seen:
                seen.add(id(operand))
                found.append(operand)
    return found
