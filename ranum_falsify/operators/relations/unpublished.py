"""What of a network PyTorch computes on CUDA by kernels of which NVIDIA and PyTorch publish no error."""

from __future__ import annotations

import math

import numpy as np
import torch
from dnnv.nn import Operation

from ranum_falsify.config import CUDA
from ranum_falsify.domain.kernels import find_envelope
from ranum_falsify.network import Graph, OperatorSpec, spec_of
from ranum_falsify.network.nesting import has_subgraphs, nodes_with_branches
from ranum_falsify.network.tensors import is_floating, torch_dtype
from ranum_falsify.operators.relations.matching import kind

_MOVING = frozenset(
    (
        *("Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Dropout", "Expand", "EyeLike", "Flatten", "Gather"),
        *("GatherElements", "GatherND", "Identity", "Pad", "Reshape", "Shape", "Size", "Slice", "SpaceToDepth"),
        *("Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"),
    )
)
_CHOOSING = frozenset(
    (
        *("Abs", "And", "ArgMax", "ArgMin", "Ceil", "Clip", "Equal", "Floor", "GlobalMaxPool", "Greater"),
        *("GreaterOrEqual", "Hardmax", "IsInf", "IsNaN", "Less", "LessOrEqual", "Max", "MaxPool", "Min", "Neg", "Not"),
        *("Or", "ReduceMax", "ReduceMin", "Relu", "Round", "Sign", "TopK", "Xor"),
    )
)
_ROUNDED = frozenset(("Add", "Div", "LeakyRelu", "Mul", "PRelu", "Sub", "Sum"))
_SUMS = frozenset(
    (
        *("AveragePool", "GlobalAveragePool", "Gemm", "MatMul", "ReduceL1", "ReduceL2", "ReduceLogSum"),
        *("ReduceLogSumExp", "ReduceMean", "ReduceSum", "ReduceSumSquare", "Softmax", "LogSoftmax"),
    )
)
"""Operators that move and choose numbers, that round as IEEE 754 asks, and that add up, in any order.

A product of float32 matrices is one of float32 unless users allow TF32.  Convolutions are missing: cuDNN chooses among
algorithms, Winograd's and Fourier transforms among them, of which it publishes no error.
"""

_TYPES = (torch.float32, torch.float64)


def describe_unpublished(graph: Graph) -> str:
    """Return a kernel of which no error is published, in a few words; "" if there is none.

    Args:
        graph: The network as written, which is what PyTorch runs.
    """
    if has_subgraphs(graph):
        return "a subgraph"
    dtypes = {torch_dtype(details.dtype) for details in graph.details.values() if is_floating(np.dtype(details.dtype))}
    if halves := dtypes.difference(_TYPES):
        return f"kernels of {min(map(str, halves)).removeprefix('torch.')}"
    for op in nodes_with_branches(graph):
        spec = spec_of(op)
        if spec.domain or not _is_published(op, spec, dtypes):
            return f"{spec.op_type} {op.name}"
        if kind(op) == "Div" and _is_multiplied(op):
            return f"{spec.op_type} {op.name} by a single number, whose reciprocal may be rounded first"
    return ""


def _is_published(op: Operation, spec: OperatorSpec, dtypes: set[torch.dtype]) -> bool:
    if kind(op) == "Cast":  # integers beyond the range of their type are not what they are on a CPU
        return bool(op.to in (1, 9, 11))
    is_known = spec.op_type in _MOVING | _CHOOSING | _ROUNDED | _SUMS or (spec.elementwise and bool(spec.kernel))
    return is_known and all(
        find_envelope(name, dtype, CUDA) is not None for name in _kernels(op, spec) for dtype in dtypes
    )


def _kernels(op: Operation, spec: OperatorSpec) -> tuple[str, ...]:
    if kind(op) == "Gelu":
        return ("Gelu tanh",) if op.approximate == "tanh" else ("Gelu",)
    return spec.kernel


def _is_multiplied(op: Operation) -> bool:
    """Tell whether a kernel may multiply with a reciprocal that is not exact, as it does for Python's numbers."""
    divisor = spec_of(op).operands_of(op)[1]
    if not isinstance(divisor, np.ndarray) or divisor.size != 1 or divisor.dtype.kind != "f":
        return False
    mantissa, exponent = math.frexp(float(divisor.reshape(-1)[0]))
    return abs(mantissa) != 0.5 or not -120 < exponent < 120
