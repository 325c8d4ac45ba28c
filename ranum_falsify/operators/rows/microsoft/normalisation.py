"""Normalisations that ONNX Runtime fuses: by the root of a mean square, and of sums."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from dnnv.nn import Operation
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels import updates_statistics
from ranum_falsify.domain.linear.declarations import Affine, Rowwise
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.arithmetic.pairs import add
from ranum_falsify.domain.rules.normalisation import standardise as rules
from ranum_falsify.domain.rules.normalisation.statistics import (
    divide_by_root_mean_square,
    invert_root_mean_square,
    standardise,
)
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.rules.support.sections import sections
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.normalisation import (
    MEAN_SQUARE,
    VARIANCE,
    RMSNormalization,
    above_zero,
    scale_elements,
    standardised,
)
from ranum_falsify.operators.support.families import summing
from ranum_falsify.operators.support.microsoft import DOMAIN, add_inner_faults, doing_as, schema
from ranum_falsify.validity import Bounds, Operands

_FLOATS = {"T": ("float", "double", "float16"), "U": ("float",)}


@doing_as(
    RMSNormalization,
    schema(
        "SimplifiedLayerNormalization",
        "X:T scale:T",
        "Y:T",
        {"T": ("float", "double")},
        defaults={"axis": -1, "epsilon": 1e-5, "stash_type": 1},
        domain="",
    ),
)
class SimplifiedLayerNormalization(RMSNormalization):
    """`RMSNormalization` as ONNX Runtime calls it, in the domain of ONNX, which does not know the name."""


# of a sum -------------------------------------------------------------------------------------------------------


def add_up(x: Tensor, skip: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the sum of two or three operands, of the shape of the first one, which is that of what kernels write."""
    total = x + skip if bias is None else x + skip + bias
    if total.shape != x.shape:
        raise UnsupportedAttributeError(
            f"{DOMAIN}: a sum with a tensor of shape {tuple(skip.shape)} is not of the shape of the first, "
            f"{tuple(x.shape)}; repeat the first"
        )
    return total


def total_bounds(site: Site, x: Interval, skip: Interval, bias: Interval | None) -> Interval:
    """Return bounds of a sum of two or three operands, in any order."""
    if bias is None:
        return add(site, x, skip)
    orders = [add(site, add(site, a, b), c) for a, b, c in ((x, skip, bias), (x, bias, skip), (skip, bias, x))]
    return replace(orders[0].hull(orders[1]).hull(orders[2]), nan=any(y.nan for y in orders))


def normalised_bounds(site: Site, *operands: Interval | None) -> Interval:
    """Bound the normalised sum of the first three of the operands, scaled and shifted by the others."""
    x, skip, bias, gamma, beta = operands
    assert x is not None and skip is not None and gamma is not None
    inner = total_bounds(site, x, skip, bias)
    if any(y is not None and y.may_be_infinite for y in (*operands, inner)):
        return replace(Interval.fill(-math.inf, math.inf, x.shape, x.dtype), nan=True, overflows=True)
    if not x.size:
        return inner
    rows = sections(inner, [-1])
    simplified = isinstance(site.op, SkipSimplifiedLayerNormalization)
    z = (
        divide_by_root_mean_square(rows, site.op.epsilon, 1 / rows.size)
        if simplified
        else standardise(rows, site.op.epsilon, updates=updates_statistics(site.runtimes))
    )
    y = rules.finish(rows, z, gamma.doubles(), None if beta is None else beta.doubles(), inner)
    return add_inner_faults(y, inner, *operands)


def _add_first(op: Operation, x: Tensor, skip: Tensor, gamma: Tensor, *others: Tensor | None) -> Tensor:
    return add_up(x, skip, others[-1])


def _bound_first(site: Site, x: Interval, skip: Interval, gamma: Interval, *others: Interval | None) -> Interval:
    return total_bounds(site, x, skip, others[-1])


def _scale_sum(op: Operation, x: Tensor, skip: None, gamma: Tensor, *others: Tensor | None) -> Tensor:
    return scale_elements(op, x, gamma, *others[:-1])


def _of_sum(*, centred: bool) -> Rowwise:
    """Return how the normalised sum depends on the operands, of which the bias is the last."""
    of_one = standardised(lambda op, rank: (rank - 1,), _scale_sum, centred=centred)
    return replace(of_one, inner=Affine(operands=("x", "skip", "bias"), function=_add_first), bounds=_bound_first)


def stays_defined(op: Operation, bounds: Bounds) -> bool:
    """Tell whether the rule found no variance that may be 0."""
    return not bounds["output"].nan


def normalise_sum(
    op: Operation, x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Return the normalised sum of two or three operands, scaled and shifted."""
    total = add_up(x, skip, bias)
    return scale_elements(op, functional.layer_norm(total, total.shape[-1:], eps=op.epsilon), gamma, beta)


def _widen_sum(operands: Operands) -> Tensor:
    """Return the sum in the type in which kernels compute its statistics: float16 has no room for most epsilons."""
    wide = torch.promote_types(operands["x"].dtype, torch.float32)
    x, skip, *bias = (operands[name].to(wide) for name in ("x", "skip", "bias") if name in operands)
    return add_up(x, skip, *bias)


def _variance(op: Operation, operands: Operands) -> Tensor:
    return _widen_sum(operands).var(-1, correction=0) + float(op.epsilon)


def _add_outputs(op: Operation, y: Tensor, total: Tensor, *, centred: bool) -> tuple[Tensor, ...]:
    """Return the normalised sum and, where the node gives them, its mean, the inverse of its deviation, and the sum."""
    if len(op.output_names) == 1:
        return (y,)
    wide = total.to(torch.promote_types(total.dtype, torch.float32))
    mean = wide.mean(-1, keepdim=True) if centred else torch.zeros_like(wide[..., :1])
    variance = (wide - mean).square().mean(-1, keepdim=True)
    statistics = mean, (variance + float(op.epsilon)).rsqrt()
    return (y, *(value.float() for value in statistics), total)[: len(op.output_names)]


def _add_output_bounds(site: Site, y: Interval, total: Interval, *, centred: bool) -> tuple[Interval, ...]:
    """Bound :func:`_add_outputs`."""
    count, kept = len(site.op.output_names), (*total.shape[:-1], 1)
    if count == 1:
        return (y,)
    if total.may_be_infinite or not total.size:
        anything = replace(Interval.fill(-math.inf, math.inf, kept, torch.float32), nan=True)
        return (y, anything, anything, total)[:count]
    rows = sections(total, [-1])
    if centred:
        mean, inverse = rules.bound_statistics(rows, site.op.epsilon, total)
    else:
        mean, found = Interval.fill(0, 0, kept, torch.float32), invert_root_mean_square(rows, site.op.epsilon)
        ends = rows.restore(found.lower), rows.restore(found.upper)
        inverse = replace(round_outward(*ends, torch.float32, kept), nan=found.nan)
    return (y, mean, inverse, total)[:count]


_WRITTEN = "output:T mean:U? inv_std_var:U? input_skip_bias_sum:T?"
_normalising = partial(summing, batch="vmap", renamed={"input": "x"})


def _skip_layer(
    op: Operation, x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, ...]:
    y = normalise_sum(op, x, skip, gamma, beta, bias)
    return _add_outputs(op, y, add_up(x, skip, bias), centred=True)


@infinity_aware
def _skip_bounds(
    site: Site, x: Interval, skip: Interval, gamma: Interval, beta: Interval | None, bias: Interval | None
) -> tuple[Interval, ...]:
    y = normalised_bounds(site, x, skip, bias, gamma, beta)
    return _add_output_bounds(site, y, total_bounds(site, x, skip, bias), centred=True)


@_normalising(
    schema=schema(
        "SkipLayerNormalization",
        "input:T skip:T gamma:T beta:T? bias:T?",
        _WRITTEN,
        _FLOATS,
        defaults={"epsilon": 1e-12},
    ),
    torch=_skip_layer,
    interval=_skip_bounds,
    linear=_of_sum(centred=True),
    valid=[above_zero("variance + epsilon > 0", VARIANCE, _variance, stays_defined)],
    operands=("x", "skip", "gamma", "beta", "bias"),
)
class SkipLayerNormalization(Operation):
    """`LayerNormalization` of a sum over its last axis."""


def _skip_simplified(op: Operation, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    total = add_up(x, skip, bias)
    wide = total.to(torch.promote_types(total.dtype, torch.float32))
    y = (wide / (wide.square().mean(-1, keepdim=True) + float(op.epsilon)).sqrt()).to(total.dtype) * gamma
    return _add_outputs(op, y, total, centred=False)


def _mean_square(op: Operation, operands: Operands) -> Tensor:
    return _widen_sum(operands).square().mean(-1) + float(op.epsilon)


@infinity_aware
def _skip_simplified_bounds(
    site: Site, x: Interval, skip: Interval, gamma: Interval, bias: Interval | None
) -> tuple[Interval, ...]:
    y = normalised_bounds(site, x, skip, bias, gamma, None)
    return _add_output_bounds(site, y, total_bounds(site, x, skip, bias), centred=False)


@_normalising(
    schema=schema(
        "SkipSimplifiedLayerNormalization",
        "input:T skip:T gamma:T bias:T?",
        _WRITTEN,
        _FLOATS,
        defaults={"epsilon": 1e-12},
    ),
    torch=_skip_simplified,
    interval=_skip_simplified_bounds,
    linear=_of_sum(centred=False),
    valid=[above_zero("mean square + epsilon > 0", MEAN_SQUARE, _mean_square, stays_defined)],
    operands=("x", "skip", "gamma", "bias"),
)
class SkipSimplifiedLayerNormalization(Operation):
    """`RMSNormalization` of a sum over its last axis."""
