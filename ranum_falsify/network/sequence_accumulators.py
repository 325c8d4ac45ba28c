"""Lists that loops fill, as tensors that they collect.

Scripted modules write `rows.append(h)` in a loop and `torch.stack(rows)` after it: a sequence that each iteration hands
to the next.  Before a model is read, such a sequence becomes an output of the loop that collects its items.  Where both
branches of an `If` append to the list, the `If` chooses the item, which is appended after it; the length of a list that
a branch reads is taken before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx import helper

from ranum_falsify.network.naming import UniqueNames
from ranum_falsify.network.nesting import attribute_graphs, names_in, names_read


def collect_lists(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which loops collect the items that they append to a list."""
    if not any(node.op_type == "SequenceEmpty" for node in model.graph.node):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    names = UniqueNames(names_in(changed.graph))
    _clear_branches(changed.graph, names)
    while (found := next(_find_lists(changed.graph), None)) is not None:
        _collect(changed.graph, found, names)
    return changed


def _clear_branches(graph: onnx.GraphProto, names: UniqueNames) -> None:
    """Take what the branches of an `If` do with lists from around it out of them, in subgraphs too."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in attribute_graphs(node):
            _clear_branches(inner, names)
        if node.op_type == "If":
            nodes += [before for branch in attribute_graphs(node) for before in _measure_before(branch, names)]
        nodes.append(node)
        if node.op_type == "If":
            afters = [_append_after(node, place, names) for place in range(len(node.output))]
            nodes += [after for after in afters if after is not None]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _measure_before(branch: onnx.GraphProto, names: UniqueNames) -> Iterator[onnx.NodeProto]:
    """Let a branch read the lengths of lists from around it; yield what computes them."""
    own = {name for node in branch.node for name in node.output}
    for node in branch.node:
        if node.op_type == "SequenceLength" and node.input[0] not in own:
            length = names.take(f"{node.output[0]}/length")
            yield helper.make_node("SequenceLength", [node.input[0]], [length], name=names.take(f"{node.name}/before"))
            node.CopyFrom(helper.make_node("Identity", [length], list(node.output), name=node.name))


def _append_after(node: onnx.NodeProto, place: int, names: UniqueNames) -> onnx.NodeProto | None:
    """Make an output of an `If` the item that its branches append; return what appends it, None if they do not."""
    branches = list(attribute_graphs(node))
    inserts = [_find_insert_in_branch(branch, place) for branch in branches]
    found = [insert for insert in inserts if insert is not None]
    if len(found) != 2 or found[0].input[0] != found[1].input[0]:
        return None
    after, item = node.output[place], names.take(f"{node.output[place]}/item")
    name = names.take(f"{found[0].name}/after")
    append = helper.make_node("SequenceInsert", [found[0].input[0], item], [after], name=name)
    for branch, insert in zip(branches, found, strict=True):
        output = branch.output[place]
        kind = output.type.sequence_type.elem_type.tensor_type.elem_type
        # Its shape, if it says one, is that of any item.
        output.CopyFrom(onnx.ValueInfoProto(name=output.name))
        output.type.tensor_type.elem_type = kind
        insert.CopyFrom(helper.make_node("Identity", [insert.input[1]], [output.name], name=insert.name))
    node.output[place] = item
    return append


def _find_insert_in_branch(branch: onnx.GraphProto, place: int) -> onnx.NodeProto | None:
    """Return the node of a branch that appends to a list from around it, and writes an output that nothing reads."""
    after = branch.output[place].name
    own = {name for node in branch.node for name in node.output}
    reads = Counter(name for node in branch.node for name in names_read(node))
    reads.update(output.name for output in branch.output)
    for node in branch.node:
        if node.op_type == "SequenceInsert" and node.output[0] == after and reads[after] == 1:
            at_end = len(node.input) < 3 or not node.input[2]
            return node if at_end and node.input[0] not in own else None
    return None


@dataclass(frozen=True)
class _List:
    """A list that a loop fills.

    Attributes:
        loop: The loop.
        place: Position among its states.
        insert: What appends an item.
        joins: What joins the items after the loop.
        rank: Number of the items' dimensions, None if the model does not say.
    """

    loop: onnx.NodeProto
    place: int
    insert: onnx.NodeProto
    joins: list[onnx.NodeProto]
    rank: int | None

    @property
    def body(self) -> onnx.GraphProto:
        """What the loop repeats."""
        return _body(self.loop)


def _body(loop: onnx.NodeProto) -> onnx.GraphProto:
    body: onnx.GraphProto = next(attribute.g for attribute in loop.attribute if attribute.name == "body")
    return body


def _find_lists(graph: onnx.GraphProto) -> Iterator[_List]:
    made = {name: node for node in graph.node for name in node.output}
    ends = {output.name for output in graph.output}
    for loop in (node for node in graph.node if node.op_type == "Loop"):
        for place, name in enumerate(loop.input[2:]):
            body = _body(loop)
            start, after = made.get(name), loop.output[place] if place < len(loop.output) else ""
            insert = _find_insert(body, body.input[2 + place].name, body.output[1 + place].name)
            joins = [node for node in graph.node if after and after in names_read(node)]
            if start is None or start.op_type != "SequenceEmpty" or insert is None or after in ends:
                continue
            found = _List(loop, place, insert, joins, _rank(body.output[1 + place]))
            if all(_can_join(found, join) for join in joins):
                yield found


def _find_insert(body: onnx.GraphProto, before: str, after: str) -> onnx.NodeProto | None:
    """Return the node that appends an item, if nothing else reads the list."""
    reads = Counter(name for node in body.node for name in names_read(node))
    reads.update(output.name for output in body.output)
    if reads[before] != 1 or reads[after] != 1:
        return None
    for node in body.node:
        if node.op_type == "SequenceInsert" and node.output[0] == after and node.input[0] == before:
            return node if len(node.input) < 3 or not node.input[2] else None
    return None


def _rank(info: onnx.ValueInfoProto) -> int | None:
    kind = info.type.sequence_type.elem_type.tensor_type
    return len(kind.shape.dim) if kind.HasField("shape") else None


def _can_join(found: _List, join: onnx.NodeProto) -> bool:
    """Tell whether a node joins the items, so that it can join what is collected of them."""
    if join.op_type != "ConcatFromSequence":
        return False
    axis, is_new = _axis(join)
    return axis == 0 or (is_new and found.rank is not None)


def _axis(join: onnx.NodeProto) -> tuple[int, bool]:
    """Return along which axis a node joins items, and whether that is a new one."""
    given = {attribute.name: attribute.i for attribute in join.attribute}
    return given.get("axis", 0), bool(given.get("new_axis", 0))


def _join(found: _List, join: onnx.NodeProto, rows: str, names: UniqueNames) -> list[onnx.NodeProto]:
    """Return nodes that give what one gives that joins the items."""
    (axis, is_new), name = _axis(join), join.name or join.output[0]
    if not is_new:
        parts = ("from", "to", "all", "sizes", "rest", "shape")
        start, end, free, sizes, rest, shape = (names.take(f"{name}/{part}") for part in parts)
        return [
            helper.make_node("Constant", [], [start], value_ints=[2]),
            helper.make_node("Constant", [], [end], value_ints=[2**31]),
            helper.make_node("Constant", [], [free], value_ints=[-1]),
            helper.make_node("Shape", [rows], [sizes]),
            helper.make_node("Slice", [sizes, start, end], [rest]),
            helper.make_node("Concat", [free, rest], [shape], axis=0),
            helper.make_node("Reshape", [rows, shape], list(join.output), name=name),
        ]
    if axis == 0:
        return [helper.make_node("Identity", [rows], list(join.output), name=name)]
    assert found.rank is not None
    axis %= found.rank + 1
    order = [*range(1, axis + 1), 0, *range(axis + 1, found.rank + 1)]
    return [helper.make_node("Transpose", [rows], list(join.output), name=name, perm=order)]


def _collect(graph: onnx.GraphProto, found: _List, names: UniqueNames) -> None:
    loop, body, place = found.loop, found.body, found.place
    rows, row = names.take(f"{loop.output[place]}/rows"), names.take(f"{found.insert.input[1]}/row")
    replaced = {join.output[0]: _join(found, join, rows, names) for join in found.joins}
    loop.output.extend([""] * (len(body.output) - 1 - len(loop.output)))
    kind = body.output[1 + place].type.sequence_type.elem_type
    body.output.append(onnx.ValueInfoProto(name=row, type=kind))
    loop.output.append(rows)
    found.insert.CopyFrom(helper.make_node("Identity", [found.insert.input[1]], [row]))
    del loop.input[2 + place], body.input[2 + place], body.output[1 + place], loop.output[place]
    nodes = [new for node in graph.node for new in replaced.get(node.output[0] if node.output else "", [node])]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
