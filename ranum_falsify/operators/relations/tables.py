"""Tables, and the indices that choose from them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from dnnv.nn import Operation

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.order import operands_in

__all__ = ["find_table_sizes"]

_MOVING = frozenset("Cast Expand Flatten Identity Reshape Slice Squeeze Transpose Unsqueeze".split())
"""Operators that only move or copy elements, or convert them, so that indices stay indices."""

_COUNTING = frozenset("Add Mul Where".split())
"""Operators of the form (i < 0) * (i + n) + (i >= 0) * i, or one like it, in which exporters count from the end."""


def find_table_sizes(graph: Graph, source: Operation) -> Iterator[int]:
    """Yield the sizes of the tables that an input chooses from.

    Args:
        graph: The network.
        source: One of its inputs.
    """
    carriers, signs = {id(source)}, set[int]()
    for op in graph.order:
        read = {id(operand) for operand in operands_in(op)} & (carriers | signs)
        if not read:
            continue
        kind, first = spec_of(op).op_type, spec_of(op).operands_of(op)[0]
        if kind == "Less" or (kind in _MOVING and id(first) in signs):
            signs.add(id(op))
        elif (kind in _MOVING and id(first) in read) or (kind in _COUNTING and signs):
            carriers.add(id(op))
        elif kind == "OneHot" and id(op.indices) in read:
            yield int(np.asarray(op.depth).reshape(-1)[0])
        elif kind in ("Gather", "GatherElements") and id(op.indices) in read:
            shape = first.shape if isinstance(first, np.ndarray) else graph.details_of(first).shape
            yield int(shape[op.axis])
