"""Names that do harm if they are shown as they are, and models in which every name is one."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from lab.fuzz.cases import NETWORKS

__all__ = ["hostile_argument", "hostile_bytes", "hostile_file", "hostile_model", "hostile_name"]

_ORDERS = (
    *("::error file=a,line=1::owned", "::add-mask::1", "::set-output name=a::b", "::stop-commands::x", "::group::x"),
    *("##[error]owned", "##[group]owned", "##vso[task.complete result=Succeeded;]", "##teamcity[testFailed name='a']"),
    *("section_start:1:x\r\x1b[0Kowned", "travis_fold:start:x", "--- owned", "+++ owned", "~~~ owned", "^^^ +++"),
)
_CONTROLS = (
    *(
        "\x1b[2J",
        "\x1b[31m",
        "\x1b]0;owned\x07",
        "\x1b]8;;http://a\x1b\\",
        "\x1bc",
        "\x9b31m",
        "\x90q\x9c",
        "\x00",
        "\x7f",
    ),
    *("\r", "\n", "\r\n", "\n  ", "\t", "\x08" * 8, "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"),
    *("\u202e", "\u2066", "\u2069", "\u200b", "\u200d", "\ufeff", "\xad", "\u061c", "\U000e0041", "\ufff9", "\ue000"),
)
_QUOTES = (
    *('"""', "'''", '"', "'", "\\", "\\n", "\\N{", "\\x", "{", "}", "{0}", "{title}", "%s", "%(a)s", "`", "$(id)", "#"),
    *("[red]", "[/]", "[link=http://a]", ":smile:", "<b>", "-->", "]]>", "import os\n", "__file__", "../../a", "/"),
    *("-", "--", ".", "a" * 300, "é", "日本", "👍", "e\u0301", " ", "", "log (Log)", "CON", "input:", ":float32"),
)
_RAW = (b"\xff\xfe\xfd\xfc", b"\xed\xa0\x80\x9b", b"\x9b31m", b"\xc0\xae\xc0\xae")
_PLACE = "Qzzq"  # four bytes that `_RAW` replaces


# names ----------------------------------------------------------------------------------------------------------------


def hostile_name(rng: random.Random) -> str:
    """Return a name that holds an order, a control character or the end of a string, often several."""
    kinds = (_ORDERS, _CONTROLS, _QUOTES)
    return "".join(rng.choice(rng.choice(kinds)) for _ in range(rng.choice((1, 1, 2, 3, 5))))


def hostile_argument(rng: random.Random) -> str:
    """Return a name that an argument can hold."""
    return hostile_name(rng).replace("\x00", "\x01")


def hostile_file(rng: random.Random, suffix: str) -> str:
    """Return a name that a file can have, now and then in bytes that are not text."""
    stem = hostile_argument(rng).replace("/", "_").encode()[:100].decode(errors="ignore")
    return ("\udcff" if rng.random() < 0.1 else "") + (stem or "x") + suffix


def _make_renaming(rng: random.Random) -> Callable[[str], str]:
    """Return a function that gives each name its own hostile one, and leaves the empty name empty."""
    names: dict[str, str] = {"": ""}
    taken: set[str] = set()

    def rename(name: str) -> str:
        while name not in names:
            new = hostile_name(rng) + rng.choice(("", _PLACE, str(len(names))))
            if new and new not in taken:
                names[name] = new
                taken.add(new)
        return names[name]

    return rename


# models ---------------------------------------------------------------------------------------------------------------

_SOURCES = ("l2_normalise", "layer_norm_no_epsilon", "layer_norm_safe", "log_mel", "softmax_regression", "vae")


@cache
def _source(name: str) -> bytes:
    return (NETWORKS / f"{name}.onnx").read_bytes()


def _small(rng: random.Random) -> ModelProto:
    """Return a model of a few operators, one with two inputs, one with a symbolic size, one with a constant."""
    texts = (
        "g (float[1, 2] x) => (float[1, 2] y) { y = Log(x) }",
        "g (float[2] a, float[2] b) => (float[2] y) { c = Sqrt(a) y = Div(c, b) }",
        "g (float[n, 2] x) => (float[n, 2] y) { z = Exp(x) w = Sub(z, z) y = Div(z, w) }",
        "g (float[1, 2] x) => (float[1, 2] y) <int64[1] e = {1}> { m = ReduceSum<keepdims = 1>(x, e) y = Div(x, m) }",
    )
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {rng.choice(texts)}')


def hostile_model(rng: random.Random, *, broken: bool) -> ModelProto:
    model = _small(rng) if rng.random() < 0.7 else onnx.load_from_string(_source(rng.choice(_SOURCES)))
    renamed = _make_renaming(rng)
    _rename_graph(model.graph, renamed, rng)
    for field in ("producer_name", "producer_version", "domain", "doc_string"):
        setattr(model, field, hostile_name(rng))
    del model.metadata_props[:]
    model.metadata_props.add(key=hostile_name(rng), value=hostile_name(rng))
    if rng.random() < 0.3:
        model.opset_import.add(domain=hostile_name(rng), version=1)
    if broken:
        rng.choice(_FAULTS)(model, rng)
    return model


def _rename_graph(graph: GraphProto, renamed: Callable[[str], str], rng: random.Random) -> None:
    graph.name, graph.doc_string = hostile_name(rng), hostile_name(rng)
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name, value.doc_string = renamed(value.name), hostile_name(rng)
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = renamed(dim.dim_param)
    for tensor in graph.initializer:
        tensor.name, tensor.doc_string = renamed(tensor.name), hostile_name(rng)
    for number, node in enumerate(graph.node):
        node.name, node.doc_string = renamed(f"node {number}"), hostile_name(rng)
        node.input[:] = map(renamed, node.input)
        node.output[:] = map(renamed, node.output)
        for attribute in node.attribute:
            attribute.doc_string = hostile_name(rng)


def hostile_bytes(model: ModelProto, rng: random.Random) -> bytes:
    data: bytes = model.SerializeToString()
    return data.replace(_PLACE.encode(), rng.choice(_RAW)) if rng.random() < 0.05 else data


def _node(model: ModelProto, rng: random.Random) -> NodeProto:
    nodes: list[NodeProto] = list(model.graph.node)
    return rng.choice(nodes)


def _new_operator(model: ModelProto, rng: random.Random) -> None:
    _node(model, rng).op_type = hostile_name(rng)


def _new_domain(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    node.domain = hostile_name(rng)
    model.opset_import.add(domain=node.domain, version=rng.choice((1, 1, 0, 99)))


def _new_attribute(model: ModelProto, rng: random.Random) -> None:
    value = rng.choice((hostile_name(rng), 1, 0.5, [hostile_name(rng)], [1, 2]))
    _node(model, rng).attribute.append(onnx.helper.make_attribute(hostile_name(rng) or "x", value))


def _new_body(model: ModelProto, rng: random.Random) -> None:
    body = GraphProto(name=hostile_name(rng))
    op_type, name, read, written = (hostile_name(rng) for _ in range(4))
    body.node.add(op_type=op_type, name=name, input=[read], output=[written])
    body.output.add(name=hostile_name(rng))
    node = _node(model, rng)
    node.op_type = "If"
    del node.attribute[:]
    node.attribute.extend(onnx.helper.make_attribute(branch, body) for branch in ("then_branch", "else_branch"))


def _dangling(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    ends = node.input if rng.random() < 0.5 and node.input else node.output
    ends[rng.randrange(len(ends))] = hostile_name(rng)


def _repeated(model: ModelProto, rng: random.Random) -> None:
    part = rng.choice((model.graph.node, model.graph.input, model.graph.output))
    part.add().CopyFrom(rng.choice(part))


def _external(model: ModelProto, rng: random.Random) -> None:
    tensor = model.graph.initializer.add(name=hostile_name(rng), data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = rng.choice(("location", "location", "offset", hostile_name(rng))), hostile_name(rng)
    _node(model, rng).input.append(tensor.name)


def _shape(model: ModelProto, rng: random.Random) -> None:
    dim = rng.choice(model.graph.input).type.tensor_type.shape.dim
    if dim:
        rng.choice(dim).dim_value = rng.choice((0, -1, 3, 2**40))
    rng.choice(model.graph.input).type.tensor_type.elem_type = rng.choice((1, 7, 8, 11, 99))


def _function(model: ModelProto, rng: random.Random) -> None:
    node, domain = _node(model, rng), hostile_name(rng) or "x"
    node.domain, node.op_type = domain, hostile_name(rng) or "f"
    model.opset_import.add(domain=domain, version=1)
    function = model.functions.add(name=node.op_type, domain=domain, input=[hostile_name(rng)], output=["y"])
    function.opset_import.add(version=17)
    op_type, name, read = (hostile_name(rng) for _ in range(3))
    function.node.add(op_type=rng.choice(("Log", op_type)), name=name, input=[read], output=["y"])


_FAULTS = (
    *(_new_operator, _new_domain, _new_attribute, _new_body, _dangling, _repeated),
    *(_external, _shape, _function),
)
