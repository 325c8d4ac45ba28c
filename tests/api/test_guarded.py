"""Lines that people guard by a test of their own: outputs hold, and what the backward pass makes of it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ranum_falsify as rf


def log_where(x: Tensor) -> Tensor:
    return torch.where(x > 0, torch.log(x), 0)


def direction(x: Tensor) -> Tensor:
    length = x.norm(dim=-1, keepdim=True)
    return torch.where(length > 1e-6, x / length, 0)


def quotient_twice(x: Tensor) -> Tensor:
    return torch.where(x.sum(-1).abs() > 1e-3, x[..., 0] / x.sum(-1), 0)


def both(x: Tensor) -> Tensor:
    a, b = x[..., 0], x[..., 1]
    return torch.where((a > 0.01) & (b > 0.01), a.log() + b.log(), 0).mean()


def put(x: Tensor) -> Tensor:
    y = torch.log(x)
    y[x <= 1e-5] = 0
    return y


def put_where_invalid(x: Tensor) -> Tensor:
    y = x / x.sum(-1, keepdim=True)
    y[torch.isnan(y) | torch.isinf(y)] = 0
    return y


def filled(x: Tensor) -> Tensor:
    return torch.sqrt(x).masked_fill(x < 0, 0).sum()


def inner(x: Tensor) -> Tensor:
    safe = torch.where(x > 1e-3, x, 1)
    return torch.where(x > 1e-3, torch.log(safe), 0)


def multiplied(x: Tensor) -> Tensor:
    return (torch.log(x) * (x > 0)).sum()


def other_side(x: Tensor) -> Tensor:
    return torch.where(x > 0, 0, torch.log(x))


GUARDED = [log_where, direction, quotient_twice, both, put, put_where_invalid, filled, inner]
UNGUARDED = [multiplied, other_side]


class Layer(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.forward = function


@pytest.mark.few(4)
@pytest.mark.parametrize("function", GUARDED)
def test_outputs_are_finite_where_a_test_says_so(function: Callable[[Tensor], Tensor]) -> None:
    result = rf.check(Layer(function), (torch.rand(3, 4),), box=(-1, 1), n_starts=4, n_steps=5, self_check=False)
    assert result.verdict == "holds", result
    generator = torch.Generator().manual_seed(0)
    for trial in range(200):
        x = torch.rand(3, 4, generator=generator) * 2 - 1
        x = torch.where(torch.rand(3, 4, generator=generator) < 0.5, x, 0 if trial % 2 else 1e-40)
        assert bool(function(x).isfinite().all())


@pytest.mark.parametrize("function", UNGUARDED)
def test_what_is_no_guard_is_violated(function: Callable[[Tensor], Tensor]) -> None:
    assert rf.check(Layer(function), (torch.rand(3, 4),), box=(-1, 1), mend=0, self_check=False).verdict == "violated"


@pytest.mark.parametrize("function", [log_where, put, filled])
def test_a_derivative_is_not_guarded_by_a_choice_behind_it(function: Callable[[Tensor], Tensor]) -> None:
    options: dict[str, Any] = {"box": (-1, 1), "gradient": True, "self_check": False}
    assert rf.check(Layer(function), (torch.rand(3, 4),), mend=0, **options).verdict == "violated"
    assert rf.check(Layer(inner), (torch.rand(3, 4),), mend=0, **options).verdict == "holds"
