"""Normalised exponentials along an axis.  Up to opset 12 all axes from `axis` on count as one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import LogSoftmax, Softmax
from torch import Tensor

from ranum_falsify.config import Runtime
from ranum_falsify.domain.kernels.envelopes import envelope, is_exponential_of_0_known
from ranum_falsify.domain.linear.declarations import Rowwise
from ranum_falsify.domain.linear.probabilities import log_softmax_rows, softmax_rows
from ranum_falsify.domain.linear.rows import RowFunction
from ranum_falsify.domain.rules.softmax import hardmax, log_softmax, softmax
from ranum_falsify.operators.relations.decomposed import invariant_under_shift
from ranum_falsify.operators.relations.masked_rows import has_kept_sections, keeping_some
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.families import across, making
from ranum_falsify.operators.support.functions import flattened_before
from ranum_falsify.validity import Condition

_ONE_AXIS = 13


def _dims(op: Operation, rank: int) -> Sequence[int]:
    """Return the dimensions that are normalised over."""
    if not rank:
        return ()
    return (op.axis,) if op.version >= _ONE_AXIS else range(op.axis % rank, rank)


def _presence(x: Tensor, dim: int) -> Tensor:
    """Return a number per row: 0 if all elements are -Inf, -1 if one is +Inf, else how present its elements are.

    An element counts by its position between the lowest and the largest float on a logarithmic scale, so the mean falls
    both with every element that is masked out by -Inf and with the values of the others.
    """
    reach = math.log(torch.finfo(x.dtype).max) + 1.0
    place = torch.where(x == -math.inf, 0.0, 0.5 + 0.5 * x.sign() * x.abs().log1p() / reach)
    mean = place.mean(dim, keepdim=True)
    tiny = torch.finfo(x.dtype).tiny
    return torch.where(mean <= 0, -tiny, torch.where(mean == math.inf, -1.0, mean)).expand(x.shape)


_rows = flattened_before(_ONE_AXIS, _presence)

_SOME_FINITE = Condition(
    "no row along the axis is all -inf or has +inf",
    "softmax of a row of infinities",
    margin_of=lambda op, operands: _rows(op, operands["x"]),
    needs_infinity=True,
    holds_of=has_kept_sections(_dims),
)


def _softmax_rows(op: Operation, dtype: torch.dtype, runtimes: tuple[Runtime, ...], size: int) -> RowFunction:
    return softmax_rows(size, dtype, envelope("Exp", dtype, runtimes))


def _log_softmax_rows(op: Operation, dtype: torch.dtype, runtimes: tuple[Runtime, ...], size: int) -> RowFunction:
    highest = 0.0 if is_exponential_of_0_known(runtimes) else math.inf
    return log_softmax_rows(size, dtype, envelope("Exp", dtype, runtimes), envelope("Log", dtype, runtimes), highest)


across(
    torch=flattened_before(_ONE_AXIS, torch.softmax),
    interval=keeping_some(invariant_under_shift(softmax(_dims, "Softmax"), _dims), _dims),
    linear=Rowwise(dims=_dims, function=_softmax_rows),
    batch=batching.along_axis,
    kernel=("Exp", "Softmax"),
    valid=[_SOME_FINITE],
    overflow=False,
)(Softmax)
# The difference to the largest element of the row may overflow.
across(
    torch=flattened_before(_ONE_AXIS, torch.log_softmax),
    interval=keeping_some(invariant_under_shift(log_softmax(_dims), _dims), _dims),
    linear=Rowwise(dims=_dims, function=_log_softmax_rows),
    batch=batching.along_axis,
    kernel=("Exp", "Log"),
    valid=[_SOME_FINITE],
)(LogSoftmax)


def _hardmax(x: Tensor, dim: int) -> Tensor:
    largest = x.argmax(dim, keepdim=True)
    shape = [1] * x.ndim
    shape[dim] = -1
    positions = torch.arange(x.shape[dim], device=x.device).reshape(shape)
    return (positions == largest).to(x.dtype)


@making(torch=flattened_before(_ONE_AXIS, _hardmax), interval=hardmax(_dims))
class Hardmax(Operation):
    """https://onnx.ai/onnx/operators/onnx__Hardmax.html."""
