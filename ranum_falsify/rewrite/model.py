"""ONNX models as onnx-ir holds them: read, copied, written, their nodes named; large tensors stay in their files."""

from __future__ import annotations

import copy
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from ranum_falsify.errors import ModelError, SaveError, reason_of
from ranum_falsify.network import Graph
from ranum_falsify.network.functions import first_line
from ranum_falsify.network.model_file import check_external_data, describe_wrong, model_bytes
from ranum_falsify.network.naming import UniqueNames, tensor_name
from ranum_falsify.network.nesting import name_of, nested_nodes
from ranum_falsify.network.resource_limits import TOO_MUCH_MEMORY
from ranum_falsify.saving import save_together

_LARGEST = 2_000_000_000
"""Bytes of tensors that a model may hold itself; protobuf's limit is 2 GiB for all."""


def read_model(path: Path) -> ir.Model:
    """Read a model, its nodes in topological order; external data is mapped, not read.

    Raises:
        ModelError: The file is missing, is not ONNX, is truncated, or its external data is missing.
    """
    try:
        proto = onnx.load_model_from_string(model_bytes(path))
        if not proto.graph.node and not proto.graph.output:
            raise ModelError(f"{path}: holds no graph; give the path of an ONNX model")
        check_external_data(proto, path)
        model = from_proto(proto, str(path))
        ir.external_data.set_base_dir(model.graph, path.parent.resolve())
    except MemoryError as error:
        raise ModelError(f"{path}: {TOO_MUCH_MEMORY}") from error
    except DecodeError as error:
        raise ModelError(f"{path}: {describe_wrong(path)}") from error
    except (onnx.checker.ValidationError, ValueError, OSError) as error:
        raise ModelError(f"{path}: cannot be loaded ({first_line(error)}); export it again") from error
    return model


def from_proto(proto: onnx.ModelProto, name: str) -> ir.Model:
    """Return a model in memory, its nodes in topological order.

    Raises:
        ModelError: It is broken.
    """
    try:
        model = ir.from_proto(proto)
        ir.passes.common.TopologicalSortPass()(model)  # a model in any other order cannot be copied
    except (onnx.checker.ValidationError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{name}: cannot be loaded ({first_line(error)}); export it again") from error
    return model


def copy_model(model: ir.Model) -> ir.Model:
    """Return a copy of a model that shares its tensors, and nothing that a pass would change."""
    copied = model.clone()
    scopes: list[ir.Graph | ir.Function] = [*copied.graphs(), *copied.functions.values()]
    for graph in scopes:
        values = [*graph.inputs, *(output for node in graph for output in node.outputs)]
        if isinstance(graph, ir.Graph):
            values += graph.initializers.values()
        for value in values:
            value.type = copy.deepcopy(value.type)  # a clone shares it
    return copied


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Return a model as a message, in which external tensors stay external."""
    return ir.to_proto(model)


def to_whole_proto(model: ir.Model) -> onnx.ModelProto:
    """Return a model as a message that holds all of its tensors.

    Raises:
        ModelError: They are too large for one.
    """
    if sum(tensor.nbytes for tensor in tensors_of(model)) >= _LARGEST:
        raise ModelError("model: its tensors are too large for one message; write it by `ranum-falsify transform`")
    return to_proto(ir.external_data.load_to_model(copy_model(model)) if has_external_data(model) else model)


def write_model(model: ir.Model, path: Path, beside: Mapping[Path, bytes] | None = None) -> None:
    """Write a model whole or not at all.

    Tensors go into one file beside it where some were external, or where one message cannot hold them all.

    Raises:
        SaveError: It cannot be written.
    """
    if not has_external_data(model) and sum(tensor.nbytes for tensor in tensors_of(model)) < _LARGEST:
        save_together({path: to_proto(model).SerializeToString(), **(beside or {})})
        return
    data = weights_path(path).name
    try:
        # In a folder of their own first: what is mapped may be what is written.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".ranum-falsify-") as folder:
            ir.save(model, Path(folder, path.name), external_data=data)
            for name in (data, path.name):
                made = Path(folder, name)
                if made.exists():  # there is no data where all tensors are small
                    made.replace(path.with_name(name))
    except OSError as error:
        raise SaveError(f"{path}: cannot be written ({reason_of(error)}); choose another path") from error
    if beside:
        save_together(beside)


def weights_path(path: Path) -> Path:
    """Return where the tensors of a model go that are not written into it."""
    return path.with_name(f"{path.name}.data")


def count_operators(model: ir.Model) -> Mapping[str, int]:
    """Return how often each operator occurs, subgraphs and local functions included; others' domains are named."""
    nodes = [*model.graph.all_nodes(), *(node for f in model.functions.values() for node in f.all_nodes())]
    return Counter(
        node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}" for node in nodes
    )


def has_external_data(model: ir.Model) -> bool:
    """Tell whether tensors of a model lie in files of their own."""
    return any(isinstance(tensor, ir.ExternalTensor) for tensor in tensors_of(model))


def external_files(model: ir.Model) -> set[Path]:
    """Return the files in which tensors of a model lie."""
    return {Path(tensor.path).resolve() for tensor in tensors_of(model) if isinstance(tensor, ir.ExternalTensor)}


def tensors_of(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Yield the initializers of a model, its subgraphs included."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield the nodes of a model's graph, its subgraphs and its local functions."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def all_outputs(model: ir.Model) -> list[ir.Value]:
    """Return what the nodes of a model write, subgraphs and local functions included."""
    return [value for node in all_nodes(model) for value in node.outputs]


def given_tensors(model: ir.Model) -> Iterator[ir.Value]:
    """Yield the inputs and the initializers of a model, its subgraphs included."""
    for graph in model.graphs():
        yield from (*graph.inputs, *graph.initializers.values())


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
    kept = (value for value in outputs if id(value) in old or value.is_graph_output())
    taken = UniqueNames(value.name or "" for value in (*given_tensors(model), *kept))
    for value in outputs:
        if id(value) in old or value.is_graph_output() or not value.name:
            continue
        value.name = taken.take(value.name)


class NodeNames:
    """The names of a model's nodes, those that are given included."""

    def __init__(self, nodes: Iterable[ir.Node]) -> None:
        self._names = UniqueNames(node.name or "" for node in nodes)

    def name(self, made: Iterable[ir.Node], root: str) -> None:
        """Name new nodes after the one that they replace."""
        for node in made:
            if not node.name:
                node.name = self._names.take(f"{root}/{node.op_type}")


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
