"""Random cases of passes that lower convolutions, pools, products and normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.rewrite.elementwise_cases import NARROW, WIDE, opset_of
from tests.rewrite.sweeping import (
    FLOATS,
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


def _images(rng: Rng, channels: int, least: int = 3) -> tuple[int, ...]:
    axes = int(rng.choice([1, 2, 2, 3]))
    return (int(rng.integers(1, 4)), channels, *(int(rng.integers(least, 9)) for _ in range(axes)))


def _named(rng: Rng, shape: Sequence[int]) -> list[int | str]:
    """A shape of images of which the batch may have no fixed size."""
    return [*symbolic(rng, shape[:1], "n", 0.4), *shape[1:]]


def _windows(rng: Rng, spatial: Sequence[int], opset: int, *, dilates: bool, pads: bool = True) -> dict[str, Any]:
    """Attributes of a convolution or a pool."""
    kernel = [int(rng.integers(1, min(size, 4) + 1)) for size in spatial]
    found: dict[str, Any] = {"kernel_shape": kernel}
    if rng.random() < 0.6:
        found["strides"] = [int(rng.integers(1, 4)) for _ in spatial]
    if dilates and rng.random() < 0.3:
        found["dilations"] = [
            int(rng.integers(1, 3)) if 2 * (size - 1) < length else 1
            for size, length in zip(kernel, spatial, strict=True)
        ]
    kind = rng.random()
    if pads and kind < 0.5:
        found["pads"] = [int(rng.integers(0, min(size, 3))) for size in (*kernel, *kernel)]
    elif kind < 0.8:
        found["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]))
    return found


def _weights(rng: Rng, shape: Sequence[int], kind: int) -> np.ndarray:
    return rng.normal(size=shape).astype(KINDS[kind])


def _conv(rng: Rng) -> Case:
    groups, inputs, outputs = (int(rng.integers(1, 3)) for _ in range(3))
    shape, opset, kind = _images(rng, groups * inputs), opset_of(rng), random_kind(rng, NARROW)
    attributes = _windows(rng, shape[2:], opset, dilates=True) | {"group": groups}
    weights = _weights(rng, (groups * outputs, inputs, *attributes["kernel_shape"]), kind)
    if rng.random() < 0.3:
        del attributes["kernel_shape"]
    names, constants = ["x", "w"], {"w": weights}
    if rng.random() < 0.6:
        names, constants = [*names, "b"], constants | {"b": _weights(rng, (groups * outputs,), kind)}
    node = make_node("Conv", names, ["y"], **attributes)
    gain = float(np.abs(weights).sum()) * (1 if kind == TensorProto.FLOAT else 0.2)
    return model_case(
        [node],
        {"x": (kind, _named(rng, shape), shape)},
        opset,
        constants=constants,
        gain=gain,
        floor=3,
        most=1e-4,
        refusable=["dilations and auto_pad"],
    )


def _conv_transpose(rng: Rng) -> Case:
    groups, inputs, outputs = (int(rng.integers(1, 3)) for _ in range(3))
    shape, opset, kind = _images(rng, groups * inputs, 1), opset_of(rng), random_kind(rng, NARROW)
    spatial = len(shape) - 2
    kernel = [int(rng.integers(1, 4)) for _ in range(spatial)]
    strides = [int(rng.integers(1, 4)) for _ in range(spatial)]
    attributes: dict[str, Any] = {"group": groups, "strides": strides}
    if rng.random() < 0.4:
        attributes["dilations"] = [int(rng.integers(1, 3)) for _ in range(spatial)]
    if rng.random() < 0.5:
        attributes["pads"] = [int(rng.integers(0, size)) for size in (*kernel, *kernel)]
    if rng.random() < 0.4:
        attributes["output_padding"] = [int(rng.integers(0, stride)) for stride in strides]
    weights = _weights(rng, (groups * inputs, outputs, *kernel), kind)
    names, constants = ["x", "w"], {"w": weights}
    if rng.random() < 0.6:
        names, constants = [*names, "b"], constants | {"b": _weights(rng, (groups * outputs,), kind)}
    node = make_node("ConvTranspose", names, ["y"], **attributes)
    return model_case(
        [node],
        {"x": (kind, _named(rng, shape), shape)},
        opset,
        constants=constants,
        gain=float(np.abs(weights).sum()),
        floor=3,
        most=1e-4,
        refusable=["leaves nothing", "entries; at most"],
    )


def _gemm(rng: Rng) -> Case:
    rows, inner, columns = (int(rng.choice([1, 2, 3, 7])) for _ in range(3))
    kind, opset = random_kind(rng), opset_of(rng)
    attributes: dict[str, Any] = {name: int(rng.integers(2)) for name in ("transA", "transB") if rng.random() < 0.7}
    attributes |= {name: float(rng.choice([0.5, 2.0, 1.0])) for name in ("alpha", "beta") if rng.random() < 0.5}
    left = (inner, rows) if attributes.get("transA") else (rows, inner)
    right = (columns, inner) if attributes.get("transB") else (inner, columns)
    shapes: dict[str, tuple[int, ...]] = {"x": left, "w": right}
    if opset < 11 or rng.random() < 0.7:
        shapes["c"] = [(rows, columns), (1, columns), (columns,), (rows, 1), (1,), ()][int(rng.integers(6))]
    inputs, constants = {}, {}
    for name, shape in shapes.items():
        if name != "x" and rng.random() < 0.6:
            constants[name] = _weights(rng, shape, kind)
        else:
            inputs[name] = (kind, symbolic(rng, shape, name), shape)
    node = make_node("Gemm", list(shapes), ["y"], **attributes)

    def fits(feeds: Any) -> bool:
        size = max(float(np.abs(array).max()) for array in feeds.values())
        return size < float(np.sqrt(np.finfo(KINDS[kind]).max)) / 100

    return model_case([node], inputs, opset, constants=constants, gain=1e4, floor=3, fits=fits)


def _pool(
    op_type: str, kinds: Sequence[int], dilated_from: int, refusable: Sequence[str] = (), **fields: Any
) -> Generator:
    def generate(rng: Rng) -> Case:
        shape, opset, kind = _images(rng, int(rng.integers(1, 4))), opset_of(rng), random_kind(rng, kinds)
        attributes = _windows(rng, shape[2:], opset, dilates=opset >= dilated_from)
        if opset >= 10 and rng.random() < 0.4:
            attributes["ceil_mode"] = 1
        if op_type == "AveragePool" and rng.random() < 0.4:
            attributes["count_include_pad"] = 1
        node = make_node(op_type, ["x"], ["y"], **attributes)
        reasons = [
            "nothing but padding",
            "dilations and auto_pad",
            "auto_pad leaves out elements",
            "and the model says",
            "of double needs opset 8",
            *refusable,
        ]
        inputs = {"x": (kind, _named(rng, shape), shape)}
        return model_case([node], inputs, opset, refusable=reasons, **fields)

    return generate


def _global_pool(op_type: str, **fields: Any) -> Generator:
    def generate(rng: Rng) -> Case:
        shape = _images(rng, int(rng.integers(1, 4)), 1)
        inputs = {"x": (random_kind(rng, NARROW), symbolic(rng, shape), shape)}
        return model_case([make_node(op_type, ["x"], ["y"])], inputs, opset_of(rng), **fields)

    return generate


def _statistics(rng: Rng, channels: int, kind: int) -> dict[str, np.ndarray]:
    made = {name: _weights(rng, (channels,), kind) for name in ("scale", "bias", "mean")}
    return made | {"var": (rng.random(channels) + 0.1).astype(KINDS[kind])}


def _batch_normalization(rng: Rng) -> Case:
    channels, kind = int(rng.integers(1, 5)), random_kind(rng)
    shape = (int(rng.integers(1, 4)), channels, *random_shape(rng, 0, 3))
    node = make_node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["y"], epsilon=1e-3)
    return model_case(
        [node],
        {"x": (kind, symbolic(rng, shape), shape)},
        opset_of(rng),
        constants=_statistics(rng, channels, kind),
        gain=10,
        floor=10,
        most=1e-3,
    )


def _folded(rng: Rng) -> Case:
    kind, opset = random_kind(rng, NARROW), opset_of(rng, 9)
    before = str(rng.choice(["Conv", "Gemm", "MatMul"]))
    outputs = int(rng.integers(1, 4))
    if before == "Conv":
        shape = _images(rng, 2)
        attributes = _windows(rng, shape[2:], opset, dilates=True)
        weights = _weights(rng, (outputs, 2, *attributes["kernel_shape"]), kind)
    else:
        shape, attributes = (int(rng.integers(1, 4)), 5), {}
        if before == "Gemm":
            attributes = {"transB": int(rng.integers(2)), "beta": float(rng.choice([1.0, 0.5])), "alpha": 2.0}
        weights = _weights(rng, (outputs, 5) if attributes.get("transB") else (5, outputs), kind)
    constants = {"w": weights, **_statistics(rng, outputs, kind)}
    names = ["x", "w"]
    if before != "MatMul" and (rng.random() < 0.6 or (before == "Gemm" and opset < 11)):
        names.append("b")
        constants["b"] = _weights(rng, (outputs,), kind)
    nodes = [
        make_node(before, names, ["h"], **attributes),
        make_node("BatchNormalization", ["h", "scale", "bias", "mean", "var"], ["y"]),
    ]
    gain = 100 * float(np.abs(weights).sum())
    inputs = {"x": (kind, _named(rng, shape), shape)}
    return model_case(nodes, inputs, opset, constants=constants, gain=gain, floor=100, most=1e-4)


def _layer_normalization(rng: Rng) -> Case:
    shape, kind = random_shape(rng, sizes=(2, 3, 5, 7)), random_kind(rng, WIDE)
    axis = int(rng.integers(-len(shape), len(shape)))
    names, constants = ["x", "s"], {"s": _weights(rng, shape[axis:], kind)}
    if rng.random() < 0.6:
        names, constants = [*names, "b"], constants | {"b": _weights(rng, shape[axis:], kind)}
    node = make_node("LayerNormalization", names, ["y"], axis=axis, epsilon=0.1)
    inputs = {"x": (kind, symbolic(rng, shape), shape)}
    return model_case([node], inputs, opset_of(rng, 17), constants=constants, reach=1e3, gain=100, floor=1e3)


def _instance_normalization(rng: Rng) -> Case:
    channels = int(rng.integers(1, 4))
    shape = _images(rng, channels, 1)
    inputs: dict[str, Any] = {"x": (TensorProto.FLOAT, symbolic(rng, shape), shape)}
    constants = {}
    for name in ("s", "b"):
        if rng.random() < 0.5:
            constants[name] = _weights(rng, (channels,), TensorProto.FLOAT)
        else:
            inputs[name] = (TensorProto.FLOAT, (channels,), (channels,))
    node = make_node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=0.1)
    return model_case([node], inputs, opset_of(rng), constants=constants, reach=1e3, gain=1e4, floor=1e3)


CASES: dict[str, Generator] = {
    "lower_conv": _conv,
    "lower_conv_transpose": _conv_transpose,
    "lower_gemm": _gemm,
    "lower_max_pool": _pool("MaxPool", tuple(FLOATS), 10),
    "lower_average_pool": _pool("AveragePool", NARROW, 19, ["reaches beyond the padding"], gain=1, most=1e-2),
    "lower_global_average_pool": _global_pool("GlobalAveragePool", gain=8, most=1e-3),
    "lower_global_max_pool": _global_pool("GlobalMaxPool"),
    "lower_batch_normalization": _batch_normalization,
    "fold_batch_normalization": _folded,
    "lower_layer_normalization": _layer_normalization,
    "lower_instance_normalization": _instance_normalization,
}
