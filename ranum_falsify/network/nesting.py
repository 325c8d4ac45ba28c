"""Subgraphs that nodes hold, and the tensors that cross their borders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import onnx

__all__ = [
    "attribute_graphs",
    "name_of",
    "names_captured",
    "names_in",
    "names_read",
    "nested_nodes",
    "pass_on",
    "rename_captured",
]


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
