"""Attention over heads that are given, with a past, and the rotation of what it reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.arithmetic.pairs import add
from ranum_falsify.domain.rules.attention import Bias, attention_bounds, bound_anything_of
from ranum_falsify.domain.rules.shape import cut, join
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.rows.attention import attend, split_heads
from ranum_falsify.operators.rows.transformer_parts import (
    angles_bounds,
    check_rotated,
    find_angles,
    reads_outside,
    rotate,
    rotated_bounds,
    scale_of,
)
from ranum_falsify.operators.support.families import opaque, plain
from ranum_falsify.operators.support.microsoft import FLOATS, refused, schema

INTS = ("int32",)


def join_heads(y: Tensor) -> Tensor:
    """Return `(batch, heads, sequence, size)` as `(batch, sequence, all)`."""
    return y.transpose(1, 2).flatten(2)


def cut_last(x: Interval, ends: Sequence[int]) -> list[Interval]:
    """Return the parts of the last dimension from each end to the next."""
    before = [*map(range, x.shape[:-1])]
    return [cut(x, [*before, range(a, b)]) for a, b in pairwise(ends)]


def bound_heads(site: Site, q: Interval, k: Interval, v: Interval, bias: Bias | None, **how: Any) -> Interval:
    """Return bounds of attention by head, with the heads side by side; see :func:`attention_bounds`."""
    means, _, _ = attention_bounds(site, q, k, v, bias, scale=scale_of(site.op, q.shape[3]), **how)
    return replace(means.move(join_heads), nan=means.nan, overflows=means.overflows)


# all heads ------------------------------------------------------------------------------------------------------


def _check(
    op: Operation, key: Tensor | Interval | None, value: object, bias: object, mask: Tensor | Interval | None
) -> None:
    """Refuse forms that ONNX Runtime's kernels for the CPU do not run."""
    if key is None or value is None or len(key.shape) == 5:
        raise refused(op, "packed operands are not supported; split them")
    if len(key.shape) == 4 and bias is not None:
        raise refused(op, "a bias beside keys of four dimensions is not supported; add it before")
    check_mask(op, mask, key.shape[0])


def check_mask(op: Operation, mask: Tensor | Interval | None, batch: int) -> None:
    """Refuse masks in forms that the optimiser does not write."""
    if mask is not None and (len(mask.shape) > 3 or (len(mask.shape) == 1 and mask.shape[0] != batch)):
        raise refused(op, f"a mask of shape {tuple(mask.shape)} is not supported; use (batch, sequence)")


def check_present(op: Operation, past: Tensor | None) -> None:
    """Refuse a past of which a node does not write what it becomes: kernels then attend to something else."""
    if past is not None and not all([*op.output_names[1:], "", ""][:2]):
        raise refused(op, "a past without present outputs is not supported")


def _mask(mask: Tensor, keys: int) -> Tensor:
    """Return where a mask lets queries see keys, broadcastable to `(batch, heads, queries, keys)`."""
    if mask.ndim == 1:
        return torch.arange(keys, device=mask.device) < mask.reshape(-1, 1, 1, 1)
    return (mask > 0)[:, None, None] if mask.ndim == 2 else (mask > 0)[:, None]


def add_masks(
    op: Operation, q: Tensor, k: Tensor, mask: Tensor | None, attention_bias: Tensor | None, past: int
) -> Tensor | None:
    """Return what is added to the scores of queries and keys; None for nothing.

    `mask_filter_value` hides keys of the mask, which holds lengths, or where keys are seen; `unidirectional` those that
    come later.
    """
    parts = [] if attention_bias is None else [attention_bias]
    if mask is not None:
        parts.append(torch.where(_mask(mask, k.shape[2]), 0.0, float(op.mask_filter_value)).to(q.dtype))
    if op.unidirectional:
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(past)
        parts.append(torch.where(seen, 0.0, -math.inf).to(q.dtype))
    return sum(parts[1:], parts[0]) if parts else None


def _multi_head(
    op: Operation,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    attention_bias: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
) -> tuple[Tensor, ...]:
    _check(op, key, value, bias, mask)
    check_present(op, past_key)
    assert key is not None and value is not None
    parts = [query, key, value]
    if bias is not None:
        parts = [x + b for x, b in zip(parts, bias.split([x.shape[2] for x in parts]), strict=True)]
    q, k, v = (split_heads(x, op.num_heads) for x in parts)
    past = 0 if past_key is None else past_key.shape[2]
    k = k if past_key is None else torch.cat([past_key, k], 2)
    v = v if past_value is None else torch.cat([past_value, v], 2)
    added = add_masks(op, q, k, mask, attention_bias, past)
    y, _ = attend(q, k, v, added, scale_of(op, q.shape[3]))
    return (join_heads(y), k, v)[: len(op.output_names)]


def masks_bounds(
    op: Operation, mask: Interval | None, attention_bias: Interval | None, past: int, shape: tuple[int, int]
) -> Bias | None:
    """Return bounds of :func:`add_masks`; kernels differ in the number that hides later keys."""
    if math.isnan(op.mask_filter_value):
        raise refused(op, "mask_filter_value is to be a number")
    queries, keys = shape
    found = [] if attention_bias is None else [Bias.between(*attention_bias.doubles())]
    value = float(np.float32(op.mask_filter_value))
    if mask is not None:
        ends = [torch.where(_mask(end.expand(mask.shape), keys), 0.0, value) for end in (mask.lower, mask.upper)]
        found.append(Bias.between(torch.minimum(*ends), torch.maximum(*ends)))
    if op.unidirectional:
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(past)
        # With more keys than queries, ONNX Runtime shows the last query those that come later, too.
        hidden = 0.0 if queries + past < keys else value
        found.append(Bias.between(torch.where(seen, 0.0, -math.inf), torch.where(seen, 0.0, hidden)))
    return reduce(Bias.add, found) if found else None


@infinity_aware
def _multi_head_bounds(
    site: Site,
    query: Interval,
    key: Interval | None,
    value: Interval | None,
    bias: Interval | None,
    mask: Interval | None,
    attention_bias: Interval | None,
    past_key: Interval | None,
    past_value: Interval | None,
) -> tuple[Interval, ...]:
    op = site.op
    _check(op, key, value, bias, mask)
    assert key is not None and value is not None
    parts = [query, key, value]
    if bias is not None:
        ends = np.cumsum([0, *(x.shape[2] for x in parts)])
        parts = [add(site, x, share) for x, share in zip(parts, cut_last(bias, ends.tolist()), strict=True)]
    q, k, v = (x.move(lambda bound: split_heads(bound, op.num_heads)) for x in parts)
    past = 0 if past_key is None else past_key.shape[2]
    k = k if past_key is None else join([past_key, k], 2)
    v = v if past_value is None else join([past_value, v], 2)
    bias_bounds = masks_bounds(op, mask, attention_bias, past, (q.shape[2], k.shape[2]))
    y = bound_heads(site, q, k, v, bias_bounds)
    faults = any(x.nan for x in parts), any(x.overflows for x in parts)
    kept = (replace(x, nan=x.nan or faults[0], overflows=x.overflows or faults[1]) for x in (k, v))
    return (replace(y, nan=y.nan or faults[0]), *kept)[: len(site.details)]


@opaque(
    schema=schema(
        "MultiHeadAttention",
        "query:T key:T? value:T? bias:T? key_padding_mask:M? attention_bias:T? past_key:T? past_value:T?",
        "output:T present_key:T? present_value:T?",
        {"T": FLOATS, "M": INTS},
        defaults={"mask_filter_value": -10000.0, "unidirectional": 0},
        kinds={"num_heads": "int", "scale": "float?"},
    ),
    torch=_multi_head,
    interval=_multi_head_bounds,
    kernel=("Exp", "Softmax"),
    valid=(),
    operands=("query", "key", "value", "bias", "mask", "attention_bias", "past_key", "past_value"),
    renamed={"key_padding_mask": "mask"},
)
class MultiHeadAttention(Operation):
    """Attention of queries, keys and values that are projected already."""


# rotation -------------------------------------------------------------------------------------------------------


def _positions(positions: Tensor, batch: int, sequence: int) -> Tensor:
    """Return the position of each token; one number is that of the first."""
    if positions.ndim == 2:
        return positions
    return (positions.reshape(-1)[:1] + torch.arange(sequence, device=positions.device)).expand(batch, sequence)


def _heads_of(op: Operation, x: Tensor | Interval, cos: Tensor | Interval) -> int:
    return int(op.num_heads or x.shape[-1] // (2 * cos.shape[-1]))


def _sequence(x: Tensor | Interval) -> int:
    return x.shape[2] if len(x.shape) == 4 else x.shape[1]


def _check_rotation(op: Operation) -> None:
    """Refuse layouts and scales that ONNX Runtime's kernels for the CPU do not know."""
    for name, value in (("is_packed_batching", 0), ("scale", 1.0)):
        if getattr(op, name) != value:
            raise refused(op, f"{name} is not supported; leave it out")


def _rotary(op: Operation, x: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor) -> Tensor:
    _check_rotation(op)
    check_rotated(op, x, cos_cache, _heads_of(op, x, cos_cache))
    places = _positions(position_ids, x.shape[0], _sequence(x))
    cos, sin = find_angles(cos_cache, places), find_angles(sin_cache, places)
    return rotate(x, cos, sin, _heads_of(op, x, cos), bool(op.interleaved))


def _rotary_bounds(
    site: Site, x: Interval, position_ids: Interval, cos_cache: Interval, sin_cache: Interval
) -> Interval:
    low, high = (
        _positions(end.expand(position_ids.shape), x.shape[0], _sequence(x))
        for end in (position_ids.lower, position_ids.upper)
    )
    places = Interval.of(low, high)
    if reads_outside(cos_cache, places):
        return bound_anything_of(site.shape, x.dtype)
    cos, sin = angles_bounds(cos_cache, places), angles_bounds(sin_cache, places)
    return rotated_bounds(x, cos, sin, _heads_of(site.op, x, cos), bool(site.op.interleaved))


@plain(
    schema=schema(
        "RotaryEmbedding",
        "input:T position_ids:M cos_cache:T sin_cache:T",
        "output:T",
        {"T": ("float", "float16"), "M": ("int64",)},
        defaults={"interleaved": 0, "num_heads": 0, "rotary_embedding_dim": 0, "is_packed_batching": 0, "scale": 1.0},
    ),
    torch=_rotary,
    interval=_rotary_bounds,
    operands=("x", "position_ids", "cos_cache", "sin_cache"),
    renamed={"input": "x"},
)
class RotaryEmbeddingByPosition(Operation):
    """`RotaryEmbedding` before ONNX had it: with the positions first."""
