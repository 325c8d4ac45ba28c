"""Attention of several heads, in the form that ONNX Runtime's optimiser writes: with its projections."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.attention import bound_anything_of
from ranum_falsify.domain.rules.matrix.matmul import matrix_product
from ranum_falsify.domain.rules.quantisation import scale_sums
from ranum_falsify.domain.rules.shape import join
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.attention import attend, split_heads
from ranum_falsify.operators.rows.microsoft.heads import (
    INTS,
    add_masks,
    bound_heads,
    check_mask,
    cut_last,
    join_heads,
    masks_bounds,
)
from ranum_falsify.operators.rows.microsoft.quantised_products import multiply_integers
from ranum_falsify.operators.rows.quantised_layers import matrix_of_integers
from ranum_falsify.operators.rows.transformer_parts import scale_of
from ranum_falsify.operators.support.conditions import Limits, WithinLimits
from ranum_falsify.operators.support.families import opaque
from ranum_falsify.operators.support.functions import ints
from ranum_falsify.operators.support.microsoft import BYTES, FLOATS, refused, schema


def _check(op: Operation, x: Tensor | Interval, mask: Tensor | Interval | None) -> None:
    """Refuse forms that the optimiser does not write."""
    for name in ("do_rotary", "past_present_share_buffer"):
        if getattr(op, name, 0):
            raise refused(op, f"{name} is not supported; leave it out")
    check_mask(op, mask, x.shape[0])


def _ends(op: Operation, width: int) -> list[int]:
    """Return where queries, keys and values begin and end in the projections."""
    sizes = ints(op.qkv_hidden_sizes) or [width // 3] * 3
    return [0, sizes[0], sizes[0] + sizes[1], sum(sizes)]


def _attend(
    op: Operation, projected: Tensor, mask: Tensor | None, past: Tensor | None, attention_bias: Tensor | None
) -> tuple[Tensor, ...]:
    """Return attention of queries, keys and values that lie side by side, and all keys and values."""
    _check(op, projected, mask)
    parts = [projected[..., a:b] for a, b in pairwise(_ends(op, projected.shape[2]))]
    q, k, v = (split_heads(part, op.num_heads) for part in parts)
    before = 0 if past is None else past.shape[3]
    if past is not None:
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
    added = add_masks(op, q, k, mask, attention_bias, before)
    y, _ = attend(q, k, v, added, scale_of(op, q.shape[3]))
    outputs = len(op.output_names)
    return (join_heads(y), torch.stack([k, v]))[:outputs] if outputs > 1 else (join_heads(y),)


def _split(op: Operation, projected: Interval) -> list[Interval]:
    """Return bounds of queries, keys and values by head."""
    parts = cut_last(projected, _ends(op, projected.shape[2]))
    return [part.move(lambda bound: split_heads(bound, op.num_heads)) for part in parts]


def _attend_bounds(
    site: Site, projected: Interval, mask: Interval | None, past: Interval | None, attention_bias: Interval | None
) -> tuple[Interval, ...]:
    """Bound :func:`_attend`."""
    op = site.op
    _check(op, projected, mask)
    q, k, v = _split(op, projected)
    before = 0 if past is None else past.shape[3]
    if past is not None:
        keys, values = (past.move(lambda bound, n=number: bound[n]) for number in range(2))  # type: ignore[misc]
        k, v = join([keys, k], 2), join([values, v], 2)
    present = join([part.move(lambda bound: bound[None]) for part in (k, v)], 0) if len(site.details) > 1 else k
    if projected.nan or projected.overflows or projected.may_be_infinite:
        shape = (*projected.shape[:2], v.shape[1] * v.shape[3])
        return tuple(bound_anything_of(s, projected.dtype) for s in (shape, present.shape))[: len(site.details)]
    added = masks_bounds(op, mask, attention_bias, before, (q.shape[2], k.shape[2]))
    return (bound_heads(site, q, k, v, added), present)[: len(site.details)]


# of numbers -----------------------------------------------------------------------------------------------------


def _attention(
    op: Operation, x: Tensor, weights: Tensor, bias: Tensor | None, *rest: Tensor | None
) -> tuple[Tensor, ...]:
    if bias is None:
        raise UnsupportedAttributeError("weights without a bias, which the kernel reads, are not supported; give zeros")
    return _attend(op, x @ weights + bias, *rest)


@infinity_aware
def _attention_bounds(
    site: Site, x: Interval, weights: Interval, bias: Interval | None, *rest: Interval | None
) -> tuple[Interval, ...]:
    return _attend_bounds(site, matrix_product(x, weights, bias), *rest)


def _counts(op: Operation, operands: Mapping[str, Any]) -> Limits:
    """Return the limits of how many keys each sample has; masks of more dimensions may hold anything."""
    most = torch.iinfo(torch.int32).max
    return 0 if len(operands["mask"].shape) == 1 else -most - 1, most


_COUNTS_KEYS = WithinLimits(
    "mask", "a mask of one dimension is not negative", _counts, reason="fewer keys than none", decided_by=("mask",)
)


@opaque(
    schema=schema(
        "Attention",
        "input:T weights:T bias:T? mask_index:M? past:T? attention_bias:T?",
        "output:T present:T?",
        {"T": FLOATS, "M": INTS},
        defaults={"unidirectional": 0, "mask_filter_value": -10000.0, "do_rotary": 0},
        kinds={"num_heads": "int", "scale": "float?", "qkv_hidden_sizes": "ints?"},
    ),
    torch=_attention,
    interval=_attention_bounds,
    kernel=("Exp", "Softmax"),
    valid=[_COUNTS_KEYS],
    operands=("x", "weights", "bias", "mask", "past", "attention_bias"),
    renamed={"input": "x", "mask_index": "mask"},
)
class FusedAttention(Operation):
    """Projections of one tensor, scores, a mask and a weighted sum, for each head."""


# of quantised tensors -------------------------------------------------------------------------------------------


def _quantised(
    op: Operation,
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    mask: Tensor | None,
    x_zero: Tensor | None,
    w_zero: Tensor | None,
    past: Tensor | None,
) -> tuple[Tensor, ...]:
    projected = multiply_integers(op, x, weights, x_scale, w_scale, x_zero, w_zero, bias).to(bias.dtype)
    return _attend(op, projected, mask, past, None)


@infinity_aware
def _quantised_bounds(
    site: Site,
    x: Interval,
    weights: Interval,
    bias: Interval,
    x_scale: Interval,
    w_scale: Interval,
    mask: Interval | None,
    x_zero: Interval | None,
    w_zero: Interval | None,
    past: Interval | None,
) -> tuple[Interval, ...]:
    sums = matrix_of_integers(x, weights, x_zero, w_zero)
    projected = scale_sums(sums, [x_scale, w_scale], bias)
    if projected is None or bias.dtype is not torch.float32:
        projected = bound_anything_of(sums.shape, bias.dtype)
    return _attend_bounds(site, projected, mask, past, None)


@opaque(
    schema=schema(
        "QAttention",
        "input:X weight:W bias:T input_scale:T weight_scale:T mask_index:M? input_zero_point:X? weight_zero_point:W?"
        " past:T?",
        "output:T present:T?",
        {"X": ("uint8",), "W": BYTES, "T": FLOATS, "M": INTS},
        defaults={
            "unidirectional": 0,
            "mask_filter_value": -10000.0,
            "do_rotary": 0,
            "past_present_share_buffer": 0,
        },
        kinds={"num_heads": "int", "scale": "float?"},
    ),
    torch=_quantised,
    interval=_quantised_bounds,
    kernel=("Exp", "Softmax"),
    valid=[_COUNTS_KEYS],
    operands=("x", "weights", "bias", "x_scale", "w_scale", "mask", "x_zero", "w_zero", "past"),
    renamed={
        "input": "x",
        "weight": "weights",
        "input_scale": "x_scale",
        "weight_scale": "w_scale",
        "mask_index": "mask",
        "input_zero_point": "x_zero",
        "weight_zero_point": "w_zero",
    },
)
class QAttention(Operation):
    """`Attention` of a quantised tensor, with quantised weights."""

    qkv_hidden_sizes = None
