"""Mutations of models after which protobuf can still read the file."""

from __future__ import annotations

import random
from collections.abc import Callable

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

__all__ = ["mutate_model"]

_NUMBERS = (-(2**63), -(2**31), -7, -2, -1, 0, 1, 2, 3, 7, 64, 2**20, 2**31, 2**40, 2**63 - 1)
_FLOATS = (float("nan"), float("inf"), -1.0, 0.0, 1e-45, 3.4e38)


def mutate_model(data: bytes, rng: random.Random) -> bytes:
    """Return the model after one to four mutations of its graph."""
    model = onnx.load_from_string(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(_MUTATIONS)(model, rng)
    return bytes(model.SerializeToString())


def _node(graph: GraphProto, rng: random.Random) -> NodeProto:
    nodes: list[NodeProto] = list(graph.node) or [graph.node.add()]
    return rng.choice(nodes)


def _names(graph: GraphProto) -> list[str]:
    names = [name for node in graph.node for name in (*node.input, *node.output)]
    names += [value.name for value in (*graph.input, *graph.output)] + [tensor.name for tensor in graph.initializer]
    return [*names, "", "nowhere"]


def _rewire(model: ModelProto, rng: random.Random) -> None:
    node = _node(model.graph, rng)
    ends = rng.choice((node.input, node.output))
    if ends:
        ends[rng.randrange(len(ends))] = rng.choice(_names(model.graph))


def _resize_node(model: ModelProto, rng: random.Random) -> None:
    node = _node(model.graph, rng)
    ends = rng.choice((node.input, node.output))
    if ends and rng.random() < 0.5:
        del ends[rng.randrange(len(ends))]
    else:
        ends.append(rng.choice(_names(model.graph)))


def _retype(model: ModelProto, rng: random.Random) -> None:
    known = [schema.name for schema in onnx.defs.get_all_schemas()]
    node = _node(model.graph, rng)
    node.op_type = rng.choice((rng.choice(known), _node(model.graph, rng).op_type, "Nothing", ""))
    if rng.random() < 0.1:
        node.domain = rng.choice(("ai.onnx", "ai.onnx.ml", "com.microsoft", "x"))


def _drop_or_repeat(model: ModelProto, rng: random.Random) -> None:
    graph = model.graph
    part = rng.choice((graph.node, graph.initializer, graph.input, graph.output))
    if not part:
        return
    if rng.random() < 0.5:
        del part[rng.randrange(len(part))]
    else:
        part.add().CopyFrom(rng.choice(part))


def _attribute(model: ModelProto, rng: random.Random) -> None:
    node = _node(model.graph, rng)
    what = rng.randrange(4)
    if what == 0 and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif what == 1 or not node.attribute:
        name = rng.choice(
            ("axis", "axes", "perm", "split", "alpha", "keepdims", "pads", "strides", "transA", "to", "x")
        )
        value = rng.choice(
            (rng.choice(_NUMBERS), rng.choice(_FLOATS), [rng.choice(_NUMBERS)] * rng.randrange(4), "text")
        )
        node.attribute.append(
            onnx.helper.make_attribute(name, value, attr_type=None if value != [] else AttributeProto.INTS)
        )
    else:
        attribute = rng.choice(node.attribute)
        attribute.i, attribute.f = rng.choice(_NUMBERS), rng.choice(_FLOATS)
        if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_NUMBERS)
        if rng.random() < 0.2:
            attribute.type = rng.choice(list(AttributeProto.AttributeType.values()))


def _shape(model: ModelProto, rng: random.Random) -> None:
    values = [*model.graph.input, *model.graph.output]
    if not values:
        return
    tensor = rng.choice(values).type.tensor_type
    what = rng.randrange(4)
    if what == 0 and tensor.shape.dim:
        rng.choice(tensor.shape.dim).dim_value = rng.choice(_NUMBERS)
    elif what == 1 and tensor.shape.dim:
        rng.choice(tensor.shape.dim).dim_param = rng.choice(("batch", "?", "", "n + 1"))
    elif what == 2:
        tensor.elem_type = rng.choice((*TensorProto.DataType.values(), 999))
    elif tensor.shape.dim and rng.random() < 0.7:
        del tensor.shape.dim[rng.randrange(len(tensor.shape.dim))]
    else:
        tensor.ClearField("shape")


def _weight(model: ModelProto, rng: random.Random) -> None:
    if not model.graph.initializer:
        return
    tensor = rng.choice(model.graph.initializer)
    what = rng.randrange(5)
    if what == 0 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_NUMBERS)
    elif what == 1:
        tensor.data_type = rng.choice((*TensorProto.DataType.values(), 999))
    elif what == 2:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif what == 3:
        tensor.raw_data = rng.randbytes(len(tensor.raw_data))
    else:
        tensor.data_location = TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key, entry.value = (
            rng.choice(("location", "offset", "length")),
            rng.choice(("model.onnx", "none", "-1", "../x")),
        )


def _version(model: ModelProto, rng: random.Random) -> None:
    what = rng.randrange(3)
    if what == 0 or not model.opset_import:
        model.opset_import.add().version = rng.choice(_NUMBERS)
    elif what == 1:
        rng.choice(model.opset_import).version = rng.choice((1, 6, 7, 9, 11, 13, 18, 20, *_NUMBERS))
    else:
        model.ir_version = rng.choice(_NUMBERS)


_MUTATIONS: tuple[Callable[[ModelProto, random.Random], None], ...] = (
    _rewire,
    _resize_node,
    _retype,
    _drop_or_repeat,
    _attribute,
    _shape,
    _weight,
    _version,
)
