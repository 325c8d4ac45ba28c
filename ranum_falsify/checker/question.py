"""The question: a model, what its inputs range over, sizes and runtimes, as whoever asks states it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from ranum_falsify.checker.bounds import Bounds

RUNTIMES = ("onnxruntime", "torch", "exact")
"""The runtimes that the rules are about: ONNX Runtime and PyTorch on x86-64 processors, and correct rounding."""

Range = tuple[Any, Any]
"""Least and greatest value: numbers for all elements, or arrays."""


class QuestionError(Exception):
    """A question that does not fit the model; its message says why."""


@dataclass(frozen=True, kw_only=True)
class ModelQuestion:
    """What is asked.

    Attributes:
        model: The model.
        sha256: Hash of its file.
        inputs: What each input, and each weight that varies, ranges over.
        free: The weights among them.
        sizes: Sizes of the symbolic dimensions; of those without a name, by input and position.
        assumed: Those of which the question says nothing, taken as 1.
        runtimes: The runtimes.
    """

    model: onnx.ModelProto
    sha256: str
    inputs: Mapping[str, Bounds]
    free: Collection[str]
    sizes: Mapping[str, int]
    assumed: Sequence[str]
    runtimes: Sequence[str]


def ask(
    data: bytes,
    ranges: Mapping[str | EllipsisType, Range],
    *,
    sizes: Mapping[str, int],
    runtimes: Sequence[str],
    free: Collection[str] = (),
) -> ModelQuestion:
    """State a question about a model file.

    Args:
        data: What the file holds.
        ranges: What inputs range over, by name; an ellipsis stands for all others that are no weights.
        sizes: Sizes of symbolic dimensions.
        runtimes: The runtimes.
        free: Weights that vary.

    Raises:
        QuestionError: It does not fit the model.
    """
    model = _read(data)
    weights = {one.name: one for one in model.graph.initializer}
    declared = {value.name: value for value in model.graph.input if value.name not in weights}
    _check_names(ranges, declared, weights, free)
    if wrong := [runtime for runtime in runtimes if runtime not in RUNTIMES]:
        raise QuestionError(f"{wrong[0]!r} is no runtime that the checker knows; {', '.join(RUNTIMES)} are")
    found: dict[str, int] = {}
    inputs = {}
    for name, value in declared.items():
        shape = _shape_of(value, sizes, found)
        kind = value.type.tensor_type.elem_type
        inputs[name] = _box(name, ranges.get(name, ranges.get(...)), _dtype(name, kind), shape)
    for name in free:
        inputs[name] = _box(name, ranges[name], _dtype(name, weights[name].data_type), tuple(weights[name].dims))
    if unused := [name for name in sizes if name not in found]:
        raise QuestionError(f"--dim {unused[0]}: no input of the model has such a dimension")
    return ModelQuestion(
        model=model,
        sha256=hashlib.sha256(data).hexdigest(),
        inputs=inputs,
        free=tuple(free),
        sizes=found,
        assumed=[name for name in found if name not in sizes],
        runtimes=tuple(runtimes),
    )


def _check_names(
    ranges: Collection[str | EllipsisType], declared: Collection[str], weights: Collection[str], free: Collection[str]
) -> None:
    """Check that the ranges are of inputs, and of weights that vary, and of all of them."""
    for name in ranges:
        if name in weights and name not in free:
            raise QuestionError(f"{name!r} is a weight of the model, not an input; free it where it is to vary")
        if name is not ... and name not in declared and name not in weights:
            raise QuestionError(f"the model has no input {name!r}; it has {', '.join(declared) or 'none'}")
    if missing := [
        name for name in (*declared, *free) if name not in ranges and (name in weights or ... not in ranges)
    ]:
        raise QuestionError(f"nothing says what input {missing[0]!r} ranges over; give --box {missing[0]}=LO,HI")
    if unknown := [name for name in free if name not in weights]:
        raise QuestionError(f"the model has no weight {unknown[0]!r}")


def _read(data: bytes) -> onnx.ModelProto:
    try:
        model = onnx.load_model_from_string(data)
    except (DecodeError, ValueError) as error:
        raise QuestionError("the model is no ONNX model") from error
    if any(onnx.external_data_helper.uses_external_data(one) for one in model.graph.initializer):
        raise QuestionError("the model's weights lie in files of their own, of which its hash says nothing")
    return model


def _dtype(name: str, kind: int) -> np.dtype[Any]:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind) if kind else np.dtype(object)
    if dtype.kind not in "biuf" or dtype.name == "bfloat16":
        raise QuestionError(f"input {name!r} holds elements of a type that the checker does not know")
    return dtype


def _shape_of(value: onnx.ValueInfoProto, sizes: Mapping[str, int], found: dict[str, int]) -> tuple[int, ...]:
    shape = []
    if not value.type.tensor_type.HasField("shape"):
        raise QuestionError(f"the model does not say how many dimensions input {value.name!r} has")
    for position, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
            continue
        name = dim.dim_param or f"dimension {position} of {value.name}"
        found[name] = sizes.get(name, 1)
        shape.append(found[name])
    return tuple(shape)


def _box(name: str, given: Range | None, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Bounds:
    """Return the values of a type that lie in a range; where there are none, those next to it."""
    assert given is not None, "each input has a range"
    try:
        low, high = (np.broadcast_to(np.asarray(end), shape) for end in given)
    except ValueError as error:
        raise QuestionError(f"the range of input {name!r} has another shape than {list(shape)}") from error
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise QuestionError(f"the range of input {name!r} is no range of finite numbers")
    if dtype.kind != "f":
        limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        ends = [np.clip(rounded(end), *limits).astype(dtype) for rounded, end in ((np.ceil, low), (np.floor, high))]
        if (ends[0] > ends[1]).any():
            raise QuestionError(f"the range of input {name!r} holds no {dtype.name}")
        return Bounds(*ends)
    with np.errstate(over="ignore"):
        lower, upper = low.astype(dtype), high.astype(dtype)
    within = (
        np.where(lower.astype(np.float64) < low, np.nextafter(lower, dtype.type(np.inf)), lower),
        np.where(upper.astype(np.float64) > high, np.nextafter(upper, dtype.type(-np.inf)), upper),
    )
    empty = within[0] > within[1]
    found = Bounds(
        np.where(empty, np.minimum(lower, upper), within[0]), np.where(empty, np.maximum(lower, upper), within[1])
    )
    if not found.is_sound:
        raise QuestionError(f"the range of input {name!r} is wider than {dtype.name}")
    return found
