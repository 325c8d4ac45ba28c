"""Inverses of matrices."""

from __future__ import annotations

import math

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.rules.matrix.inverse import inverse
from ranum_falsify.operators.support.families import opaque
from ranum_falsify.operators.support.microsoft_schemas import schema
from ranum_falsify.validity import Bounds, Condition, NotZero, Operands

__all__ = ["Inverse"]

_NOT_ZERO = NotZero("determinant", reason="")


def _inverse(op: Operation, x: Tensor) -> Tensor:
    work = torch.promote_types(x.dtype, torch.float32)
    y, info = torch.linalg.inv_ex(x.to(work))
    return torch.where(info[..., None, None] > 0, math.nan, y).to(x.dtype)


def _determinant(op: Operation, operands: Operands) -> Tensor:
    x = operands["x"]
    found: Tensor = torch.linalg.det(x.to(torch.promote_types(x.dtype, torch.float32)))
    return found


def _margin(op: Operation, operands: Operands) -> Tensor:
    return _NOT_ZERO.margin(op, {"determinant": _determinant(op, operands)})


def _is_regular(op: Operation, bounds: Bounds) -> bool:
    return not bounds["output"].nan


@opaque(
    schema=schema("Inverse", "X:T", "Y:T", {"T": ("float", "double", "float16")}),
    torch=_inverse,
    interval=inverse,
    kernel=None,
    valid=[
        Condition("det(x) != 0", "a matrix without an inverse", _margin, crossing_of=_determinant, holds_of=_is_regular)
    ],
)
class Inverse(Operation):
    """Inverse of each matrix in the last two dimensions."""
