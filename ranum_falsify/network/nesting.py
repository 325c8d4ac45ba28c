"""Subgraphs that nodes hold: what they contain, the tensors that cross their borders, and the way to a node in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np
import onnx
from dnnv.nn import Operation, OperationGraph

from ranum_falsify.network.blackbox import BlackBox, title_of
from ranum_falsify.network.order import topological_order
from ranum_falsify.network.registry import row_of, spec_of
from ranum_falsify.network.shaped import NodeOrigin, ShapedGraph
from ranum_falsify.network.trace import UnfitBranch


def attribute_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the subgraphs that a node holds as attributes (`If`, `Loop`, `Scan`)."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def nested_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph, each before those of its subgraphs."""
    for node in graph.node:
        yield node
        for inner in attribute_graphs(node):
            yield from nested_nodes(inner)


def names_in(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield all names of tensors and nodes in a graph and its subgraphs, some more than once."""
    yield from (item.name for item in (*graph.input, *graph.initializer, *graph.output))
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)
        for inner in attribute_graphs(node):
            yield from names_in(inner)


def name_of(node: onnx.NodeProto) -> str:
    """Return a node's name; one without gets that of its operator and its first output."""
    return str(node.name or f"{node.op_type}_{node.output[0]}")


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of the tensors that a node reads, those captured by its subgraphs included."""
    yield from (name for name in node.input if name)
    yield from names_captured(node)


def names_captured(node: onnx.NodeProto) -> list[str]:
    """Return the names of the outer tensors that a node's subgraphs read, each once, sorted."""
    captured: set[str] = set()
    for graph in attribute_graphs(node):
        inner = {item.name for item in (*graph.input, *graph.initializer)}
        inner |= {sparse.values.name for sparse in graph.sparse_initializer}
        inner |= {name for child in graph.node for name in child.output}
        reads = [name for child in graph.node for name in names_read(child)]
        reads += [output.name for output in graph.output]
        captured.update(name for name in reads if name not in inner)
    return sorted(captured)


def pass_on(node: onnx.NodeProto, operators: Collection[tuple[str, str]], names: Collection[str]) -> None:
    """Turn nodes in a node's subgraphs into identities, in place.

    Args:
        node: The node.
        operators: Domains and names of the operators of such nodes.
        names: Tensors around the subgraphs; a node that reads another one stays.
    """
    for graph in attribute_graphs(node):
        for child in nested_nodes(graph):
            if (child.domain, child.op_type) in operators and child.input[0] in names:
                child.op_type, child.domain = "Identity", ""


def rename_captured(node: onnx.NodeProto, names: Mapping[str, str], take: Callable[[str], str]) -> None:
    """Rename, in place, the tensors that a node's subgraphs capture; those that they write get names of their own.

    Args:
        node: The node.
        names: New names of the captured tensors.
        take: Returns, for a name, one that no other tensor has.
    """
    for graph in attribute_graphs(node):
        _rename(graph, names, take)


def _rename(graph: onnx.GraphProto, outer: Mapping[str, str], take: Callable[[str], str]) -> None:
    given = [*graph.input, *graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]
    own = [item.name for item in given] + [name for child in graph.node for name in child.output if name]
    names = {**outer, **{name: take(name) for name in dict.fromkeys(own)}}
    for item in (*given, *graph.output, *graph.value_info):
        item.name = names.get(item.name, item.name)
    for child in graph.node:
        child.input[:] = [names.get(name, name) for name in child.input]
        child.output[:] = [names.get(name, name) for name in child.output]
        for inner in attribute_graphs(child):
            _rename(inner, names, take)


Folded = tuple[Operation, tuple[np.ndarray, ...]]
"""An operation that depends on no input, and its values."""


def nodes_with_branches(graph: ShapedGraph) -> list[Operation]:
    """Return the nodes of a graph, and those of its subgraphs."""
    nodes: list[Operation] = []
    pending = [graph]
    while pending:
        for op in pending.pop().nodes:
            nodes.append(op)
            pending.extend(
                cast("ShapedGraph", value) for value in op.__dict__.values() if isinstance(value, OperationGraph)
            )
    return nodes


def has_subgraphs(graph: ShapedGraph) -> bool:
    """Tell whether an input decides what runs in a subgraph of some operator."""
    return any(op.__dict__.get("captured") is not None for op in graph.nodes)


def has_unfit_branches(graph: ShapedGraph) -> bool:
    """Tell whether a branch of some `If` cannot run on the example on which the graph was read."""
    return any(isinstance(value, UnfitBranch) for op in nodes_with_branches(graph) for value in op.__dict__.values())


def is_evaluated_outside(graph: ShapedGraph) -> bool:
    """Tell whether ONNX Runtime evaluates some operator of a graph."""
    return any(isinstance(op, BlackBox) for op in nodes_with_branches(graph))


def black_boxes_of(graph: ShapedGraph) -> dict[str, str]:
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
