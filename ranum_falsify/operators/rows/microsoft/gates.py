"""Gates that ONNX Runtime computes with what they multiply: of sums, of normalised rows, of an operand itself."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_bounds, round_outward
from ranum_falsify.domain.rules.arithmetic.pairs import add, multiply
from ranum_falsify.domain.rules.normalisation.standardise import finish
from ranum_falsify.domain.rules.normalisation.statistics import divide_by_root_mean_square
from ranum_falsify.domain.rules.support.building import infinity_aware, unknown
from ranum_falsify.domain.rules.support.sections import sections
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import unit
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.microsoft.normalisation import stays_defined
from ranum_falsify.operators.rows.normalisation import above_zero
from ranum_falsify.operators.support.families import opaque, total
from ranum_falsify.operators.support.microsoft_parts import add_inner_faults, bound_part, evaluate_part, part
from ranum_falsify.operators.support.microsoft_schemas import DOMAIN, schema
from ranum_falsify.validity import Operands

__all__ = ["GatedAdd", "GatedRMSNorm"]

_FLOATS = {"T": ("float", "float16")}

# sums -----------------------------------------------------------------------------------------------------------


@infinity_aware
def _gated_add_bounds(site: Site, x: Interval, y: Interval, gate: Interval) -> Interval:
    product = multiply(site, y, gate)
    # A kernel may leave the product unrounded.
    low, high = (end.double() for end in (product.lower, product.upper))
    error = unit(product.dtype)
    wide = round_outward(low - error * low.abs(), high + error * high.abs(), product.dtype, product.shape)
    wide = product if product.may_be_infinite else wide
    return add_inner_faults(add(site, x, wide), product, x, y, gate)


@total(
    schema=schema("GatedAdd", "X:T Y:T gate:T", "output:T", _FLOATS),
    torch=lambda op, x, y, gate: x + y * gate,
    interval=_gated_add_bounds,
    linear=None,
    kernel=None,
    operands=("x", "y", "gate"),
)
class GatedAdd(Operation):
    """A sum with a tensor whose rows are scaled."""


# normalised rows ------------------------------------------------------------------------------------------------


def _rows(x: Tensor, size: int) -> Tensor:
    return x.reshape(*x.shape[:-1], -1, size)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _gate(op: Operation) -> Operation:
    name = {"silu": "Swish", "swish": "Swish", "sigmoid": "Sigmoid"}.get(op.activation)
    if name is None:
        raise UnsupportedAttributeError(f"{DOMAIN}::GatedRMSNorm: activation {op.activation!r} is not supported")
    return part(op, name, {})


def _gated_norm(op: Operation, x: Tensor, scale: Tensor, gate: Tensor) -> Tensor:
    if scale.ndim != 1:
        raise UnsupportedAttributeError(f"{DOMAIN}::GatedRMSNorm: a scale of {scale.ndim} dimensions is not supported")
    rows = _rows(_wide(x), len(scale))
    normal = rows / (rows.square().mean(-1, keepdim=True) + float(op.epsilon)).sqrt() * _wide(scale)
    return (normal.reshape(x.shape) * evaluate_part(_gate(op), _wide(gate))).to(x.dtype)


def _square(op: Operation, operands: Operands) -> Tensor:
    rows = _rows(_wide(operands["x"]), len(operands["scale"]))
    return rows.square().mean(-1) + float(op.epsilon)


def _gated_norm_bounds(site: Site, x: Interval, scale: Interval, gate: Interval) -> Interval:
    if not x.size:
        return x
    op, size = site.op, scale.shape[0]
    x, scale, gate = (_widen(t) for t in (x, scale, gate))
    parts = x.move(lambda bound: _rows(bound, size))
    rows = sections(parts, [-1])
    inner = finish(rows, divide_by_root_mean_square(rows, op.epsilon, 1 / rows.size), scale.doubles(), None, parts)
    active = bound_part(site, _gate(op), gate)
    # The factors may be multiplied in another order.
    largest = (max(map(abs, t.extremes)) for t in (scale, active))
    if inner.nan or active.nan or math.prod(largest) * math.sqrt(size) > torch.finfo(torch.float32).max / 4:
        return unknown(site)[0]
    normal = replace(inner.split(*range(len(parts.shape))).move(lambda bound: bound.flatten(-2)), nan=inner.nan)
    low, high = multiply(site, normal, active).doubles()
    error = 8 * unit(torch.float32)
    y = round_outward(low - error * low.abs(), high + error * high.abs(), torch.float32, x.shape)
    return y if site.dtype is torch.float32 else round_bounds(*y.doubles(), site.dtype, x.shape)


def _widen(x: Interval) -> Interval:
    """Return the bounds in float32, in which kernels compute."""
    return x if x.dtype is torch.float32 else Interval(x.lower.float(), x.upper.float(), x.shape)


@opaque(
    schema=schema(
        "GatedRMSNorm",
        "X:T scale:T gate:T",
        "Y:T",
        _FLOATS,
        defaults={"activation": "silu", "epsilon": 1e-5},
    ),
    torch=_gated_norm,
    interval=_gated_norm_bounds,
    kernel=("Sigmoid", "Swish"),
    valid=[
        above_zero(
            "mean square + epsilon > 0", "division by the root of a non-positive mean square", _square, stays_defined
        )
    ],
    operands=("x", "scale", "gate"),
)
class GatedRMSNorm(Operation):
    """Rows divided by their root mean square, scaled, and multiplied by a sigmoid or `x sigmoid(x)` of a gate."""
