"""Lines of PyTorch that can fail, as people write them: functions that are the `forward` of a module."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["HAZARDS", "Hazard"]


@dataclass(frozen=True)
class Hazard:
    """A module that can fail.

    Attributes:
        kind: Its class.
        args: The arguments of an example call.
        box: What its inputs range over.
        options: What `check` takes besides.
    """

    kind: type[nn.Module]
    args: tuple[Tensor, ...]
    box: Mapping[str, Any]
    options: Mapping[str, Any]


_Forward = Callable[..., Any]
_Decorator = Callable[[_Forward], _Forward]

HAZARDS: dict[str, Hazard] = {}


def hazard(
    *sizes: tuple[int, ...], dtype: torch.dtype = torch.float32, gradient: bool = False, **box: Any
) -> _Decorator:
    """Make a module of a function, whose inputs have these sizes, and range over this box."""

    def make(function: _Forward) -> _Forward:
        kind = type(function.__name__, (nn.Module,), {"forward": function})
        args = tuple(torch.full(size, 0.5, dtype=dtype) for size in sizes)
        HAZARDS[function.__name__] = Hazard(kind, args, box, {"gradient": True} if gradient else {})
        return function

    return make


# divisions --------------------------------------------------------------------------------------------------------


@hazard((3, 4), x=(-1, 1))
def unit_rows(self: nn.Module, x: Tensor) -> Any:
    return x / x.norm(dim=-1, keepdim=True)


@hazard((3, 4), x=(-1, 1))
def unit_rows_by_linalg(self: nn.Module, x: Tensor) -> Any:
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length


@hazard((3, 4), x=(0, 1))
def shares_of_rows(self: nn.Module, x: Tensor) -> Any:
    return x / x.sum(-1, keepdim=True)


@hazard((3, 4), x=(-1, 1))
def scaled_by_the_maximum(self: nn.Module, x: Tensor) -> Any:
    return x / x.abs().max()


@hazard((3, 4), x=(-1, 1))
def scaled_to_the_range(self: nn.Module, x: Tensor) -> Any:
    low, high = x.min(), x.max()
    return (x - low) / (high - low)


@hazard((3, 8), x=(-1, 1))
def standardised(self: nn.Module, x: Tensor) -> Any:
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


@hazard((3, 8), gradient=True, x=(-1, 1))
def trained_standard(self: nn.Module, x: Tensor) -> Any:
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


@hazard((8, 3), x=(-1, 1))
def whitened(self: nn.Module, x: Tensor) -> Any:
    variance = x.var(0)
    return (x - x.mean(0)) / torch.sqrt(variance)


@hazard((8, 3), x=(-1, 1))
def whitened_by_rsqrt(self: nn.Module, x: Tensor) -> Any:
    return (x - x.mean(0)) * torch.rsqrt(x.var(0))


@hazard((4,), (4,), a=(-1, 1), b=(-1, 1))
def ratio(self: nn.Module, a: Tensor, b: Tensor) -> Any:
    return a / b


@hazard((4,), (4,), a=(-1, 1), b=(0, 1))
def ratio_by_function(self: nn.Module, a: Tensor, b: Tensor) -> Any:
    return torch.div(a, b)


@hazard((4,), (4,), a=(-1, 1), b=(0, 1))
def ratio_in_place(self: nn.Module, a: Tensor, b: Tensor) -> Any:
    y = a * 2
    y /= b
    return y


@hazard((4,), x=(0, 1))
def inverse(self: nn.Module, x: Tensor) -> Any:
    return x.reciprocal()


@hazard((4,), (4,), precision=(0, 1), recall=(0, 1))
def f_score(self: nn.Module, precision: Tensor, recall: Tensor) -> Any:
    return 2 * precision * recall / (precision + recall)


@hazard((2, 9), (2, 9), a=(0, 1), b=(0, 1))
def overlap(self: nn.Module, a: Tensor, b: Tensor) -> Any:
    both = (a * b).sum(-1)
    either = (a + b - a * b).sum(-1)
    return 1 - (both / either).mean()


@hazard((2, 5), (2, 5), x=(-1, 1), mask=(0, 1))
def masked_mean(self: nn.Module, x: Tensor, mask: Tensor) -> Any:
    return (x * mask).sum(1) / mask.sum(1)


@hazard((3, 4), (3, 4), a=(-1, 1), b=(-1, 1))
def cosines(self: nn.Module, a: Tensor, b: Tensor) -> Any:
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


@hazard((2, 3), (1,), x=(-5, 5), temperature=(0, 2))
def tempered(self: nn.Module, x: Tensor, temperature: Tensor) -> Any:
    return torch.softmax(x / temperature, -1)


@hazard((4,), x=(-3, 3))
def sine_by_angle(self: nn.Module, x: Tensor) -> Any:
    return torch.sin(x) / x


@hazard((2, 4), dtype=torch.float16, x=(0, 1))
def shares_in_half_precision(self: nn.Module, x: Tensor) -> Any:
    return x / x.sum(-1, keepdim=True)


# logarithms -------------------------------------------------------------------------------------------------------


@hazard((4,), x=(0, 1))
def logarithm(self: nn.Module, x: Tensor) -> Any:
    return x.log()


@hazard((4,), (4,), p=(0, 1), t=(0, 1))
def cross_entropy_by_hand(self: nn.Module, p: Tensor, t: Tensor) -> Any:
    return -(t * torch.log(p) + (1 - t) * torch.log(1 - p)).mean()


@hazard((2, 5), x=(-200, 200))
def log_of_softmax(self: nn.Module, x: Tensor) -> Any:
    shares = torch.softmax(x, dim=-1)
    return torch.log(shares)


@hazard((4,), x=(-200, 200))
def log_of_sigmoid(self: nn.Module, x: Tensor) -> Any:
    return torch.log(torch.sigmoid(x))


@hazard((4,), x=(-200, 200))
def log_of_the_other(self: nn.Module, x: Tensor) -> Any:
    return torch.log(1 - torch.sigmoid(x))


@hazard((2, 5), p=(0, 1))
def entropy(self: nn.Module, p: Tensor) -> Any:
    return -(p * torch.log(p)).sum(-1)


@hazard((2, 5), (2, 5), p=(0, 1), q=(0, 1))
def divergence(self: nn.Module, p: Tensor, q: Tensor) -> Any:
    return (p * (p / q).log()).sum(-1)


@hazard((4,), (4,), signal=(0, 10), noise=(0, 10))
def decibels(self: nn.Module, signal: Tensor, noise: Tensor) -> Any:
    return 10 * torch.log10(signal / noise)


@hazard((4,), u=(0, 1))
def gumbel(self: nn.Module, u: Tensor) -> Any:
    return -torch.log(-torch.log(u))


@hazard((4,), x=(-1, 1))
def compressed(self: nn.Module, x: Tensor) -> Any:
    return torch.log1p(x)


@hazard((4,), p=(0, 1))
def logits(self: nn.Module, p: Tensor) -> Any:
    return torch.logit(p)


@hazard((4,), p=(0, 1))
def logits_by_hand(self: nn.Module, p: Tensor) -> Any:
    return torch.log(p / (1 - p))


@hazard((4,), (4,), (4,), y=(-1, 1), mean=(-1, 1), deviation=(0, 2))
def negative_likelihood(self: nn.Module, y: Tensor, mean: Tensor, deviation: Tensor) -> Any:
    return (0.5 * ((y - mean) / deviation) ** 2 + torch.log(deviation)).sum()


@hazard((2, 6), x=(-1, 1))
def log_energy(self: nn.Module, x: Tensor) -> Any:
    return torch.log((x**2).sum(-1))


# exponentials -----------------------------------------------------------------------------------------------------


@hazard((2, 5), x=(-200, 200))
def log_sum_exp(self: nn.Module, x: Tensor) -> Any:
    return torch.log(torch.exp(x).sum(-1))


@hazard((2, 5), x=(-200, 200))
def softmax_by_hand(self: nn.Module, x: Tensor) -> Any:
    e = torch.exp(x)
    return e / e.sum(-1, keepdim=True)


@hazard((4,), x=(-200, 200))
def sigmoid_by_hand(self: nn.Module, x: Tensor) -> Any:
    return torch.exp(x) / (1 + torch.exp(x))


@hazard((4,), x=(-200, 200))
def softplus_by_hand(self: nn.Module, x: Tensor) -> Any:
    return torch.log(1 + torch.exp(x))


@hazard((4,), x=(-200, 200))
def softplus_by_log1p(self: nn.Module, x: Tensor) -> Any:
    return torch.log1p(torch.exp(x))


@hazard((4,), x=(0, 200))
def growth(self: nn.Module, x: Tensor) -> Any:
    return torch.exp(x).sum()


@hazard((2, 3), (2, 3), mean=(-2, 2), log_variance=(-200, 200))
def divergence_of_a_vae(self: nn.Module, mean: Tensor, log_variance: Tensor) -> Any:
    return -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()


@hazard((4,), x=(-200, 200))
def tanh_by_hand(self: nn.Module, x: Tensor) -> Any:
    return (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))


@hazard((4,), x=(-200, 200))
def hyperbolic(self: nn.Module, x: Tensor) -> Any:
    return torch.cosh(x).log()


@hazard((2, 4), dtype=torch.float16, x=(0, 20))
def exponential_in_half_precision(self: nn.Module, x: Tensor) -> Any:
    return torch.exp(x)


# roots, powers and angles -----------------------------------------------------------------------------------------


@hazard((3, 4), (3, 4), gradient=True, a=(-1, 1), b=(-1, 1))
def distances(self: nn.Module, a: Tensor, b: Tensor) -> Any:
    return torch.sqrt(((a - b) ** 2).sum(-1))


@hazard((2, 6), gradient=True, x=(-1, 1))
def deviation(self: nn.Module, x: Tensor) -> Any:
    return x.var(-1).sqrt()


@hazard((4,), x=(-1, 1))
def root(self: nn.Module, x: Tensor) -> Any:
    return torch.sqrt(x)


@hazard((4,), x=(-1, 1))
def root_by_power(self: nn.Module, x: Tensor) -> Any:
    return x**0.5


@hazard((4,), x=(0, 1))
def inverse_square(self: nn.Module, x: Tensor) -> Any:
    return torch.pow(x, -2)


@hazard((4,), x=(0, 1))
def inverse_root(self: nn.Module, x: Tensor) -> Any:
    return x**-0.5


@hazard((4,), p=(0, 1), gradient=True)
def focal_weight(self: nn.Module, p: Tensor) -> Any:
    return (1 - p) ** 0.5 * p


@hazard((3, 4), (3, 4), a=(-1, 1), b=(-1, 1))
def angles(self: nn.Module, a: Tensor, b: Tensor) -> Any:
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    return torch.acos((a * b).sum(-1))


@hazard((4,), x=(-1, 1))
def fisher(self: nn.Module, x: Tensor) -> Any:
    return torch.atanh(x)


@hazard((4,), x=(-2, 2))
def arc(self: nn.Module, x: Tensor) -> Any:
    return torch.asin(x)


# losses of PyTorch, and masks -------------------------------------------------------------------------------------


@hazard((3,), (3,), x=(-200, 200), target=(-1, 1))
def soft_margin(self: nn.Module, x: Tensor, target: Tensor) -> Any:
    return F.soft_margin_loss(x, target)


@hazard((3, 4), (3,), x=(-9, 9), target=(0, 3))
def ignored(self: nn.Module, x: Tensor, target: Tensor) -> Any:
    return F.cross_entropy(x, target.round().long(), ignore_index=0)


@hazard((2, 5), (2, 5), scores=(-5, 5), mask=(0, 1))
def masked_softmax(self: nn.Module, scores: Tensor, mask: Tensor) -> Any:
    return torch.softmax(scores.masked_fill(mask < 0.5, -math.inf), -1)


@hazard((3,), (3,), gradient=True, rate=(-5, 5), count=(0, 9))
def poisson(self: nn.Module, rate: Tensor, count: Tensor) -> Any:
    return F.poisson_nll_loss(rate, count, full=True)
