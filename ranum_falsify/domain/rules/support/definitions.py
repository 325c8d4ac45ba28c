"""Operators that ONNX Runtime computes by the standard's definitions with other operators, for lack of a kernel.

It does so for models of opset 18, at which the standard introduced many definitions, whatever the version of the
operator; at other opsets such models are refused, or run by a kernel of a wider type.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from dnnv.nn import Operation

from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rules.support.building import infinity_aware, monotone
from ranum_falsify.domain.rules.support.real_functions import find_computed_type
from ranum_falsify.domain.rules.support.real_functions import softplus as real_softplus
from ranum_falsify.domain.site import IntervalRule, Site

_OPSET = 18

_SURE = 1e-6
"""How far below the logarithm of the largest number an exponential is certain to be finite."""

_NORMAL, _LEAST = -700.0, -746.0
"""Above the first number the exponential is a normal number of float64; below the second it is 0."""


def defines_softplus(op: Operation, dtype: torch.dtype) -> bool:
    """Tell whether ONNX Runtime computes a `Softplus` of a dtype as log(1 + exp(x)), half precision in float32."""
    return op.opset == _OPSET and dtype in (torch.float16, torch.float64)


_softplus = monotone(real_softplus)


@infinity_aware
def softplus(site: Site, x: Interval) -> Interval:
    """Bound ln(1 + exp(x)), which is finite for finite x, unless exp(x) is computed and overflows."""
    y = _softplus(site, x)
    assert isinstance(y, Interval)
    y = replace(y, upper=torch.where(x.upper < math.inf, y.upper.clamp(max=dtype_range(y.dtype)[1]), y.upper))
    if not defines_softplus(site.op, x.dtype):
        return y
    above = (x.upper > math.log(torch.finfo(find_computed_type(x.dtype)).max) - _SURE) & (x.lower < math.inf)
    if x.may_be_infinite:
        y = replace(y, upper=torch.where(above, math.inf, y.upper))
    return replace(y, overflows=bool(above.any()))


def of_exponentials(rule: IntervalRule) -> IntervalRule:
    """Return the rule of `ReduceLogSumExp`, with the results of log(sum(exp(x))) in float64 if it is so defined.

    Args:
        rule: Bounds of the results of kernels, in which no exponential overflows.
    """

    def defined(site: Site, x: Interval, axes: np.ndarray | None) -> Interval:
        y = cast(Interval, rule(site, x, axes))
        # Types without a kernel: half precision and unsigned integers.
        lacking = y.dtype is torch.float16 if y.is_floating else dtype_range(y.dtype)[0] == 0
        if site.op.opset != _OPSET or not lacking or "onnxruntime" not in site.runtimes:
            return y
        low, high = y.doubles()
        above = (high > math.log(torch.finfo(torch.float64).max) - 1) & (low < math.inf)
        if not y.is_floating:
            # An infinite number cast to an integer may become any integer.
            return Interval.fill(*dtype_range(y.dtype), y.shape, y.dtype) if bool(above.any()) else y
        below = (low < _NORMAL) & (high > -math.inf)
        lower = torch.where(below, y.lower.clamp(max=_LEAST), y.lower)
        upper = torch.where(below, y.upper.clamp(min=_NORMAL), y.upper)
        if x.may_be_infinite:
            # Elements other than infinities count like finite ones elsewhere.
            lower, upper = torch.where(below, -math.inf, lower), torch.where(above, math.inf, upper)
        return replace(y, lower=lower, upper=upper, overflows=y.overflows or bool((above | below).any()))

    return infinity_aware(defined)
