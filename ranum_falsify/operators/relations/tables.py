"""Tables and classes, and the indices that choose from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from dnnv.nn import Operation

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.order import operands_in

__all__ = ["IndexRange", "find_index_ranges"]

_MOVING = frozenset("Cast Expand Flatten Identity Reshape Slice Squeeze Transpose Unsqueeze".split())
"""Operators that only move or copy elements, or convert them, so that indices stay indices."""

_INDEXED = frozenset("Gather GatherElements ScatterElements".split())
"""Operators whose indices are places along one axis of their first operand."""

_LABELLED = frozenset("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss".split())
"""Operators whose second operand names classes, which are along axis 1 of the first one."""

_COUNTING = frozenset("Add Mul Where".split())
"""Operators of the form (i < 0) * (i + n) + (i >= 0) * i, or one like it, in which exporters count from the end, or of
Where(i == ignored, 0, i)."""

_COMPARING = frozenset(("Equal", "Less"))
"""Operators that tell which indices these forms are about."""

_TABLE = "indices of a table"


@dataclass(frozen=True)
class IndexRange:
    """What an input chooses from.

    Attributes:
        count: How many there are.
        meaning: What the input is: `indices of a table`, `class labels`.
    """

    count: int
    meaning: str


def find_index_ranges(graph: Graph, source: Operation) -> Iterator[IndexRange]:
    """Yield what an input chooses from.

    Args:
        graph: The network.
        source: One of its inputs.
    """
    carriers, signs = {id(source)}, set[int]()
    for op in graph.order:
        operands = {id(operand) for operand in operands_in(op)}
        read = operands & carriers
        if not (read or operands & signs):
            continue
        kind, first = spec_of(op).op_type, spec_of(op).operands_of(op)[0]
        if (kind in _COMPARING and read) or (kind in (*_MOVING, "Not") and id(first) in signs):
            signs.add(id(op))
        elif (kind in _MOVING and id(first) in read) or (kind in _COUNTING and signs and read):
            carriers.add(id(op))
        else:
            yield from _find_index_range(graph, op, read)


def _find_index_range(graph: Graph, op: Operation, carriers: Collection[int]) -> Iterator[IndexRange]:
    """Yield what an operator lets its operand choose from, if it is one of the carriers of indices."""
    kind, operands = spec_of(op).op_type, spec_of(op).operands_of(op)
    if kind == "OneHot" and id(op.indices) in carriers:
        yield IndexRange(int(np.asarray(op.depth).reshape(-1)[0]), _TABLE)
    elif kind in _INDEXED and id(op.indices) in carriers:
        yield IndexRange(_size(graph, operands[0], op.axis), _TABLE)
    elif kind in _LABELLED and id(operands[1]) in carriers:
        yield IndexRange(_size(graph, operands[0], 1), "class labels")


def _size(graph: Graph, operand: Operation | np.ndarray, axis: int) -> int:
    shape = operand.shape if isinstance(operand, np.ndarray) else graph.details_of(operand).shape
    return int(shape[axis])
