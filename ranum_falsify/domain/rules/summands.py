"""Sums and means of several operands, element by element, in any order of addition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.rounding import outward, unit
from ranum_falsify.domain.rules.arithmetic import added, ends
from ranum_falsify.domain.rules.building import infinity_aware, result_shape
from ranum_falsify.domain.rules.sections import accumulation
from ranum_falsify.domain.rules.sums import Sums, growth, sums
from ranum_falsify.domain.site import Site

__all__ = ["mean_of_operands", "sum_of_operands"]


@infinity_aware
def sum_of_operands(site: Site, *data: Interval) -> Interval:
    """Bound `Sum`."""
    if len(data) == 1:
        return data[0]
    if len(data) == 2:
        return added(site, *data)
    found, shape = _operands(data), result_shape(*data)
    y = outward(found.low, found.high, data[0].dtype, shape)
    return replace(y, nan=found.nan, overflows=found.overflows)


@infinity_aware
def mean_of_operands(site: Site, *data: Interval) -> Interval:
    """Bound `Mean`."""
    if len(data) == 1:
        return data[0]
    found, dtype, shape = _operands(data), data[0].dtype, result_shape(*data)
    y = outward(found.low / len(data), found.high / len(data), dtype, shape, Envelope(4 * unit(dtype)))
    return replace(y, nan=found.nan, overflows=found.overflows)


def _operands(data: Sequence[Interval]) -> Sums:
    """Return bounds of the sum of operands, in any order."""
    shape = np.broadcast_shapes(*(x.lower.shape for x in data))
    bounds = [ends(x) for x in data]
    low, high = (torch.stack([pair[i].expand(shape) for pair in bounds]) for i in (0, 1))
    found = sums(Interval(low, high, (len(data), *shape)), [0])
    found = replace(found, low=found.low[0], high=found.high[0], size=found.size[0])
    dtype = data[0].dtype
    return found if not data[0].is_floating or accumulation(dtype) is dtype else _rounded_each(found, data)


def _rounded_each(found: Sums, data: Sequence[Interval]) -> Sums:
    """Return bounds of sums in half precision, which PyTorch rounds after each addition."""
    dtype = data[0].dtype
    error = growth(len(data), dtype, stepwise=True) * found.size.nan_to_num(posinf=0.0)
    low, high = found.low - error, found.high + error
    if all(x.size and x.extremes[0] >= 0 for x in data):
        low = low.clamp(min=0)
    if all(x.size and x.extremes[1] <= 0 for x in data):
        high = high.clamp(max=0)
    beyond = bool((found.size + error > torch.finfo(dtype).max).any())
    return replace(found, low=low, high=high, overflows=found.overflows or beyond)
