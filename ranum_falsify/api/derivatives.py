"""Derivatives that PyTorch has kernels for, in PyTorch's other operators, as these kernels compute them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ranum_falsify.api.fidelity import HALVES

aten = torch.ops.aten

_MEAN = 1
"""What PyTorch's losses make of their elements."""


def list_derivatives() -> dict[Any, Callable[..., Any]]:
    """Return the functions by operator."""
    return {
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward,
        aten._weight_norm_interface_backward.default: _weight_norm_backward,
        aten.avg_pool2d_backward.default: partial(_average_backward, 2),
        aten.avg_pool3d_backward.default: partial(_average_backward, 3),
        aten.convolution_backward.default: _convolution_backward,
        aten.gelu_backward.default: _gelu_backward,
        **dict.fromkeys((aten.hardshrink_backward.default, aten.softshrink_backward.default), _shrink_backward),
        aten.huber_loss_backward.default: _huber_backward,
        aten.mse_loss_backward.default: _squared_error_backward,
        aten.max_pool3d_with_indices_backward.default: _maximum_backward,
        aten.adaptive_max_pool2d_backward.default: _maximum_backward,
        aten.mish_backward.default: _mish_backward,
        aten.silu_backward.default: _silu_backward,
        aten.smooth_l1_loss_backward.default: _smooth_l1_backward,
        aten.softplus_backward.default: _softplus_backward,
        aten.threshold_backward.default: _threshold_backward,
    }


def _convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    rank = len(stride)
    kernel = weight.shape[2:]
    of_input = of_weight = None
    if wanted[0] and transposed:
        none = [0] * rank
        of_input = aten.convolution(gradient, weight, None, stride, padding, dilation, False, none, groups)
    elif wanted[0]:
        reach = [
            (gradient.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel[i] - 1) + 1
            for i in range(rank)
        ]
        missing = [x.shape[2 + i] - reach[i] for i in range(rank)]
        of_input = aten.convolution(gradient, weight, None, stride, padding, dilation, True, missing, groups)
    if wanted[1]:
        given, made = (gradient, x) if transposed else (x, gradient)
        parts = [
            _correlate(one, other, stride, padding, dilation, kernel)
            for one, other in zip(given.chunk(groups, 1), made.chunk(groups, 1), strict=True)
        ]
        of_weight = torch.cat(parts)
    of_bias = gradient.sum([0, *range(2, 2 + rank)]) if wanted[2] else None
    return of_input, of_weight, of_bias


def _correlate(
    x: Tensor, y: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], kernel: Sequence[int]
) -> Tensor:
    """Return the derivative in a kernel that makes y of x, of shape `(channels of y, channels of x, *kernel)`."""
    rank = len(kernel)
    # Samples take the part of channels, and steps that of gaps.
    found: Tensor = aten.convolution(
        x.transpose(0, 1), y.transpose(0, 1), None, dilation, padding, stride, False, [0] * rank, 1
    ).transpose(0, 1)
    for dim, size in enumerate(kernel, start=2):
        found = found.narrow(dim, 0, size)
    return found


def _average_backward(
    rank: int,
    gradient: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    if ceil_mode or (any(padding) and not count_include_pad):
        raise NotImplementedError("the derivative of this average pooling is not supported")
    kernel = [*kernel] * (rank // len(kernel))
    stride = [*stride] * (rank // len(stride)) if stride else kernel
    padding = [*padding] * (rank // len(padding))
    channels = x.shape[-rank - 1]
    share = 1.0 / (divisor_override or math.prod(kernel))
    weight = torch.full((channels, 1, *kernel), share, dtype=x.dtype, device=x.device)
    reach = [(gradient.shape[i - rank] - 1) * stride[i] - 2 * padding[i] + kernel[i] for i in range(rank)]
    missing = [x.shape[i - rank] - reach[i] for i in range(rank)]
    found: Tensor = aten.convolution(gradient, weight, None, stride, padding, [1] * rank, True, missing, channels)
    return found


def score(
    query: Tensor, key: Tensor, is_causal: bool, mask: Tensor | None, scale: float | None, *, again: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return scores of attention, in float32 for halves, and which keys are seen; None for all.

    Args:
        query: `(..., queries, size)`.
        key: `(..., keys, size)`; of heads, the first dimension of three, as many as of the query, or a part of them.
        is_causal: Whether keys after a query are hidden.
        mask: What is added, or which keys are seen, broadcast to `(..., queries, keys)`; None for nothing.
        scale: The factor of products; None for the usual one.
        again: Whether they are computed a second time, in another order, which rounds otherwise.
    """
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    query, key = query.to(wide), share_heads(key.to(wide), query)
    found = (key @ query.mT).mT * factor if again else (query @ key.mT) * factor
    if is_causal:
        mask = torch.ones(found.shape[-2:], dtype=torch.bool, device=found.device).tril()
    elif mask is not None and mask.dtype is not torch.bool:
        added, mask = mask, mask != -math.inf
        found = found + torch.where(mask, added, 0.0)
    return found, mask


def share_heads(x: Tensor, query: Tensor) -> Tensor:
    """Return keys or values of `(..., heads, keys, size)`, each head as often as heads of the query share it."""
    shared = query.shape[-3] // x.shape[-3]
    return x if shared == 1 else x.repeat_interleave(shared, -3)


def _add_up_heads(gradient: Tensor, x: Tensor) -> Tensor:
    """Return the gradient with respect to `x`, whose heads were shared."""
    shared = gradient.shape[-3] // x.shape[-3]
    return gradient if shared == 1 else gradient.unflatten(-3, (-1, shared)).sum(-3)


_REPEATED = 1e-3
"""More than the error of a score, in parts of the sum of its products and its mask without their signs."""


def _attention_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    scores, seen = score(query, key, is_causal, attn_mask, scale, again=True)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    # No sum of exponentials is less than one of them: of rows whose keys are hidden, too, it is finite.
    total = torch.maximum(logsumexp.unsqueeze(-1), scores.amin(-1, keepdim=True))
    below = (scores if seen is None else torch.where(seen, scores, total)) - total
    # No share is above 1 but for rounding, of scores that are computed twice: this changes nothing, and says so.
    added = None
    if attn_mask is not None and attn_mask.dtype is not torch.bool:
        added = torch.where(attn_mask == -math.inf, 0.0, attn_mask).abs()
    sizes, _ = score(query.abs(), key.abs(), False, added, abs(factor))
    shares = torch.exp(torch.minimum(below, 1.0 + _REPEATED * sizes))
    shares = shares if seen is None else torch.where(seen, shares, 0.0)
    made = gradient.to(scores.dtype)
    given = [share_heads(x.to(scores.dtype), query) for x in (query, key, value)]
    slopes = made @ given[2].transpose(-2, -1) - (made * out.to(scores.dtype)).sum(-1, keepdim=True)
    slopes = shares * slopes * factor
    found = slopes @ given[1], slopes.transpose(-2, -1) @ given[0], shares.transpose(-2, -1) @ made
    one, two, three = (_add_up_heads(y, x).to(x.dtype) for y, x in zip(found, (query, key, value), strict=True))
    return one, two, three


def _gelu_backward(gradient: Tensor, x: Tensor, *, approximate: str = "none") -> Any:
    if approximate != "none" or x.dtype in HALVES:
        return NotImplemented
    share = 0.5 * (1.0 + torch.erf(x * math.sqrt(0.5)))
    density = torch.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return gradient * torch.addcmul(share, x, density)  # vectors round the sum once


def _mish_backward(gradient: Tensor, x: Tensor) -> Tensor:
    wide = x.float() if x.dtype in HALVES else x
    share, bent = torch.sigmoid(wide), torch.tanh(torch.log1p(torch.exp(wide)))
    slope = torch.addcmul(bent, wide * share, torch.addcmul(torch.ones_like(bent), bent, bent, value=-1))
    return (gradient.to(wide.dtype) * slope).to(x.dtype)


def _silu_backward(gradient: Tensor, x: Tensor) -> Tensor:
    wide = x.float() if x.dtype in HALVES else x
    share = torch.sigmoid(wide)
    slope = torch.addcmul(torch.ones_like(wide), wide, 1.0 - share)
    return (gradient.to(wide.dtype) * share * slope).to(x.dtype)


def _shrink_backward(gradient: Tensor, x: Tensor, threshold: float) -> Tensor:
    return torch.where((x >= -threshold) & (x <= threshold), 0.0, gradient)


def _squared_error_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Any:
    if x.dtype not in HALVES:
        return NotImplemented
    share = torch.full([], 2.0 / x.numel() if reduction == _MEAN else 2.0, dtype=x.dtype, device=x.device)
    return share * (x - target) * gradient


def _smooth_l1_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float) -> Any:
    if beta == 0:
        return NotImplemented
    share = 1.0 / x.numel() if reduction == _MEAN else 1.0
    if x.dtype in HALVES:
        return _smooth_l1_backward(gradient.float(), x.float(), target.float(), reduction, beta).to(x.dtype)
    distance, scaled = x - target, share * gradient
    within = _scale(distance * gradient, share / beta)
    return torch.where(distance <= -beta, -scaled, torch.where(distance >= beta, scaled, within))


def _huber_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int, delta: float) -> Any:
    share, distance = 1.0 / x.numel() if reduction == _MEAN else 1.0, x - target
    if x.dtype in HALVES:  # each number and each product is rounded
        part, limit = (torch.full([], z, dtype=x.dtype, device=x.device) for z in (share, delta))
        within, beyond = part * distance * gradient, part * limit * gradient
        return torch.where(distance <= -limit, -beyond, torch.where(distance >= limit, beyond, within))
    within, beyond = _scale(distance * gradient, share), _scale(gradient, share * delta)
    return torch.where(distance <= -delta, -beyond, torch.where(distance >= delta, beyond, within))


def _scale(x: Tensor, factor: float) -> Tensor:
    """Return a product with a number that kernels take in parts, and vectors in other parts than what is left of them.

    Bounds of sums of products allow for that.
    """
    return (x.unsqueeze(-1) @ torch.full([1, 1], factor, dtype=x.dtype, device=x.device)).squeeze(-1)


def _maximum_backward(gradient: Tensor, x: Tensor, *options: Any) -> Tensor:
    indices, rank = options[-1], gradient.dim() - 2 if len(options) > 1 else 2
    first = gradient.dim() - rank
    flat = x.new_zeros([*x.shape[:first], math.prod(x.shape[first:])])
    return flat.scatter_add(-1, indices.flatten(first), gradient.flatten(first)).reshape(x.shape)


def _threshold_backward(gradient: Tensor, x: Tensor, threshold: float) -> Tensor:
    return torch.where((x.float() if x.dtype in HALVES else x) <= threshold, 0.0, gradient)


def _weight_norm_backward(gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    wide_gradient, wide_v = gradient.to(norms.dtype), v.to(norms.dtype)
    others = [i for i in range(v.dim()) if i != dim % v.dim()]
    of_g = (wide_gradient * wide_v).sum(others, keepdim=True) / norms
    scale = g.to(norms.dtype) / norms
    of_v = scale * wide_gradient - scale * of_g / norms * wide_v
    return of_v.to(v.dtype), of_g.to(g.dtype)


def _softplus_backward(gradient: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
    wide = x.float() if x.dtype in HALVES else x
    scaled = wide * beta
    z = scaled.clamp(max=threshold).exp()  # the kernel does not look at larger ones
    return torch.where(scaled > threshold, gradient, gradient * z / (z + 1.0)).to(x.dtype)
