"""The nodes around a node, with the bounds of their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect

from ranum_falsify.domain.analysis import IntervalAnalysis
from ranum_falsify.domain.explanation import range_of
from ranum_falsify.network import spec_of
from ranum_falsify.network.order import maker_of, operands_in

_MOST_BEFORE = 6
_MOST_AFTER = 3
_MOST_CONSTANTS = 3
_MOST_RESULTS = 3


@dataclass(frozen=True)
class NeighbourTensor:
    """A tensor's shape, and its least and greatest value; these are None where they are not known."""

    shape: tuple[int, ...]
    bounds: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A node.

    Attributes:
        name: Its name.
        op_type: ONNX operator, `Input` for an input.
        constants: Least and greatest element of its constant operands, by their names in the operator's row.
        results: What it makes.
        hidden: How many of its operands and readers are left out.
    """

    name: str
    op_type: str
    constants: tuple[tuple[str, tuple[float, float]], ...]
    results: tuple[NeighbourTensor, ...]
    hidden: int


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """A part of a graph.

    Attributes:
        nodes: Its nodes, in topological order.
        edges: Positions of a node and of one that reads a result of it.
        focus: Position of the node that it is about.
    """

    nodes: tuple[Neighbour, ...]
    edges: tuple[tuple[int, int], ...]
    focus: int


def neighbours_of(analysis: IntervalAnalysis, op: Operation) -> Neighbours:
    """Return the nodes right before and after a node, and those before them as far as they are few.

    Args:
        analysis: A finished analysis that has kept all bounds.
        op: The node.
    """
    order = [node for node in analysis.graph.order if not isinstance(node, OutputSelect)]
    readers = [node for node in order if any(maker_of(operand) is op for operand in operands_in(node))]
    chosen = {id(node) for node in (*_find_before(op), op, *readers[:_MOST_AFTER])}
    nodes = [node for node in order if id(node) in chosen]
    positions = {id(node): position for position, node in enumerate(nodes)}
    edges = {
        (positions[id(maker_of(operand))], positions[id(node)]): None
        for node in nodes
        for operand in operands_in(node)
        if id(maker_of(operand)) in positions
    }
    focus = positions[id(op)]
    return Neighbours(
        nodes=tuple(_describe(analysis, node, positions, readers if node is op else ()) for node in nodes),
        edges=tuple(edges),
        focus=focus,
    )


def _find_before(op: Operation) -> Iterator[Operation]:
    """Yield the nodes before a node, the nearest first."""
    found, queue = {id(op)}, [op]
    while queue:
        for operand in operands_in(queue.pop(0)):
            maker = maker_of(operand)
            if id(maker) in found:
                continue
            if len(found) > _MOST_BEFORE:
                return
            found.add(id(maker))
            queue.append(maker)
            yield maker


def _describe(
    analysis: IntervalAnalysis, node: Operation, positions: Mapping[int, int], readers: Sequence[Operation]
) -> Neighbour:
    """Describe a node of a picture that has nodes at these positions; of the readers given, some may be left out."""
    others = [*map(maker_of, operands_in(node)), *readers]
    hidden = len({id(other) for other in others} - positions.keys())
    results = tuple(_results(analysis, node))
    if isinstance(node, Input):
        return Neighbour(name=node.name, op_type="Input", constants=(), results=results, hidden=hidden)
    spec = spec_of(node)
    constants = [
        (name, (float(field.min()), float(field.max())))
        for name, field in spec.name_values(spec.operands_of(node)).items()
        if isinstance(field, np.ndarray) and field.size and field.dtype.kind in "biuf"
    ]
    return Neighbour(
        name=node.name,
        op_type=spec.op_type,
        constants=tuple(constants[:_MOST_CONSTANTS]),
        results=results,
        hidden=hidden,
    )


def _results(analysis: IntervalAnalysis, node: Operation) -> Iterator[NeighbourTensor]:
    selected = [op for op in analysis.graph.order if isinstance(op, OutputSelect) and op.operation is node]
    for op in (selected or [node])[:_MOST_RESULTS]:
        bounds = analysis.bounds_of(op)
        if bounds is not None:
            yield NeighbourTensor(tuple(bounds.shape), range_of(bounds) if bounds.size else None)
