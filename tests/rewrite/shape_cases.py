"""Random cases of passes that lower operators which change shapes, pick elements, or compare positions."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from tests.rewrite.elementwise_cases import opset_of
from tests.rewrite.sweeping import (
    FLOATS,
    INTEGERS,
    KINDS,
    Case,
    Generator,
    make_node,
    model_case,
    random_kind,
    random_shape,
    symbolic,
)

Rng = np.random.Generator
_ALL = (*FLOATS, *INTEGERS)
_FREE = ["not fixed", "no fixed length", "and the model says"]


def _axes(opset: int, axes: list[int]) -> tuple[list[str], dict[str, np.ndarray], dict[str, Any]]:
    """Names of operands, constants and attributes of axes."""
    if opset < 13:
        return ["x"], {}, {"axes": axes}
    return ["x", "axes"], {"axes": np.array(axes, np.int64)}, {}


def _squeeze(rng: Rng) -> Case:
    shape, opset = random_shape(rng, sizes=(1, 1, 3, 5)), opset_of(rng)
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    named = [int(axis) for axis in rng.permutation(ones)[: int(rng.integers(0, len(ones) + 1))]]
    dims = [
        size if axis in ones else name
        for axis, (size, name) in enumerate(zip(shape, symbolic(rng, shape), strict=True))
    ]
    signed = [axis - len(shape) if opset >= 11 and rng.random() < 0.4 else axis for axis in named]
    names, constants, attributes = _axes(opset, signed) if named else (["x"], {}, {})
    node = make_node("Squeeze", names, ["y"], **attributes)
    inputs = {"x": (random_kind(rng, _ALL), dims, shape)}
    return model_case([node], inputs, opset, constants=constants, refusable=_FREE)


def _unsqueeze(rng: Rng) -> Case:
    shape, opset = random_shape(rng, 0, 3), opset_of(rng)
    count = int(rng.integers(1, 3))
    rank = len(shape) + count
    axes = [int(axis) for axis in rng.permutation(rank)[:count]]
    signed = [axis - rank if opset >= 11 and rng.random() < 0.4 else axis for axis in axes]
    names, constants, attributes = _axes(opset, signed)
    node = make_node("Unsqueeze", names, ["y"], **attributes)
    inputs = {"x": (random_kind(rng, _ALL), symbolic(rng, shape), shape)}
    return model_case([node], inputs, opset, constants=constants, refusable=_FREE)


def _flatten(rng: Rng) -> Case:
    shape, opset = random_shape(rng), opset_of(rng)
    axis = int(rng.integers(0 if opset < 11 else -len(shape), len(shape) + 1))
    node = make_node("Flatten", ["x"], ["y"], **({"axis": axis} if rng.random() < 0.7 else {}))
    inputs = {"x": (random_kind(rng, _ALL if opset >= 9 else tuple(FLOATS)), symbolic(rng, shape), shape)}
    return model_case([node], inputs, opset, refusable=_FREE)


def _blocks(op_type: str) -> Generator:
    def generate(rng: Rng) -> Case:
        opset, size = opset_of(rng), int(rng.integers(1, 4))
        batch, depth, height, width = (int(rng.integers(1, 4)) for _ in range(4))
        attributes: dict[str, Any] = {"blocksize": size}
        if op_type == "DepthToSpace":
            shape = (batch, depth * size**2, height, width)
            attributes |= {"mode": str(rng.choice(["DCR", "CRD"]))} if opset >= 11 else {}
        else:
            shape = (batch, depth, height * size, width * size)
        node = make_node(op_type, ["x"], ["y"], **attributes)
        kind = random_kind(rng, (TensorProto.FLOAT, TensorProto.DOUBLE))
        return model_case([node], {"x": (kind, symbolic(rng, shape), shape)}, opset, refusable=_FREE)

    return generate


def _split(rng: Rng) -> Case:
    opset, shape = opset_of(rng), list(random_shape(rng))
    axis, count = int(rng.integers(len(shape))), int(rng.integers(1, 4))
    lengths = [int(size) for size in rng.integers(1, 4, count)]
    is_even = rng.random() < 0.4
    if is_even:
        lengths = lengths[:1] * count
    shape[axis] = sum(lengths)
    attributes: dict[str, Any] = {"axis": axis - len(shape) if opset >= 11 and rng.random() < 0.4 else axis}
    names, constants = ["x"], {}
    if is_even and rng.random() < 0.7:
        attributes |= {"num_outputs": count} if opset >= 18 else {}
    elif opset < 13:
        attributes |= {"split": lengths}
    else:
        names, constants = ["x", "s"], {"s": np.array(lengths, np.int64)}
    outputs = [f"y{number}" for number in range(count)]
    node = make_node("Split", names, outputs, **attributes)
    inputs = {"x": (random_kind(rng, _ALL), symbolic(rng, shape), tuple(shape))}
    used = sorted(rng.permutation(count)[: int(rng.integers(1, count + 1))])
    return model_case(
        [node], inputs, opset, constants=constants, outputs=[outputs[index] for index in used], refusable=_FREE
    )


def _gather(rng: Rng) -> Case:
    opset, shape = opset_of(rng), random_shape(rng)
    axis = int(rng.integers(-len(shape), len(shape)))
    length = shape[axis]
    least = -length if opset >= 11 else 0
    form = rng.random()
    if form < 0.3:
        indices = np.array(rng.integers(least, length))
    elif form < 0.6:
        indices = np.arange(length)[:: int(rng.integers(1, 3))]
    else:
        indices = rng.integers(least, length, random_shape(rng, 1, 3, (1, 2, 3)))
    node = make_node("Gather", ["x", "i"], ["y"], axis=axis)
    inputs = {"x": (random_kind(rng, _ALL), symbolic(rng, shape), shape)}
    constants = {"i": indices.astype(np.int32 if rng.random() < 0.5 else np.int64)}
    return model_case([node], inputs, opset, constants=constants, refusable=_FREE)


def _pad(rng: Rng) -> Case:
    opset, shape, kind = opset_of(rng), random_shape(rng, sizes=(3, 4, 7)), random_kind(rng)
    rank = len(shape)
    modes = ["constant", "constant", "edge", "reflect", *(["wrap"] if opset >= 19 else [])]
    mode = str(rng.choice(modes))
    most = 3
    axes = (
        [int(axis) for axis in rng.permutation(rank)[: int(rng.integers(1, rank + 1))]]
        if opset >= 18
        else list(range(rank))
    )
    pads = [int(rng.integers(-1, most)) for _ in range(2 * len(axes))]
    value = float(rng.choice([0.0, 1.5, -2.0]))
    attributes: dict[str, Any] = {"mode": mode}
    names, constants = ["x"], {}
    if opset < 11:
        attributes |= {"pads": pads, "value": value}
    else:
        names, constants = ["x", "p", "v"], {"p": np.array(pads, np.int64), "v": np.array(value, KINDS[kind])}
        if opset >= 18:
            names, constants = [*names, "a"], constants | {"a": np.array(axes, np.int64)}
    node = make_node("Pad", names, ["y"], **attributes)
    refusable = (*_FREE, "it reflects more than there is")
    inputs = {"x": (kind, symbolic(rng, shape), shape)}
    return model_case([node], inputs, opset, constants=constants, refusable=refusable)


def _expand(rng: Rng) -> Case:
    shape, kind = random_shape(rng, 0), random_kind(rng)
    start = int(rng.integers(len(shape) + 1))
    small = tuple(size if rng.random() < 0.5 else 1 for size in shape[start:])
    node = make_node("Expand", ["x", "s"], ["y"])
    constants = {"s": np.array(shape, np.int64)}
    return model_case([node], {"x": (kind, symbolic(rng, small), small)}, opset_of(rng, 8), constants=constants)


def _tile(rng: Rng) -> Case:
    shape, kind = random_shape(rng), random_kind(rng, (TensorProto.FLOAT, TensorProto.DOUBLE, *INTEGERS))
    node = make_node("Tile", ["x", "r"], ["y"])
    constants = {"r": rng.integers(1, 4, len(shape)).astype(np.int64)}
    return model_case([node], {"x": (kind, symbolic(rng, shape), shape)}, opset_of(rng), constants=constants)


def _position(rng: Rng) -> Case:
    opset, shape, kind = opset_of(rng), random_shape(rng), random_kind(rng)
    axis = int(rng.integers(0 if opset < 11 else -len(shape), len(shape)))
    keeps = int(rng.integers(2))
    attributes: dict[str, Any] = {"axis": axis, "keepdims": keeps}
    attributes |= {"select_last_index": int(rng.integers(2))} if opset >= 12 and rng.random() < 0.7 else {}
    place = np.full(
        (1,) * int(rng.integers(0, 1 + min(1, len(shape) - 1 + keeps))), rng.integers(shape[axis]), np.int64
    )
    names = ["i", "k"] if rng.random() < 0.5 else ["k", "i"]
    nodes = [make_node("ArgMax", ["x"], ["i"], **attributes), make_node("Equal", names, ["y"])]
    inputs = {"x": (kind, symbolic(rng, shape), shape)}
    return model_case(nodes, inputs, opset, output=TensorProto.BOOL, constants={"k": place}, refusable=_FREE)


CASES: dict[str, Generator] = {
    "lower_squeeze": _squeeze,
    "lower_unsqueeze": _unsqueeze,
    "lower_flatten": _flatten,
    "lower_depth_to_space": _blocks("DepthToSpace"),
    "lower_space_to_depth": _blocks("SpaceToDepth"),
    "lower_split": _split,
    "lower_gather": _gather,
    "lower_pad": _pad,
    "lower_expand": _expand,
    "lower_tile": _tile,
    "lower_arg_max_equal": _position,
}
