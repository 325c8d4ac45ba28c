"""Parts of transformers that are operators of their own: rotations of positions, gates, attention without softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import ProductRounding
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_bounds
from ranum_falsify.domain.rules.arithmetic.pairs import multiply, subtract
from ranum_falsify.domain.rules.attention import bound_anything_of
from ranum_falsify.domain.rules.matrix.bilinear import bilinear
from ranum_falsify.domain.rules.matrix.matmul import matrix_product, sum_scaled
from ranum_falsify.domain.rules.shape import collapse, cut, join, take
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.activation import SCALED_ABOVE_MINUS_INFINITY
from ranum_falsify.operators.support.families import opaque, plain, pointwise
from ranum_falsify.operators.support.microsoft import add_inner_faults, bound_part, evaluate_part, part

# rotations ------------------------------------------------------------------------------------------------------


def _pairs(x: Tensor, interleaved: bool) -> Tensor:
    """Return the elements that are rotated together along a last dimension of 2."""
    pairs = (*x.shape[:-1], -1, 2) if interleaved else (*x.shape[:-1], 2, -1)
    return x.reshape(pairs) if interleaved else x.reshape(pairs).transpose(-1, -2)


def _unpair(y: Tensor, interleaved: bool) -> Tensor:
    return y.flatten(-2) if interleaved else y.transpose(-1, -2).flatten(-2)


def _by_position(x: Tensor, heads: int | None) -> Tensor:
    """Return `(batch, heads, sequence, size)` or `(batch, sequence, all)` as `(batch, sequence, heads, size)`."""
    return x.transpose(1, 2) if x.ndim == 4 else x.reshape(*x.shape[:2], heads or 1, -1)


def _back(y: Tensor, rank: int) -> Tensor:
    return y.transpose(1, 2) if rank == 4 else y.flatten(2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, heads: int | None, interleaved: bool) -> Tensor:
    """Return queries or keys rotated by angles, pair by pair.

    They are `(batch, heads, sequence, size)` or `(batch, sequence, heads * size)`, cosines and sines are `(batch,
    sequence, pairs)`; what lies behind the pairs stays as it is.  Interleaved pairs are neighbours, others lie half a
    head apart.
    """
    parts = _by_position(x, heads)
    count = 2 * cos.shape[-1]
    pairs = _pairs(parts[..., :count], interleaved)
    c, s = cos[:, :, None], sin[:, :, None]
    turned = torch.stack([c * pairs[..., 0] - s * pairs[..., 1], s * pairs[..., 0] + c * pairs[..., 1]], -1)
    return _back(torch.cat([_unpair(turned, interleaved), parts[..., count:]], -1), x.ndim)


def rotated_bounds(x: Interval, cos: Interval, sin: Interval, heads: int | None, interleaved: bool) -> Interval:
    """Return bounds of :func:`rotate`."""
    rank, count = len(x.shape), 2 * cos.shape[-1]
    parts = x.move(lambda bound: _by_position(bound, heads))
    turning = cut(parts, [*map(range, parts.shape[:3]), range(count)])
    pairs = turning.move(lambda bound: _pairs(bound, interleaved)).split(4)
    c, s = (angle.move(lambda bound: bound[:, :, None, :, None]) for angle in (cos, sin))
    turned = []
    for factors in ([c, Interval(-s.upper, -s.lower, s.shape)], [s, c]):
        y = bilinear(
            lambda p, q, c: (p * q).sum(-1) if c is None else (p * q).sum(-1) + c,
            pairs,
            join(factors, 4).split(4),
            terms=2,
            shape=pairs.shape[:4],
            rounding=ProductRounding(3),
        )
        turned.append(y)
    stacked = join([y.move(lambda bound: bound[..., None]) for y in turned], 4)
    whole = stacked.move(lambda bound: _unpair(bound, interleaved))
    if count < parts.shape[3]:
        whole = join([whole, cut(parts, [*map(range, parts.shape[:3]), range(count, parts.shape[3])])], 3)
    result = whole.move(lambda bound: _back(bound, rank))
    return replace(result, nan=any(y.nan for y in turned), overflows=any(y.overflows for y in turned))


def find_angles(cache: Tensor, positions: Tensor | None) -> Tensor:
    """Return the cosines or sines of positions, `(batch, sequence, pairs)`."""
    if positions is None:
        return cache
    rows = torch.remainder(positions, cache.shape[0])
    return cache.index_select(0, rows.reshape(-1)).reshape(*positions.shape, -1)


def reads_outside(cache: Interval, positions: Interval | None) -> bool:
    """Tell whether a position may be none of the cache: ONNX Runtime then reads other memory, without an error."""
    if positions is None or not positions.size:
        return False
    low, high = positions.extremes
    return low < 0 or high >= cache.shape[0]


def angles_bounds(cache: Interval, positions: Interval | None) -> Interval:
    """Return bounds of :func:`find_angles`."""
    if positions is None:
        return cache
    if positions.is_point:
        return take(cache, 0, torch.remainder(positions.expand()[0], cache.shape[0]))
    return collapse(cache, 0).move(lambda bound: bound[:1].expand(*positions.shape, -1))


def check_rotated(op: Operation, x: Tensor, cos: Tensor, heads: int | None) -> None:
    """Check that a node turns as many numbers of a head as there are angles for; kernels read or write no others."""
    count, turned = 2 * cos.shape[-1], op.rotary_embedding_dim or _by_position(x, heads).shape[-1]
    if turned != count:
        raise UnsupportedAttributeError(
            f"rotary_embedding_dim {turned}, a whole head where left out, beside angles of {count} numbers"
        )


def _rotary(op: Operation, x: Tensor, cos_cache: Tensor, sin_cache: Tensor, position_ids: Tensor | None) -> Tensor:
    check_rotated(op, x, cos_cache, op.num_heads)
    cos, sin = find_angles(cos_cache, position_ids), find_angles(sin_cache, position_ids)
    return rotate(x, cos, sin, op.num_heads, bool(op.interleaved))


def _rotary_bounds(
    site: Site, x: Interval, cos_cache: Interval, sin_cache: Interval, position_ids: Interval | None
) -> Interval:
    if reads_outside(cos_cache, position_ids):
        return bound_anything_of(site.shape, x.dtype)
    cos, sin = angles_bounds(cos_cache, position_ids), angles_bounds(sin_cache, position_ids)
    return rotated_bounds(x, cos, sin, site.op.num_heads, bool(site.op.interleaved))


@plain(
    torch=_rotary,
    interval=_rotary_bounds,
    operands=("x", "cos_cache", "sin_cache", "position_ids"),
    renamed={"X": "x"},
)
class RotaryEmbedding(Operation):
    """https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html."""


# gates ----------------------------------------------------------------------------------------------------------


def _gate(op: Operation) -> Operation:
    return part(op, "Swish", {"alpha": op.alpha})


def _swiglu_bounds(site: Site, x: Interval, gate: Interval) -> Interval:
    swish = bound_part(site, _gate(site.op), x)
    return add_inner_faults(multiply(site, swish, gate), swish, x, gate)


@pointwise(
    torch=lambda op, x, gate: evaluate_part(_gate(op), x) * gate,
    interval=_swiglu_bounds,
    linear=None,
    kernel="Swish",
    valid=[SCALED_ABOVE_MINUS_INFINITY],
    operands=("x", "gate"),
    renamed={"A": "x", "B": "gate"},
)
class SwiGLU(Operation):
    """https://onnx.ai/onnx/operators/onnx__SwiGLU.html."""


# convolutions with a state --------------------------------------------------------------------------------------


def _convolution(op: Operation, channels: int) -> Operation:
    return part(op, "Conv", {"group": channels, "dilations": (op.dilation,)})


def convolve_causally(
    op: Operation, x: Tensor, weight: Tensor, bias: Tensor | None, past_state: Tensor | None
) -> tuple[Tensor, ...]:
    """Return the convolution of each channel with what came before, and what the next one needs of it."""
    before = (weight.shape[2] - 1) * op.dilation
    padded = torch.cat([x.new_zeros(*x.shape[:2], before) if past_state is None else past_state, x], 2)
    y = evaluate_part(_convolution(op, x.shape[1]), padded, weight, bias)
    y = y if op.activation == "none" else torch.nn.functional.silu(y)
    return (y, padded[:, :, padded.shape[2] - before :])[: len(op.output_names)]


@infinity_aware
def convolve_causally_bounds(
    site: Site, x: Interval, weight: Interval, bias: Interval | None, past_state: Interval | None
) -> tuple[Interval, ...]:
    """Bound :func:`convolve_causally`."""
    before = (weight.shape[2] - 1) * site.op.dilation
    past = Interval.fill(0, 0, (*x.shape[:2], before), x.dtype) if past_state is None else past_state
    padded = join([past, x], 2) if before else x
    y = bound_part(site, _convolution(site.op, x.shape[1]), padded, weight, bias)
    if site.op.activation != "none":
        smooth = bound_part(site, part(site.op, "Swish", {}), y)
        y = add_inner_faults(smooth, y, x, weight, bias, past_state)
    state = cut(padded, [*map(range, x.shape[:2]), range(padded.shape[2] - before, padded.shape[2])])
    return (y, state)[: len(site.details)]


@opaque(
    torch=convolve_causally,
    interval=convolve_causally_bounds,
    kernel="Swish",
    valid=(),
    operands=("x", "weight", "bias", "past_state"),
    renamed={"input": "x"},
)
class CausalConvWithState(Operation):
    """https://onnx.ai/onnx/operators/onnx__CausalConvWithState.html."""

    dilation = 1


# attention without softmax --------------------------------------------------------------------------------------


def _heads(x: Tensor, count: int) -> Tensor:
    """Return `(batch, sequence, all)` as `(batch, heads, sequence, size)`."""
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def scale_of(op: Operation, size: int) -> float:
    """Return the factor of the scores: 1 / sqrt(head size) unless another is given."""
    return float(op.scale) if op.scale else 1 / math.sqrt(size)


def linear_attention(
    op: Operation,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None,
    decay: Tensor | None,
    beta: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return what queries read of a state to which each step adds an outer product, and the last state."""
    work = torch.promote_types(query.dtype, torch.float32)
    q = _heads(query.to(work), op.q_num_heads)
    k, v = (_heads(x.to(work), op.kv_num_heads) for x in (key, value))
    if not q.shape[3]:
        raise ValueError("queries without elements, by whose number ONNX Runtime divides")
    g = None if decay is None else _heads(decay.to(work), op.kv_num_heads)
    b = None if beta is None else _heads(beta.to(work), beta.shape[2])
    state = k.new_zeros(*k.shape[:2], k.shape[3], v.shape[3]) if past_state is None else past_state.to(work)
    rows = []
    for i in range(q.shape[2]):
        state = state if g is None else state * g[:, :, i, :, None].exp()
        new = v[:, :, i, None]
        new = new if b is None else b[:, :, i, None] * (new - k[:, :, i, None] @ state)
        state = state + k[:, :, i, :, None] * new
        rows.append(q[:, :, i, None] @ state.repeat_interleave(op.q_num_heads // op.kv_num_heads, 1))
    y = torch.cat(rows, 2) * scale_of(op, q.shape[3])
    kind = query.dtype if past_state is None else past_state.dtype
    return (y.transpose(1, 2).flatten(2).to(query.dtype), state.to(kind))[: len(op.output_names)]


def linear_attention_bounds(
    site: Site,
    query: Interval,
    key: Interval,
    value: Interval,
    past_state: Interval | None,
    decay: Interval | None,
    beta: Interval | None,
) -> tuple[Interval, ...]:
    """Bound :func:`linear_attention`."""
    op, dtype = site.op, query.dtype
    wide = replace(site, op=part(op, "Exp", {}))
    q = _wide_heads(query, op.q_num_heads)
    k, v = (_wide_heads(x, op.kv_num_heads) for x in (key, value))
    g = None if decay is None else _wide_heads(decay, op.kv_num_heads)
    b = None if beta is None else _wide_heads(beta, beta.shape[2])
    shape = (*k.shape[:2], k.shape[3], v.shape[3])
    state = Interval.fill(0, 0, shape, k.dtype) if past_state is None else _widen(past_state)
    times, rows, sound = op.q_num_heads // op.kv_num_heads, [], True
    for i in range(q.shape[2]):
        step = [None if x is None else cut(x, _at(x.shape, i)) for x in (q, k, v, g, b)]
        state, read = _advance(wide, state, step, times)
        sound = sound and not any(y.nan or y.overflows or y.may_be_infinite for y in (state, read))
        rows.append(sum_scaled(read, scale_of(op, q.shape[3]), None, 0.0))
    kind = dtype if past_state is None else past_state.dtype
    outputs = ((*query.shape[:2], op.q_num_heads * v.shape[3]), dtype), (shape, kind)
    if not sound or any(y.may_be_infinite for y in rows):
        return tuple(bound_anything_of(*output) for output in outputs)[: len(site.details)]
    y = join(rows, 2).move(lambda bound: bound.transpose(1, 2).flatten(2))
    return tuple(_narrow(x, kind) for x, (_, kind) in zip((y, state), outputs, strict=True))[: len(site.details)]


def _advance(site: Site, state: Interval, step: Sequence[Interval | None], times: int) -> tuple[Interval, Interval]:
    """Return the next state and what the queries read of it, before it is scaled."""
    q, k, v, g, b = step
    assert q is not None and k is not None and v is not None
    parts: list[Interval] = []  # Whatever may be infinite is NaN where it meets a 0, which bounds leave out.
    if g is not None:
        share = _widen(bound_part(site, site.op, g)).move(lambda bound: bound.transpose(2, 3))
        state = _stretch(multiply(site, state, share))
        parts += [share, state]
    if b is not None:
        past = matrix_product(k, state)
        rest = _stretch(subtract(site, v, past))
        v = _stretch(multiply(site, b, rest))
        parts += [past, rest, v]
    column = k.move(lambda bound: bound.transpose(2, 3))
    state = bilinear(
        lambda p, n, c: p * n if c is None else p * n + c, column, v, terms=1, shape=state.shape, bias=state
    )
    faults = any(part.nan or part.overflows or part.may_be_infinite for part in (*parts, state))
    read = matrix_product(q, state.move(lambda bound: bound.repeat_interleave(times, 1)))
    return replace(state, nan=faults), read


def _stretch(x: Interval) -> Interval:
    """Return bounds of results that a kernel may also leave unrounded, in a fused operation."""
    return sum_scaled(x, 1.0, None, 0.0)


def _at(shape: Sequence[int], i: int) -> list[range]:
    return [range(i, i + 1) if dim == 2 else range(size) for dim, size in enumerate(shape)]


def _widen(x: Interval) -> Interval:
    """Return the bounds in the type in which kernels compute."""
    kind = torch.promote_types(x.dtype, torch.float32)
    return x if x.dtype is kind else Interval(x.lower.to(kind), x.upper.to(kind), x.shape)


def _wide_heads(x: Interval, count: int) -> Interval:
    return _widen(x).move(lambda bound: _heads(bound, count))


def _narrow(x: Interval, dtype: torch.dtype) -> Interval:
    return x if x.dtype is dtype else round_bounds(*x.doubles(), dtype, x.shape)


@opaque(torch=linear_attention, interval=linear_attention_bounds, kernel="Exp", valid=())
class LinearAttention(Operation):
    """https://onnx.ai/onnx/operators/onnx__LinearAttention.html."""
