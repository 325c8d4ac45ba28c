"""Names for the nodes and tensors that passes make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

import onnx
import onnx_ir as ir

from ranum_falsify.network import Graph
from ranum_falsify.network.naming import tensor_name
from ranum_falsify.network.nesting import name_of, nested_nodes


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield the nodes of a model's graph, its subgraphs and its local functions."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def all_outputs(model: ir.Model) -> list[ir.Value]:
    """Return what the nodes of a model write, subgraphs and local functions included."""
    return [value for node in all_nodes(model) for value in node.outputs]


def tell_apart(model: ir.Model, known: Iterable[ir.Value]) -> None:
    """Rename new tensors that have the name of another one.

    Graphs name their tensors one by one, and ONNX Runtime refuses a model where one in a subgraph is called as one
    outside.

    Args:
        model: The model.
        known: What nodes wrote before there were new ones.
    """
    old = {id(value) for value in known}
    outputs = all_outputs(model)
    taken = {value.name for graph in model.graphs() for value in (*graph.inputs, *graph.initializers.values())}
    taken |= {value.name for value in outputs if id(value) in old or value.is_graph_output()}
    for value in outputs:
        if id(value) in old or value.is_graph_output() or not value.name:
            continue
        if value.name in taken:
            value.name = next(name for n in count(2) if (name := f"{value.name}_{n}") not in taken)
        taken.add(value.name)


class NodeNames:
    """The names of a model's nodes, those that are given included.

    Args:
        nodes: The nodes that the model has.
    """

    def __init__(self, nodes: Iterable[ir.Node]) -> None:
        self._taken = {node.name for node in nodes}

    def name(self, made: Iterable[ir.Node], root: str) -> None:
        """Name new nodes after the one that they replace."""
        for node in made:
            if not node.name:
                node.name = self._fresh(f"{root}/{node.op_type}")

    def _fresh(self, name: str) -> str:
        found = name
        for number in count(2):
            if found not in self._taken:
                break
            found = f"{name}_{number}"
        self._taken.add(found)
        return found


def name_nodes(graph: Graph) -> onnx.ModelProto:
    """Return the model of a graph, its nodes named as the graph names them, so that they keep these names."""
    assert graph.source is not None
    names = {tensor_name(op): op.name for op in graph.nodes}
    model = onnx.ModelProto()
    model.CopyFrom(graph.source)
    taken = set(names.values())
    for number, node in enumerate(model.graph.node):
        name = names.get(node.output[0] if node.output else "")
        if name is None and node.name in taken:
            name = f"{node.name}#{number}"
        node.name = node.name if name is None else name
    for node in nested_nodes(model.graph):
        node.name = name_of(node)
    return model
