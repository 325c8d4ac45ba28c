"""Attention in which several heads of queries share one of keys, as exporters of language models write it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.attention import bound_anything_of
from ranum_falsify.domain.rules.shape import collapse, join
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.rows.attention import attend, split_heads
from ranum_falsify.operators.rows.microsoft.heads import INTS, bound_heads, check_present, cut_last, join_heads
from ranum_falsify.operators.rows.transformer_parts import (
    angles_bounds,
    find_angles,
    reads_outside,
    rotate,
    rotated_bounds,
    scale_of,
)
from ranum_falsify.operators.support.families import plain
from ranum_falsify.operators.support.microsoft import FLOATS, refused, schema


def _check(op: Operation) -> None:
    """Refuse a softmax of another kind, and windows that kernels read otherwise."""
    if not -1 <= op.local_window_size < 2**31:
        raise refused(op, f"local_window_size {op.local_window_size} is none")
    if op.smooth_softmax > 0:
        raise refused(op, "smooth_softmax is not supported; leave it out")


def _unpack(op: Operation, query: Tensor, key: Tensor | None, value: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values by head; they may come as one."""
    counts = (op.num_heads, op.kv_num_heads, op.kv_num_heads)
    if key is None or value is None:
        size = query.shape[2] // sum(counts)
        query, key, value = query.split([count * size for count in counts], 2)
    q, k, v = (split_heads(x, count) for x, count in zip((query, key, value), counts, strict=True))
    return q, k, v


def _first_places(lengths: Tensor, total: int, queries: int) -> Tensor:
    """Return the position of the first new token of each sample; those of a prompt start at 0."""
    first = lengths.reshape(-1).long() + 1 - queries
    return torch.zeros_like(first) if total == queries else first


def _total(value: np.ndarray) -> int:
    return int(value.reshape(-1)[0])


def _turn(x: Tensor, first: Tensor, caches: tuple[Tensor, Tensor], interleaved: bool) -> Tensor:
    places = first[:, None] + torch.arange(x.shape[2], device=x.device)
    return rotate(x, find_angles(caches[0], places), find_angles(caches[1], places), None, interleaved)


def _store(x: Tensor, past: Tensor | None, first: Tensor, total: int) -> Tensor:
    """Return the past with new keys or values written behind it."""
    length = total if past is None else max(past.shape[2], total)
    room = x.new_zeros(*x.shape[:2], length, x.shape[3])
    room = room if past is None else torch.cat([past, room[:, :, past.shape[2] :]], 2)
    places = torch.remainder(first[:, None] + torch.arange(x.shape[2], device=x.device), length)
    return torch.scatter(room, 2, places[:, None, :, None].expand(x.shape), x)


def _grouped(
    op: Operation,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    lengths: Tensor,
    total: np.ndarray,
    cos_cache: Tensor | None,
    sin_cache: Tensor | None,
) -> tuple[Tensor, ...]:
    _check(op)
    check_present(op, past_key)
    q, k, v = _unpack(op, query, key, value)
    first = _first_places(lengths, _total(total), q.shape[2])
    if op.do_rotary and cos_cache is not None and sin_cache is not None:
        q, k = (_turn(x, first, (cos_cache, sin_cache), bool(op.rotary_interleaved)) for x in (q, k))
    k, v = (_store(x, past, first, _total(total)) for x, past in ((k, past_key), (v, past_value)))
    distance = torch.arange(k.shape[2], device=q.device) - first.reshape(-1, 1, 1, 1)
    distance = distance - torch.arange(q.shape[2], device=q.device)[:, None]
    seen = distance <= 0
    if op.local_window_size > 0:
        seen = seen & (distance > -op.local_window_size)
    bias = torch.where(seen, 0.0, -math.inf).to(q.dtype)
    y, _ = attend(q, k, v, bias, scale_of(op, q.shape[3]), op.softcap)
    return (join_heads(y), k, v)[: len(op.output_names)]


def _sees_keys(op: Operation, lengths: Tensor, queries: int) -> bool:
    """Tell whether a window leaves every query a key: one of no keys does not, nor those behind a prompt's end."""
    return op.local_window_size < 0 or (op.local_window_size > 0 and bool((lengths.long() + 1 >= queries).all()))


@infinity_aware
def _grouped_bounds(
    site: Site,
    query: Interval,
    key: Interval | None,
    value: Interval | None,
    past_key: Interval | None,
    past_value: Interval | None,
    lengths: Interval,
    total: np.ndarray,
    cos_cache: Interval | None,
    sin_cache: Interval | None,
) -> tuple[Interval, ...]:
    op = site.op
    _check(op)
    q, k, v = _unpacked_bounds(op, query, key, value)
    past, length = 0 if past_key is None else past_key.shape[2], _total(total)
    outputs = (*query.shape[:2], op.num_heads * q.shape[3]), *[(*k.shape[:2], max(past, length), q.shape[3])] * 2
    anything = tuple(bound_anything_of(shape, q.dtype) for shape in outputs)[: len(site.details)]
    if not lengths.is_point or not _sees_keys(op, lengths.lower, q.shape[2]):
        return anything
    first = _first_places(lengths.expand()[0], length, q.shape[2])
    places = first[:, None] + torch.arange(q.shape[2])
    if bool((places < 0).any()) or bool((places >= max(past, length)).any()):
        return anything
    turned = _turned_bounds(op, (q, k), places, cos_cache, sin_cache)
    if turned is None or any(x.nan or x.overflows or x.may_be_infinite for x in (*turned, v)):
        return anything
    q, k = turned
    keys, values = (x if old is None else join([old, x], 2) for x, old in ((k, past_key), (v, past_value)))
    y = bound_heads(site, q, keys, values, None, cap=op.softcap, all_seen=False)
    # Behind the last token, memory may hold anything.
    filled = bool((places[:, -1] == max(past, length) - 1).all())
    kept = (
        [_anywhere(x, shape) for x, shape in zip((keys, values), outputs[1:], strict=True)] if filled else anything[1:]
    )
    return (y, *kept)[: len(site.details)]


def _turned_bounds(
    op: Operation,
    parts: tuple[Interval, Interval],
    places: Tensor,
    cos_cache: Interval | None,
    sin_cache: Interval | None,
) -> tuple[Interval, Interval] | None:
    """Return queries and keys turned by their places, if they are; None where angles would be read from elsewhere."""
    if not op.do_rotary or cos_cache is None or sin_cache is None:
        return parts
    known = Interval.point(places)
    if reads_outside(cos_cache, known):
        return None
    cos, sin = angles_bounds(cos_cache, known), angles_bounds(sin_cache, known)
    query, key = (rotated_bounds(x, cos, sin, None, bool(op.rotary_interleaved)) for x in parts)
    return query, key


def _unpacked_bounds(
    op: Operation, query: Interval, key: Interval | None, value: Interval | None
) -> tuple[Interval, Interval, Interval]:
    counts = (op.num_heads, op.kv_num_heads, op.kv_num_heads)
    if key is None or value is None:
        sizes = [count * (query.shape[2] // sum(counts)) for count in counts]
        ends = [0, sizes[0], sizes[0] + sizes[1], sum(sizes)]
        parts = cut_last(query, ends)
    else:
        parts = [query, key, value]
    q, k, v = (x.move(partial(split_heads, count=count)) for x, count in zip(parts, counts, strict=True))
    return q, k, v


def _anywhere(x: Interval, shape: tuple[int, ...]) -> Interval:
    return replace(collapse(x, 2), shape=shape)


@plain(
    schema=schema(
        "GroupQueryAttention",
        "query:T key:T? value:T? past_key:T? past_value:T? seqlens_k:M total_sequence_length:M"
        " cos_cache:T? sin_cache:T?",
        "output:T present_key:T? present_value:T?",
        {"T": FLOATS, "M": INTS},
        defaults={
            "do_rotary": 0,
            "rotary_interleaved": 0,
            "local_window_size": -1,
            "softcap": 0.0,
            "smooth_softmax": 0,
        },
        kinds={"num_heads": "int", "kv_num_heads": "int", "scale": "float?"},
    ),
    torch=_grouped,
    interval=_grouped_bounds,
    operands=("query", "key", "value", "past_key", "past_value", "lengths", "total", "cos_cache", "sin_cache"),
    renamed={"seqlens_k": "lengths", "total_sequence_length": "total"},
    static=("total",),
)
class GroupQueryAttention(Operation):
    """Attention in which several heads of queries share one of keys, over a past that it extends."""
