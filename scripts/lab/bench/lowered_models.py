"""Small models with operators that few verifiers read, as PyTorch exports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["MODELS", "Example"]


@dataclass(frozen=True)
class Example:
    """A module and an input of it."""

    module: nn.Module
    x: Tensor


class _LastStep(nn.Module):
    """A classifier of what a recurrent layer says last."""

    def __init__(self, layer: nn.Module, size: int) -> None:
        super().__init__()
        self.layer, self.out = layer, nn.Linear(size, 3)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.layer(x)
        out: Tensor = self.out(y[:, -1])
        return out


class _Gated(nn.Module):
    """A gated linear unit."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.out = nn.Linear(4, 8), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.both(x).chunk(2, 1)
        out: Tensor = self.out(torch.relu(value) * torch.sigmoid(gate))
        return out


class _Extremes(nn.Module):
    """The greater and the lesser of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.one(x), self.other(x)
        out: Tensor = self.out(torch.maximum(one, other) + torch.minimum(one, other).abs())
        return out


def _recurrent(make: Callable[[], nn.Module], size: int = 6) -> Callable[[], Example]:
    return lambda: Example(_LastStep(make(), size).eval(), torch.rand(1, 5, 4))


def _dense(activation: Callable[[], nn.Module]) -> Callable[[], Example]:
    layers = (lambda: nn.Linear(4, 8), activation, lambda: nn.Linear(8, 2))
    return lambda: Example(nn.Sequential(*(make() for make in layers)).eval(), torch.rand(1, 4))


MODELS: Mapping[str, Callable[[], Example]] = {
    "RNN, 5 steps": _recurrent(lambda: nn.RNN(4, 6, batch_first=True)),
    "GRU, 5 steps": _recurrent(lambda: nn.GRU(4, 6, batch_first=True)),
    "LSTM, 5 steps": _recurrent(lambda: nn.LSTM(4, 6, batch_first=True)),
    "LSTM, both directions": _recurrent(lambda: nn.LSTM(4, 3, batch_first=True, bidirectional=True)),
    "gated linear unit (Split)": lambda: Example(_Gated().eval(), torch.rand(1, 4)),
    "Max, Min, Abs": lambda: Example(_Extremes().eval(), torch.rand(1, 4)),
    "Clip": _dense(nn.ReLU6),
    "PRelu": _dense(nn.PReLU),
    "HardSwish": _dense(nn.Hardswish),
    "HardSigmoid": _dense(nn.Hardsigmoid),
}
"""What makes each model, by name."""
