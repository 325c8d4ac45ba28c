"""Normalisation of groups of channels by their mean and variance."""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.kernels.envelopes import Runtime
from ranum_falsify.domain.linear.forms import Affine, Rowwise
from ranum_falsify.domain.linear.rows import RowFunction
from ranum_falsify.domain.linear.standardised import StandardisedRows
from ranum_falsify.domain.rules.normalisation import standardise as rules
from ranum_falsify.domain.slack import accumulation
from ranum_falsify.operators.rows.normalisation import VARIANCE, above_zero, align_channels, convert_to_stash
from ranum_falsify.operators.support.families import across
from ranum_falsify.validity import Operands

__all__ = ["GroupNormalization"]


def _cut_rows(op: Operation, x: Tensor) -> Tensor:
    """Return the operand with the elements that are normalised together along its last dimension."""
    return convert_to_stash(op, x).reshape(x.shape[0], op.num_groups, -1)


def _group_moments(op: Operation, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of each group, the latter by the formula of the standard: it can cancel below 0."""
    rows = _cut_rows(op, x)
    mean = rows.mean(-1, keepdim=True)
    return mean, rows.square().mean(-1, keepdim=True) - mean.square()


def _group_variance(op: Operation, operands: Operands) -> Tensor:
    return _group_moments(op, operands["x"])[1] + float(op.epsilon)


def _group_normalization(op: Operation, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    mean, variance = _group_moments(op, x)
    normal = ((_cut_rows(op, x) - mean) / (variance + float(op.epsilon)).sqrt()).reshape(x.shape).to(x.dtype)
    if op.version >= 21:
        return normal * align_channels(scale, x.ndim) + align_channels(bias, x.ndim)
    groups = normal.reshape(x.shape[0], op.num_groups, -1)
    return (groups * scale[:, None] + bias[:, None]).reshape(x.shape)


def _group_rows(op: Operation, dtype: torch.dtype, runtimes: tuple[Runtime, ...], size: int) -> RowFunction | None:
    # Half precision rounds each of the steps, or none, and float64 may be rounded to float32.
    if accumulation(dtype) is not dtype or (dtype is torch.float64 and rules.is_stashed_single(op)):
        return None
    return StandardisedRows(float(op.epsilon), dtype, centred=True, cancels=True)


def _cut_groups(op: Operation, x: Tensor, *others: object) -> Tensor:
    """Return `(batch, channels, ...)` as `(batch, groups, channels of a group, ...)`."""
    return x.reshape(x.shape[0], op.num_groups, -1, *x.shape[2:])


def _scale_groups(op: Operation, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Return normalised groups, scaled and shifted by channel, or by group before opset 21, as the node has them."""
    joined = x.flatten(1, 2)
    if op.version >= 21:
        return joined * align_channels(scale, joined.ndim) + align_channels(bias, joined.ndim)
    return (x * align_channels(scale, x.ndim) + align_channels(bias, x.ndim)).flatten(1, 2)


_GROUPS = Rowwise(
    dims=lambda op, rank: range(2, rank),
    function=_group_rows,
    inner=Affine(operands=("x",), function=_cut_groups),
    bounds=lambda site, x, *others: rules.group(x, site.op.num_groups),
    outer=Affine(factors=("x", "scale"), function=_scale_groups),
)


@across(
    torch=_group_normalization,
    interval=rules.group_normalisation,
    linear=_GROUPS,
    batch="vmap",
    kernel=None,
    valid=[above_zero("variance + epsilon > 0", VARIANCE, _group_variance, rules.groups_stay_positive)],
)
class GroupNormalization(Operation):
    """https://onnx.ai/onnx/operators/onnx__GroupNormalization.html."""
