"""Changes of element type."""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Cast
from torch import Tensor

from ranum_falsify.domain.linear.forms import Affine
from ranum_falsify.domain.rules.cast import cast
from ranum_falsify.operators.rows.creation import dtype_numbered
from ranum_falsify.operators.support.families import plain, total

__all__ = ["CastLike"]


def _convert(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.dtype is torch.float64 and dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    elif x.dtype is torch.float16 and dtype is torch.uint32:
        # Otherwise the results for NaN and infinity depend on the processor; ONNX Runtime converts so.
        x = x.long()
    return x.to(dtype)


def _cast(op: Operation, x: Tensor) -> Tensor:
    return _convert(x, dtype_numbered(op.to))


def _cast_like(op: Operation, x: Tensor, target_type: Tensor) -> Tensor:
    return _convert(x, target_type.dtype)


total(torch=_cast, interval=cast, linear=Affine(function=lambda op, x: x), kernel=None)(Cast)


@plain(torch=_cast_like, interval=cast, operands=("x", "target_type"))
class CastLike(Operation):
    """https://onnx.ai/onnx/operators/onnx__CastLike.html."""
