"""Names in ONNX models, changed throughout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx

from ranum_falsify.network.nesting import attribute_graphs


def rename_tensors(model: onnx.ModelProto, names: Mapping[str, str]) -> onnx.ModelProto:
    """Return the model with other names of tensors; where another tensor has such a name, that one gives way.

    Args:
        model: The model.
        names: New names by old ones; those that the model does not have are passed over.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    taken = set(_names(copy.graph))
    known = {old: new for old, new in names.items() if old in taken}
    wanted = set(known.values())
    for name in sorted(wanted & taken - known.keys()):
        known[name] = next(fresh for i in range(len(taken) + 1) if (fresh := f"{name}.{i}") not in taken | wanted)
    _rename(copy.graph, known)
    return copy


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    for info in (*graph.input, *graph.initializer):
        yield info.name
    for node in graph.node:
        yield from node.output
        for child in attribute_graphs(node):
            yield from _names(child)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for info in (*graph.input, *graph.initializer, *graph.output, *graph.value_info):
        info.name = names.get(info.name, info.name)
    for node in graph.node:
        for ends in (node.input, node.output):
            ends[:] = [names.get(name, name) for name in ends]
        for child in attribute_graphs(node):
            _rename(child, names)


def hold_inputs(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return the model with these inputs as initializers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    inputs = [info for info in copy.graph.input if info.name not in values]
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    copy.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in values.items())
    return copy
