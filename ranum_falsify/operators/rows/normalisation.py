"""Normalisations: by the mean and variance of a batch, a sample or a group, by a norm, or by neighbouring channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import BatchNormalization, Input
from torch import Tensor
from torch.nn import functional

from ranum_falsify.config import Runtime
from ranum_falsify.domain import Interval, Site
from ranum_falsify.domain.error_bounds import accumulation, tiny
from ranum_falsify.domain.linear.declarations import Affine, Rowwise
from ranum_falsify.domain.linear.rows import RowFunction
from ranum_falsify.domain.linear.standardised import StandardisedRows
from ranum_falsify.domain.rules.normalisation import batch as batch_normalising
from ranum_falsify.domain.rules.normalisation import standardise as rules
from ranum_falsify.domain.rules.normalisation.norms import (
    divisor_stays_valid,
    local_response_normalisation,
    norm_normalisation,
    norm_stays_positive,
)
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.families import across, opaque, plain
from ranum_falsify.operators.support.functions import ints
from ranum_falsify.validity import Bounds, Condition, GreaterThan, InvalidRange, NotZero, Operands

VARIANCE = "division by the root of a non-positive variance"
"""Why a variance has to be above 0."""

MEAN_SQUARE = "division by the root of a non-positive mean square"
"""Why a mean square has to be."""

_POSITIVE = GreaterThan("value", 0.0, reason="")


def above_zero(
    text: str,
    reason: str,
    quantity: Callable[[Operation, Operands], Tensor],
    holds: Callable[[Operation, Bounds], bool],
) -> Condition:
    """Return the condition that a quantity computed from the operands, plus any epsilon, is above 0."""

    def margin(op: Operation, operands: Operands) -> Tensor:
        return _POSITIVE.margin(op, {"value": quantity(op, operands)})

    return Condition(text, reason, margin_of=margin, crossing_of=quantity, holds_of=holds, raised_by="epsilon")


def align_channels(values: Tensor, rank: int) -> Tensor:
    """Return values of shape `(channels, ...)` so that they broadcast with `(batch, channels, ...)`."""
    return values.reshape(*values.shape, *[1] * (rank - 1 - values.ndim))


def convert_to_stash(op: Operation, x: Tensor) -> Tensor:
    """Return the operand in the type of the intermediate results: float32 where `stash_type` asks for it."""
    return x.float() if rules.is_stashed_single(op) and x.dtype in (torch.float16, torch.bfloat16) else x


# by the statistics of a batch -----------------------------------------------------------------------------------


def _batch_normalization(
    op: Operation, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> tuple[Tensor, ...]:
    if op.version < 14 and len(op.output_names) > 1:
        raise UnsupportedAttributeError("BatchNormalization in training mode is supported from opset 14 on")
    if not op.training_mode and len(op.output_names) > 1:
        raise UnsupportedAttributeError("BatchNormalization gives its statistics in training mode alone")
    if op.training_mode and not x.numel():
        raise UnsupportedAttributeError("BatchNormalization in training mode needs elements")
    if op.training_mode and torch.finfo(mean.dtype).bits < torch.finfo(x.dtype).bits:
        raise UnsupportedAttributeError("BatchNormalization in training mode needs statistics as wide as its operand")
    if not op.training_mode:
        return (_batch_normalized(op, x, scale, bias, mean, variance),)
    over = (0, *range(2, x.ndim))
    seen_variance, seen_mean = torch.var_mean(x.to(mean.dtype), over, correction=0)
    y = _batch_normalized(op, x, scale, bias, seen_mean, seen_variance)
    kept, new = op.momentum, 1 - op.momentum
    return y, mean * kept + seen_mean * new, variance * kept + seen_variance * new


def _batch_normalized(op: Operation, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    factor = scale / (variance + op.epsilon).sqrt()
    shift = bias - mean * factor
    return (x * align_channels(factor, x.ndim) + align_channels(shift, x.ndim)).to(x.dtype)


def _batch_variance(op: Operation, operands: Operands) -> Tensor:
    variance: Tensor = operands["variance"]
    if op.training_mode:
        x = operands["x"]
        variance = x.to(variance.dtype).var((0, *range(2, x.ndim)), correction=0)
    return variance + float(op.epsilon)


def _batch_dims(op: Operation, rank: int) -> Sequence[int]:
    return (0, *range(2, rank))


_seen_positive = rules.variance_stays_positive(_batch_dims)


def _variance_positive(op: Operation, operands: Bounds) -> bool:
    if op.training_mode:
        smallest = torch.finfo(operands["variance"].dtype).smallest_normal
        # In half precision, epsilon may be less than any number, and the variance be rounded to 0.
        return op.epsilon >= smallest * torch.finfo(operands["variance"].dtype).eps and _seen_positive(op, operands)
    variance = operands["variance"]
    return op.epsilon >= 0 and bool((variance.lower + float(op.epsilon) >= tiny(variance.dtype)).all())


def _variance_ranges(op: Operation, bounds: Bounds) -> Iterator[InvalidRange]:
    if not op.training_mode:
        yield InvalidRange("variance", upper=-float(op.epsilon))


def _batch_bounds(site: Site, *operands: Interval) -> Interval | tuple[Interval, ...]:
    if site.op.training_mode:
        return batch_normalising.trained_batch_normalisation(site, *operands)
    return batch_normalising.batch_normalisation(site, *operands)


across(
    torch=_batch_normalization,
    interval=_batch_bounds,
    linear=lambda op: (
        Affine(operands=("x",), subtracted=("mean",), divisors=("variance",))
        if op.epsilon >= 0 and not op.training_mode
        else None
    ),
    batch=batching.inferring,
    kernel=None,
    valid=[
        replace(
            above_zero("variance + epsilon > 0", VARIANCE, _batch_variance, _variance_positive),
            beside_of=_variance_ranges,
        )
    ],
    operands=("x", "scale", "bias", "mean", "variance"),
    renamed={"B": "bias", "input_mean": "mean", "input_var": "variance", "var": "variance"},
)(BatchNormalization)


# by the statistics of each sample -------------------------------------------------------------------------------


def _rows(op: Operation, x: Tensor) -> Tensor:
    """Return the operand with the elements that are normalised together along its last dimension."""
    x = convert_to_stash(op, x)
    if isinstance(op, InstanceNormalization):
        return x.flatten(2)
    return x.flatten(op.axis if op.axis >= 0 else x.ndim + op.axis)


def _row_variance(op: Operation, operands: Operands) -> Tensor:
    # Exactly 0 for equal numbers, where ONNX Runtime's mean may differ from them in the last bit.
    x = next(operands[name] for name in ("x", "input") if name in operands)
    return _rows(op, x).var(-1, correction=0) + float(op.epsilon)


def _row_square(op: Operation, operands: Operands) -> Tensor:
    return _rows(op, operands["x"]).square().mean(-1) + float(op.epsilon)


def _normalise(op: Operation, x: Tensor) -> Tensor:
    rows = _rows(op, x)
    normal: Tensor = functional.layer_norm(rows, rows.shape[-1:], eps=op.epsilon)
    return normal.reshape(x.shape)


def _instance_normalization(op: Operation, x: Tensor, scale: Tensor, b: Tensor) -> Tensor:
    return _scale_channels(op, _normalise(op, x).to(x.dtype), scale, b)


def _layer_normalization(op: Operation, x: Tensor, scale: Tensor, b: Tensor | None) -> tuple[Tensor, ...]:
    if scale.dtype != x.dtype:
        raise UnsupportedAttributeError("a scale of another type than the operand is not supported")
    y = scale_elements(op, _normalise(op, x).to(x.dtype), scale, b)
    if len(op.output_names) == 1:
        return (y,)
    axis = op.axis if op.axis >= 0 else x.ndim + op.axis
    variance, mean = torch.var_mean(_rows(op, x), -1, correction=0)
    kept = (*x.shape[:axis], *[1] * (x.ndim - axis))
    statistics = (mean, (variance + op.epsilon).rsqrt())
    return (y, *(value.reshape(kept).to(rules.STATISTICS) for value in statistics))[: len(op.output_names)]


def _rms_normalization(op: Operation, x: Tensor, scale: Tensor) -> Tensor:
    if scale.dtype != x.dtype:
        raise UnsupportedAttributeError("a scale of another type than the operand is not supported")
    wide = convert_to_stash(op, x)
    over = tuple(range(op.axis if op.axis >= 0 else x.ndim + op.axis, x.ndim))
    root = (wide.square().mean(over, keepdim=True) + float(op.epsilon)).sqrt()
    return (wide / root).to(x.dtype) * scale


_TEXT = "variance + epsilon > 0"


def _from_axis(op: Operation, rank: int) -> Sequence[int]:
    return range(op.axis % rank, rank)


def scale_elements(op: Operation, x: Tensor, scale: Tensor, b: Tensor | None = None) -> Tensor:
    """Return normalised numbers, scaled and shifted."""
    y = x * scale
    return y if b is None else y + b


def _scale_channels(op: Operation, x: Tensor, scale: Tensor, b: Tensor) -> Tensor:
    return x * align_channels(scale, x.ndim) + align_channels(b, x.ndim)


def _shape(field: Operation | np.ndarray | None) -> Sequence[int] | None:
    """Return the shape of an operand that a node has; that of a number where it is not known."""
    if field is None:
        return None
    return tuple(field.shape) if isinstance(field, (np.ndarray, Input)) else ()


def standardised(
    dims: Callable[[Operation, int], Sequence[int]], scaled: Callable[..., Tensor], *, centred: bool = True
) -> Rowwise:
    """Return how what is standardised over some dimensions, and scaled and shifted, depends on the operands.

    A row's function scales and shifts; the mean is subtracted where the rows are centred.
    """

    def rows(op: Operation, dtype: torch.dtype, runtimes: tuple[Runtime, ...], size: int) -> RowFunction | None:
        if isinstance(op, LayerNormalization) and rules.in_one_pass(size, _shape(op.scale), _shape(op.b)):
            return None
        return StandardisedRows(float(op.epsilon), dtype, centred=centred)

    return Rowwise(
        dims=dims,
        function=rows,
        outer=Affine(factors=("x", "input", "scale", "gamma"), function=scaled),
    )


def _positions(op: Operation, rank: int) -> Sequence[int]:
    return range(2, rank)


@across(
    torch=_instance_normalization,
    interval=rules.standardisation(_positions),
    linear=standardised(_positions, _scale_channels),
    batch=batching.samplewise,
    kernel=None,
    valid=[above_zero(_TEXT, VARIANCE, _row_variance, rules.variance_stays_positive(_positions, "input"))],
)
class InstanceNormalization(Operation):
    """https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html."""


_NORMALISED = onnx.defs.get_schema("LayerNormalization", 17)
_BEFORE_17 = onnx.defs.OpSchema(
    "LayerNormalization",
    "",
    1,
    inputs=_NORMALISED.inputs,
    outputs=_NORMALISED.outputs,
    type_constraints=[(c.type_param_str, c.allowed_type_strs, "") for c in _NORMALISED.type_constraints],
    attributes=list(_NORMALISED.attributes.values()),
)
"""ONNX Runtime writes the operator into models of opsets that do not have it."""


@across(
    schema=_BEFORE_17,
    torch=_layer_normalization,
    interval=rules.layer_normalisation(_from_axis),
    linear=standardised(_from_axis, scale_elements),
    batch=batching.along_axis,
    kernel=None,
    valid=[above_zero(_TEXT, VARIANCE, _row_variance, rules.variance_stays_positive(_from_axis, scaled=True))],
)
class LayerNormalization(Operation):
    """https://onnx.ai/onnx/operators/onnx__LayerNormalization.html."""


@across(
    torch=_rms_normalization,
    interval=rules.rms_normalisation(_from_axis),
    linear=standardised(_from_axis, scale_elements, centred=False),
    batch="vmap",
    kernel=None,
    valid=[above_zero("mean(x^2) + epsilon > 0", MEAN_SQUARE, _row_square, rules.squares_stay_positive(_from_axis))],
)
class RMSNormalization(Operation):
    """https://onnx.ai/onnx/operators/onnx__RMSNormalization.html."""


# over given axes ------------------------------------------------------------------------------------------------


def _mean_variance_normalization(op: Operation, x: Tensor) -> Tensor:
    variance, mean = torch.var_mean(convert_to_stash(op, x), ints(op.axes), correction=0, keepdim=True)
    return ((x - mean) / variance.sqrt()).to(x.dtype)


def _axes_variance(op: Operation, operands: Operands) -> Tensor:
    return convert_to_stash(op, operands["x"]).var(ints(op.axes), correction=0)


def _axes(op: Operation, rank: int) -> Sequence[int]:
    return ints(op.axes) or ()


_ADDED = 1e-9
"""What the standard adds to the deviation; ONNX Runtime does not."""


@opaque(
    torch=_mean_variance_normalization,
    interval=rules.unscaled(_axes, added=_ADDED),
    kernel=None,
    valid=[
        above_zero(
            "variance > 0", VARIANCE, _axes_variance, rules.variance_stays_positive(_axes, epsilon=lambda op: 0.0)
        )
    ],
)
class MeanVarianceNormalization(Operation):
    """https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html."""


def _lp_normalization(op: Operation, x: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(x, op.p, dim=op.axis, keepdim=True)
    zero = norm == 0
    return torch.where(zero, 0.0, x / torch.where(zero, 1.0, norm))


def _norm(op: Operation, operands: Operands) -> Tensor:
    x = operands["input"]
    norm: Tensor = torch.linalg.vector_norm(x, op.p, dim=op.axis)
    return norm if x.numel() else torch.ones_like(norm)  # nothing has a derivative


@plain(
    torch=_lp_normalization,
    interval=norm_normalisation,
    gradient_valid=[
        above_zero("norm > 0", "derivative of a division by the norm of zeros", _norm, norm_stays_positive)
    ],
    operands=("input",),
)
class LpNormalization(Operation):
    """https://onnx.ai/onnx/operators/onnx__LpNormalization.html."""


_HALVES: dict[int | None, torch.dtype] = {10: torch.float16, 16: torch.bfloat16}
"""Half precision, by the number of its type in ONNX."""


def _cut_rows(op: Operation, x: Tensor) -> Tensor:
    """Return the operand with the elements that are normalised together along its last dimension.

    Those that are to be rounded to another half precision first are refused.
    """
    stashed = _HALVES.get(getattr(op, "stash_type", None))
    if stashed not in (None, x.dtype):
        raise UnsupportedAttributeError(f"GroupNormalization: stash_type {op.stash_type} beside {x.dtype}")
    return convert_to_stash(op, x).reshape(x.shape[0], op.num_groups, -1)


def _group_moments(op: Operation, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of each group, the latter by the formula of the standard: it can cancel below 0."""
    rows = _cut_rows(op, x)
    mean = rows.mean(-1, keepdim=True)
    return mean, rows.square().mean(-1, keepdim=True) - mean.square()


def _group_variance(op: Operation, operands: Operands) -> Tensor:
    return _group_moments(op, operands["x"])[1] + float(op.epsilon)


def _group_normalization(op: Operation, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    if not x.numel():
        raise ValueError("sizes of 0 are those of the groups, where kernels shape results again")
    mean, variance = _group_moments(op, x)
    normal = ((_cut_rows(op, x) - mean) / (variance + float(op.epsilon)).sqrt()).reshape(x.shape).to(x.dtype)
    if op.version >= 21:
        return normal * align_channels(scale.reshape(-1), x.ndim) + align_channels(bias.reshape(-1), x.ndim)
    if {scale.numel(), bias.numel()} != {op.num_groups}:
        raise ValueError("scale and bias have more or fewer elements than there are groups")
    groups = normal.reshape(x.shape[0], op.num_groups, -1)
    return (groups * scale.reshape(-1, 1) + bias.reshape(-1, 1)).reshape(x.shape)


def _group_rows(op: Operation, dtype: torch.dtype, runtimes: tuple[Runtime, ...], size: int) -> RowFunction | None:
    # Half precision rounds each of the steps, or none, and float64 may be rounded to float32.
    if accumulation(dtype) is not dtype or (dtype is torch.float64 and rules.is_stashed_single(op)):
        return None
    return StandardisedRows(float(op.epsilon), dtype, centred=True, cancels=dtype)


def _cut_groups(op: Operation, x: Tensor, *others: object) -> Tensor:
    """Return `(batch, channels, ...)` as `(batch, groups, channels of a group, ...)`."""
    return x.reshape(x.shape[0], op.num_groups, -1, *x.shape[2:])


def _scale_groups(op: Operation, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Return normalised groups, scaled and shifted by channel, or by group before opset 21, as the node has them."""
    y = x.flatten(1, 2) if op.version >= 21 else x
    y = y * align_channels(scale.reshape(-1), y.ndim) + align_channels(bias.reshape(-1), y.ndim)
    return y if op.version >= 21 else y.flatten(1, 2)


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
