"""Operators that ONNX Runtime had before ONNX had them, or beside others: each does what another row says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from dnnv.nn import Operation, operations
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site

# Rows of `shape` must be there before they get a second name.
from ranum_falsify.operators.rows import shape, slicing  # noqa: F401
from ranum_falsify.operators.rows.creation import Range
from ranum_falsify.operators.rows.indexing import GatherND, Unique, unique
from ranum_falsify.operators.rows.microsoft.products import FusedMatMul
from ranum_falsify.operators.rows.sampling import GridSample
from ranum_falsify.operators.rows.transformer_parts import (
    CausalConvWithState,
    LinearAttention,
    convolve_causally,
    convolve_causally_bounds,
    linear_attention,
    linear_attention_bounds,
)
from ranum_falsify.operators.support.microsoft import ANY, FLOATS, doing_as, refused, schema

Operand = TypeVar("Operand", Tensor, Interval)


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


@doing_as(operations.Unsqueeze, schema("ExpandDims", "X:T axis:I", "Y:T", {"T": ANY, "I": ("int32",)}))
class ExpandDims(operations.Unsqueeze):
    """`Unsqueeze` by one axis."""


@doing_as(
    Range,
    schema("Range", "start:T limit:T delta:T?", "Y:T", {"T": ("float", "double", "int16", "int32", "int64")}),
)
class MicrosoftRange(Range):
    """Numbers in equal steps, of 1 unless another is given."""


@doing_as(GatherND, schema("GatherND", "data:T indices:I", "output:T", {"T": ANY, "I": ("int32", "int64")}))
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
        raise refused(op, f"a tensor of {x.ndim} dimensions is not supported; use 1")
    # Where each number comes first is no output.
    y, _, places, counts = unique(op, x)
    return y, places, counts


@doing_as(Unique, schema("Unique", "x:T", "y:T idx:I counts:I", {"T": FLOATS, "I": ("int64",)}), torch=_unique)
class UniqueInOrder(Unique):
    """The numbers of a tensor, each once, in the order in which they come."""

    axis, sorted = None, 0


# attention without softmax ------------------------------------------------------------------------------------


def _choose(op: Operation, decay: Operand | None, beta: Operand | None) -> tuple[Operand | None, Operand | None]:
    """Return the operands that the rule of a node reads; its kernel leaves out the others."""
    if op.state_window or op.q_num_heads % op.kv_num_heads:
        raise refused(op, "a state_window, or fewer queries than keys, is not supported")
    reads = {"decay": "gated" in op.update_rule, "beta": "delta" in op.update_rule}
    for (name, is_read), operand in zip(reads.items(), (decay, beta), strict=True):
        if is_read and operand is None:
            raise refused(op, f"update_rule {op.update_rule!r} without {name} is not supported")
    return decay if reads["decay"] else None, beta if reads["beta"] else None


def _linear(op: Operation, q: Tensor, k: Tensor, v: Tensor, *rest: Tensor | None) -> tuple[Tensor, ...]:
    past, decay, beta = rest
    return linear_attention(op, q, k, v, past, *_choose(op, decay, beta))


def _linear_bounds(site: Site, q: Interval, k: Interval, v: Interval, *rest: Interval | None) -> tuple[Interval, ...]:
    past, decay, beta = rest
    return linear_attention_bounds(site, q, k, v, past, *_choose(site.op, decay, beta))


@doing_as(
    LinearAttention,
    schema(
        "LinearAttention",
        "query:T key:T value:T past_state:T? decay:T? beta:T?",
        "output:T present_state:T",
        {"T": FLOATS},
        defaults={"update_rule": "gated_delta", "scale": 0.0, "chunk_size": 64, "state_window": 0},
        kinds={"q_num_heads": "int", "kv_num_heads": "int"},
    ),
    torch=_linear,
    interval=_linear_bounds,
)
class MicrosoftLinearAttention(LinearAttention):
    """A sum of outer products of keys and values, which queries read."""


# convolutions with a state ------------------------------------------------------------------------------------


def _in_front(op: Operation, x: Tensor) -> Tensor:
    """Return a tensor with its channels, all in one dimension, before its places."""
    return x.flatten(2).transpose(1, 2) if op.channels_last else x


def _behind(op: Operation, x: Tensor, whole: tuple[int, ...]) -> Tensor:
    return x.transpose(1, 2).reshape(*x.shape[::2], *whole[2:]) if op.channels_last else x


def _check(op: Operation) -> None:
    if op.ndim != 1 or op.state_window:
        raise refused(op, "a state_window, or an ndim other than 1, is not supported")


def _causal(op: Operation, x: Tensor, w: Tensor, b: Tensor | None, past: Tensor | None) -> tuple[Tensor, ...]:
    _check(op)
    written = convolve_causally(op, _in_front(op, x), w, b, None if past is None else _in_front(op, past))
    return tuple(_behind(op, y, x.shape) for y in written)


@infinity_aware
def _causal_bounds(
    site: Site, x: Interval, w: Interval, b: Interval | None, past: Interval | None
) -> tuple[Interval, ...]:
    op = site.op
    _check(op)
    turn: Callable[[Tensor], Tensor] = lambda bound: _in_front(op, bound)  # noqa: E731
    written = convolve_causally_bounds(site, x.move(turn), w, b, past and past.move(turn))
    return tuple(
        replace(y.move(lambda bound: _behind(op, bound, x.shape)), nan=y.nan, overflows=y.overflows) for y in written
    )


@doing_as(
    CausalConvWithState,
    schema(
        "CausalConvWithState",
        "input:T weight:T bias:T? past_state:T?",
        "output:T present_state:T",
        {"T": FLOATS},
        defaults={"activation": "none", "ndim": 1, "dilation": 1, "channels_last": 0, "state_window": 0},
    ),
    torch=_causal,
    interval=_causal_bounds,
)
class MicrosoftCausalConvWithState(CausalConvWithState):
    """Convolution of each channel with what came before, whose steps may be wide and whose channels may come last."""
