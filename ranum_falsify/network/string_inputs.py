"""Inputs of strings, as integers that choose from a table of strings.

What a model computes of a string is whether it equals one of those that the model holds.  So an input of strings
becomes one of integers, from which a `Gather` makes the strings: all that the model may compare it with, and one that
the model does not hold, which stands for every other.  The changed model runs as any other does; runs of it are runs of
the original on the strings.  Where strings of inputs are compared with each other,
:mod:`ranum_falsify.network.tensorise` refuses.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.network.naming import UniqueNames
from ranum_falsify.network.nesting import attribute_graphs, names_captured, names_in, rename_captured
from ranum_falsify.network.registry import schema_of

_KEY = "ranum_falsify.strings"
"""Key of the metadata that says which inputs hold strings, and which strings their numbers stand for."""

_OTHER = "another string"
_MOST_SHOWN = 24


def number_strings(model: onnx.ModelProto, *, fixed: Collection[str] = ()) -> onnx.ModelProto:
    """Return a model that takes integers for strings; the same one if it takes no strings.

    Args:
        model: The model.
        fixed: Inputs that become constants, and stay strings.
    """
    given = {*(tensor.name for tensor in model.graph.initializer), *fixed}
    inputs = [info.name for info in model.graph.input if _holds_strings(info) and info.name not in given]
    if not inputs:
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    taken = UniqueNames(names_in(graph))
    names = {name: taken.take(f"{name}_string") for name in inputs}
    for info in graph.input:
        if info.name in names:
            info.type.tensor_type.elem_type = TensorProto.INT64
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        if not names.keys().isdisjoint(names_captured(node)):
            rename_captured(node, names, taken.take)
    for info in (*graph.output, *graph.value_info):
        info.name = names.get(info.name, info.name)
    texts = _list_texts(model)
    table = taken.take("strings")
    graph.initializer.append(numpy_helper.from_array(np.array(texts, dtype=object), table))
    chosen = [helper.make_node("Gather", [table, name], [new], name=taken.take(new)) for name, new in names.items()]
    nodes = [*chosen, *(onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node)]
    del graph.node[:]
    graph.node.extend(nodes)
    shown = [text.decode(errors="replace") for text in texts]
    changed.metadata_props.add(key=_KEY, value=json.dumps({"inputs": inputs, "strings": shown}))
    return changed


def string_inputs(model: onnx.ModelProto) -> Mapping[str, list[str]]:
    """Return what the numbers of inputs stand for that hold strings, by name; the last one is any other string."""
    for entry in model.metadata_props:
        if entry.key == _KEY:
            try:
                known = json.loads(entry.value)
                return {str(name): [str(text) for text in known["strings"]] for name in known["inputs"]}
            except (ValueError, TypeError, KeyError, RecursionError):
                return {}  # a stranger wrote it
    return {}


def describe_strings(model: onnx.ModelProto) -> Iterator[str]:
    """Yield what users should know of inputs that hold strings, a sentence if there are any."""
    found = string_inputs(model)
    if not found:
        return
    strings = next(iter(found.values()))
    known = [f"{number} {text!r}" for number, text in enumerate(strings[:-1])]
    more = len(known) - _MOST_SHOWN
    listed = ", ".join(known[:_MOST_SHOWN]) + (f", {more} more" if more > 0 else "")
    yield (
        f"strings are taken as numbers, and may be any (of {', '.join(map(repr, found))}): "
        f"{listed}{' and ' if listed else ''}{len(known)} for each other string"
    )


def _holds_strings(info: onnx.ValueInfoProto) -> bool:
    return info.type.tensor_type.elem_type == TensorProto.STRING


def _list_texts(model: onnx.ModelProto) -> list[bytes]:
    """Return the strings that a model holds and may compare, and one that it does not hold."""
    opsets = {_name_domain(entry.domain): entry.version for entry in model.opset_import}
    texts = dict.fromkeys(_find_texts(model.graph, opsets))
    other = _OTHER.encode()
    while other in texts:
        other += b"'"
    return [*texts, other]


def _find_texts(graph: onnx.GraphProto, opsets: Mapping[str, int]) -> Iterator[bytes]:
    """Yield the strings in the tensors of a graph, and in lists among the attributes of its nodes."""
    for tensor in graph.initializer:
        yield from tensor.string_data
    for node in graph.node:
        compares = not _reads_numbers(node, opsets)
        for attribute in node.attribute:
            yield from attribute.strings if compares else ()
            yield from attribute.t.string_data
        for inner in attribute_graphs(node):
            yield from _find_texts(inner, opsets)


def _reads_numbers(node: onnx.NodeProto, opsets: Mapping[str, int]) -> bool:
    """Tell whether a node reads, and only reads, what is no string: its own strings are labels, or settings.

    What it makes of labels is not compared with strings of inputs, only with those of the model.
    """
    domain = _name_domain(node.domain)
    schema = schema_of(node.op_type, domain, opsets.get(domain, 1))
    return (
        schema is not None
        and bool(schema.inputs)
        and not any("string" in kind for operand in schema.inputs for kind in operand.types)
    )


def _name_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
