"""Functions in real arithmetic: elementwise on float64 tensors, accurate to a few units in the last place everywhere.

Rules evaluate bounds with them, and `scripts/measure_kernels.py` compares kernels with them.  PyTorch's own
float64 functions cancel where this matters (its Gelu far below 0, its Softplus above 20).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import is_exponential_of_0_known
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import infinity_aware, monotone, part_by_part
from ranum_falsify.domain.site import IntervalRule, Site

# The only turning point of each function below, a minimum: the roots of their derivatives.
GELU_TURN = -0.7517915246935645
GELU_TANH_TURN = -0.7524614220710162
MISH_TURN = -1.1924312145154323
SWISH_TURN = -1.2784645427610738

_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_BY_PI = math.sqrt(2 / math.pi)


def sigmoid(x: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-x))."""
    return torch.sigmoid(x)


def softplus(x: Tensor) -> Tensor:
    """Return ln(1 + exp(x))."""
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def softsign(x: Tensor) -> Tensor:
    """Return x / (1 + |x|); its limits at the infinities."""
    return torch.where(x.isinf(), x.sign(), x / (1 + x.abs()))


def swish(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x / (1 + exp(-alpha x)); 0 where alpha x is minus infinity."""
    return _times(x, torch.sigmoid(alpha * x))


def mish(x: Tensor) -> Tensor:
    """Return x tanh(ln(1 + exp(x))); 0 at minus infinity."""
    return _times(x, torch.tanh(softplus(x)))


def gelu(x: Tensor) -> Tensor:
    """Return x times the distribution function of the standard normal; 0 at minus infinity."""
    return _times(x, torch.special.erfc(-x * _SQRT_HALF) / 2)


def gelu_tanh(x: Tensor) -> Tensor:
    """Return the approximation x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); 0 at minus infinity."""
    return _times(x, torch.sigmoid(2 * _SQRT_TWO_BY_PI * (x + 0.044715 * x * x * x)))


def hard_swish(x: Tensor) -> Tensor:
    """Return x max(0, min(1, x / 6 + 1 / 2)); 0 at minus infinity."""
    return _times(x, ((x + 3) / 6).clamp(0, 1))


def _times(x: Tensor, factor: Tensor) -> Tensor:
    """Return a product that is 0 if the factor is, even for an infinite x."""
    return torch.where(factor == 0, torch.zeros_like(x), x * factor)


Limit = Callable[[torch.dtype], float]
"""A number that depends on the dtype."""


def find_computed_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type of numbers that an operand may hold: ONNX Runtime keeps results of 16-bit chains in float32."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def just_below_one(dtype: torch.dtype) -> float:
    """Return the largest number below 1 that an operand may hold."""
    return 1 - float(torch.finfo(find_computed_type(dtype)).eps) / 2


def monotone_inside(
    function: Callable[[Tensor], Tensor], *, least: Limit, greatest: Limit | None = None
) -> IntervalRule:
    """Return the rule of a rising function between two limits; operands beyond a limit count as the limit.

    Args:
        function: The function, on float64.
        least: Where the valid part begins.
        greatest: Where it ends, if it does.
    """

    def rule(site: Site, x: Interval) -> Interval:
        limits = least(x.dtype), None if greatest is None else greatest(x.dtype)
        low, high = (function(bound.clamp(*limits)) for bound in x.doubles())
        return round_outward(low, high, site.dtype, x.shape, site.own_envelope())

    return part_by_part(rule)


_exponential = monotone(torch.exp)


@infinity_aware
def exponential(site: Site, x: Interval) -> Interval:
    """Bound exp(x), which no kernel that was measured puts on the wrong side of 1."""
    y = _exponential(site, x)
    assert isinstance(y, Interval)
    if not is_exponential_of_0_known(site.runtimes):
        return y
    lower = torch.where(x.lower >= 0, y.lower.clamp(min=1), y.lower)
    return Interval(lower, torch.where(x.upper <= 0, y.upper.clamp(max=1), y.upper), y.shape)
