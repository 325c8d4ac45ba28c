"""PyTorch's operators in terms of those that its ONNX exporter knows: PyTorch's own formulas, and some of ours.

Ours are derivatives for which PyTorch has kernels alone; each is a sum of products, as those kernels compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions

from ranum_falsify.api.loss_kernels import list_kernels

aten = torch.ops.aten


@cache
def list_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return decompositions by operator, as `make_fx` takes them."""
    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    for operator in (
        *(aten.prod.default, aten.prod.dim_int),
        *(aten.binary_cross_entropy.default, aten.binary_cross_entropy_backward.default),
        *(aten.special_entr.default, aten.xlogy.Tensor),
        *(aten.logsumexp.default, aten.softplus.default),
    ):
        # The exporter knows these, by translations of ours or its own, and not what they become.
        table.pop(operator, None)
    return (
        table
        | list_kernels()
        | {
            aten.convolution_backward.default: _convolution_backward,
            aten.avg_pool2d_backward.default: _average_backward,
            aten.upsample_nearest2d_backward.default: _repeat_backward,
            aten.empty_permuted.default: _clear,
        }
    )


def _clear(size: Sequence[int], order: Sequence[int], **options: Any) -> Tensor:
    """What is not initialised may be 0."""
    return torch.zeros(size, dtype=options.get("dtype"), device=options.get("device"))


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
    kernel = [*kernel] * (2 // len(kernel))
    stride = [*stride] * (2 // len(stride)) if stride else kernel
    padding = [*padding] * (2 // len(padding))
    channels = x.shape[-3]
    share = 1.0 / (divisor_override or kernel[0] * kernel[1])
    weight = torch.full((channels, 1, *kernel), share, dtype=x.dtype, device=x.device)
    reach = [(gradient.shape[i - 2] - 1) * stride[i] - 2 * padding[i] + kernel[i] for i in range(2)]
    missing = [x.shape[i - 2] - reach[i] for i in range(2)]
    found: Tensor = aten.convolution(gradient, weight, None, stride, padding, [1, 1], True, missing, channels)
    return found


def _repeat_backward(
    gradient: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    n, channels, height, width = input_size
    times = output_size[0] // height, output_size[1] // width
    if (height * times[0], width * times[1]) != tuple(output_size):
        raise NotImplementedError("the derivative of this interpolation is not supported")
    blocks = gradient.reshape(n, channels, height, times[0], width, times[1])
    return blocks.sum([3, 5])
