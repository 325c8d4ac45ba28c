"""Changes that ONNX Runtime's optimiser makes to a graph, and which of them the written operators' rules enclose.

Sums are bounded in any order, together with a bias beside their product, and nodes that pass on their operand may
disappear.  So `MatMul` and `Add` may become `Gemm`, and `Relu` may join the operator before it.  After any other change
the result counts as another graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import Identity, Input, OutputSelect

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.operators.relations.matching import Field, fields_of, is_a, is_same_constant, kind, pairs

_FUSED = {"FusedConv": "Conv", "FusedGemm": "Gemm"}
"""Operators that apply an activation to the result of another."""

_PLAIN_SUM = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}


def is_rewritten(written: Graph, graph: Graph) -> bool:
    """Tell whether a graph that runs in place of a written one, with the same names, needs bounds of its own."""
    writers = {name: op for op in written.nodes for name in op.output_names if name}
    for op in graph.nodes:
        twins = [writers.get(name) for name in op.output_names if name]
        if not twins or twins[0] is None or any(twin is not twins[0] for twin in twins) or not _computes(op, twins[0]):
            return True
    ends = zip(graph.output_operations, written.output_operations, strict=True)
    return not all(_is_same_tensor(a, b) for a, b in ends)


def _computes(op: Operation, written: Operation) -> bool:
    """Tell whether an operator computes what a written one does, whose operands have the same names."""
    base = _FUSED.get(kind(op))
    if base is not None:
        activated = _attribute(op, "activation") == kind(written) == "Relu"
        if not activated or any(x is not None for x in fields_of(op)[3:]):
            return False
        before = is_a(fields_of(written)[0], base, "Add")
        return before is not None and _is_base(op, base, before)
    return _is_base(op, kind(op), written)


def _is_base(op: Operation, base: str, written: Operation) -> bool:
    if kind(written) == base:
        if kind(op) == base and type(op) is not type(written):
            return False  # operators of several domains may share a name
        return have_same_attributes(op, written) and _read_same(fields_of(op), fields_of(written))
    if base != "Gemm" or kind(written) != "Add" or any(_attribute(op, n) != x for n, x in _PLAIN_SUM.items()):
        return False
    for product, bias in pairs(written):
        matrix = is_a(product, "MatMul")
        if matrix is not None and _read_same(fields_of(op), (*fields_of(matrix), bias)):
            return True
    return False


def _attribute(op: Operation, name: str) -> object:
    return getattr(op, spec_of(op).field_of(name), None)


def have_same_attributes(op: Operation, written: Operation) -> bool:
    """Tell whether two nodes of one operator have the same attributes."""
    names = spec_of(written).attributes
    return all(_are_equal(_attribute(op, name), _attribute(written, name)) for name in names)


def _are_equal(a: object, b: object) -> bool:
    if a is None or b is None:
        return a is b
    return type(a) is type(b) and np.array_equal(np.asarray(a), np.asarray(b))


def pair_operands(op: Operation, written: Operation) -> list[tuple[Operation, Operation]] | None:
    """Return the tensors that two nodes read, pair by pair; None if more than these tells the nodes apart."""
    if type(op) is not type(written) or not have_same_attributes(op, written):
        return None
    found = []
    for a, b in zip_longest(fields_of(op), fields_of(written)):
        if isinstance(a, Operation) and isinstance(b, Operation):
            found.append((a, b))
        elif not _hold_same(a, b):
            return None
    return found


def _read_same(fields: tuple[Field, ...], written: tuple[Field, ...]) -> bool:
    return all(_hold_same(a, b) for a, b in zip_longest(fields, written))


def _hold_same(field: Field, written: Field) -> bool:
    if isinstance(field, Operation):
        return isinstance(written, Operation) and _is_same_tensor(field, written)
    if field is None or written is None or isinstance(written, Operation):
        return field is written
    return is_same_constant(field, written)


def _is_same_tensor(op: Operation, written: Operation) -> bool:
    return not _names(op).isdisjoint(name for alias in _aliases(written) for name in _names(alias))


def _aliases(op: Operation) -> Iterator[Operation]:
    """Yield an operation, and those before it whose results it passes on unchanged."""
    yield op
    while isinstance(op, Identity) or kind(op) == "Dropout":
        spec = spec_of(op)
        before = spec.operands_of(op)[0]
        if spec.is_random(op) or not isinstance(before, Operation):
            return
        op = before
        yield op


def _names(op: Operation) -> set[str]:
    """Return the name of the tensor that an operation, or the selection of one of its outputs, gives."""
    if isinstance(op, Input):
        return {op.name}
    return {op.operation.output_names[op.index] if isinstance(op, OutputSelect) else op.output_names[0]}
