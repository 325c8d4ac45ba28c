"""Random cases of passes that lower elementwise operators and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.rewrite.sweeping import (
    FLOATS,
    KINDS,
    OPSETS,
    Case,
    Generator,
    make_node,
    model_case,
    random_kind,
    random_shape,
    symbolic,
)

SINGLE = (TensorProto.FLOAT,)
NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16)
WIDE = (TensorProto.FLOAT, TensorProto.DOUBLE)
Rng = np.random.Generator


def opset_of(rng: Rng, least: int = 7) -> int:
    return int(rng.choice([opset for opset in OPSETS if opset >= least]))


def unary(op_type: str, kinds: Sequence[int] = tuple(FLOATS), least: int = 7, **fields: Any) -> Generator:
    """Cases of an operator of one operand without attributes."""

    def generate(rng: Rng) -> Case:
        shape = random_shape(rng, 0)
        inputs = {"x": (random_kind(rng, kinds), symbolic(rng, shape), shape)}
        return model_case([make_node(op_type, ["x"], ["y"])], inputs, opset_of(rng, least), **fields)

    return generate


def _slope(rng: Rng, name: str, most: float) -> dict[str, float]:
    return {name: float(rng.choice([0.0, 0.5, 0.01, 2.0, -1.5, most]))} if rng.random() < 0.7 else {}


def _with(op_type: str, name: str, kinds: Sequence[int], least: int, most: float, **fields: Any) -> Generator:
    """Cases of an activation with one factor."""

    def generate(rng: Rng) -> Case:
        shape, attributes = random_shape(rng, 0), _slope(rng, name, most)
        inputs = {"x": (random_kind(rng, kinds), symbolic(rng, shape), shape)}
        node = make_node(op_type, ["x"], ["y"], **attributes)
        return model_case([node], inputs, opset_of(rng, least), **fields)

    return generate


def _smaller(rng: Rng, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another."""
    start = int(rng.integers(len(shape) + 1))
    return tuple(size if rng.random() < 0.6 else 1 for size in shape[start:])


def _several(op_type: str, counts: Sequence[int], kinds: Sequence[int] = tuple(FLOATS), **fields: Any) -> Generator:
    """Cases of an operator of several operands, one of them now and then constant."""

    def generate(rng: Rng) -> Case:
        shape, kind, count = random_shape(rng, 0), random_kind(rng, kinds), int(rng.choice(counts))
        shapes = [shape, *(_smaller(rng, shape) for _ in range(count - 1))]
        order = rng.permutation(count)
        names = [f"x{number}" for number in range(count)]
        inputs: dict[str, Any] = {}
        constants = {}
        for number, name in zip(order, names, strict=True):
            actual = shapes[number]
            if rng.random() < 0.25 and inputs:
                constants[name] = (rng.normal(size=actual) * rng.choice([0, 1, 100])).astype(KINDS[kind])
            else:
                inputs[name] = (kind, symbolic(rng, actual, name), actual)
        node = make_node(op_type, names, ["y"])
        return model_case([node], inputs, opset_of(rng, 8), constants=constants, **fields)

    return generate


def _prelu(rng: Rng) -> Case:
    shape, kind = random_shape(rng), random_kind(rng)
    slopes = _smaller(rng, shape)
    inputs: dict[str, Any] = {"x": (kind, symbolic(rng, shape), shape)}
    constants = {}
    if rng.random() < 0.7:
        constants["s"] = rng.normal(size=slopes).astype(KINDS[kind])
    else:
        inputs["s"] = (kind, slopes, slopes)
    node = make_node("PRelu", ["x", "s"], ["y"])
    return model_case([node], inputs, opset_of(rng), constants=constants, most=1e-3)


def _clip(rng: Rng) -> Case:
    shape, kind, opset = random_shape(rng, 0), random_kind(rng), opset_of(rng)
    bounds = sorted(float(np.float16(value)) for value in rng.choice([-8, -1, -1e-3, 0, 1e-7, 0.25, 1, 6], 2))
    least, most = (bound if rng.random() < 0.8 else None for bound in bounds)
    names, constants, attributes = ["x"], {}, {}
    if opset < 11:
        attributes = {name: value for name, value in (("min", least), ("max", most)) if value is not None}
    else:
        for name, value in (("low", least), ("high", most)):
            names.append("" if value is None else name)
            if value is not None:
                constants[name] = np.array(value, KINDS[kind])
    node = make_node("Clip", names, ["y"], **attributes)
    inputs = {"x": (kind, symbolic(rng, shape), shape)}
    return model_case([node], inputs, opset, constants=constants, gain=0.1, most=0.99)


def _hard_sigmoid(rng: Rng) -> Case:
    shape, opset = random_shape(rng, 0), opset_of(rng)
    attributes = {"alpha": float(rng.choice([0.2, 1 / 6, 1.0, -0.5])), "beta": float(rng.choice([0.5, 0.0, 1.0, -1.0]))}
    node = make_node("HardSigmoid", ["x"], ["y"], **(attributes if rng.random() < 0.7 else {}))
    inputs = {"x": (random_kind(rng), symbolic(rng, shape), shape)}
    return model_case([node], inputs, opset, gain=1, most=0.99, refusable=["Clip of double"] if opset < 12 else [])


def _celu(rng: Rng) -> Case:
    shape = random_shape(rng, 0)
    alpha = float(rng.choice([1.0, 1.5, 3.0, 0.5]))
    node = make_node("Celu", ["x"], ["y"], **({"alpha": alpha} if rng.random() < 0.7 else {}))
    inputs = {"x": (TensorProto.FLOAT, symbolic(rng, shape), shape)}
    return model_case([node], inputs, opset_of(rng, 12), refusable=["alpha is 0.5"], reach=50, floor=3)


def _division(rng: Rng) -> Case:
    shape, kind = random_shape(rng), random_kind(rng)
    divisor = (rng.normal(size=_smaller(rng, shape)) * rng.choice([1, 100])).astype(KINDS[kind])
    divisor = np.where(np.abs(divisor) < 1e-2, 1, divisor).astype(KINDS[kind])
    inputs = {"x": (kind, symbolic(rng, shape), shape)}
    node = make_node("Div", ["x", "d"], ["y"])
    return model_case([node], inputs, opset_of(rng), constants={"d": divisor}, gain=0, most=1e-3)


def _power(rng: Rng) -> Case:
    shape, kind = random_shape(rng), random_kind(rng, WIDE)
    exponent = np.full((1,) * int(rng.integers(2)), rng.choice([-1, 0.5, 1, 2, 3, 4]), KINDS[kind])
    inputs = {"x": (kind, symbolic(rng, shape), shape)}
    node = make_node("Pow", ["x", "e"], ["y"])
    return model_case([node], inputs, opset_of(rng), constants={"e": exponent}, gain=0)


def _dropout(rng: Rng) -> Case:
    shape, opset = random_shape(rng), opset_of(rng)
    names, constants = ["x"], {}
    if opset >= 12:
        names, constants = ["x", "r", "t"], {"r": np.array(0.5, np.float32), "t": np.array(False)}
        names = names[: int(rng.integers(1, 4))]
    outputs = ["y", "mask"] if rng.random() < 0.3 and opset >= 10 else ["y"]
    inputs = {"x": (random_kind(rng), symbolic(rng, shape), shape)}
    return model_case([make_node("Dropout", names, outputs)], inputs, opset, constants=constants)


def reduction(op_type: str, kinds: Sequence[int], **fields: Any) -> Generator:
    """Cases of a reduction, whose axes are an attribute up to opset 17, and an operand from 18 on."""

    def generate(rng: Rng) -> Case:
        opset, shape, kind = opset_of(rng), random_shape(rng), random_kind(rng, kinds)
        count = int(rng.integers(0, len(shape) + 1))
        axes = [int(axis) for axis in rng.permutation(len(shape))[:count]]
        axes = [axis - len(shape) if opset >= 11 and rng.random() < 0.4 else axis for axis in axes]
        attributes: dict[str, Any] = {"keepdims": int(rng.integers(2))} if rng.random() < 0.8 else {}
        names, constants = ["x"], {}
        if opset < 18:
            attributes |= {"axes": axes} if axes else {}
        elif axes:
            names, constants = ["x", "axes"], {"axes": np.array(axes, np.int64)}
        node = make_node(op_type, names, ["y"], **attributes)
        inputs = {"x": (kind, symbolic(rng, shape), shape)}
        refusable = ["fixed length", *(["of double needs"] if opset < 8 else [])]
        extra = {"most": 0.25 / np.prod(shape), **fields}
        return model_case([node], inputs, opset, constants=constants, refusable=refusable, **extra)

    return generate


def _softmax(op_type: str) -> Generator:
    def generate(rng: Rng) -> Case:
        opset, shape = opset_of(rng), random_shape(rng)
        attributes = {"axis": int(rng.integers(0 if opset < 11 else -len(shape), len(shape)))}
        if len(shape) > 1 and rng.random() < 0.2:
            attributes = {}
        node = make_node(op_type, ["x"], ["y"], **attributes)
        inputs = {"x": (random_kind(rng, WIDE), symbolic(rng, shape), shape)}
        # Exponentials are as exact as their arguments: differences of inputs.
        return model_case([node], inputs, opset, gain=4)

    return generate


CASES: dict[str, Generator] = {
    "lower_neg": unary("Neg"),
    "lower_sub": _several("Sub", [2]),
    "lower_sum": _several("Sum", [1, 2, 3, 5], NARROW),
    "lower_mean": _several("Mean", [1, 2, 3, 5], NARROW, most=0.05),
    "lower_div": _division,
    "lower_reciprocal": unary("Reciprocal"),
    "lower_pow": _power,
    "lower_dropout": _dropout,
    "lower_abs": unary("Abs"),
    "lower_leaky_relu": _with("LeakyRelu", "alpha", tuple(FLOATS), 7, 0.1, refusable=["is no number of float16"]),
    "lower_prelu": _prelu,
    "lower_hard_sigmoid": _hard_sigmoid,
    "lower_hard_swish": unary("HardSwish", least=14, reach=1e3),
    "lower_softsign": unary("Softsign", gain=0, most=0.99),
    "lower_elu": _with("Elu", "alpha", WIDE, 7, 3.0, reach=50, floor=6),
    "lower_selu": _with("Selu", "gamma", WIDE, 7, 3.0, reach=50, floor=6),
    "lower_celu": _celu,
    "lower_gelu": unary("Gelu", SINGLE, 20, reach=50),
    "lower_clip": _clip,
    "lower_max": _several("Max", [1, 2, 3, 5], gain=0.1),
    "lower_min": _several("Min", [1, 2, 3, 5], gain=0.1),
    "lower_reduce_mean": reduction("ReduceMean", tuple(FLOATS), gain=4),
    "lower_reduce_max": reduction("ReduceMax", tuple(FLOATS)),
    "lower_reduce_min": reduction("ReduceMin", tuple(FLOATS)),
    "lower_reduce_l1": reduction("ReduceL1", WIDE),
    "lower_reduce_l2": reduction("ReduceL2", WIDE, reach=1e15),
    "lower_reduce_sum_square": reduction("ReduceSumSquare", WIDE, reach=1e15),
    "lower_softmax": _softmax("Softmax"),
    "lower_log_softmax": _softmax("LogSoftmax"),
}
