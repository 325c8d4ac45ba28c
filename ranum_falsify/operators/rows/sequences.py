"""Sequences and optionals, resolved before a model is read: as far as the model says which tensors they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ranum_falsify.network.construction import MOST_NODES
from ranum_falsify.network.nesting import name_of, names_captured, rename_captured
from ranum_falsify.network.tensorise import Surroundings, lowering, refuse

Nodes = list[onnx.NodeProto]


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = [helper.get_attribute_value(a) for a in node.attribute if a.name == name]
    return found[0] if found else default


def _constant(name: str, value: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], name=name, value=numpy_helper.from_array(value))


# sequences ------------------------------------------------------------------------------------------------------


@lowering("SequenceConstruct")
def construct(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """List the operands."""
    around.sequences[node.output[0]] = tuple(around.resolve(name) for name in node.input)
    return []


@lowering("SequenceEmpty")
def empty(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """List nothing."""
    around.sequences[node.output[0]] = ()
    return []


@lowering("SequenceAt")
def item(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """Choose an item."""
    items = around.items(node)
    place = around.position(node, 1, len(items), 0)
    if place == len(items):
        raise refuse(node, f"a sequence of {len(items)} has no item {place}")
    around.renamed[node.output[0]] = items[place]
    return []


@lowering("SequenceInsert")
def insert(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """Insert an item, at the end if nothing else is said."""
    items = list(around.items(node))
    items.insert(around.position(node, 2, len(items), len(items)), around.resolve(node.input[1]))
    around.sequences[node.output[0]] = tuple(items)
    return []


@lowering("SequenceErase")
def erase(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """Leave an item out, the last one if nothing else is said."""
    items = list(around.items(node))
    place = around.position(node, 1, len(items), len(items) - 1)
    if not 0 <= place < len(items):
        raise refuse(node, f"a sequence of {len(items)} has no item {place}")
    del items[place]
    around.sequences[node.output[0]] = tuple(items)
    return []


@lowering("SequenceLength")
def length(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """Count the items."""
    around.known[node.output[0]] = np.array(len(around.items(node)), np.int64)
    return [_constant(node.output[0], around.known[node.output[0]])]


@lowering("SplitToSequence")
def split(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """Cut a tensor into parts along an axis; parts of one element lose the axis if they are to."""
    x, axis = around.resolve(node.input[0]), _attribute(node, "axis", 0)
    given = len(node.input) > 1 and node.input[1] != ""
    sizes = _part_sizes(around, node, x, axis)
    names = [around.fresh(f"{node.output[0]}_{place}") for place in range(len(sizes))]
    around.sequences[node.output[0]] = tuple(names)
    drops = not given and not _attribute(node, "keepdims", 1)
    parts = [around.fresh(f"{name}_part") for name in names] if drops else names
    cuts = np.cumsum([0, *sizes])
    nodes = []
    for place, part in enumerate(parts):
        ends = [around.fresh(f"{part}_{side}") for side in ("start", "end", "axis")]
        values = (cuts[place : place + 1], cuts[place + 1 : place + 2], np.array([axis]))
        nodes += [_constant(end, value.astype(np.int64)) for end, value in zip(ends, values, strict=True)]
        nodes.append(helper.make_node("Slice", [x, *ends], [part], name=part))
        if drops:
            nodes.append(helper.make_node("Squeeze", [part, ends[2]], [names[place]], name=names[place]))
    return nodes


def _part_sizes(around: Surroundings, node: onnx.NodeProto, x: str, axis: int) -> Sequence[int]:
    value = around.value_of(node.input[1]) if len(node.input) > 1 and node.input[1] else np.array(1)
    if value is None:
        raise refuse(node, "the sizes of the parts depend on the input")
    if value.ndim:
        return [int(size) for size in value]
    shape = around.shapes(x)
    whole = None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]
    if whole is None:
        raise refuse(node, "the number of its parts is not known; set symbolic dimensions with --dim NAME=VALUE")
    step = max(1, int(value))
    return [min(step, whole - begin) for begin in range(0, whole, step)]


@lowering("ConcatFromSequence")
def concatenate(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """Join the items along an axis, or along a new one."""
    items, axis = around.items(node), _attribute(node, "axis", 0)
    if not items:
        raise refuse(node, "its sequence is empty")
    if not _attribute(node, "new_axis", 0):
        return [helper.make_node("Concat", list(items), list(node.output), name=node.name, axis=axis)]
    place = around.fresh(f"{node.output[0]}_axis")
    names = [around.fresh(f"{name}_wide") for name in items]
    wide = [helper.make_node("Unsqueeze", [x, place], [y], name=y) for x, y in zip(items, names, strict=True)]
    joined = helper.make_node("Concat", names, list(node.output), name=node.name, axis=axis)
    return [_constant(place, np.array([axis], np.int64)), *wide, joined]


# optionals, and what holds any of them -------------------------------------------------------------------------------


@lowering("Identity", when=lambda node: False)
def copy(around: Surroundings, node: onnx.NodeProto) -> Nodes | None:
    """A copy of a sequence or an optional is the same; one of a tensor stays."""
    return _same(around, node) if _is_other(around, around.resolve(node.input[0])) else None


def _is_other(around: Surroundings, name: str) -> bool:
    return name in around.sequences or name in around.missing or name in around.present


def _same(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    around.renamed[node.output[0]] = around.resolve(node.input[0])
    return []


@lowering("Optional")
def wrap(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """An optional is what it holds."""
    if not node.input or not node.input[0]:
        around.missing.add(node.output[0])
        return []
    return _same(around, node)


@lowering("OptionalGetElement", unwraps=True)
def unwrap(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """What an optional holds is the optional."""
    if around.resolve(node.input[0]) in around.missing:
        raise refuse(node, "its optional holds nothing")
    return _same(around, node)


@lowering("OptionalHasElement")
def has(around: Surroundings, node: onnx.NodeProto) -> Nodes:
    """Whether an optional holds something is known."""
    held = bool(node.input) and bool(node.input[0]) and around.resolve(node.input[0]) not in around.missing
    return [_constant(node.output[0], np.array(held))]


# strings --------------------------------------------------------------------------------------------------------


@lowering("Cast", when=lambda node: _attribute(node, "to", 0) == onnx.TensorProto.STRING)
def spell_out(around: Surroundings, node: onnx.NodeProto) -> Nodes | None:
    """Numbers written as strings stay numbers, of which nothing else may be asked."""
    if _attribute(node, "to", 0) != onnx.TensorProto.STRING:
        return None
    if around.resolve(node.input[0]) not in around.texts:
        around.spelled.add(node.output[0])
        return [helper.make_node("Identity", [around.resolve(node.input[0])], list(node.output), name=node.name)]
    return _same(around, node)


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
            nodes.append(_constant(name, value))
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
    nodes = [_constant(axis, np.array([0], np.int64))]
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
