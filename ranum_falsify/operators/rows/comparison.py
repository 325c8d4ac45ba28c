"""Comparisons and tests of numbers; their results are booleans."""

from __future__ import annotations

import math
from functools import reduce

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.logic import compared, equal
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.support.families import exact
from ranum_falsify.operators.support.functions import elementwise
from ranum_falsify.operators.support.unsigned import by_order

__all__ = ["Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual"]


@exact(torch=elementwise(torch.eq), interval=equal)
class Equal(Operation):
    """https://onnx.ai/onnx/operators/onnx__Equal.html."""


@exact(torch=elementwise(by_order(torch.gt)), interval=compared(torch.gt))
class Greater(Operation):
    """https://onnx.ai/onnx/operators/onnx__Greater.html."""


@exact(torch=elementwise(by_order(torch.ge)), interval=compared(torch.ge))
class GreaterOrEqual(Operation):
    """https://onnx.ai/onnx/operators/onnx__GreaterOrEqual.html."""


@exact(torch=elementwise(by_order(torch.lt)), interval=compared(torch.lt))
class Less(Operation):
    """https://onnx.ai/onnx/operators/onnx__Less.html."""


@exact(torch=elementwise(by_order(torch.le)), interval=compared(torch.le))
class LessOrEqual(Operation):
    """https://onnx.ai/onnx/operators/onnx__LessOrEqual.html."""


def _is_inf(op: Operation, x: Tensor) -> Tensor:
    if op.detect_negative and op.detect_positive:
        return torch.isinf(x)
    if op.detect_negative:
        return torch.isneginf(x)
    return torch.isposinf(x) if op.detect_positive else torch.zeros_like(x, dtype=torch.bool)


def _is_inf_bounds(site: Site, x: Interval) -> Interval:
    asked = [(-math.inf, site.op.detect_negative), (math.inf, site.op.detect_positive)]
    counted = [number for number, detected in asked if detected]
    none = torch.zeros_like(x.lower, dtype=torch.bool)
    surely = reduce(torch.logical_or, ((x.lower == number) & (x.upper == number) for number in counted), none)
    return Interval(surely, reduce(torch.logical_or, (x.contains(number) for number in counted), none), x.shape)


@exact(torch=_is_inf, interval=infinity_aware(_is_inf_bounds))
class IsInf(Operation):
    """https://onnx.ai/onnx/operators/onnx__IsInf.html."""


def _is_nan_bounds(site: Site, x: Interval) -> Interval:
    # Only constants may be NaN without a fault; both infinities as bounds say so.
    maybe = (x.lower == -math.inf) & (x.upper == math.inf)
    return Interval(torch.zeros_like(maybe), maybe, x.shape)


@exact(torch=elementwise(torch.isnan), interval=infinity_aware(_is_nan_bounds))
class IsNaN(Operation):
    """https://onnx.ai/onnx/operators/onnx__IsNaN.html."""
