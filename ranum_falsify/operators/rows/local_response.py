"""Normalisation of each channel by those beside it."""

from __future__ import annotations

from dnnv.nn import Operation
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.rules.normalisation.norms import divisor_stays_valid, local_response_normalisation
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.families import across
from ranum_falsify.validity import Condition, GreaterThan, NotZero, Operands

__all__ = ["LRN"]

_POSITIVE = GreaterThan("value", 0.0, reason="")
_NONZERO = NotZero("value", reason="")


def _divisor(op: Operation, x: Tensor) -> Tensor:
    """Return what is raised to `beta`: the bias and a share of the sum of squares of the nearest channels."""
    before = (op.size - 1) // 2
    squares = functional.pad(x.square(), (0, 0) * (x.ndim - 2) + (before, op.size - 1 - before))
    sums = squares.unfold(1, op.size, 1).sum(-1)
    return sums * float(op.alpha / op.size) + float(op.bias)


def _lrn(op: Operation, x: Tensor) -> Tensor:
    return x / _divisor(op, x).pow(float(op.beta))


def _divisor_margin(op: Operation, operands: Operands) -> Tensor:
    divisor = _divisor(op, operands["x"])
    # An integer power of a negative number is no hazard.
    whole = float(op.beta).is_integer()
    return (_NONZERO if whole else _POSITIVE).margin(op, {"value": divisor})


@across(
    torch=_lrn,
    interval=local_response_normalisation,
    linear=None,
    batch=batching.samplewise,
    kernel=None,
    valid=[
        Condition(
            "bias + alpha / size * sum(x^2) > 0",
            "division by a power of a non-positive number",
            margin_of=_divisor_margin,
            crossing_of=lambda op, operands: _divisor(op, operands["x"]),
            holds_of=divisor_stays_valid,
        )
    ],
)
class LRN(Operation):
    """https://onnx.ai/onnx/operators/onnx__LRN.html."""
