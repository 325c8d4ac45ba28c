"""What is not a numeric tensor, resolved before a model is read: strings, maps, sequences and optionals.

Nothing that is asked of a model depends on what strings say, on which key of a map a number stands, or on the list that
a tensor is an item of.  So a model is read without them:

- A string is a number, its code: the same one wherever the model writes the string, so that tables of strings are
  tables of integers, and strings are equal where their codes are.
- A map with numbers is the tensor that it is made of.
- A sequence is the list of its tensors, as far as the model alone says what they are; an optional is its tensor.

Operators that make or take such things say in :data:`Lowering` what remains of them.  Whoever runs the model runs it
as it is, so outputs that are strings or maps appear there, and here what they are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ranum_falsify.errors import ModelError, UnsupportedOperatorError
from ranum_falsify.network.nesting import attribute_graphs, names_captured, names_read, pass_on, rename_captured
from ranum_falsify.network.order import order_depth_first
from ranum_falsify.network.registry import find, schema_of
from ranum_falsify.network.string_inputs import string_inputs

_STRING = onnx.TensorProto.STRING

Lowering = Callable[["Surroundings", onnx.NodeProto], "list[onnx.NodeProto] | None"]
"""`rule(surroundings, node)`: the nodes that remain of a node, having noted what its outputs stand for; None for all.

It raises :class:`UnsupportedOperatorError` where the model alone does not say what remains."""

_LOWERINGS: dict[tuple[str, str], Lowering] = {}
_MAKERS: dict[tuple[str, str], Callable[[onnx.NodeProto], bool]] = {}
_UNWRAPPING: set[tuple[str, str]] = set()
_STRINGS: dict[tuple[str, str], Mapping[str, str]] = {}


def lowering(
    op_type: str,
    domain: str = "",
    *,
    when: Callable[[onnx.NodeProto], bool] = lambda node: True,
    unwraps: bool = False,
) -> Callable[[Lowering], Lowering]:
    """Declare what remains of an operator that makes or takes something else than numeric tensors.

    Args:
        op_type: Its name.
        domain: Its domain.
        when: Tells whether a node does so by itself, whatever its operands are.
        unwraps: Whether it gives the tensor that its operand is lowered to, in subgraphs too.
    """

    def register(rule: Lowering) -> Lowering:
        _LOWERINGS[domain, op_type] = rule
        _MAKERS[domain, op_type] = when
        _UNWRAPPING.update([(domain, op_type)] if unwraps else [])
        return rule

    return register


def list_lowered() -> tuple[tuple[str, str], ...]:
    """Return domain and name of the operators that are resolved before a model is read, and have no row."""
    return tuple(sorted(key for key in _LOWERINGS if find(key[1], key[0]) is None))


def strings(op_type: str, domain: str, attributes: Mapping[str, str]) -> None:
    """Declare under which names an operator has attributes of integers in place of those of strings.

    Args:
        op_type: Its name.
        domain: Its domain.
        attributes: Names of attributes of strings, with those of integers; a name ends in `!` if the first output holds
            such strings.
    """
    _STRINGS[domain, op_type] = attributes


@dataclass(kw_only=True)
class Surroundings:
    """What is known of the tensors of a model while it is lowered.

    Attributes:
        constants: Values of initializers and constants, by name.
        lower: Returns what remains of a node.
        shapes: Sizes of tensors, by name, as far as they are inferred.
        sequences: Names of the tensors of each sequence.
        renamed: Tensors by the names of others, which they stand for.
        present: Optionals that hold something.
        missing: Optionals that hold nothing.
        codes: Codes of strings.
        texts: Names of the tensors of strings.
        spelled: Names of numbers written as strings, of which nothing is known but that.
        taken: Names that are taken.
        known: Values of constants that were found on the way, by name.
        is_open: Whether strings may be any, because some are inputs.
        versions: The least version of a domain that what remains of the model needs.
    """

    constants: Callable[[str], np.ndarray | None]
    lower: Callable[[onnx.NodeProto], list[onnx.NodeProto]]
    shapes: Callable[[str], tuple[int | None, ...] | None]
    sequences: dict[str, tuple[str, ...]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    codes: dict[bytes, int] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    spelled: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    known: dict[str, np.ndarray] = field(default_factory=dict)
    is_open: bool = False
    versions: dict[str, int] = field(default_factory=dict)

    def value_of(self, name: str) -> np.ndarray | None:
        """Return the value of a tensor, None if it is not a constant."""
        name = self.resolve(name)
        return self.known[name] if name in self.known else self.constants(name)

    def code(self, text: bytes) -> int:
        """Return the code of a string."""
        return self.codes.setdefault(text, len(self.codes))

    def encode(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        """Return the codes of a tensor of strings."""
        codes = np.array([self.code(text) for text in tensor.string_data], np.int64)
        return numpy_helper.from_array(codes.reshape(tuple(tensor.dims)), tensor.name)

    def fresh(self, name: str) -> str:
        """Return a name that no tensor has."""
        found, number = name, 0
        while found in self.taken:
            number += 1
            found = f"{name}_{number}"
        self.taken.add(found)
        return found

    def resolve(self, name: str) -> str:
        """Return the tensor that a name stands for."""
        while name in self.renamed:
            name = self.renamed[name]
        return name

    def items(self, node: onnx.NodeProto, position: int = 0) -> tuple[str, ...]:
        """Return the tensors of a sequence that a node reads.

        Raises:
            UnsupportedOperatorError: They are not known.
        """
        name = self.resolve(node.input[position])
        if name not in self.sequences:
            raise refuse(node, "its sequence is an input, or comes out of a branch or a loop")
        return self.sequences[name]

    def position(self, node: onnx.NodeProto, place: int, length: int, default: int) -> int:
        """Return an index into a sequence that a node reads.

        Raises:
            UnsupportedOperatorError: It is not a constant.
            ModelError: There is no such item.
        """
        if len(node.input) <= place or not node.input[place]:
            return default
        value = self.value_of(node.input[place])
        if value is None:
            raise refuse(node, "its position depends on the input")
        number = int(value.reshape(-1)[0])
        if not -length <= number <= length:
            raise ModelError(f"node {node.name or node.op_type!r}: a sequence of {length} has no position {number}")
        return number % length if number < 0 else number


def refuse(node: onnx.NodeProto, why: str) -> UnsupportedOperatorError:
    """Return the error that a node cannot be resolved."""
    return UnsupportedOperatorError(f"node {node.name or node.op_type!r}: {node.op_type} is not supported here: {why}")


# the model ------------------------------------------------------------------------------------------------------


def lower(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of numeric tensors alone; the same one if it is.

    Raises:
        UnsupportedOperatorError: A number depends on what a string says, or a sequence on the input.
    """
    if not has_others(model.graph):
        return model
    lowered = onnx.ModelProto()
    lowered.CopyFrom(model)
    graph = lowered.graph
    around = _survey(graph, model)
    _lower_inputs(graph, around)
    order = order_depth_first(list(graph.node), _needs(graph))
    nodes = [new for node in order for new in around.lower(node)]
    del graph.value_info[:], graph.node[:]
    graph.node.extend(nodes)
    _lower_outputs(graph, around)
    for entry in lowered.opset_import:
        entry.version = max(entry.version, around.versions.get(entry.domain, 0))
    return lowered


def has_others(graph: onnx.GraphProto) -> bool:
    """Tell whether a graph has anything else than numeric tensors."""
    if any(_is_other(info) for info in (*graph.input, *graph.output)):
        return True
    if any(tensor.data_type == _STRING for tensor in graph.initializer):
        return True
    return any(_makes_others(node) or _has_texts(node) for node in graph.node)


def _makes_others(node: onnx.NodeProto) -> bool:
    when = _MAKERS.get((_domain(node), node.op_type))
    return when is not None and when(node)


def _is_other(info: onnx.ValueInfoProto) -> bool:
    kind = info.type.WhichOneof("value")
    return kind not in (None, "tensor_type") or info.type.tensor_type.elem_type == _STRING


def _domain(node: onnx.NodeProto) -> str:
    return "" if node.domain == "ai.onnx" else node.domain


def _has_texts(node: onnx.NodeProto) -> bool:
    names = _STRINGS.get((_domain(node), node.op_type), {})
    return any(attribute.name in names for attribute in node.attribute) or any(
        attribute.t.data_type == _STRING for attribute in node.attribute
    )


def _needs(graph: onnx.GraphProto) -> Callable[[onnx.NodeProto], list[onnx.NodeProto]]:
    writers = {name: node for node in graph.node for name in node.output if name}
    reads = {id(node): [writers[name] for name in names_read(node) if name in writers] for node in graph.node}
    return lambda node: reads[id(node)]


def _survey(graph: onnx.GraphProto, model: onnx.ModelProto) -> Surroundings:
    tensors, stored = {tensor.name: tensor for tensor in graph.initializer}, dict[str, onnx.AttributeProto]()
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain and len(node.attribute) == 1:
            stored[node.output[0]] = node.attribute[0]

    def constant(name: str) -> np.ndarray | None:
        if name in stored:
            value = helper.get_attribute_value(stored[name])
            return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
        return numpy_helper.to_array(tensors[name]) if name in tensors else None

    @cache
    def inferred() -> Mapping[str, tuple[int | None, ...]]:
        try:
            whole = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
            whole = graph
        infos = [info for info in (*whole.input, *whole.value_info, *whole.output) if _has_shape(info)]
        return {info.name: _sizes(info) for info in infos} | {n: tuple(t.dims) for n, t in tensors.items()}

    taken = {name for node in graph.node for name in (*node.input, *node.output)}

    def lower_node(node: onnx.NodeProto) -> list[onnx.NodeProto]:
        return _lower_node(node, around, model)

    around = Surroundings(constants=constant, lower=lower_node, shapes=lambda name: inferred().get(name), taken=taken)
    around.is_open = bool(string_inputs(model))
    return around


def _has_shape(info: onnx.ValueInfoProto) -> bool:
    return info.type.WhichOneof("value") == "tensor_type" and bool(info.type.tensor_type.HasField("shape"))


def _sizes(info: onnx.ValueInfoProto) -> tuple[int | None, ...]:
    dims = info.type.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.WhichOneof("value") == "dim_value" else None for dim in dims)


# its parts ------------------------------------------------------------------------------------------------------


def _lower_inputs(graph: onnx.GraphProto, around: Surroundings) -> None:
    for info in graph.input:
        held = info.type.optional_type.elem_type
        if held.HasField("tensor_type"):
            info.type.CopyFrom(held)
            around.present.add(info.name)
    for tensor in graph.initializer:
        if tensor.data_type == _STRING:
            around.texts.add(tensor.name)
            tensor.CopyFrom(around.encode(tensor))


def _lower_node(node: onnx.NodeProto, around: Surroundings, model: onnx.ModelProto) -> list[onnx.NodeProto]:
    rule = _LOWERINGS.get((_domain(node), node.op_type))
    if rule is not None and (remains := rule(around, node)) is not None:
        for one in remains:
            _check_texts(one, around, model, writes_text=False)
        return remains
    reads = [around.resolve(name) for name in node.input]
    captured = {name: around.resolve(name) for name in names_captured(node)}
    for name in (*reads, *captured.values()):
        if name in around.sequences or (name in around.missing and name in reads):
            reader = "it" if name in reads else "a branch or body inside it"
            raise refuse(node, f"{reader} reads {name!r}, which is no tensor")
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    changed.input[:] = reads
    pass_on(changed, _UNWRAPPING, {name for name, known in captured.items() if known not in around.missing})
    moved = {name: known for name, known in captured.items() if name in around.renamed}
    if moved:
        rename_captured(changed, moved, around.fresh)
    writes_text = _encode_attributes(changed, around)
    _check_texts(changed, around, model, writes_text=writes_text)
    return [changed]


def _encode_attributes(node: onnx.NodeProto, around: Surroundings) -> bool:
    """Replace strings among the attributes of a node by their codes; tell whether its first output holds them."""
    names = _STRINGS.get((_domain(node), node.op_type), {})
    writes = lists = any(a.strings and names.get(a.name, "").endswith("!") for a in node.attribute)
    for attribute in list(node.attribute):
        if attribute.t.data_type == _STRING and attribute.HasField("t"):
            writes = writes or attribute.name in ("value", "values_tensor")
            attribute.t.CopyFrom(around.encode(attribute.t))
        listed = attribute.type == onnx.AttributeProto.STRINGS
        if attribute.name not in names or not (listed or lists):  # the default of no table of strings
            continue
        number, is_written = names[attribute.name].rstrip("!"), names[attribute.name].endswith("!")
        beside = [other for other in node.attribute if other.name == number]
        if listed and beside:
            raise refuse(node, f"it has {attribute.name} and {number}, of which kernels read one")
        values = [around.code(text) for text in (attribute.strings or [attribute.s])]
        for other in (attribute, *beside):
            node.attribute.remove(other)
        if listed and not is_written and node.input[0] not in around.texts:
            raise refuse(node, f"{attribute.name} beside an operand of numbers")
        node.attribute.append(helper.make_attribute(number, values if listed else values[0]))
    return writes


def _check_texts(node: onnx.NodeProto, around: Surroundings, model: onnx.ModelProto, *, writes_text: bool) -> None:
    """Note which outputs of a node are codes of strings.

    Raises:
        UnsupportedOperatorError: It makes numbers of strings, or strings of numbers, other than by a table.
    """
    reads = [name for name in node.input if name in around.texts]
    if around.is_open and any(attribute_graphs(node)) and (reads or not around.texts.isdisjoint(names_captured(node))):
        raise refuse(node, "its subgraph reads strings, which may be any, because inputs are strings")
    if writes_text:
        around.texts.add(node.output[0])
    if spelled := [name for name in node.input if name in around.spelled]:
        raise refuse(node, f"it reads {spelled[0]!r}, numbers written as strings")
    row = find(node.op_type, _domain(node))
    if not reads or (_domain(node), node.op_type) in _STRINGS or (row is not None and row.shape_only):
        return
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    schema = schema_of(node.op_type, _domain(node), opsets.get(node.domain, opsets.get("", 1)))
    if schema is None:
        raise refuse(node, "it reads strings")
    kinds = {
        schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i, n in enumerate(node.input) if n in around.texts
    }
    formal = [schema.outputs[min(i, len(schema.outputs) - 1)] for i in range(len(node.output))]
    moved = [name for name, output in zip(node.output, formal, strict=True) if output.type_str in kinds]
    if not moved and not all(set(output.types) == {"tensor(bool)"} for output in formal):
        raise refuse(node, "it makes numbers of what strings say")
    # One code stands for all strings that the model does not hold, so these cannot be told from each other.
    free = [name for name in reads if around.value_of(name) is None]
    if around.is_open and len(moved) < len(formal) and (len(free) > 1 or len(reads) < 2):
        raise refuse(node, "it compares strings of inputs with each other, and not with those of the model alone")
    around.texts.update(moved)


def _lower_outputs(graph: onnx.GraphProto, around: Surroundings) -> None:
    names: dict[str, onnx.ValueInfoProto] = {}
    for info in graph.output:
        name = around.resolve(info.name)
        for item in around.sequences.get(name, () if name in around.missing else (name,)):
            plain = item == info.name and not _is_other(info)
            names.setdefault(item, info if plain else onnx.ValueInfoProto(name=item))
    kept = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in names.values()]
    if not kept:
        raise ModelError("none of its outputs holds numbers; ask of a model that computes some")
    del graph.output[:]
    graph.output.extend(kept)
