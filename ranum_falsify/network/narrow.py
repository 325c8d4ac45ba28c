"""Integers of 4 and of 2 bits, read as integers of 8 bits with the same values.

Weights are stored so; nothing computes with them, except the operators that convert from and to them.  In place of one
that quantises to such integers stand one that quantises to 8 bits and a Clip to the range of the narrow type: both
round, add the zero point and saturate, and saturating twice is saturating once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.errors import UnsupportedTypeError
from ranum_falsify.network.naming import UniqueNames
from ranum_falsify.network.nesting import attribute_graphs, name_of

__all__ = ["widen_integers"]

_WIDE: dict[int, tuple[int, int, int]] = {
    TensorProto.INT4: (TensorProto.INT8, -8, 7),
    TensorProto.UINT4: (TensorProto.UINT8, 0, 15),
    TensorProto.INT2: (TensorProto.INT8, -2, 1),
    TensorProto.UINT2: (TensorProto.UINT8, 0, 3),
}
"""For each narrow type, the type that stands for it, its least value and its greatest one."""


def widen_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without integers of fewer than 8 bits; the same one if it has none.

    Its inputs stay as they are.

    Raises:
        UnsupportedTypeError: A node rounds to such integers otherwise than by quantisation.
    """
    if not any(_is_narrow(graph) for graph in _list_graphs(model.graph)):
        return model
    types = _infer_types(model)
    widened = onnx.ModelProto()
    widened.CopyFrom(model)
    graphs = list(_list_graphs(widened.graph))
    names = UniqueNames(name for graph in graphs for name in _list_names(graph))
    for graph in graphs:
        _widen(graph, types, names)
    return widened


def _list_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and all of its subgraphs."""
    yield graph
    for node in graph.node:
        for inner in attribute_graphs(node):
            yield from _list_graphs(inner)


def _list_names(graph: onnx.GraphProto) -> Iterator[str]:
    for item in (*graph.input, *graph.initializer):
        yield item.name
    for node in graph.node:
        yield from node.output


def _is_narrow(graph: onnx.GraphProto) -> bool:
    if any(tensor.data_type in _WIDE for tensor in graph.initializer):
        return True
    if any(info.type.tensor_type.elem_type in _WIDE for info in graph.input):
        return True
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    return any(a.t.data_type in _WIDE or (a.name in _TYPE_NAMES and a.i in _WIDE) for a in attributes)


_TYPE_NAMES = ("to", "dtype", "output_dtype")
"""Attributes whose number is an element type."""


_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")
"""Operators that have twins of the same meaning in ONNX Runtime's domain."""


def _infer_types(model: onnx.ModelProto) -> Mapping[str, int]:
    """Return the element types of tensors, by name, as far as they are known."""
    try:
        whole = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        whole = model
    types: dict[str, int] = {}
    for graph in _list_graphs(whole.graph):
        for info in (*graph.input, *graph.value_info, *graph.output):
            types[info.name] = info.type.tensor_type.elem_type
        types.update({tensor.name: tensor.data_type for tensor in graph.initializer})
    return types


def _widen(graph: onnx.GraphProto, types: Mapping[str, int], names: UniqueNames) -> None:
    """Replace narrow types in a graph, not in its subgraphs."""
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for info in (*graph.output, *graph.value_info):
        kind = info.type.tensor_type
        if kind.elem_type in _WIDE:
            kind.elem_type = _WIDE[kind.elem_type][0]
    nodes = [new for node in graph.node for new in _widen_node(node, types, names)]
    del graph.node[:]
    graph.node.extend(nodes)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _WIDE:
        dtype = helper.tensor_dtype_to_np_dtype(_WIDE[tensor.data_type][0])
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))


def _widen_node(node: onnx.NodeProto, types: Mapping[str, int], names: UniqueNames) -> list[onnx.NodeProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            _widen_tensor(attribute.t)
    target = _find_target(node, types)
    if target not in _WIDE:
        return [node]
    if node.op_type != "QuantizeLinear":
        named = TensorProto.DataType.Name(target)
        raise UnsupportedTypeError(
            f"node {name_of(node)!r} ({node.op_type}): only QuantizeLinear is supported to make numbers of type {named}"
        )
    wide, least, greatest = _WIDE[target]
    for attribute in node.attribute:
        if attribute.name == "output_dtype":
            attribute.i = wide
    dtype = helper.tensor_dtype_to_np_dtype(wide)
    written = node.output[0]
    node.output[0] = names.take(f"{written}_wide")
    ends = [names.take(f"{written}_{end}") for end in ("min", "max")]
    limits = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, dtype), name))
        for name, value in zip(ends, (least, greatest), strict=True)
    ]
    clip = helper.make_node("Clip", [node.output[0], *ends], [written], name=f"{name_of(node)}_saturate")
    return [node, *limits, clip]


def _find_target(node: onnx.NodeProto, types: Mapping[str, int]) -> int:
    """Return the type to which a node rounds or converts numbers, 0 for a node that does not.

    Raises:
        UnsupportedTypeError: It is not known, in a model with narrow types.
    """
    if node.domain not in ("", "ai.onnx") and node.op_type not in _CONVERSIONS:
        if read := [name for name in node.input if types.get(name) in _WIDE]:
            raise UnsupportedTypeError(
                f"node {name_of(node)!r} ({node.op_type}): reads {read[0]!r}, which holds integers of fewer than 8 bits"
            )
        return 0
    given = {attribute.name: attribute.i for attribute in node.attribute}
    asked = next((given[name] for name in _TYPE_NAMES if given.get(name)), 0)
    place = {"QuantizeLinear": 2, "CastLike": 1}.get(node.op_type)
    if asked or place is None or len(node.input) <= place or not node.input[place]:
        return asked if node.op_type != "DequantizeLinear" else 0
    if not types.get(node.input[place]):
        raise UnsupportedTypeError(f"node {name_of(node)!r} ({node.op_type}): its type is not known; infer the shapes")
    return types[node.input[place]]
