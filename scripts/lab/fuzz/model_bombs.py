"""Models of a few kilobytes that ask for huge amounts of time or memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import onnx
from onnx import TensorProto, helper

from lab.fuzz.bomb import HUGE, Bomb, model_of, run

__all__ = ["MODEL_BOMBS"]


def _ints(name: str, *values: int) -> onnx.TensorProto:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def _scalar(name: str, value: float, kind: int = TensorProto.FLOAT) -> onnx.TensorProto:
    return helper.make_tensor(name, kind, [], [value])


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
    return run(f"functions {depth} x {width}", model_of([call], functions=bodies))


def _constants(rng: random.Random) -> Bomb:
    """Constants that an operator makes from a few bytes."""
    size = rng.choice(HUGE)
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
    return run(f"{kind} of {size}", _branched(model_of(nodes, weights), rng))


def _branched(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """Sometimes move the nodes that make the constant into a branch that is never taken."""
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
    size = rng.choice(HUGE)
    what = rng.randrange(4)
    add = helper.make_node("Add", ["x", "w"], ["y"])
    if what == 0:
        dims = rng.choice(((size,), (1, size), (size, size), (2**31, 2**31, 2**31)))
        return run(f"input of {dims}", model_of([helper.make_node("Relu", ["x"], ["y"])], shape=dims))
    if what == 1:
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size])
        weight.raw_data = b"\0" * 16
        return run(f"weight of {size}", model_of([add], [weight]))
    if what == 2:
        values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
        at = rng.choice(([0], [size - 1], [-1]))
        sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [1], at), [size])
        return run(f"sparse weight of {size}", model_of([add], sparse=[sparse]))
    reshape = helper.make_node("Reshape", ["x", "n"], ["y"])
    return run(f"reshape to {size}", model_of([reshape], [_ints("n", size, rng.choice((1, -1, 0)))]))


def _deep(rng: random.Random) -> Bomb:
    """Subgraphs in subgraphs, or long chains."""
    if rng.random() < 0.2:
        return run("messages nested beyond protobuf's limit", _nested_messages(rng.choice((34, 1000, 10**5))))
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
    return run(f"{operator} nested {depth} deep", model_of([node], weights))


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
        return run(f"Conv {size}", model_of([*nodes, node("Conv", ["a", "w"], ["y"])], weights, shape=(1,)))
    if what == 1:
        nodes = [node("Expand", ["x", "n"], ["t0"])]
        nodes += [node("MatMul", [f"t{i}", f"t{i}"], [f"t{i + 1}"]) for i in range(40)]
        nodes.append(node("Identity", ["t40"], ["y"]))
        return run(f"MatMul {size}", model_of(nodes, [_ints("n", size, size)], shape=(1,)))
    if what == 2:
        nodes = [node("Concat", [f"t{i}", f"t{i}"], [f"t{i + 1}"], axis=0) for i in range(50)]
        nodes[0].input[:] = ["x", "x"]
        return run("Concat doubled", model_of([*nodes, node("Identity", ["t50"], ["y"])]))
    nodes = [node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(size * 4)]
    nodes[0].input[0] = "x"
    nodes[-1].output[0] = "y"
    return run(f"chain of {size * 4}", model_of(nodes))


def _external(rng: random.Random) -> Bomb:
    location = rng.choice(("hole", "pipe", "zero", "/dev/zero", "../prop.py", "none", ".", "", "model.onnx", "a\0b"))
    dims = rng.choice(((4,), (10**11,), (10**12,)))
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
    more = {"links": {"zero": "/dev/zero"}, "pipes": ("pipe",), "holes": {"hole": rng.choice((16, 2**31, 2**42))}}
    return run(f"external data {location!r}", model_of(nodes, [weight, again]), **more)  # type: ignore[arg-type]


MODEL_BOMBS: tuple[Callable[[random.Random], Bomb], ...] = (
    *(_functions, _constants, _constants, _shapes, _deep, _wide, _external),
)
