"""Functions in real arithmetic: elementwise on float64 tensors, accurate to a few units in the last place everywhere.

Rules evaluate bounds with them, and `scripts/measure_kernels.py` compares kernels with them.  PyTorch's own
float64 functions cancel where this matters (its Gelu far below 0, its Softplus above 20).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = [
    "GELU_TANH_TURN",
    "GELU_TURN",
    "MISH_TURN",
    "SWISH_TURN",
    "gelu",
    "gelu_tanh",
    "hard_swish",
    "mish",
    "sigmoid",
    "softplus",
    "softsign",
    "swish",
]

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
