"""Half precision on ARM64: some kernels add up in it, and ONNX Runtime gives others operands in float32."""

from __future__ import annotations

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import Identity

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.nesting import has_subgraphs
from ranum_falsify.operators.relations.matching import fields_of, is_a, kind

_UNKNOWN = (
    "AffineGrid",
    "Attention",
    "CausalConvWithState",
    "GroupNormalization",
    "LinearAttention",
    "MeanVarianceNormalization",
    "NegativeLogLikelihoodLoss",
    "ReduceSumSquare",
    "SoftmaxCrossEntropyLoss",
    "SwiGLU",
)
"""Operators of which kernels or definitions may compute products or sums of products in float16 there."""

_CONVERTED, _INLINED = "InsertedPrecisionFreeCast_", "_inlfunc_"
"""How ONNX Runtime names tensors that it holds in float32, and those of definitions that it puts in place of nodes."""


def find_half(graph: Graph) -> str:
    """Return the half precision that a network computes in; "" if it does in none."""
    names = {np.dtype(details.dtype).name for details in graph.details.values()}
    return next((name for name in ("float16", "bfloat16") if name in names), "")


def describe_unknown_halves(written: Graph, executed: Graph | None) -> str:
    """Return what is computed in float16 on ARM64 in ways that bounds do not cover, in a few words; "" for nothing.

    ONNX Runtime's optimiser there is taken to do what it does here, but for the types in which operators compute.  The
    bounds of the written graph cover sums that are rounded at each step, but not operators that are merged.

    Args:
        written: The network as written.
        executed: What ONNX Runtime makes of it on x86-64; None if that is the same.
    """
    if not any(details.dtype == np.float16 for details in written.details.values()):
        return ""
    if has_subgraphs(written):
        return "a subgraph with float16"
    for op in written.nodes:
        if is_a(op, *_UNKNOWN) or spec_of(op).domain:
            return f"{spec_of(op).op_type} {op.name} in float16"
    if executed is not None and (merged := _find_merged(written, executed)) is not None:
        return f"{spec_of(merged).op_type} {merged.name} in float16, which the optimiser merges"
    return ""


def _find_merged(written: Graph, executed: Graph) -> Operation | None:
    """Return an operator whose result is not there in the other graph, or any where that has a result of its own."""
    names = {name.removeprefix(_CONVERTED) for op in executed.nodes for name in op.output_names if name}
    own = {name for op in written.nodes for name in op.output_names}
    readers: dict[int, list[Operation]] = {}
    for op in written.nodes:
        for field in fields_of(op):
            readers.setdefault(id(field), []).append(op)
    for op in written.nodes:
        passes = isinstance(op, Identity) or kind(op) == "Dropout"
        if not passes and names.isdisjoint(op.output_names) and not _is_covered(op, readers.get(id(op), [])):
            return op
    is_added = any(name not in own and _INLINED not in name for name in names - set(written.input_names))
    return written.nodes[0] if is_added else None


def _is_covered(op: Operation, readers: list[Operation]) -> bool:
    """Tell whether bounds cover what becomes of a sum that what reads it alone, an activation or a bias, joins."""
    if kind(op) not in ("MatMul", "Gemm", "Conv") or len(readers) != 1:
        return False
    (reader,) = readers
    is_activation = spec_of(reader).elementwise and len([x for x in fields_of(reader) if x is not None]) == 1
    return is_activation or (kind(op) == "MatMul" and kind(reader) == "Add")
