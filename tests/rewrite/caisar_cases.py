"""Random cases of the four passes that lower to base operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from tests.rewrite.sweeping import (
    FLOATS,
    INTEGERS,
    OPSETS,
    Case,
    Feeds,
    Generator,
    after_transpose,
    make_node,
    model_case,
    random_kind,
    random_shape,
    symbolic,
)

_SIZES = (1, 2, 3, 5, 7, 17)
_ALL = (*FLOATS, *INTEGERS)


def _arg(op_type: str, rng: np.random.Generator) -> Case:
    opset, shape = int(rng.choice(OPSETS)), random_shape(rng, sizes=_SIZES)
    attributes: dict[str, Any] = {"axis": int(rng.integers(0 if opset < 11 else -len(shape), len(shape)))}
    attributes |= {"keepdims": int(rng.integers(2))} if rng.random() < 0.8 else {}
    attributes |= {"select_last_index": int(rng.integers(2))} if opset >= 12 and rng.random() < 0.7 else {}
    node = make_node(op_type, ["x"], ["y"], **attributes)
    refusable = ["fixed length", *(["Sign needs opset 9"] if opset < 9 else [])]
    inputs = {"x": (random_kind(rng), symbolic(rng, shape), shape)}
    return after_transpose(rng, model_case([node], inputs, opset, output=TensorProto.INT64, refusable=refusable))


def _add(rng: np.random.Generator) -> Case:
    shape = random_shape(rng, 0, sizes=_SIZES)
    other = tuple(size if rng.random() < 0.7 else 1 for size in shape[int(rng.integers(len(shape) + 1)) :])
    shapes = (shape, other) if rng.random() < 0.5 else (other, shape)
    kind, opset = random_kind(rng, _ALL), int(rng.choice(OPSETS))
    inputs = {name: (kind, symbolic(rng, shape, name), shape) for name, shape in zip("xb", shapes, strict=True)}
    refusable = ["needs opset 9"] if opset < 9 and kind in INTEGERS else []
    return model_case([make_node("Add", ["x", "b"], ["y"])], inputs, opset, refusable=refusable)


def _sum(rng: np.random.Generator) -> Case:
    opset, shape = int(rng.choice(OPSETS)), random_shape(rng, sizes=_SIZES)
    kind = random_kind(rng, _ALL)
    count = int(rng.integers(0, len(shape) + 1))
    least = 0 if opset < 11 else -len(shape)
    axes = sorted(int(axis) for axis in rng.permutation(len(shape))[:count])
    axes = [axis - len(shape) if least and rng.random() < 0.4 else axis for axis in axes]
    attributes: dict[str, Any] = {"keepdims": int(rng.integers(2))} if rng.random() < 0.8 else {}
    operands, constants = ["x"], {}
    if opset < 13:
        attributes |= {"axes": axes} if axes else {}
    else:
        attributes |= {"noop_with_empty_axes": int(rng.integers(2))} if rng.random() < 0.5 else {}
        if axes or rng.random() < 0.5:
            operands.append("axes")
            constants["axes"] = np.array(axes, dtype=np.int64)
    terms = int(np.prod(shape))
    refusable = ["fixed length", "optimiser crashes", *(["'x' holds"] if kind in INTEGERS else [])]

    def fits(feeds: Feeds) -> bool:
        # A sum on the way may overflow, in one order or the other.
        x = feeds["x"].astype(np.float64)
        return kind in INTEGERS or float(np.abs(x).max()) <= float(np.finfo(feeds["x"].dtype).max) / terms

    case = model_case(
        [make_node("ReduceSum", operands, ["y"], **attributes)],
        {"x": (kind, symbolic(rng, shape), shape)},
        opset,
        constants=constants,
        refusable=refusable,
        gain=terms**2 / 8,
        fits=fits,
    )
    return after_transpose(rng, case)


CASES: dict[str, Generator] = {
    "transform_arg_max": lambda rng: _arg("ArgMax", rng),
    "transform_arg_min": lambda rng: _arg("ArgMin", rng),
    "transform_add": _add,
    "transform_reduce_sum": _sum,
}
