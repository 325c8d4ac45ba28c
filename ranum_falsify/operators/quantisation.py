"""Linear quantisation to integers of 8 and 16 bits, and back."""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network.registry import operator
from ranum_falsify.network.tensors import ONNX_TO_NUMPY, torch_dtype

__all__ = ["DequantizeLinear", "QuantizeLinear"]


def _aligned(op: Operation, x: Tensor, values: Tensor) -> Tensor:
    """Return scales or zero points so that they broadcast with what they scale: one, one per axis entry or block."""
    if values.numel() == 1 and values.ndim < 2:
        return values.reshape(())
    axis = op.axis % x.ndim
    if op.block_size:
        return values.repeat_interleave(op.block_size, axis).narrow(axis, 0, x.shape[axis])
    return values.reshape(-1, *[1] * (x.ndim - 1 - axis))


def _requested(op: Operation, attribute: str) -> torch.dtype | None:
    """Return the type that an attribute asks for, None where it does not."""
    number = getattr(op, attribute)
    return torch_dtype(ONNX_TO_NUMPY[number]) if number else None


def _quantize(op: Operation, x: Tensor, scale: Tensor, zero_point: Tensor | None) -> Tensor:
    dtype = _requested(op, "output_dtype") or (torch.uint8 if zero_point is None else zero_point.dtype)
    if dtype not in (torch.int8, torch.uint8, torch.int16, torch.uint16):
        raise UnsupportedAttributeError(f"quantising to {dtype} is not supported; use integers of 8 or 16 bits")
    precision = _requested(op, "precision") or scale.dtype
    steps = (x.to(precision) / _aligned(op, x, scale).to(precision)).round().float()
    zero = torch.zeros((), device=x.device) if zero_point is None else _aligned(op, x, zero_point).float()
    limits = torch.iinfo(dtype)
    return (steps + zero).clamp(limits.min, limits.max).to(torch.int32).to(dtype)


def _dequantize(op: Operation, x: Tensor, scale: Tensor, zero_point: Tensor | None) -> Tensor:
    steps = x.to(torch.int32)
    if zero_point is not None:
        steps = steps - _aligned(op, x, zero_point.to(torch.int32))
    wide = torch.promote_types(scale.dtype, torch.float32)
    product = steps.to(wide) * _aligned(op, x, scale).to(wide)
    return product.to(_requested(op, "output_dtype") or scale.dtype)


@operator(torch=_quantize, overflow=False)
class QuantizeLinear(Operation):
    """https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html."""


@operator(torch=_dequantize)
class DequantizeLinear(Operation):
    """https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html."""
