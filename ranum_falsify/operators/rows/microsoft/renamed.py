"""Operators that ONNX Runtime had before ONNX had them, or beside others: each does what another row says."""

from __future__ import annotations

from dnnv.nn import Operation, operations
from torch import Tensor

from ranum_falsify.errors import UnsupportedAttributeError

# Rows of `shape` must be there before they get a second name.
from ranum_falsify.operators.rows import shape, slicing  # noqa: F401
from ranum_falsify.operators.rows.creation import Range
from ranum_falsify.operators.rows.indexing import GatherND, Unique, unique
from ranum_falsify.operators.rows.microsoft.products import FusedMatMul
from ranum_falsify.operators.rows.sampling import GridSample
from ranum_falsify.operators.support.microsoft_parts import doing_as
from ranum_falsify.operators.support.microsoft_schemas import DOMAIN, FLOATS, schema

_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_ANY = ("float", "double", "float16", "bfloat16", "bool", *_INTEGERS)


@doing_as(
    slicing.Trilu,
    schema("Trilu", "X:T k:I?", "Y:T", {"T": ("float", "double", "int64"), "I": ("int64",)}, defaults={"upper": 1}),
)
class MicrosoftTrilu(slicing.Trilu):
    """A triangle of each matrix."""


@doing_as(
    operations.Pad,
    schema("Pad", "data:T pads:I value:T?", "output:T", {"T": FLOATS, "I": ("int64",)}, defaults={"mode": "constant"}),
)
class MicrosoftPad(operations.Pad):
    """A tensor with elements added around it."""


@doing_as(operations.Unsqueeze, schema("ExpandDims", "X:T axis:I", "Y:T", {"T": _ANY, "I": ("int32",)}))
class ExpandDims(operations.Unsqueeze):
    """`Unsqueeze` by one axis."""


@doing_as(
    Range,
    schema("Range", "start:T limit:T delta:T?", "Y:T", {"T": ("float", "double", "int16", "int32", "int64")}),
)
class MicrosoftRange(Range):
    """Numbers in equal steps, of 1 unless another is given."""


@doing_as(GatherND, schema("GatherND", "data:T indices:I", "output:T", {"T": _ANY, "I": ("int32", "int64")}))
class MicrosoftGatherND(GatherND):
    """Elements, or slices, at given places."""

    batch_dims = 0


@doing_as(
    GridSample,
    schema(
        "GridSample",
        "X:T Grid:T",
        "Y:T",
        {"T": FLOATS},
        defaults={"align_corners": 0, "mode": "bilinear", "padding_mode": "zeros"},
    ),
)
class MicrosoftGridSample(GridSample):
    """Elements between those of an image."""


@doing_as(
    FusedMatMul,
    schema("TransposeMatMul", "A:T B:T", "Y:T", {"T": FLOATS}, defaults={"alpha": 1.0, "transA": 0, "transB": 0}),
)
class TransposeMatMul(FusedMatMul):
    """`FusedMatMul` as it was called first."""

    transpose_batch_a = transpose_batch_b = 0


def _unique(op: Operation, x: Tensor) -> tuple[Tensor, ...]:
    if x.ndim != 1:
        raise UnsupportedAttributeError(f"{DOMAIN}::Unique: a tensor of {x.ndim} dimensions is not supported; use 1")
    # Where each number comes first is no output.
    y, _, places, counts = unique(op, x)
    return y, places, counts


@doing_as(Unique, schema("Unique", "x:T", "y:T idx:I counts:I", {"T": FLOATS, "I": ("int64",)}), torch=_unique)
class UniqueInOrder(Unique):
    """The numbers of a tensor, each once, in the order in which they come."""

    axis, sorted = None, 0
