"""Small files that ask for huge amounts of time or memory."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto, helper

__all__ = ["Bomb", "make_bomb"]

_HUGE = (10**7, 2**27, 2**28 + 1, 10**9, 2**31, 10**10, 10**12, 2**40, 2**62, 2**63 - 1)
_BOX = (
    "from dnnv.properties import *\nfrom ranum_falsify.properties import *\n\nN = Network('N')\n"
    "Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))\n"
)
_LINES = "(declare-const X_0 Real)\n(declare-const Y_0 Real)\n(assert (<= X_0 1.0))\n(assert (>= X_0 -1.0))\n"


@dataclass(frozen=True)
class Bomb:
    """Files, and the arguments that name them.

    Attributes:
        name: What is huge.
        arguments: Arguments of the command; files are named relative to the folder.
        files: Their contents by name.
        links: What symbolic links lead to, by name.
        pipes: Names of named pipes.
        holes: Sizes of files of zeros that take no room, by name.
    """

    name: str
    arguments: tuple[str, ...]
    files: Mapping[str, bytes]
    links: Mapping[str, str] = field(default_factory=dict)
    pipes: Sequence[str] = ()
    holes: Mapping[str, int] = field(default_factory=dict)


def make_bomb(rng: random.Random) -> Bomb:
    """Return one of them."""
    return rng.choice(_KINDS)(rng)


def _run(name: str, model: onnx.ModelProto | bytes, prop: str = _BOX, **more: object) -> Bomb:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return Bomb(
        name,
        ("prop.py", "-N", "N", "model.onnx"),
        {"prop.py": prop.encode(), "model.onnx": data},
        **more,  # type: ignore[arg-type]
    )


def _model(
    nodes: Sequence[onnx.NodeProto],
    weights: Sequence[onnx.TensorProto] = (),
    *,
    shape: Sequence[int] = (4,),
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    sparse: Sequence[onnx.SparseTensorProto] = (),
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights, sparse_initializer=sparse)
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid("local", 1)] if functions else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions)


def _ints(name: str, *values: int) -> onnx.TensorProto:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def _scalar(name: str, value: float, kind: int = TensorProto.FLOAT) -> onnx.TensorProto:
    return helper.make_tensor(name, kind, [], [value])


# ------------------------------------------------------------------ models


def _functions(rng: random.Random) -> Bomb:
    depth, width = rng.choice(((30, 2), (9, 10), (5, 20), (3, 1000), (99, 1), (200, 1), (4, 30), (90, 2)))
    bodies = []
    recursive = rng.random() < 0.1
    payload = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", 1, [1000], [1.0] * 1000))
    for level in range(depth):
        names = ["a", *(f"t{i}" for i in range(width - 1)), "b"]
        called = f"f{level - 1}" if level else f"f{depth - 1}" if recursive else ""
        nodes = [
            helper.make_node(called, [before], [after], domain="local")
            if called
            else helper.make_node("Relu", [before], [after])
            for before, after in pairwise(names)
        ]
        if not level and rng.random() < 0.3:
            nodes.append(payload)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
        bodies.append(helper.make_function("local", f"f{level}", ["a"], ["b"], nodes, imports))
    call = helper.make_node(f"f{depth - 1}", ["x"], ["y"], domain="local")
    return _run(f"functions {depth} x {width}", _model([call], functions=bodies))


def _constants(rng: random.Random) -> Bomb:
    """Constants that an operator makes of a few bytes."""
    size = rng.choice(_HUGE)
    kind = rng.choice(("ConstantOfShape", "Expand", "Tile", "Range", "OneHot", "EyeLike", "Pad", "Resize", "Outer"))
    weights, nodes = [_ints("n", size), _scalar("one", 1.0)], []
    node = helper.make_node
    if kind == "ConstantOfShape":
        nodes = [node(kind, ["n"], ["c"])]
    elif kind == "Expand":
        nodes = [node(kind, ["one", "n"], ["c"])]
    elif kind == "Tile":
        weights.append(helper.make_tensor("row", TensorProto.FLOAT, [2], [1.0, 2.0]))
        nodes = [node(kind, ["row", "n"], ["c"])]
    elif kind == "Range":
        weights += [_scalar("from", 0.0), _scalar("to", float(size)), _scalar("by", rng.choice((1.0, 1e-9, 1e-30)))]
        nodes = [node(kind, ["from", "to", "by"], ["c"])]
    elif kind == "OneHot":
        weights += [helper.make_tensor("ends", TensorProto.FLOAT, [2], [0.0, 1.0]), _ints("at", 1, 2)]
        nodes = [node(kind, ["at", "n", "ends"], ["c"])]
    elif kind == "EyeLike":
        weights.append(_ints("square", min(size, 10**6), min(size, 10**6)))
        nodes = [node("ConstantOfShape", ["square"], ["s"]), node(kind, ["s"], ["c"])]
    elif kind == "Pad":
        weights += [helper.make_tensor("row", TensorProto.FLOAT, [2], [1.0, 2.0]), _ints("pads", 0, size)]
        nodes = [node(kind, ["row", "pads"], ["c"])]
    elif kind == "Resize":
        weights.append(helper.make_tensor("row", TensorProto.FLOAT, [1, 1, 2], [1.0, 2.0]))
        weights.append(helper.make_tensor("scales", TensorProto.FLOAT, [3], [1.0, 1.0, float(size)]))
        nodes = [node(kind, ["row", "", "scales"], ["c"])]
    else:
        side = min(size, 20_000)
        weights += [_ints("tall", side, 1), _ints("wide", 1, side)]
        nodes = [node("ConstantOfShape", [n], [f"s{n}"]) for n in ("tall", "wide")]
        nodes.append(node("Mul", ["stall", "swide"], ["c"]))
    nodes += [node("ReduceMax", ["c"], ["m"], keepdims=0), node("Add", ["x", "m"], ["y"])]
    return _run(f"{kind} of {size}", _branched(_model(nodes, weights), rng))


def _branched(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """Sometimes put what makes the constant into a branch that is never taken."""
    if rng.random() < 0.7:
        return model
    graph = model.graph
    inner = helper.make_graph(list(graph.node), "b", [], [helper.make_tensor_value_info("y", 1, None)])
    other = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["z"])], "c", [], [helper.make_tensor_value_info("z", 1, None)]
    )
    del graph.node[:]
    graph.node.append(helper.make_node("If", ["never"], ["y2"], then_branch=inner, else_branch=other))
    graph.node.append(helper.make_node("Identity", ["y2"], ["y"]))
    graph.initializer.append(helper.make_tensor("never", TensorProto.BOOL, [], [rng.random() < 0.2]))
    return model


def _shapes(rng: random.Random) -> Bomb:
    """Inputs, weights and sparse weights whose shapes are huge."""
    size = rng.choice(_HUGE)
    what = rng.randrange(4)
    add = helper.make_node("Add", ["x", "w"], ["y"])
    if what == 0:
        dims = rng.choice(((size,), (1, size), (size, size), (2**31, 2**31, 2**31)))
        return _run(f"input of {dims}", _model([helper.make_node("Relu", ["x"], ["y"])], shape=dims))
    if what == 1:
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size])
        weight.raw_data = b"\0" * 16
        return _run(f"weight of {size}", _model([add], [weight]))
    if what == 2:
        values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
        at = rng.choice(([0], [size - 1], [-1]))
        sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [1], at), [size])
        return _run(f"sparse weight of {size}", _model([add], sparse=[sparse]))
    reshape = helper.make_node("Reshape", ["x", "n"], ["y"])
    return _run(f"reshape to {size}", _model([reshape], [_ints("n", size, rng.choice((1, -1, 0)))]))


def _deep(rng: random.Random) -> Bomb:
    """Subgraphs in subgraphs, or long chains."""
    if rng.random() < 0.2:
        return _run("messages nested beyond protobuf's limit", _nested_messages(rng.choice((34, 1000, 10**5))))
    depth = rng.choice((5, 20, 28))
    operator = rng.choice(("If", "Loop"))
    node = helper.make_node("Relu", ["x"], ["y0"])
    for level in range(depth):
        out = [helper.make_tensor_value_info(f"y{level}", TensorProto.FLOAT, None)]
        if operator == "If":
            body = helper.make_graph([node], "b", [], out)
            branches = {"then_branch": body, "else_branch": body}
            node = helper.make_node("If", ["yes"], [f"y{level + 1}"], **branches)
            if level > 12:
                del node.attribute[1]
        else:
            bools = [helper.make_tensor_value_info("yes", TensorProto.BOOL, [])]
            count = [helper.make_tensor_value_info(f"i{level}", TensorProto.INT64, [])]
            keep = helper.make_node("Identity", ["yes"], [f"k{level}"])
            ends = [helper.make_tensor_value_info(f"k{level}", TensorProto.BOOL, []), *out]
            body = helper.make_graph([keep, node], "b", [*count, *bools], ends)
            node = helper.make_node("Loop", ["many", "yes"], [f"y{level + 1}"], body=body)
    node.output[0] = "y"
    weights = [helper.make_tensor("yes", TensorProto.BOOL, [], [True]), _scalar("many", 2**40, TensorProto.INT64)]
    return _run(f"{operator} nested {depth} deep", _model([node], weights))


def _nested_messages(depth: int) -> bytes:
    """Return a model of graphs in attributes in nodes, byte by byte, because no library writes so many."""
    data, pieces = 0, []
    for _ in range(depth):
        for field_number in (1, 5, 6):  # of a node in a graph, an attribute in a node, a graph in an attribute
            head = bytes([field_number << 3 | 2]) + _varint(data)
            pieces.append(head)
            data += len(head)
    return bytes([7 << 3 | 2]) + _varint(data) + b"".join(reversed(pieces))


def _varint(number: int) -> bytes:
    result = bytearray()
    while number > 127:
        result.append(number & 127 | 128)
        number >>= 7
    return bytes([*result, number])


def _wide(rng: random.Random) -> Bomb:
    """Operators whose work grows faster than their operands."""
    node, size = helper.make_node, rng.choice((200, 1000, 3000, 8000))
    what = rng.randrange(4)
    if what == 0:
        weights = [_ints("n", 1, 1, size, size), _ints("k", 1, 1, size // 2, size // 2)]
        nodes = [node("Expand", ["x", "n"], ["a"]), node("ConstantOfShape", ["k"], ["w"])]
        return _run(f"Conv {size}", _model([*nodes, node("Conv", ["a", "w"], ["y"])], weights, shape=(1,)))
    if what == 1:
        nodes = [node("Expand", ["x", "n"], ["t0"])]
        nodes += [node("MatMul", [f"t{i}", f"t{i}"], [f"t{i + 1}"]) for i in range(40)]
        nodes.append(node("Identity", ["t40"], ["y"]))
        return _run(f"MatMul {size}", _model(nodes, [_ints("n", size, size)], shape=(1,)))
    if what == 2:
        nodes = [node("Concat", [f"t{i}", f"t{i}"], [f"t{i + 1}"], axis=0) for i in range(50)]
        nodes[0].input[:] = ["x", "x"]
        return _run("Concat doubled", _model([*nodes, node("Identity", ["t50"], ["y"])]))
    nodes = [node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(size * 4)]
    nodes[0].input[0] = "x"
    nodes[-1].output[0] = "y"
    return _run(f"chain of {size * 4}", _model(nodes))


def _external(rng: random.Random) -> Bomb:
    location = rng.choice(("hole", "pipe", "zero", "/dev/zero", "../prop.py", "none", ".", "", "model.onnx", "a\0b"))
    dims = rng.choice(((4,), (10**9,), (10**12,)))
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    pairs = {"location": location}
    if rng.random() < 0.5:
        pairs["length"] = rng.choice(("-1", "16", str(4 * dims[0]), "9" * 5000, "x"))
    if rng.random() < 0.3:
        pairs["offset"] = rng.choice(("-1", "4", str(2**62), "9" * 30))
    for key, value in pairs.items():
        weight.external_data.add(key=key, value=value)
    again = TensorProto()
    again.CopyFrom(weight)
    again.name = "v"
    nodes = [helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "v"], ["y"])]
    more = {"links": {"zero": "/dev/zero"}, "pipes": ("pipe",), "holes": {"hole": rng.choice((16, 2**32, 2**42))}}
    return _run(f"external data {location!r}", _model(nodes, [weight, again]), **more)  # type: ignore[arg-type]


# ------------------------------------------------------------------ compressed files and texts


@cache
def _zeros(megabytes: int) -> bytes:
    """Return compressed zeros, in parts of 64 megabytes."""
    return gzip.compress(bytes(64 * 2**20), mtime=0) * (megabytes // 64)


def _compressed(rng: random.Random) -> Bomb:
    data = _zeros(rng.choice((64, 256, 3072)))
    plain = _model([helper.make_node("Log", ["x"], ["y"])]).SerializeToString()
    whole = rng.choice((data, gzip.compress(plain) + data, data[: len(data) // 2], gzip.compress(data)))
    if rng.random() < 0.5:
        arguments = ("prop.vnnlib.gz", "-N", "N", "model.onnx")
        return Bomb("compressed property", arguments, {"prop.vnnlib.gz": whole, "model.onnx": plain})
    arguments = ("prop.py", "-N", "N", "model.onnx.gz")
    return Bomb("compressed model", arguments, {"prop.py": _BOX.encode(), "model.onnx.gz": whole})


def _lines(rng: random.Random) -> Bomb:
    count = rng.choice((10**4, 10**5, 10**6))
    number = rng.choice(
        ("1" * count, "0." + "1" * count, "1e" + "9" * 9, "1e-999999999", "-" * count, "1e400", "0e99999")
    )
    text = rng.choice(
        (
            _LINES + f"(assert (<= Y_0 {number}))\n",
            _LINES + f"(assert (<= X_0 {number}))\n",
            _LINES + "(assert " + "(and " * count + "(<= Y_0 0.0)" + ")" * count + ")\n",
            _LINES + "(assert (or" + " (<= Y_0 0.0)" * (count // 10) + "))\n",
            _LINES + "(assert (<= (+" + " Y_0" * count + ") 0.0))\n",
            "".join(f"(declare-const X_{i} Real)\n" for i in range(count)) + _LINES[26:],
            f"(declare-const X_{'9' * rng.choice((10, 20, 1000, count))} Real)\n" + _LINES,
            "(declare-const X_99999999999 Real)\n(assert (<= X_99999999999 1.0))\n" + _LINES,
            "(declare-const Y_99999999999 Real)\n(assert (<= Y_99999999999 1.0))\n" + _LINES,
            "(" * count,
            ";" * count,
            _LINES + "(declare-fun" + " " * count,
        )
    )
    model = _model([helper.make_node("Log", ["x"], ["y"])], shape=(1,)).SerializeToString()
    return Bomb("text", ("prop.vnnlib", "-N", "N", "model.onnx"), {"prop.vnnlib": text.encode(), "model.onnx": model})


def _python(rng: random.Random) -> Bomb:
    value = rng.choice(
        (
            *("1" * 10**6, "1e" + "9" * 9, "9**9**9", "2**(10**9)", "1 << 10**10", "'a' * 10**10", "[0] * 10**10"),
            *("np.zeros(10**12)", "np.zeros((1, 10**9))", "np.ones(10**8)", "np.arange(10**9)", "-" * 10**5 + "1"),
            *("(" * 10**4 + "1" + ")" * 10**4, "1 +" * 10**5 + " 1", "float('1' * 10**6)"),
            *("int('1' * 10**6)", "bytes(10**11)", "list(range(10**9))", "' ' * 2**31"),
        )
    )
    text = (
        _BOX.partition("Forall")[0]
        + f"import numpy as np\nb = {value}\n"
        + rng.choice(
            (
                "Forall(x, Implies(-1 <= x <= b, no_invalid_input(N(x))))\n",
                "Forall(x, Implies(-1 <= x <= 1, N(x)[0] <= b))\n",
                "Forall(x, Implies(-1 <= x <= 1, N(x)[b] <= 1))\n",
            )
        )
    )
    model = _model([helper.make_node("Log", ["x"], ["y"])], shape=(1,))
    return _run("Python", model, text)


# ------------------------------------------------------------------ counterexamples


def _array(rng: random.Random) -> Bomb:
    """An array file that claims more than it holds, for `replay`."""
    stream = io.BytesIO()
    np.save(stream, np.zeros(1, np.float32))
    data = stream.getvalue()
    claimed = str(rng.choice((*_HUGE, 10**30, -1))).encode()
    data = rng.choice(
        (
            data.replace(b"(1,)", b"(" + claimed + b",)"),
            data.replace(b"<f4", b"|O"),
            data.replace(b"<f4", b"<f4" * 5),
            data.replace(b"(1,)", b"(" * 500),
            data[:8] + b"\xff\xff" + data[10:],
            b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + data[10:],
            b"\x80\x04c os\nsystem\n(S'true'\ntR.",
        )
    )
    model = _model([helper.make_node("Log", ["x"], ["y"])], shape=(1,)).SerializeToString()
    arguments = ("replay", rng.choice(("cex.npy", "pipe", "hole.npy")), "-N", "N", "model.onnx")
    holes = {"hole.npy": 2**42}
    return Bomb("array", arguments, {"cex.npy": data, "model.onnx": model}, pipes=("pipe",), holes=holes)


def _description(rng: random.Random) -> Bomb:
    """A description of counterexamples, for `replay`."""
    whole = {
        "format": 1,
        "property": "prop.py",
        "vnnlib": False,
        "parameters": {},
        "dims": {},
        "dtype": None,
        "networks": {"N": {"path": "model.onnx", "sha256": ""}},
        "counterexamples": [{"network": "N", "inputs": {"x": "cex.npy"}, "violations": []}],
    }
    number = rng.choice(("1" * 10**6, "1e999999999", "-1", "NaN", "[" * 10**5, '{"a":' * 10**5, "1" * 4000))
    text = json.dumps(whole)
    text = rng.choice(
        (
            text.replace('"format": 1', f'"format": {number}'),
            text.replace('"dims": {}', f'"dims": {{"n": {number}}}'),
            text.replace('"parameters": {}', f'"parameters": {{"lb": {number}}}'),
            text.replace("cex.npy", rng.choice(("pipe", "/dev/zero", "a" * 10**5, "", ".", "a\\u0000b"))),
            text.replace("model.onnx", rng.choice(("pipe", "/dev/zero", "a" * 10**5, "", ".", "a\\u0000b"))),
            text.replace("[]", "[" + "{}," * 10**5 + "{}]"),
            text.replace('"inputs": {', '"inputs": {' + "".join(f'"x{i}": "cex.npy", ' for i in range(10**4))),
            "[" * 10**6,
            '{"a": ' * 10**6,
            number,
        )
    )
    stream = io.BytesIO()
    np.save(stream, np.zeros(1, np.float32))
    model = _model([helper.make_node("Log", ["x"], ["y"])], shape=(1,)).SerializeToString()
    files = {"cex.json": text.encode(), "cex.npy": stream.getvalue(), "model.onnx": model, "prop.py": _BOX.encode()}
    return Bomb("description", ("replay", "cex.json"), files, pipes=("pipe",), holes={"hole.npy": 2**42})


_KINDS: tuple[Callable[[random.Random], Bomb], ...] = (
    *(_functions, _constants, _constants, _shapes, _deep, _wide, _external),
    *(_compressed, _lines, _lines, _python, _array, _description),
)
