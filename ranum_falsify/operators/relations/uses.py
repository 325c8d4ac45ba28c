"""What becomes of an input of integers: indices of a table, labels of classes, numbers that are compared."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.order import operands_in

_KEEPING_INDICES = frozenset(
    (
        "Cast Compress Concat Expand Flatten Gather GatherElements GatherND Identity Reshape Slice Split Squeeze Tile "
        "Transpose Unsqueeze"
    ).split()
)
"""Operators that only move or copy elements, or convert them, so that indices stay indices."""

_INDEXED = frozenset("Gather GatherElements ScatterElements".split())
"""Operators whose indices are places along one axis of their first operand."""

_INDEXED_BY_ROWS = frozenset("GatherND ScatterND".split())
"""Operators of whose indices each row is a place in their first operand."""

_LABELLED = frozenset("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss".split())
"""Operators whose second operand names classes, which are along axis 1 of the first one."""

_COUNTING = frozenset("Add Mul Where".split())
"""Operators of the form (i < 0) * (i + n) + (i >= 0) * i, or one like it, in which exporters count from the end, or of
Where(i == ignored, 0, i)."""

_SIGNS = frozenset(("Equal", "Less"))
"""Operators that tell which indices these forms are about."""

_COMPARING = frozenset("Equal Greater GreaterOrEqual Less LessOrEqual".split())

_TABLE = "indices of a table"


@dataclass(frozen=True)
class IndexRange:
    """How many an input chooses from, and what it is: `indices of a table`, `class labels`."""

    count: int
    meaning: str


@dataclass(frozen=True)
class Uses:
    """What an input chooses from, and the constants that it is compared with."""

    ranges: list[IndexRange]
    compared: list[np.ndarray]


def find_uses(graph: Graph, source: Operation) -> Uses:
    """Return what becomes of an input of a network."""
    found, carriers, signs = Uses([], []), {id(source)}, set[int]()
    for op in graph.order:
        operands = {id(operand) for operand in operands_in(op)}
        read = operands & carriers
        if isinstance(op, OutputSelect):
            carriers |= {id(op)} if read else set()
            continue
        if not (read or operands & signs):
            continue
        kind, fields = spec_of(op).op_type, spec_of(op).operands_of(op)
        if kind in _COMPARING and read:
            found.compared.extend(x for x in fields if isinstance(x, np.ndarray) and x.size)
        if (kind in _SIGNS and read) or (kind in (*_KEEPING_INDICES, "Not") and id(fields[0]) in signs):
            signs.add(id(op))
        elif _keeps(kind, fields, read) or (kind in _COUNTING and signs and read):
            carriers.add(id(op))
        else:
            found.ranges.extend(_find_index_ranges(graph, op, read))
    return found


def _keeps(kind: str, fields: Sequence[Any], carriers: Collection[int]) -> bool:
    """Tell whether an operator gives indices on."""
    return kind in _KEEPING_INDICES and any(id(x) in carriers for x in (fields if kind == "Concat" else fields[:1]))


def _find_index_ranges(graph: Graph, op: Operation, carriers: Collection[int]) -> Iterator[IndexRange]:
    """Yield what an operator lets its operand choose from, if it is one of the carriers of indices."""
    kind, operands = spec_of(op).op_type, spec_of(op).operands_of(op)
    if kind == "OneHot" and id(op.indices) in carriers:
        yield IndexRange(int(np.asarray(op.depth).reshape(-1)[0]), _TABLE)
    elif kind in _INDEXED and id(op.indices) in carriers:
        yield IndexRange(_shape(graph, operands[0])[op.axis], _TABLE)
    elif kind in _INDEXED_BY_ROWS and id(op.indices) in carriers:
        first = getattr(op, "batch_dims", 0)
        places = _shape(graph, operands[0])[first : first + _shape(graph, op.indices)[-1]]
        yield IndexRange(min(places, default=1), _TABLE)
    elif kind in _LABELLED and id(operands[1]) in carriers:
        yield IndexRange(_shape(graph, operands[0])[1], "class labels")


def _shape(graph: Graph, operand: Operation | np.ndarray) -> tuple[int, ...]:
    shape = operand.shape if isinstance(operand, np.ndarray) else graph.details_of(operand).shape
    return tuple(map(int, shape))
