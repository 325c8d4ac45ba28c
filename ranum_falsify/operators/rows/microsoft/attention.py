"""Attention of several heads, in the form that ONNX Runtime's optimiser writes: with its projections."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.attention import attention_bounds, bound_anything_of
from ranum_falsify.domain.rules.matrix.matmul import matrix_product
from ranum_falsify.domain.rules.shape import cut, join
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.attention import attend, split_heads
from ranum_falsify.operators.rows.microsoft.heads import INTS, add_masks, join_heads, masks_bounds, scale_of
from ranum_falsify.operators.support.families import opaque
from ranum_falsify.operators.support.functions import ints
from ranum_falsify.operators.support.microsoft_schemas import DOMAIN, FLOATS, schema

__all__ = ["FusedAttention"]


def _check(op: Operation, x: Tensor | Interval, mask: Tensor | Interval | None) -> None:
    """Refuse forms that the optimiser does not write.

    Raises:
        UnsupportedAttributeError: The node has one of these forms.
    """
    if op.do_rotary:
        raise UnsupportedAttributeError(f"{DOMAIN}::Attention: do_rotary is not supported; leave it out")
    if mask is None:
        return
    if len(mask.shape) > 3 or (len(mask.shape) == 1 and mask.shape[0] != x.shape[0]):
        raise UnsupportedAttributeError(
            f"{DOMAIN}::Attention: a mask of shape {tuple(mask.shape)} is not supported; use (batch, sequence)"
        )


def _ends(op: Operation, width: int) -> list[int]:
    """Return where queries, keys and values begin and end in the projections."""
    sizes = ints(op.qkv_hidden_sizes) or [width // 3] * 3
    return [0, sizes[0], sizes[0] + sizes[1], sum(sizes)]


def _attention(
    op: Operation,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    past: Tensor | None,
    attention_bias: Tensor | None,
) -> tuple[Tensor, ...]:
    _check(op, x, mask)
    projected = x @ weights
    projected = projected if bias is None else projected + bias
    parts = [projected[..., a:b] for a, b in pairwise(_ends(op, weights.shape[1]))]
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
    rows = [*map(range, projected.shape[:2])]
    parts = [cut(projected, [*rows, range(a, b)]) for a, b in pairwise(_ends(op, projected.shape[2]))]
    return [part.move(lambda bound: split_heads(bound, op.num_heads)) for part in parts]


@infinity_aware
def _attention_bounds(
    site: Site,
    x: Interval,
    weights: Interval,
    bias: Interval | None,
    mask: Interval | None,
    past: Interval | None,
    attention_bias: Interval | None,
) -> tuple[Interval, ...]:
    op = site.op
    _check(op, x, mask)
    projected = matrix_product(x, weights, bias)
    q, k, v = _split(op, projected)
    before = 0 if past is None else past.shape[3]
    if past is not None:
        keys, values = (past.move(lambda bound, n=number: bound[n]) for number in range(2))  # type: ignore[misc]
        k, v = join([keys, k], 2), join([values, v], 2)
    present = join([part.move(lambda bound: bound[None]) for part in (k, v)], 0) if len(site.details) > 1 else k
    if projected.nan or projected.overflows or projected.may_be_infinite:
        shape = (*x.shape[:2], v.shape[1] * v.shape[3])
        return tuple(bound_anything_of(s, x.dtype) for s in (shape, present.shape))[: len(site.details)]
    added = masks_bounds(op, mask, attention_bias, before, (q.shape[2], k.shape[2]))
    means, _, _ = attention_bounds(site, q, k, v, added, scale=scale_of(op, q.shape[3]))
    y = replace(means.move(join_heads), nan=means.nan, overflows=means.overflows)
    return (y, present)[: len(site.details)]


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
    valid=(),
    operands=("x", "weights", "bias", "mask", "past", "attention_bias"),
    renamed={"input": "x", "mask_index": "mask"},
)
class FusedAttention(Operation):
    """Projections of one tensor, scores, a mask and a weighted sum, for each head."""
