"""Attention as ONNX defines it, and the rotation of what it reads."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce

import onnx
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.attention import Bias, attention_bounds
from ranum_falsify.domain.rules.shape import join
from ranum_falsify.domain.rules.support.building import infinity_aware, unknown
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support.conditions import WithinLimits
from ranum_falsify.operators.support.families import opaque


def split_heads(x: Tensor, count: int | None) -> Tensor:
    """Return queries, keys or values as `(batch, heads, sequence, size)`; those of three dimensions have all heads."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], count or 1, -1).transpose(1, 2)


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, cap: float = 0.0
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return weighted means of values, and scores: as they are, capped, biased, and as weights.

    Queries are `(batch, heads, queries, size)`; keys and values have as many heads or a divisor of them.  A bias of
    -Inf hides a key, and a cap of 0 limits nothing.
    """
    times = q.shape[1] // max(k.shape[1], 1)
    if times > 1:
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    root = math.sqrt(abs(scale))
    raw = (q * root) @ (k * math.copysign(root, scale)).mT
    capped = torch.tanh(raw / cap) * cap if cap else raw
    biased = capped if bias is None else capped + bias.to(capped.dtype)
    hidden = (biased == -math.inf).all(-1, keepdim=True)
    weights = torch.where(hidden, 0.0, torch.softmax(torch.where(hidden, 0.0, biased), -1))
    return weights @ v, (raw, capped, biased, weights)


# what a query sees ----------------------------------------------------------------------------------------------


def _seen(op: Operation, queries: int, keys: int, offset: Tensor, device: torch.device) -> Tensor | None:
    """Return which keys the attributes let each query see, `(..., queries, keys)`; None for all.

    The offset, `()` or `(batch, 1, 1, 1)`, is the number of keys before those of the first query.
    """
    left, right = (getattr(op, f"{side}_window_size", None) for side in ("left", "right"))
    left, right = (-1 if size is None else size for size in (left, right))
    distance = torch.arange(keys, device=device) - (torch.arange(queries, device=device)[:, None] + offset)
    limits = [distance <= 0] if op.is_causal else []
    limits += [distance >= -left] if left >= 0 else []
    limits += [distance <= right] if right >= 0 else []
    return torch.stack(limits).all(0) if limits else None


def _offset(lengths: Tensor | None, past: int, queries: int) -> Tensor:
    return torch.tensor(past) if lengths is None or past else lengths.reshape(-1, 1, 1, 1) - queries


def _filled(mask: Tensor, keys: int) -> Tensor:
    """Return a mask as what is added, hiding keys that it does not reach."""
    bias = torch.where(mask, 0.0, -math.inf) if mask.dtype is torch.bool else mask
    return torch.nn.functional.pad(bias, (0, keys - mask.shape[-1]), value=-math.inf)


def _bias(
    op: Operation, mask: Tensor | None, lengths: Tensor | None, past: int, shape: tuple[int, int]
) -> Tensor | None:
    queries, keys = shape
    parts = [] if mask is None else [_filled(mask, keys)]
    like = mask if mask is not None else lengths
    device = torch.get_default_device() if like is None else like.device
    choices = [_seen(op, queries, keys, _offset(lengths, past, queries).to(device), device)]
    if lengths is not None:
        choices.append(torch.arange(keys, device=device) < lengths.reshape(-1, 1, 1, 1))
    parts += [torch.where(seen, 0.0, -math.inf) for seen in choices if seen is not None]
    return sum(parts[1:], parts[0]) if parts else None


def _bias_bounds(
    op: Operation, mask: Interval | None, lengths: Interval | None, past: int, shape: tuple[int, int]
) -> Bias | None:
    queries, keys = shape
    found = []
    if mask is not None:
        low, high = (_filled(end.expand(*end.shape[:-1], mask.shape[-1]), keys) for end in (mask.lower, mask.upper))
        choice = mask.dtype is torch.bool
        found.append(Bias.of_choice(low == 0, high == 0) if choice else Bias.between(low, high))
    ends = (None, None) if lengths is None else lengths.expand()
    seen = [_seen(op, queries, keys, _offset(end, past, queries), torch.device("cpu")) for end in ends]
    if seen[0] is not None and seen[1] is not None:
        # A window moves with the length: what both ends see is seen, and what lies between may be.
        known = ends[0] is None or bool((ends[0] == ends[1]).all())
        moves = getattr(op, "left_window_size", None) not in (None, -1) and not known
        # A single query behind a past sees all keys in ONNX Runtime, those that come later, too.
        every = moves or (queries == 1 and past > 0)
        found.append(Bias.of_choice(seen[0] & seen[1], torch.ones_like(seen[0]) if every else seen[0] | seen[1]))
    if ends[0] is not None and ends[1] is not None:
        found.append(Bias.of_choice(*(torch.arange(keys) < end.reshape(-1, 1, 1, 1) for end in ends)))
    return reduce(Bias.add, found) if found else None


# the row --------------------------------------------------------------------------------------------------------


def _scale(op: Operation, size: int) -> float:
    return 1 / math.sqrt(size) if op.scale is None else float(op.scale)


def _join_heads(y: Tensor, rank: int) -> Tensor:
    return y if rank == 4 else y.transpose(1, 2).flatten(2)


def _attention(
    op: Operation,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    nonpad_kv_seqlen: Tensor | None = None,
) -> tuple[Tensor, ...]:
    rank = q.ndim
    q, k, v = split_heads(q, op.q_num_heads), split_heads(k, op.kv_num_heads), split_heads(v, op.kv_num_heads)
    past = 0 if past_key is None else past_key.shape[2]
    k = k if past_key is None else torch.cat([past_key, k], 2)
    v = v if past_value is None else torch.cat([past_value, v], 2)
    bias = _bias(op, attn_mask, nonpad_kv_seqlen, past, (q.shape[2], k.shape[2]))
    y, steps = attend(q, k, v, bias, _scale(op, q.shape[3]), op.softcap)
    if op.qk_matmul_output_mode not in range(len(steps)):
        raise UnsupportedAttributeError(f"Attention: qk_matmul_output_mode {op.qk_matmul_output_mode}; use 0 to 3")
    outputs = (_join_heads(y, rank), k, v, steps[op.qk_matmul_output_mode])
    return outputs[: len(op.output_names)]


def _with_past(x: Interval, count: int | None, past: Interval | None) -> Interval:
    heads = x.move(lambda bound: split_heads(bound, count))
    return heads if past is None else join([past, heads], 2)


@infinity_aware
def _attention_bounds(
    site: Site,
    q: Interval,
    k: Interval,
    v: Interval,
    attn_mask: Interval | None,
    past_key: Interval | None,
    past_value: Interval | None,
    nonpad_kv_seqlen: Interval | None = None,
) -> tuple[Interval, ...]:
    op, rank = site.op, len(q.shape)
    queries = q.move(lambda bound: split_heads(bound, op.q_num_heads))
    keys, values = _with_past(k, op.kv_num_heads, past_key), _with_past(v, op.kv_num_heads, past_value)
    scale = _scale(op, queries.shape[3])
    # The definition, which ONNX Runtime has beside its kernels, takes the root of the scale.
    if scale < 0 or _is_read_otherwise(op, q.dtype, attn_mask, nonpad_kv_seqlen, keys.shape[2]):
        return unknown(site)
    past = 0 if past_key is None else past_key.shape[2]
    bias = _bias_bounds(op, attn_mask, nonpad_kv_seqlen, past, (queries.shape[2], keys.shape[2]))
    y, scores, capped = attention_bounds(site, queries, keys, values, bias, scale=scale, cap=op.softcap, blank=True)
    steps = (scores, capped, _biased(capped, bias), Interval.fill(0, 1, scores.shape, scores.dtype))
    moved = replace(y.move(lambda bound: _join_heads(bound, rank)), nan=y.nan, overflows=y.overflows)
    shown = replace(steps[op.qk_matmul_output_mode], nan=scores.nan, overflows=scores.overflows)
    return (moved, keys, values, shown)[: len(site.details)]


def _is_read_otherwise(
    op: Operation, dtype: torch.dtype, mask: Interval | None, lengths: Interval | None, keys: int
) -> bool:
    """Tell whether the operators that ONNX Runtime runs for float64 do otherwise.

    They repeat a mask of one key, round the softmax, and count causal keys from the first whatever the lengths are.
    """
    repeated = mask is not None and mask.shape[-1] == 1 < keys
    rounded = op.softmax_precision not in (None, onnx.TensorProto.DOUBLE)
    return repeated or (dtype is torch.float64 and (rounded or (lengths is not None and bool(op.is_causal))))


def _biased(scores: Interval, bias: Bias | None) -> Interval:
    """Return bounds of biased scores; ONNX Runtime has the lowest finite number in place of -Inf."""
    if bias is None:
        return scores
    shown = bool((bias.low == bias.high).all()) and bool((bias.high == 0).all())
    return scores if shown else Interval.fill(-math.inf, math.inf, scores.shape, scores.dtype)


_WITHIN_KEYS = WithinLimits(
    "nonpad_kv_seqlen",
    "0 <= nonpad_kv_seqlen <= the number of keys",
    lambda op, operands: (0, int(operands["k"].shape[-2])),
    reason="more keys than there are, or fewer than none",
    decided_by=("nonpad_kv_seqlen",),
)


@opaque(torch=_attention, interval=_attention_bounds, kernel=("Exp", "Softmax"), valid=[_WITHIN_KEYS])
class Attention(Operation):
    """https://onnx.ai/onnx/operators/onnx__Attention.html."""
