"""What a change of a model of the zoo proves, and what it does to outputs where the model is valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from lab.bench.session import plain_session
from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.detect import analysis_of, problem_of
from ranum_falsify.zoo.model import Defect, ZooModel

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["changes", "measure_change"]

_SAMPLES = 200
_MOST_ELEMENTS = 10**8
"""Weights and inputs of all samples of a model."""

_NEAR = 1e-3
"""Distance to what is invalid below which the program itself rounds too much to be compared with."""

_LARGEST_EXPONENT = 88.72283

_SMALL = 1e-3
"""Outputs below this change relatively to it."""


def changes(model: ZooModel, defect: Defect) -> dict[str, Any]:
    """Return what is known of the developers' change, and of the catalogue's repair beside it."""
    fix, theirs = defect.developer_fix, model.developer_architecture(defect)
    assert fix is not None
    return {
        "status": fix.status,
        "detail": fix.detail,
        "exact": fix.exact,
        "theirs": None if theirs is None else measure_change(model, defect, theirs),
        "ours": None if theirs is None else measure_change(model, defect, model.architecture(safe=True)),
    }


def measure_change(model: ZooModel, defect: Defect, changed: Architecture) -> dict[str, Any]:
    """Return which operators of a changed model are open, and the greatest relative change of its outputs.

    Inputs are drawn from their ranges, weights between their initial values and what training may make of them; samples
    count at which the model's outputs are finite, those apart at which the defect's operand is further than
    :data:`_NEAR` from what is invalid.
    """
    original = model.architecture()
    operand = _operand_of(original, defect)
    sessions = _free_session(original, operand), _free_session(changed)
    rng = np.random.default_rng(model.number)
    elements = sum(int(np.prod(v.shape)) for v in (*original.inputs, *original.weights))
    changes: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(min(_SAMPLES, max(2, _MOST_ELEMENTS // elements))):
        feeds = _draw(original, rng)
        # Both run on every sample, so that their random operators draw the same.
        (*before, read), after = (session.run(None, feeds) for session in sessions)
        if all(np.isfinite(y).all() for y in before):
            change = max(_greatest_change(y, z) for y, z in zip(before, after, strict=True))
            changes[_is_far(defect, read)].append(change)
    return {
        "open": [flag.node for flag in analysis_of(model, problem_of(model, changed)).open],
        "valid": len(changes[True]) + len(changes[False]),
        "change": max([*changes[True], *changes[False]], default=None),
        "far": len(changes[True]),
        "far_change": max(changes[True], default=None),
    }


def _operand_of(architecture: Architecture, defect: Defect) -> str:
    """Return the tensor that decides whether the documented operator is valid."""
    (node,) = (node for node in architecture.model.graph.node if node.name == defect.node)
    operand: str = node.input[1 if node.op_type == "Div" else 0]
    return operand


def _is_far(defect: Defect, operand: np.ndarray) -> bool:
    """Tell whether all elements of an operand are far from those that make the operator invalid."""
    if defect.operator == "Exp":
        return bool(operand.max() < _LARGEST_EXPONENT - _NEAR)
    return bool((np.abs(operand) if defect.operator == "Div" else operand).min() > _NEAR)


def _greatest_change(before: np.ndarray, after: np.ndarray) -> float:
    return float((np.abs(after.astype(float) - before) / np.maximum(np.abs(before), _SMALL)).max())


def _draw(architecture: Architecture, rng: np.random.Generator) -> Mapping[str, np.ndarray]:
    initial = {t.name: numpy_helper.to_array(t) for t in architecture.model.graph.initializer}
    feeds, share = {}, 10.0 ** rng.uniform(-3, 0)
    for v in architecture.inputs:
        if v.dtype.startswith("float"):
            feeds[v.name] = rng.uniform(v.low, v.high, v.shape).astype(v.dtype)
        else:
            feeds[v.name] = rng.integers(int(v.low), int(v.high), v.shape, endpoint=True).astype(v.dtype)
    for v in architecture.weights:
        drawn = rng.uniform(v.low, v.high, v.shape)
        feeds[v.name] = (initial[v.name] + share * (drawn - initial[v.name])).astype(np.float32)
    return feeds


def _free_session(architecture: Architecture, *more: str) -> onnxruntime.InferenceSession:
    """Return a session whose weights are inputs too, and which has more tensors among its outputs."""
    model = onnx.ModelProto()
    model.CopyFrom(architecture.model)
    weights = {v.name: v for v in architecture.weights}
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in weights]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.input.extend(
        helper.make_tensor_value_info(v.name, onnx.TensorProto.FLOAT, v.shape) for v in weights.values()
    )
    for name in more:
        model.graph.node.append(helper.make_node("Identity", [name], [f"{name}_seen"]))
        model.graph.output.append(onnx.ValueInfoProto(name=f"{name}_seen"))
    return plain_session(model)
