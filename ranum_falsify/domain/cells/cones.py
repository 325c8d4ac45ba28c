"""Cones: the elementwise nodes between a tensor, their source, and a node, which is a function of one number.

What the nodes read besides, constants and other tensors, are ranges: each element takes any number within its bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import Input

from ranum_falsify.domain.attributes import copy_afresh
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph
from ranum_falsify.network.order import operands_in
from ranum_falsify.network.registry import row_of, spec_of

_MOST = 64
"""Cones of more nodes are cut off there; most of them are a chain of layers, whose parts have sources of their own."""

_known: WeakKeyDictionary[Graph, Cones] = WeakKeyDictionary()


@dataclass(frozen=True)
class Cone:
    """A function of one tensor.

    Attributes:
        source: The tensor.
        nodes: Copies of the nodes, operands before users, the last one the node that the cone is of.  They read each
            other, the source, constants of one number and `ranges`, so that rules find no further relation of their
            operands, and none between their places.
        originals: The nodes that they are copies of.
        ranges: What stands for other tensors and constants that are read besides, and these.
    """

    source: Operation
    nodes: tuple[Operation, ...]
    originals: tuple[Operation, ...]
    ranges: tuple[tuple[Operation, Operation | np.ndarray], ...]

    @cached_property
    def is_joined(self) -> bool:
        """Whether what a node reads depends on the source along several paths, which its own rule does not know."""
        inside = {id(self.source), *map(id, self.nodes)}
        return any(
            sum(isinstance(field, Operation) and id(field) in inside for field in spec_of(op).operands_of(op)) > 1
            for op in self.nodes
        )


def cones_of(graph: Graph) -> Cones:
    """Return the cones of a graph."""
    if graph not in _known:
        _known[graph] = Cones(graph)
    return _known[graph]


class Cones:
    """The cones of a graph, found once.

    A node's *sources* are the tensors that all paths to it pass, through elementwise nodes alone.
    """

    def __init__(self, graph: Graph) -> None:
        self._places = {id(op): place for place, op in enumerate(graph.order)}
        self._nearest: dict[int, Operation | None] = {}
        self._depths: dict[int, int] = {}
        self._found: dict[tuple[int, int], Cone | None] = {}
        for op in graph.order:
            nearest = self._find_nearest(op)
            self._nearest[id(op)] = nearest
            self._depths[id(op)] = 0 if nearest is None else self._depths[id(nearest)] + 1
        self._ends = {id(op): op for op in self._list_ends(graph)}

    def sources_of(self, op: Operation) -> Iterator[Operation]:
        """Yield the sources of a node, the nearest first."""
        nearest = self._nearest.get(id(op))
        while nearest is not None:
            yield nearest
            nearest = self._nearest[id(nearest)]

    @cached_property
    def exits(self) -> frozenset[int]:
        """Nodes, by `id`, that are functions of one tensor along several paths, and that something else reads."""
        return frozenset(key for key, op in self._ends.items() if self.joined(op))

    def joined(self, op: Operation) -> list[Cone]:
        """Return the cones of a node with several paths from their source, of the nearest and the furthest source."""
        found = [cone for source in self.sources_of(op) if (cone := self.cone(source, op)) and cone.is_joined]
        return [*found[:1], *found[1:][-1:]]

    def cone(self, source: Operation, op: Operation) -> Cone | None:
        """Return the cone from a source to a node; None if it has too many nodes, or none."""
        key = id(source), id(op)
        if key not in self._found:
            self._found[key] = self._collect(source, op)
        return self._found[key]

    def _find_nearest(self, op: Operation) -> Operation | None:
        operands = list(_computed(op)) if is_pointwise(op) else []
        if not operands:
            return None
        first: Operation | None = operands[0]
        for other in operands[1:]:
            first = self._meet(first, other)
        return first

    def _meet(self, a: Operation | None, b: Operation | None) -> Operation | None:
        while a is not b:
            if a is None or b is None:
                return None
            if self._depths[id(a)] >= self._depths[id(b)]:
                a = self._nearest[id(a)]
            else:
                b = self._nearest[id(b)]
        return a

    def _list_ends(self, graph: Graph) -> Iterator[Operation]:
        """Yield the nodes with sources that are outputs, or that a node reads that is no function of their sources."""
        ends = {id(op): op for op in graph.output_operations}
        for op in graph.order:
            sources = {id(source) for source in self.sources_of(op)}
            for operand in operands_in(op):
                if sources.isdisjoint(id(source) for source in self.sources_of(operand)):
                    ends[id(operand)] = operand
        yield from (op for op in ends.values() if self._nearest.get(id(op)) is not None)

    def _collect(self, source: Operation, op: Operation) -> Cone | None:
        seen, waiting = {id(op): op}, [op]
        while waiting:
            for operand in _computed(waiting.pop()):
                if operand is not source and id(operand) not in seen and is_pointwise(operand):
                    seen[id(operand)] = operand
                    waiting.append(operand)
            if len(seen) > _MOST:
                return None
        inside, ordered = {id(source)}, list[Operation]()
        for inner in sorted(seen.values(), key=lambda inner: self._places[id(inner)]):
            if any(id(operand) in inside for operand in _computed(inner)):
                inside.add(id(inner))
                ordered.append(inner)
        return _copy(source, ordered) if ordered and ordered[-1] is op else None


def is_pointwise(op: Operation) -> bool:
    """Tell whether a node computes each element of its one result from those at the same place, and always alike."""
    row = row_of(op)
    if row is None or not row.elementwise or row.interval is None or row.is_random(op) or len(op.output_names) != 1:
        return False
    static = [getattr(op, name) for name in row.static]
    return not row.dynamic_shape and not any(isinstance(field, Operation) for field in static)


def _computed(op: Operation) -> Iterator[Operation]:
    return (field for field in spec_of(op).operands_of(op) if isinstance(field, Operation))


def _copy(source: Operation, nodes: list[Operation]) -> Cone:
    copies: dict[int, Operation] = {id(source): source}
    ranges: dict[int, tuple[Operation, Operation | np.ndarray]] = {}

    def find(field: Any) -> Any:
        if id(field) in copies:
            return copies[id(field)]
        if not isinstance(field, Operation) and not _varies(field):
            return field
        return ranges.setdefault(id(field), (Input(np.array([]), np.dtype(np.float32)), field))[0]

    for op in nodes:
        copies[id(op)] = copy_reading(op, find)
    found = tuple(copies[id(op)] for op in nodes)
    return Cone(source, found, tuple(nodes), tuple(ranges.values()))


def copy_reading(op: Operation, find: Callable[[Any], Any]) -> Operation:
    """Return a copy of a node that reads what a function returns for each of its operands, but for static ones."""
    twin, row = copy_afresh(op), spec_of(op)
    for name in set(row.operands) - row.static:
        value = getattr(op, name)
        setattr(twin, name, tuple(map(find, value)) if isinstance(value, list | tuple) else find(value))
    return twin


def _varies(field: Any) -> bool:
    """Tell whether a field is a constant of several numbers."""
    return isinstance(field, np.ndarray) and field.size > 1 and bool((field != field.flat[:1]).any())
