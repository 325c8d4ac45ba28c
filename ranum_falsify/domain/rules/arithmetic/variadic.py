"""Sums and means of several operands, element by element, in any order of addition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import accumulation, growth, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.arithmetic.pairs import add, ends
from ranum_falsify.domain.rules.reduction import Sums, sums
from ranum_falsify.domain.rules.support.building import infinity_aware, result_shape
from ranum_falsify.domain.site import Site


@infinity_aware
def sum_of_operands(site: Site, *data: Interval) -> Interval:
    """Bound `Sum`."""
    if len(data) == 1:
        return data[0]
    if len(data) == 2:
        return add(site, *data)
    found, shape = _operands(data), result_shape(*data)
    y = round_outward(found.low, found.high, data[0].dtype, shape)
    return replace(y, nan=found.nan, overflows=found.overflows)


@infinity_aware
def mean_of_operands(site: Site, *data: Interval) -> Interval:
    """Bound `Mean`."""
    if len(data) == 1:
        return data[0]
    found, dtype, shape = _operands(data), data[0].dtype, result_shape(*data)
    y = round_outward(found.low / len(data), found.high / len(data), dtype, shape, Envelope(4 * unit(dtype)))
    return replace(y, nan=found.nan, overflows=found.overflows)


def _operands(data: Sequence[Interval]) -> Sums:
    """Return bounds of the sum of operands, in any order."""
    shape = np.broadcast_shapes(*(x.lower.shape for x in data))
    bounds = [ends(x) for x in data]
    low, high = (torch.stack([pair[i].expand(shape) for pair in bounds]) for i in (0, 1))
    found = sums(Interval(low, high, (len(data), *shape)), [0])
    found = replace(found, low=found.low[0], high=found.high[0], size=found.size[0])
    dtype = data[0].dtype
    return found if not data[0].is_floating or accumulation(dtype) is dtype else _round_each(found, data)


def _round_each(found: Sums, data: Sequence[Interval]) -> Sums:
    """Return bounds of sums in half precision, which PyTorch rounds after each addition."""
    dtype, limit = data[0].dtype, torch.finfo(data[0].dtype).max
    rise, fall = (sum(_collect_finite_parts(data, sign), torch.zeros(())) for sign in (1, -1))
    error = growth(len(data), dtype, stepwise=True) * (rise + fall)
    low, high, nan = found.low - error, found.high + error, found.nan
    if any(x.may_be_infinite for x in data):
        # Sums of finite numbers become infinite on the way, and may meet the opposite infinity.
        up, down = (high == math.inf) | (rise + error > limit), (low == -math.inf) | (fall + error > limit)
        low, high = torch.where(down, -math.inf, low), torch.where(up, math.inf, high)
        nan = nan or bool((up & down & found.size.isinf()).any())
    if all(x.size and x.extremes[0] >= 0 for x in data):
        low = low.clamp(min=0)
    if all(x.size and x.extremes[1] <= 0 for x in data):
        high = high.clamp(max=0)
    beyond = bool((found.size + error > limit).any())
    return replace(found, low=low, high=high, nan=nan, overflows=found.overflows or beyond)


def _collect_finite_parts(data: Sequence[Interval], sign: int) -> Iterator[Tensor]:
    """Yield how far each operand may move a sum upwards, or downwards; 0 where that is infinitely far."""
    for x in data:
        low, high = ends(x)
        part = (high if sign > 0 else -low).double().clamp(min=0)
        yield torch.where(part.isinf(), 0.0, part)
