"""Local functions of a model, inlined after checking how large the model becomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

import onnx
import onnx.defs
import onnx.inliner

from ranum_falsify.errors import ModelError
from ranum_falsify.network.nesting import attribute_graphs, nested_nodes

_MOST_NODES = 250_000
_MOST_BYTES = 256 * 2**20

_Key = tuple[str, str, str]


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without local functions: each call is replaced by the function's body.

    Raises:
        ModelError: A function calls itself, its body does not fit its call, or the model would become too large.
    """
    if not model.functions:
        return model
    _check_expansion(model)
    try:
        return onnx.inliner.inline_local_functions(_align_opsets(model))
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        raise ModelError(f"local functions cannot be inlined ({first_line(error)}); export the model again") from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _align_opsets(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose functions import its own opsets wherever their operators are the same in these.

    The inliner leaves a function of another opset as it is.
    """
    own = {opset.domain: opset.version for opset in model.opset_import}
    places = [
        (place, opset.domain)
        for place, body in enumerate(model.functions)
        for opset in body.opset_import
        if own.get(opset.domain, opset.version) != opset.version
        and all(_is_same_in(node, opset, own[opset.domain]) for node in _nodes_within(body.node))
    ]
    if not places:
        return model
    aligned = onnx.ModelProto()
    aligned.CopyFrom(model)
    for place, domain in places:
        for opset in aligned.functions[place].opset_import:
            if opset.domain == domain:
                opset.version = own[domain]
    return aligned


def _is_same_in(node: onnx.NodeProto, opset: onnx.OperatorSetIdProto, version: int) -> bool:
    """Tell whether a node means the same in another version of an opset."""
    if node.domain != opset.domain:
        return True
    try:
        schemas = [onnx.defs.get_schema(node.op_type, each, node.domain) for each in (opset.version, version)]
    except onnx.defs.SchemaError:
        return False
    return schemas[0].since_version == schemas[1].since_version


def _nodes_within(nodes: Iterable[onnx.NodeProto]) -> Iterable[onnx.NodeProto]:
    for node in nodes:
        yield node
        for graph in attribute_graphs(node):
            yield from nested_nodes(graph)


def _check_expansion(model: onnx.ModelProto) -> None:
    """Check how large a model becomes before its functions are inlined.

    Raises:
        ModelError: A function calls itself, or there are too many nodes, or too many bytes.
    """
    bodies = {(f.domain, f.name, f.overload): f for f in model.functions}
    calls = {key: list(_calls(body.node, bodies)) for key, body in bodies.items()}
    try:
        order = list(TopologicalSorter({key: set(called) for key, called in calls.items()}).static_order())
    except CycleError as error:
        _, name, _ = error.args[1][0]
        raise ModelError(f"local function {name!r} calls itself; export the model again") from error
    sizes: dict[_Key, tuple[int, int]] = {}
    for key in order:
        sizes[key] = _expand(bodies[key].node, calls[key], sizes)
    nodes, size = _expand(model.graph.node, list(_calls(model.graph.node, bodies)), sizes)
    if nodes > _MOST_NODES or size > max(_MOST_BYTES, 2 * model.ByteSize()):
        raise ModelError(
            f"its {len(bodies)} local functions expand to {_round(nodes)} nodes and {_round(size)} bytes; "
            f"at most {_MOST_NODES:,} nodes are read, so export the model without functions, or in parts"
        )


def _calls(nodes: Iterable[onnx.NodeProto], bodies: Mapping[_Key, onnx.FunctionProto]) -> Iterable[_Key]:
    """Yield the functions that nodes and their subgraphs call, each as often as it is called."""
    for node in nodes:
        key = (node.domain, node.op_type, node.overload)
        if key in bodies:
            yield key
        for graph in attribute_graphs(node):
            yield from _calls(graph.node, bodies)


def _expand(
    nodes: Iterable[onnx.NodeProto], called: Iterable[_Key], sizes: Mapping[_Key, tuple[int, int]]
) -> tuple[int, int]:
    own = list(nodes)
    count, size = _count(own), sum(node.ByteSize() for node in own)
    for key in called:
        count, size = count - 1 + sizes[key][0], size + sizes[key][1]
    return count, size


def _count(nodes: Iterable[onnx.NodeProto]) -> int:
    return sum(1 + sum(_count(graph.node) for graph in attribute_graphs(node)) for node in nodes)


def _round(number: int) -> str:
    return f"{number:,}" if number < 10**12 else f"about 10^{len(str(number)) - 1}"
