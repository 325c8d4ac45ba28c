"""Changes of element type."""

from __future__ import annotations

from dataclasses import replace

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Cast
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.domain.rules.cast import cast, convert_to_float, convert_to_integer, float_bounds, integer_bounds
from ranum_falsify.domain.rules.support.building import infinity_aware, keeping_infinity, unknown
from ranum_falsify.domain.site import Site
from ranum_falsify.network.narrow import NARROW, NARROW_FLOATS, NarrowFloat
from ranum_falsify.operators.rows.creation import dtype_numbered
from ranum_falsify.operators.support.families import plain, pointwise, total


def _convert(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.dtype is torch.float64 and dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    elif x.dtype is torch.float16 and dtype is torch.uint32:
        # Otherwise the results for NaN and infinity depend on the processor; ONNX Runtime converts so.
        x = x.long()
    return x.to(dtype)


def _cast(op: Operation, x: Tensor) -> Tensor:
    kind = NARROW.get(op.to)
    if kind is None:
        return _convert(x, dtype_numbered(op.to))
    if isinstance(kind, NarrowFloat):
        return convert_to_float(op, x, kind)
    return convert_to_integer(x, kind, dtype_numbered(kind.carrier))


def _cast_bounds(site: Site, x: Interval) -> Interval:
    kind = NARROW.get(site.op.to)
    if kind is None:
        return cast(site, x)
    return float_bounds(site.op, x, kind) if isinstance(kind, NarrowFloat) else integer_bounds(x, kind, site.dtype)


_SAME = Affine(function=lambda op, x: x)

total(
    torch=_cast,
    interval=keeping_infinity(_cast_bounds, when=lambda op: op.to not in NARROW_FLOATS),
    linear=lambda op: None if op.to in NARROW else _SAME,
    kernel=None,
)(Cast)


@plain(
    torch=lambda op, x, target_type: _convert(x, target_type.dtype),
    interval=cast,
    operands=("x", "target_type"),
)
class CastLike(Operation):
    """https://onnx.ai/onnx/operators/onnx__CastLike.html."""


def _bit_cast(op: Operation, x: Tensor) -> Tensor:
    dtype = dtype_numbered(op.to)
    if dtype is torch.bool or x.dtype is torch.bool:
        return x.to(dtype) if dtype is x.dtype else (x != 0 if dtype is torch.bool else x.to(dtype))
    return x.view(dtype)


def _bit_cast_bounds(site: Site, x: Interval) -> Interval | tuple[Interval, ...]:
    # Zeros and denormal numbers have other bits than those of equal bounds.
    if x.is_floating or not x.is_point:
        return x if x.dtype is site.dtype else unknown(site)
    value = _bit_cast(site.op, x.expand()[0].contiguous())
    y = Interval.point(value)
    if not y.is_floating:
        return y
    return replace(y, nan=bool(value.isnan().any()), overflows=bool(value.isinf().any()))


@pointwise(torch=_bit_cast, interval=infinity_aware(_bit_cast_bounds), linear=None, kernel=None, valid=())
class BitCast(Operation):
    """https://onnx.ai/onnx/operators/onnx__BitCast.html."""
