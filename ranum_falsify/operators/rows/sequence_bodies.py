"""Bodies that run for each item of a sequence, resolved before a model is read: repeated for each of them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ranum_falsify.network.lowering import Surroundings, lowering, refuse
from ranum_falsify.network.nesting import name_of, names_captured, rename_captured
from ranum_falsify.network.unrolling import MOST_NODES

__all__ = ["apply_to_items", "unroll_over_items"]

Nodes = list[onnx.NodeProto]


def _body_of(node: onnx.NodeProto) -> onnx.GraphProto:
    body: onnx.GraphProto = next(attribute.g for attribute in node.attribute if attribute.name == "body")
    return body


@lowering("SequenceMap")
def apply_to_items(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """Repeat the body for each item."""
    body, items = _body_of(node), around.items(node)
    names = [around.resolve(name) for name in node.input]
    columns = [around.sequences.get(name, (name,) * len(items)) for name in names]
    if any(len(column) != len(items) for column in columns):
        raise refuse(node, "its sequences have several lengths")
    nodes, rows = Nodes(), list[list[str]]()
    for place, row in enumerate(zip(*columns, strict=True)):
        own = {info.name: item for info, item in zip(body.input, row, strict=True)}
        nodes += _repeat(around, node, own, place)
        rows.append([around.resolve(own.get(info.name, info.name)) for info in body.output])
    for position, name in enumerate(node.output):
        around.sequences[name] = tuple(row[position] for row in rows)
    return nodes


@lowering("Loop", when=lambda node: False)
def unroll_over_items(around: Surroundings, node: onnx.NodeProto) -> Nodes | None:
    """Repeat the body of a loop that hands on or reads sequences; other loops stay as they are."""
    body = _body_of(node)
    reads = (around.resolve(name) for name in (*node.input[2:], *names_captured(node)))
    if not any(name in around.sequences for name in reads):
        return None
    count, going = (around.value_of(name) if name else None for name in node.input[:2])
    if count is None or (node.input[1] and (going is None or not going.all())) or not _goes_on(around, body):
        raise refuse(node, "it reads sequences, and an input decides how long it runs")
    if len(body.node) * int(count) > MOST_NODES:
        raise refuse(node, f"its iterations are more than {MOST_NODES:,} nodes")
    nodes, states, rows = Nodes(), [around.resolve(name) for name in node.input[2:]], list[list[str]]()
    kept = len(states)
    for place in range(int(count)):
        steering = [around.fresh(f"{name_of(node)}/{info.name}[{place}]") for info in body.input[:2]]
        for name, value in zip(steering, (np.array(place, np.int64), np.array(True)), strict=True):
            around.known[name] = value
            nodes.append(helper.make_node("Constant", [], [name], name=name, value=numpy_helper.from_array(value)))
        own = {info.name: name for info, name in zip(body.input, (*steering, *states), strict=True)}
        nodes += _repeat(around, node, own, place)
        left = [around.resolve(own.get(info.name, info.name)) for info in body.output[1:]]
        states, row = left[:kept], left[kept:]
        rows.append(row)
    for name, state in zip(node.output, states, strict=False):
        around.renamed[name] = state
    for position, name in enumerate(node.output[kept:]):
        nodes += _stack(around, node, [row[position] for row in rows], name) if name else []
    return nodes


def _stack(around: Surroundings, node: onnx.NodeProto, rows: list[str], name: str) -> Nodes:
    """Return nodes that put tensors one below the other."""
    if not rows:
        raise refuse(node, "it reads sequences, and does not run once")
    axis = around.fresh(f"{name}_axis")
    tall = [around.fresh(f"{name}[{place}]") for place in range(len(rows))]
    nodes = [
        helper.make_node("Constant", [], [axis], name=axis, value=numpy_helper.from_array(np.array([0], np.int64)))
    ]
    nodes += [helper.make_node("Unsqueeze", [x, axis], [y], name=y) for x, y in zip(rows, tall, strict=True)]
    return [*nodes, helper.make_node("Concat", tall, [name], name=f"{name_of(node)}/{name}", axis=0)]


def _goes_on(around: Surroundings, body: onnx.GraphProto) -> bool:
    """Tell whether the condition that a body hands on is the one that it is given, or a constant that is true."""
    copies = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    name = body.output[0].name
    while name in copies:
        name = copies[name]
    if name == body.input[1].name:
        return True
    value = None if any(name in inner.output for inner in body.node) else around.value_of(name)
    return value is not None and bool(value.all())


def _repeat(around: Surroundings, node: onnx.NodeProto, own: dict[str, str], place: int) -> Nodes:
    """Return what remains of a body for one item, and note the names of its tensors beside those that it is given."""
    body, path = _body_of(node), f"{name_of(node)}/body/"
    written = [name for inner in body.node for name in inner.output if name]
    own |= {name: around.fresh(f"{path}{name}[{place}]") for name in (*(t.name for t in body.initializer), *written)}
    nodes = [
        helper.make_node("Constant", [], [own[tensor.name]], name=own[tensor.name], value=tensor)
        for tensor in body.initializer
    ]
    for inner in body.node:
        copied = onnx.NodeProto()
        copied.CopyFrom(inner)
        copied.name = f"{path}{name_of(inner)}[{place}]"
        rename_captured(copied, own, around.fresh)
        copied.input[:] = [own.get(name, name) for name in inner.input]
        copied.output[:] = [own.get(name, name) for name in inner.output]
        nodes += around.lower(copied)
    return nodes
