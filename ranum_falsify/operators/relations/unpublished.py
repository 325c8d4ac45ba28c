"""Kernels of PyTorch of which nothing is known: those of a module, and those of a network on CUDA."""

from __future__ import annotations

import math
import re
from contextlib import suppress

import numpy as np
import torch
from dnnv.nn import Operation

from ranum_falsify.config import CUDA
from ranum_falsify.domain.kernels import find_envelope
from ranum_falsify.network import Graph, OperatorSpec, spec_of
from ranum_falsify.network.narrow import NARROW
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
_CONVOLUTIONS = frozenset(("Conv", "ConvTranspose"))
_PRODUCTS = _CONVOLUTIONS | {"Gemm", "MatMul"}
_SUMS = frozenset(
    (
        *("AveragePool", "GlobalAveragePool", "LogSoftmax", "NegativeLogLikelihoodLoss", "ReduceL1", "ReduceLogSum"),
        *("ReduceMean", "ReduceSum", "ReduceSumSquare", "Softmax", "SoftmaxCrossEntropyLoss"),
    )
)
_WRITING = frozenset(("ScatterElements", "ScatterND"))
_DRAWING = frozenset(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"))
"""Operators that move and choose numbers, that round as IEEE 754 asks, that add up and write, in any order, and that
draw.

Draws are cuRAND's: uniform ones lie in (0, 1], of which DistributionTemplates.h of PyTorch makes [0, 1); normal ones
come from these by Box and Muller's formula.
"""

_HALVES = frozenset((torch.float16, torch.bfloat16))
_TYPES = _HALVES | {torch.float32, torch.float64}

_NOT_IN_HALF = _DRAWING | {"ConvTranspose", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
"""Operators whose kernels may round to half precision on the way, or whose range is another one there."""

_MAY_SCALE = ("aten.add", "aten.sub", "aten.rsub")
"""Sums whose `alpha` the exporter multiplies with before: a kernel may round both at once."""

_ORIGIN = "pkg.torch.onnx."
_TARGET = re.compile(r"target=torch\.ops\.(aten\.\w+)")
"""How PyTorch's exporter notes in a node which of PyTorch's operators it is part of."""

_AS_EXPORTED = frozenset(
    """
    abs acos acosh add addmm alias amax amin argmax argmin asin asinh atan atanh avg_pool2d bmm cat ceil clamp clamp_max
    clamp_min clone contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution cos
    cosh cross_entropy_loss detach div dropout elu eq erf exp expand flatten floor full gather ge gt hardswish
    index_select le leaky_relu lift_fresh_copy linear log log_sigmoid log_softmax lt matmul max max_pool2d maximum mean
    min minimum mm mul ne neg nll_loss permute pow prelu reciprocal relu repeat reshape round rsub scalar_tensor scatter
    scatter_add select sigmoid sign silu sin sinh slice softmax softplus split split_with_sizes sqrt squeeze stack sub
    sum t tan tanh transpose unbind unsqueeze view where _log_softmax _softmax _to_copy
    """.split()
)
"""PyTorch's operators that bounds of what its exporter writes cover on CUDA, too.

Each is one of the operators above; but `silu`, x / (1 + exp(-x)), written as x sigmoid(x), is no less precise, and
`log_sigmoid`, min(x, 0) - log1p(exp(-|x|)), is as precise as the softplus that stands for it.  Others may be one kernel
where several operators are written: attention, `log1p`, `rsqrt`, `var`.
"""

_NUMBERS = re.compile(r"aten\.scalar_tensor\.default\]\(args = \((-?\d[\w.+-]*),")
"""A number that the export rounds to half precision; CUDA's kernels of sums take it in float32 (UfuncCUDA_add.cu)."""

_NOT_AS_EXPORTED_IN_HALF = frozenset("cross_entropy_loss eq ge gt le lt ne nll_loss".split())
"""Of these, those that add up in half precision, or round numbers to it before they compare (CompareKernels.cu)."""

UNCHECKED = "ranum_falsify.unchecked"
"""The key under which the export of a module notes an operator that PyTorch may compute otherwise."""


def describe_unchecked(graph: Graph) -> str:
    """Return an operator of a module that PyTorch may compute otherwise than its export; "" if there is none."""
    return next((entry.value for entry in graph.model.metadata_props if entry.key == UNCHECKED), "")


def describe_unpublished(graph: Graph) -> str:
    """Return a kernel of a written network, which PyTorch runs, of which no error is published; "" if there is none."""
    if has_subgraphs(graph):
        return "a subgraph"
    dtypes = {torch_dtype(details.dtype) for details in graph.details.values() if is_floating(np.dtype(details.dtype))}
    if others := dtypes.difference(_TYPES):
        return f"kernels of {min(map(str, others)).removeprefix('torch.')}"
    halves = " in half precision" if dtypes & _HALVES else ""
    for op in nodes_with_branches(graph):
        spec = spec_of(op)
        if spec.domain or not _is_published(op, spec, dtypes):
            return f"{spec.op_type} {op.name}{halves}"
        if halves and kind(op) == "Pow" and not _has_half_exponent(op):
            return f"{spec.op_type} {op.name}{halves}, which the exponent may be rounded to first"
        if kind(op) == "Div" and _is_multiplied(op):
            return f"{spec.op_type} {op.name} by a single number, whose reciprocal may be rounded first"
        if spec.op_type in _CONVOLUTIONS and torch.backends.cudnn.enabled:
            return f"{spec.op_type} {op.name} by cuDNN, which torch.backends.cudnn.enabled = False does without"
        if spec.op_type in _PRODUCTS and (setting := _find_unknown_setting(dtypes, spec)):
            return f"{spec.op_type} {op.name} {setting}, which this process allows"
    return _describe_fused(graph, _AS_EXPORTED - _NOT_AS_EXPORTED_IN_HALF if halves else _AS_EXPORTED)


def _find_unknown_setting(dtypes: set[torch.dtype], spec: OperatorSpec) -> str:
    """Return what a setting of this process allows of a product that bounds do not cover; "" for nothing."""
    settings = torch.backends.cuda.matmul
    if torch.float16 in dtypes and settings.allow_fp16_accumulation:
        return "with sums in float16 alone"
    if torch.float32 not in dtypes or settings.fp32_precision in ("none", "ieee"):
        return ""
    with suppress(RuntimeError):  # the newer setting was used, which has no such value
        if torch.get_float32_matmul_precision() == "medium":
            return "with operands in less than TF32"
    known = settings.fp32_precision == "tf32" and spec.op_type != "ConvTranspose"
    return "" if known else f"with operands in {settings.fp32_precision.upper()}"


def _describe_fused(graph: Graph, known: frozenset[str]) -> str:
    """Return an operator of PyTorch that may be one kernel where its exporter writes others; "" if there is none."""
    noted = [{entry.key: entry.value for entry in node.metadata_props} for node in graph.model.graph.node]
    if not any(key.startswith(_ORIGIN) for notes in noted for key in notes):
        return ""
    for node, notes in zip(graph.model.graph.node, noted, strict=True):
        target = _TARGET.search(notes.get(f"{_ORIGIN}fx_node", ""))
        name = "" if target is None else target[1]
        is_scaled = node.op_type == "Mul" and name in _MAY_SCALE
        number = _NUMBERS.search(notes.get(f"{_ORIGIN}fx_node", "")) if known is not _AS_EXPORTED else None
        is_rounded = number is not None and not _is_half(np.float64(number[1]))
        if is_rounded or is_scaled or (name.removeprefix("aten.") not in known and node.op_type not in _MOVING):
            return f"{name or 'what became'} {node.op_type} {node.name}".lstrip()
    return ""


def _is_published(op: Operation, spec: OperatorSpec, dtypes: set[torch.dtype]) -> bool:
    if kind(op) == "Cast":  # bounds are the whole type where numbers lie beyond the range of integers
        return op.to not in NARROW
    halves = dtypes & _HALVES
    if spec.op_type in _WRITING and op.reduction not in (None, "none", *(() if halves else ("add",))):
        return False
    if halves and spec.op_type in _NOT_IN_HALF:
        return False
    known = _MOVING | _CHOOSING | _ROUNDED | _PRODUCTS | _SUMS | _WRITING | _DRAWING
    own = () if spec.op_type in known else (spec.op_type,)
    return all(find_envelope(name, dtype, CUDA) is not None for name in (*own, *spec.kernel) for dtype in dtypes)


def _has_half_exponent(op: Operation) -> bool:
    """Tell whether an exponent is stored and of few bits, so that no kernel rounds it."""
    exponent = spec_of(op).operands_of(op)[1]
    if not isinstance(exponent, np.ndarray):
        return False
    return _is_half(exponent)


def _is_half(numbers: np.ndarray | np.float64) -> bool:
    """Tell whether numbers are of either half precision."""
    wide = torch.from_numpy(np.asarray(numbers, dtype=np.float64))
    return all(torch.equal(wide.to(half).double(), wide) for half in _HALVES)


def _is_multiplied(op: Operation) -> bool:
    """Tell whether a kernel may multiply with a reciprocal that is not exact, as it does for Python's numbers.

    BinaryDivTrueKernel.cu of PyTorch does so where the divisor is a number in the memory of the host.
    """
    divisor = spec_of(op).operands_of(op)[1]
    if not isinstance(divisor, np.ndarray) or divisor.size != 1 or not is_floating(divisor.dtype):
        return False
    mantissa, exponent = math.frexp(float(divisor.reshape(-1)[0]))
    return abs(mantissa) != 0.5 or not -120 < exponent < 120
