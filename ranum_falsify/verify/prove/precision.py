"""Nodes that must stay in float32 when a network is converted to half precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dnnv.nn import Operation

from ranum_falsify.network import Graph
from ranum_falsify.network.order import operands_in
from ranum_falsify.network.precision import is_conversion, original_node
from ranum_falsify.process.deadline import Deadline

Node = tuple[str, str]
"""Name of a network in the property, and name of a node in it."""


@dataclass(frozen=True, kw_only=True)
class KeepList:
    """What a converter should leave in float32.

    Attributes:
        nodes: The nodes, in topological order: `node_block_list` of the float16 converters.
        minimal: Whether the analysis has shown for each that without it another operator would be open.
        left: Nodes that are open whatever stays in float32: they are so in float32 itself, or at a rounded output.
    """

    nodes: tuple[Node, ...]
    minimal: bool
    left: tuple[Node, ...]


def float32_nodes(
    graphs: Mapping[str, Graph], open_nodes: Callable[[frozenset[Node]], frozenset[Node]], *, deadline: Deadline
) -> KeepList:
    """Return nodes that, kept in float32, leave open only those that no choice of nodes would prove.

    `open_nodes` analyses the networks, converted except for some nodes, and returns which of their nodes are open by
    themselves, not because of others.  After the deadline, the list may not be minimal.
    """
    chooser = _Chooser(graphs)
    keep: frozenset[Node] = frozenset()
    left: frozenset[Node] = frozenset()
    while True:
        now_open = open_nodes(keep)
        wanted = {node: chooser.remedy(node, keep) for node in now_open}
        left = frozenset(node for node, remedy in wanted.items() if not remedy)
        new = frozenset().union(*wanted.values()) - keep
        if not new or deadline.has_passed:
            break
        keep |= new
    # If time was up before nothing was open any more, more nodes may be needed.
    keep, minimal = (keep | new, False) if new else _reduce(keep, left, open_nodes, deadline)
    order = [(name, op.name) for name, graph in graphs.items() for op in graph.nodes]
    return KeepList(nodes=tuple(node for node in order if node in keep), minimal=minimal, left=tuple(sorted(left)))


def _reduce(
    keep: frozenset[Node],
    left: frozenset[Node],
    open_nodes: Callable[[frozenset[Node]], frozenset[Node]],
    deadline: Deadline,
) -> tuple[frozenset[Node], bool]:
    """Leave out nodes that are not needed, until each remaining one is shown to be needed beside the others."""
    needed: set[Node] = set()
    while needed < keep:
        for node in sorted(keep - needed):
            if deadline.has_passed:
                return keep, False
            if open_nodes(keep - {node}) <= left:
                # The others were needed together with this one; without it, that must be shown again.
                keep, needed = keep - {node}, set()
            else:
                needed.add(node)
    return keep, True


class _Chooser:
    """Chooses what to keep in float32 so that an open node of a converted network may be proved."""

    def __init__(self, graphs: Mapping[str, Graph]) -> None:
        self._graphs = graphs
        self._nodes = {(name, op.name): op for name, graph in graphs.items() for op in graph.nodes}

    def remedy(self, node: Node, keep: frozenset[Node]) -> frozenset[Node]:
        """Return more nodes to keep: the open one, or those before it, or those after a result that overflows."""
        network, name = node
        origin = (network, original_node(name, self._graphs[network]))
        if origin not in self._nodes:
            return frozenset()
        if origin not in keep:
            return frozenset({origin})
        neighbours = self._readers if is_conversion(name) else self._sources
        return self._find_around(origin, neighbours, keep)

    def _find_around(
        self, start: Node, neighbours: Callable[[str, Operation], set[Node]], keep: frozenset[Node]
    ) -> frozenset[Node]:
        """Return the nearest nodes in half precision before or after a node, past those in float32."""
        seen, waiting, found = {start}, [start], list[Node]()
        while waiting:
            node = waiting.pop()
            for near in neighbours(node[0], self._nodes[node]) - seen:
                seen.add(near)
                (waiting if near in keep else found).append(near)
        return frozenset(found)

    def _readers(self, network: str, op: Operation) -> set[Node]:
        behind = {id(op)}
        found: set[Node] = set()
        for other in self._graphs[network].order:
            if any(id(operand) in behind for operand in operands_in(other)):
                if (network, other.name) in self._nodes:
                    found.add((network, other.name))
                else:  # the selection of one of several outputs
                    behind.add(id(other))
        return found

    def _sources(self, network: str, op: Operation) -> set[Node]:
        found: set[Node] = set()
        for operand in operands_in(op):
            while (network, operand.name) not in self._nodes and (before := list(operands_in(operand))):
                operand = before[0]
            if (network, operand.name) in self._nodes:
                found.add((network, operand.name))
        return found
