"""Tensors that ONNX Runtime computed, compared with their bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect
from torch import Tensor

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import spec_of
from ranum_falsify.network.runs import Level
from ranum_falsify.network.tensors import numpy_dtype, to_torch

REPORT = "a fault of ranum-falsify, please report it"

Stack = Any
"""A tensor on several points, `(count, *shape)`; a list of them where shapes differ."""

Tensors = Sequence[tuple[Operation, str, Interval]]
"""Tensors in topological order: who writes them, name, bounds."""

_WHERE: Mapping[Level, str] = {
    "default": "at output {name!r}, of {node} ({op_type}),",
    "written": "at {name!r}, of {node} ({op_type}), run without optimisations,",
    "optimised": "at {name!r}, of {node} ({op_type}) in the optimised graph,",
}
_UNITS = 4.0
"""Units in the last place by which results of two levels may differ before it is asked which are right."""


def list_bounds(analysis: IntervalAnalysis) -> Iterator[tuple[Operation, str, Interval]]:
    """Yield the constants that are made, then what is known and kept of the latest run, in topological order."""
    for op, arrays in analysis.graph.folded:
        made = any(field is not None for field in spec_of(op).operands_of(op))
        for name, array in zip(op.output_names, arrays, strict=False) if made else ():
            bounds = analysis.find_known(array)
            if name and bounds is not None and not (array.dtype.kind in "fV" and np.isnan(array.astype(float)).any()):
                yield op, name, bounds
    for op in analysis.graph.order:
        node, index = (op.operation, op.index) if isinstance(op, OutputSelect) else (op, 0)
        with suppress(KeyError):
            bounds = None if isinstance(op, Input) else analysis.bounds_of(op)
            if bounds is not None and node.output_names[index]:
                yield node, node.output_names[index], bounds


def restore(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return an array that came as its bits, where NumPy itself lacks the type, in that type."""
    return array.view(dtype) if dtype.kind == "V" and array.dtype.kind == "u" else array


def find_departure(
    bounds: Mapping[Level, Tensors], shown: Mapping[Level, Mapping[str, Stack]]
) -> tuple[int, str] | None:
    """Return on which point the first tensor of the first level leaves its bounds, and how.

    The default level, of which only outputs are known, computes what the last level that has bounds does.
    """
    levels: list[tuple[Level, Tensors]] = [(level, tensors) for level, tensors in bounds.items() if level in shown]
    levels += [("default", tensors) for tensors in list(bounds.values())[-1:]]
    for level, tensors in levels:
        for op, name, known in tensors:
            stack = shown[level].get(name)
            found = None if stack is None else _find_outside(stack, known)
            if found is not None:
                position, value, proved = found
                where = _WHERE[level].format(name=name, node=op.name, op_type=spec_of(op).op_type)
                return position, f"{value} {where} where {proved} is proved"
    return None


def _find_outside(stack: Stack, bounds: Interval) -> tuple[int, str, str] | None:
    """Return the first point at which a tensor lies outside, the value there, and the bounds."""
    for position, one in enumerate(stack):
        if tuple(one.shape) != bounds.shape:
            return position, f"shape {tuple(one.shape)}", f"{bounds.shape}"
    dtype = numpy_dtype(bounds.dtype)
    array = restore(np.asarray(stack), dtype)
    if array.dtype != dtype:
        return None
    values = to_torch(array)
    outside = ~bounds.encloses(values)
    if not bool(outside.any()):
        return None
    position, *index = outside.nonzero()[0].tolist()
    low, high = (end[tuple(index)] for end in bounds.expand())
    return position, _write(values[(position, *index)]), f"[{_write(low)}, {_write(high)}]"


def _write(number: Tensor) -> str:
    """Return a number in so many digits that neighbours differ."""
    value = number.item()
    if not number.dtype.is_floating_point:
        return str(int(value))
    return f"{value:.17g}" if number.dtype is torch.float64 else f"{value:.9g}"


def find_unequal(shown: Mapping[Level, Mapping[str, Stack]]) -> list[int]:
    """Return the points at which an output of the default level differs most from that of an unoptimised run."""
    found: list[int] = []
    for name, stack in shown["default"].items():
        other = shown.get("written", {}).get(name)
        if not isinstance(other, np.ndarray) or other.dtype != stack.dtype or other.shape[1:] != stack.shape[1:]:
            continue
        a, b = (to_torch(x[: min(len(stack), len(other))]) for x in (stack, other))
        if not a.numel() or a.dtype is torch.bool or torch.equal(a, b):
            continue
        if a.is_floating_point():
            units = (a.double() - b.double()).abs() / (torch.finfo(a.dtype).eps * b.double().abs() + 1e-300)
            worst = units.nan_to_num(torch.inf).reshape(len(a), -1).amax(1)
        else:
            worst = torch.where(a != b, torch.inf, 0.0).reshape(len(a), -1).amax(1)
        if float(worst.amax()) > _UNITS:
            found.append(int(worst.argmax()))
    return found
