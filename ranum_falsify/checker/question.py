"""The question: a model, what its inputs range over, sizes and runtimes, as whoever asks states it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
import onnx

from ranum_falsify.checker.bounds import Bounds

RUNTIMES = ("onnxruntime", "torch", "exact")
"""The runtimes that the rules are about: ONNX Runtime and PyTorch on x86-64 processors, and correct rounding."""

Range = tuple[Any, Any]
"""Least and greatest value: numbers for all elements, or arrays."""


class QuestionError(Exception):
    """A question that does not fit the model; its message says why."""


def refuse(wrong: object, why: str, error: type[Exception] = QuestionError) -> None:
    """Raise an error where something is wrong."""
    if wrong:
        raise error(why)


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
    """State a question about what a model file holds; an ellipsis stands for all inputs of which nothing else is said.

    Raises:
        QuestionError: It does not fit the model.
    """
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # what protobuf raises
        raise QuestionError("the model is no ONNX model") from error
    weights = {one.name: one for one in model.graph.initializer}
    outside = any(onnx.external_data_helper.uses_external_data(one) for one in weights.values())
    refuse(outside, "the model's weights lie in files of their own, of which its hash says nothing")
    declared = {value.name: value for value in model.graph.input if value.name not in weights}
    for name in ranges:
        is_weight, known = name in weights and name not in free, name is ... or name in declared or name in weights
        refuse(is_weight, f"{name!r} is a weight of the model, not an input; free it to vary")
        refuse(not known, f"the model has no input {name!r}; it has {', '.join(declared) or 'none'}")
    for runtime in runtimes:
        every = ", ".join(RUNTIMES)
        refuse(runtime not in RUNTIMES, f"{runtime!r} is no runtime that the checker knows; {every} are")
    found, inputs = dict[str, int](), dict[str, Bounds]()
    for name in (*declared, *free):
        said = name in ranges or (name in declared and ... in ranges)
        refuse(not said, f"nothing says what input {name!r} ranges over; give --box {name}=LO,HI")
        refuse(name not in declared and name not in weights, f"the model has no weight {name!r}")
        is_input = name in declared
        shape = _shape_of(declared[name], sizes, found) if is_input else tuple(weights[name].dims)
        kind = declared[name].type.tensor_type.elem_type if is_input else weights[name].data_type
        inputs[name] = _box(name, ranges[name if name in ranges else ...], kind, shape)
    for name in sizes:
        refuse(name not in found, f"--dim {name}: no input of the model has such a dimension")
    return ModelQuestion(
        model=model,
        sha256=hashlib.sha256(data).hexdigest(),
        inputs=inputs,
        free=tuple(free),
        sizes=found,
        assumed=[name for name in found if name not in sizes],
        runtimes=tuple(runtimes),
    )


def _shape_of(value: onnx.ValueInfoProto, sizes: Mapping[str, int], found: dict[str, int]) -> tuple[int, ...]:
    known = value.type.tensor_type.HasField("shape")
    refuse(not known, f"the model does not say how many dimensions input {value.name!r} has")
    shape = []
    for position, dim in enumerate(value.type.tensor_type.shape.dim):
        name = dim.dim_param or f"dimension {position} of {value.name}"
        if not dim.HasField("dim_value"):
            found[name] = sizes.get(name, 1)
        shape.append(dim.dim_value if dim.HasField("dim_value") else found[name])
    return tuple(shape)


def _box(name: str, given: Range, kind: int, shape: tuple[int, ...]) -> Bounds:
    """Return the values of a type that lie in a range; where there are none, those next to it."""
    dtype: np.dtype[Any] = onnx.helper.tensor_dtype_to_np_dtype(kind) if kind else np.dtype(object)
    unknown = dtype.kind not in "biuf" or dtype.name == "bfloat16"
    refuse(unknown, f"input {name!r} holds elements of a type that the checker does not know")
    try:
        low, high = (np.broadcast_to(np.asarray(end), shape) for end in given)
    except ValueError as error:
        raise QuestionError(f"the range of input {name!r} has another shape than {list(shape)}") from error
    finite = np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()
    refuse(not finite, f"the range of input {name!r} is no range of finite numbers")
    if dtype.kind != "f":
        limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        found = Bounds(*(np.clip(end, *limits).astype(dtype) for end in (np.ceil(low), np.floor(high))))
        refuse((found.lower > found.upper).any(), f"the range of input {name!r} holds no {dtype.name}")
        return found
    with np.errstate(over="ignore"):
        ends = low.astype(dtype), high.astype(dtype)
    lower = np.where(ends[0].astype(np.float64) < low, np.nextafter(ends[0], dtype.type(np.inf)), ends[0])
    upper = np.where(ends[1].astype(np.float64) > high, np.nextafter(ends[1], dtype.type(-np.inf)), ends[1])
    found = Bounds(np.where(lower > upper, ends[0], lower), np.where(lower > upper, ends[1], upper))
    refuse(not found.is_sound, f"the range of input {name!r} is wider than {dtype.name}")
    return found
