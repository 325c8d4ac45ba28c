"""Tensors from constants, ranges, shapes and identity matrices.

Tensors without an operand whose device they could share are made on torch's default device, which the caller sets with
`torch.device(...)` as a context.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.shape import evaluate
from ranum_falsify.domain.rules.support.building import infinity_aware, shape_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError, UnsupportedTypeError
from ranum_falsify.network.tensors import ONNX_TO_NUMPY, to_torch, torch_dtype
from ranum_falsify.operators.support.conditions import addressable, not_negative
from ranum_falsify.operators.support.families import making
from ranum_falsify.operators.support.functions import ints
from ranum_falsify.validity import Condition, NotZero


def dtype_numbered(number: int) -> torch.dtype:
    """Return the torch dtype of an ONNX element type number, unless torch has none, or it is that of strings."""
    if number not in ONNX_TO_NUMPY:
        raise UnsupportedTypeError(f"element type {number} of ONNX is not supported; use a float, integer or bool type")
    return torch_dtype(ONNX_TO_NUMPY[number])


def _place(array: np.ndarray) -> Tensor:
    return to_torch(array).to(torch.get_default_device())


_SCALARS = {"value_float": np.float32, "value_int": np.int64, "value_floats": np.float32, "value_ints": np.int64}
_VALUES = ("value", "sparse_value", *_SCALARS, "value_string", "value_strings")


def _constant(op: Operation) -> Tensor:
    if sum(getattr(op, name, None) is not None for name in _VALUES) > 1:
        raise UnsupportedAttributeError("Constant has several values, which is not supported; give one")
    for name in ("value", "sparse_value"):
        if (value := getattr(op, name)) is not None:
            return _place(np.asarray(value))
    for name, dtype in _SCALARS.items():
        if (value := getattr(op, name)) is not None:
            return _place(np.asarray(value, dtype=dtype))
    raise UnsupportedTypeError("Constant holds strings, which are not supported; only numbers and bools are")


@making(torch=_constant, interval=evaluate)
class Constant(Operation):
    """https://onnx.ai/onnx/operators/onnx__Constant.html."""


def _filling(op: Operation) -> np.ndarray:
    return np.zeros(1, dtype=np.float32) if op.value is None else np.asarray(op.value)


def _constant_of_shape(op: Operation, x: np.ndarray) -> Tensor:
    return _place(_filling(op)).reshape(()).expand(ints(x) or []).clone()


def _constant_of_shape_bounds(site: Site, x: np.ndarray) -> Interval:
    value = _constant_of_shape(site.op, np.ones(0, np.int64))
    sizes = tuple(ints(x) or [])
    return Interval.point(value.expand(sizes)) if sizes else Interval.point(value)


@making(
    torch=_constant_of_shape,
    interval=infinity_aware(_constant_of_shape_bounds),
    valid=[not_negative("x"), addressable("x", lambda op: _filling(op).itemsize)],
    static=("x",),
)
class ConstantOfShape(Operation):
    """https://onnx.ai/onnx/operators/onnx__ConstantOfShape.html."""


def _eye_like(op: Operation, x: Tensor) -> Tensor:
    rows = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    columns = torch.arange(x.shape[1], device=x.device)
    dtype = x.dtype if op.dtype is None else dtype_numbered(op.dtype)
    return torch.eq(rows + op.k, columns).to(dtype)


@making(torch=_eye_like, interval=evaluate, shape_only=True)
class EyeLike(Operation):
    """https://onnx.ai/onnx/operators/onnx__EyeLike.html."""


_ONE = np.ones((), np.int16)
"""The step where none is given."""


def _range(op: Operation, start: np.ndarray, limit: np.ndarray, delta: np.ndarray | None) -> Tensor:
    first, last, step = (value.reshape(-1)[0] for value in (start, limit, _ONE if delta is None else delta))
    # ONNX Runtime refuses a delta of 0; the example input on which a model is read may hold one.
    count = max(math.ceil((float(last) - float(first)) / float(step)), 0) if step else 0
    dtype = np.asarray(start).dtype
    # Step by step, as ONNX Runtime does: products would be rounded differently.
    steps = np.full(count, step, dtype)
    steps[:1] = first
    return _place(np.add.accumulate(steps, dtype=dtype))


def _range_bounds(site: Site, *given: np.ndarray | Interval | None) -> Interval | None:
    ends = [_ONE if end is None else end for end in given]
    known = [end.expand()[0].numpy() if isinstance(end, Interval) and end.is_point else end for end in ends]
    start, limit, delta = (None if isinstance(end, Interval) else end.reshape(-1)[0] for end in known)
    if start is None or limit is None or delta is None or not delta:
        return None
    count = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
    # One input may ask for more numbers than memory holds.
    return Interval.point(_range(site.op, *known)) if (count,) == site.shape else None  # type: ignore[arg-type]


_NOT_ZERO = NotZero("delta", reason="")
_MOVES = Condition(
    "delta != 0",
    "a range in steps of 0",
    lambda op, operands: _NOT_ZERO.margin(op, operands) if "delta" in operands else torch.ones(()),
    refuses=True,
    holds_of=lambda op, bounds: "delta" not in bounds or _NOT_ZERO.holds(op, bounds),
    fails_of=lambda op, bounds: "delta" in bounds and _NOT_ZERO.fails(op, bounds),
)


@making(
    torch=_range,
    interval=infinity_aware(shape_aware(_range_bounds)),
    valid=[_MOVES],
    static=("start", "limit", "delta"),
)
class Range(Operation):
    """https://onnx.ai/onnx/operators/onnx__Range.html."""
