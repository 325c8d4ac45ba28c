"""What graphs contain, their subgraphs included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from dnnv.nn import Operation, OperationGraph

from ranum_falsify.network.blackbox import BlackBox, title_of
from ranum_falsify.network.order import topological_order
from ranum_falsify.network.registry import row_of, spec_of
from ranum_falsify.network.trace import UnfitBranch

if TYPE_CHECKING:
    from ranum_falsify.network.graph import Graph

__all__ = [
    "black_boxes_of",
    "has_subgraphs",
    "has_unfit_branches",
    "is_evaluated_outside",
    "list_makers",
    "nodes_with_branches",
]

Folded = tuple[Operation, tuple[np.ndarray, ...]]
"""An operation that depends on no input, and its values."""


def nodes_with_branches(graph: Graph) -> list[Operation]:
    """Return the nodes of a graph, and those of its subgraphs."""
    nodes: list[Operation] = []
    pending = [graph]
    while pending:
        for op in pending.pop().nodes:
            nodes.append(op)
            pending.extend(cast("Graph", value) for value in op.__dict__.values() if isinstance(value, OperationGraph))
    return nodes


def has_subgraphs(graph: Graph) -> bool:
    """Tell whether an input decides what runs in a subgraph of some operator."""
    return any(op.__dict__.get("captured") is not None for op in graph.nodes)


def has_unfit_branches(graph: Graph) -> bool:
    """Tell whether a branch of some `If` cannot run on the example on which the graph was read."""
    return any(isinstance(value, UnfitBranch) for op in nodes_with_branches(graph) for value in op.__dict__.values())


def is_evaluated_outside(graph: Graph) -> bool:
    """Tell whether ONNX Runtime evaluates some operator of a graph."""
    return any(isinstance(op, BlackBox) for op in nodes_with_branches(graph))


def black_boxes_of(graph: Graph) -> dict[str, str]:
    """Return the titles of a graph's operators of which nothing is known, those in subgraphs too, with the reasons."""
    boxes = (op for op in nodes_with_branches(graph) if isinstance(op, BlackBox) and op.body is None)
    return {title_of(op.proto.op_type, spec_of(op).domain): op.why for op in boxes}


def list_makers(outputs: Sequence[Operation], folded: Sequence[Folded]) -> tuple[Folded, ...]:
    """Return the folded operations that make the constants behind some outputs, in their order.

    Args:
        outputs: Operations of a graph.
        folded: All operations that depend on no input, with their values, in topological order.
    """
    read = [value for op in topological_order(outputs) if (spec := row_of(op)) for value in spec.operands_of(op)]
    needed, found = set(map(id, read)), list[Folded]()
    for op, arrays in reversed(folded):
        if not needed.isdisjoint(map(id, arrays)):
            found.append((op, arrays))
            needed.update(map(id, spec_of(op).operands_of(op)))
    return tuple(reversed(found))
