"""Facts about a graph that need no run: what nodes read, their order, which of its constants are finite."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Value = Any  # an array, or a list of arrays for an ONNX sequence, or of dictionaries for one of maps
Status = tuple[bool, bool]  # (holds NaN, holds infinity)

GOOD: Status = (False, False)
FLOAT_INITIALIZERS = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.FLOAT8E4M3FN,
    onnx.TensorProto.FLOAT8E4M3FNUZ,
    onnx.TensorProto.FLOAT8E5M2,
    onnx.TensorProto.FLOAT8E5M2FNUZ,
    onnx.TensorProto.FLOAT8E8M0,
}


def status_of(value: Value) -> Status:
    """Tell whether a tensor, or any tensor or map of a sequence, holds NaN, and whether it holds infinity."""
    if isinstance(value, dict):
        return status_of(np.array(list(value.values()), np.float32))
    if isinstance(value, list):
        found = [status_of(item) for item in value]
        return any(nan for nan, _ in found), any(inf for _, inf in found)
    array = np.asarray(value)
    if array.dtype.kind not in "fV" or np.isfinite(array).all():
        return GOOD
    return bool(np.isnan(array).any()), bool(np.isinf(array).any())


def find_statuses(values: Mapping[str, Value]) -> dict[str, Status]:
    """Return the status of each tensor that is not finite, by name."""
    return {name: status for name, value in values.items() if any(status := status_of(value))}


def find_bad(value: Value, kind: str) -> np.ndarray | None:
    """Return which elements of a tensor are NaN, or infinite if that is the kind; None for a sequence."""
    if not isinstance(value, np.ndarray):
        return None
    return np.isnan(value) if kind == "nan" else np.isinf(value)


def is_numeric(value: Value) -> bool:
    """Tell whether a value is a tensor of numbers or booleans."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "fVbiu"


def range_of(value: Value, *, skips_nan: bool = False) -> tuple[float, float] | None:
    """Return the least and greatest element, NaN if one is that is not skipped; None for a value that has none."""
    if not is_numeric(value):
        return None
    exact = value if value.dtype.kind in "iu" else value.astype(np.float64)
    if skips_nan:
        exact = exact[~np.isnan(exact)]
    return (to_number(exact.min()), to_number(exact.max())) if exact.size else None


def to_number(element: np.ndarray | np.generic) -> float:
    """Return the only element of an array: an integer where it is one, which a float may not hold exactly."""
    return element.item() if element.dtype.kind in "iu" else float(element.item())


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def reads_of(node: onnx.NodeProto) -> list[str]:
    """Return the names of all tensors that a node reads, including those captured by its subgraphs."""
    names = [name for name in node.input if name]
    for graph in subgraphs(node):
        inside = {value.name for value in graph.input} | {t.name for t in graph.initializer}
        for child in graph.node:
            names += [name for name in reads_of(child) if name not in inside]
            inside |= set(child.output)
        names += [value.name for value in graph.output if value.name not in inside]
    return list(dict.fromkeys(names))


def attribute_status(node: onnx.NodeProto, folder: str) -> Status:
    """Tell whether attributes, or constants of subgraphs, hold NaN or infinity: they are operands in all but name."""
    found = [GOOD]
    for attribute in node.attribute:
        found.append(status_of(np.asarray([attribute.f, *attribute.floats], np.float32)))
        tensors = [attribute.t, *attribute.tensors]
        found += [tensor_status(t, folder) for t in tensors if t.data_type in FLOAT_INITIALIZERS]
    for graph in subgraphs(node):
        found += [tensor_status(t, folder) for t in graph.initializer if t.data_type in FLOAT_INITIALIZERS]
        found += [attribute_status(child, folder) for child in graph.node]
    return any(nan for nan, _ in found), any(inf for _, inf in found)


def tensor_status(tensor: onnx.TensorProto, folder: str) -> Status:
    """Tell whether a stored tensor holds NaN, and whether it holds infinity."""
    return status_of(numpy_helper.to_array(tensor, folder))


def sort_nodes(graph: onnx.GraphProto) -> list[int]:
    """Return the positions of the nodes in topological order, as close to the order of the file as possible."""
    producer = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    needs = {k: {producer[n] for n in reads_of(node) if n in producer} for k, node in enumerate(graph.node)}
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        for k in sorter.get_ready():
            heapq.heappush(ready, k)
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
    return order


def clear_repeated_names(graph: onnx.GraphProto) -> None:
    """Clear names that nodes share: ONNX allows that and gives it no meaning; ONNX Runtime refuses such a model."""
    seen: set[str] = set()
    for node in graph.node:
        if node.name in seen:
            node.name = ""
        seen.add(node.name)


def read_stored(node: onnx.NodeProto) -> list[onnx.TensorProto]:
    """Return the tensor of a Constant node, which is known without being computed; none for another node."""
    if node.op_type != "Constant" or node.domain:
        return []
    return [attribute.t for attribute in node.attribute if attribute.name == "value"]
