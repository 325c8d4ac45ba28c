"""What people build with PyTorch and export: small models of many constructions, each with what is true of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["CONSTRUCTIONS", "Construction", "Of", "construction"]

Make = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]


@dataclass(frozen=True, kw_only=True)
class Construction:
    """A model to export.

    Attributes:
        make: Returns the module and the arguments of an example call.
        inputs: Names of the inputs.
        box: What inputs range over; others over their default.
        verdict: What is true of it.
        scripted: Whether the older exporter is given the scripted module, so that its loops stay loops.
        old: Whether the older exporter can export it.
    """

    make: Make
    inputs: tuple[str, ...] = ("x",)
    box: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    verdict: str = "holds"
    scripted: bool = False
    old: bool = True


CONSTRUCTIONS: dict[str, Construction] = {}


def construction(name: str, *inputs: str, **facts: Any) -> Callable[[Make], None]:
    """Register what the decorated function makes, with what is known of it."""

    def register(make: Make) -> None:
        CONSTRUCTIONS[name] = Construction(make=make, inputs=inputs or ("x",), **facts)

    return register


class Of(nn.Module):
    """A function of parts, which have the weights, and of the inputs."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*self.parts, *inputs)


def chain(*parts: nn.Module) -> nn.Module:
    return nn.Sequential(*parts)


# ------------------------------------------------------------------ recurrent


@construction("LSTM")
def _() -> Any:
    return Of(lambda part, x: part(x)[0], nn.LSTM(4, 6, 2, batch_first=True)), (torch.randn(1, 5, 4),)


@construction("LSTM, both directions")
def _() -> Any:
    return Of(lambda part, x: part(x)[0], nn.LSTM(4, 6, bidirectional=True)), (torch.randn(5, 1, 4),)


@construction("GRU")
def _() -> Any:
    return Of(lambda part, x: part(x)[1], nn.GRU(4, 6, batch_first=True)), (torch.randn(1, 5, 4),)


class Stepped(nn.Module):
    """A GRU, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(1, 6)
        for i in range(x.size(0)):
            state = self.cell(x[i], state)
        return F.log_softmax(self.out(state), -1)


@construction("GRU, step by step")
def _() -> Any:
    return Stepped(), (torch.randn(4, 1, 4),)


def _convolve_states(part: nn.Module, out: nn.Module, x: Tensor) -> Any:
    hidden = cell = torch.zeros(1, 4, 6, 6)
    for t in range(x.shape[1]):
        i, f, o, g = part(torch.cat([x[:, t], hidden], 1)).chunk(4, 1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
    return out(hidden)


@construction("convolutional LSTM")
def _() -> Any:
    parts = nn.Conv2d(6, 16, 3, padding=1), nn.Conv2d(4, 1, 1)
    return Of(_convolve_states, *parts), (torch.rand(1, 3, 2, 6, 6),)


# ------------------------------------------------------------------ images


class UNet(nn.Module):
    """Down twice and up again, with what is skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = self.block(3, 4), self.block(4, 8), self.block(8, 16)
        self.up, self.d, self.e = nn.ConvTranspose2d(16, 8, 2, 2), self.block(16, 8), self.block(12, 4)
        self.out = nn.Conv2d(4, 1, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Module:
        return chain(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        d = self.d(torch.cat([self.up(self.c(F.max_pool2d(b, 2))), b], 1))
        wide = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return torch.sigmoid(self.out(self.e(torch.cat([wide, a], 1))))


@construction("U-Net")
def _() -> Any:
    return UNet(), (torch.rand(1, 3, 16, 16),)


def _mix_patches(patch: nn.Module, layers: nn.Module, head: nn.Module, x: Tensor) -> Any:
    tokens = patch(x).flatten(2).transpose(1, 2)
    return head(layers(torch.cat([torch.ones(1, 1, 16), tokens], 1))[:, 0])


@construction("vision transformer")
def _() -> Any:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu", norm_first=True)
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    parts = nn.Conv2d(3, 16, 8, 8), layers, chain(nn.LayerNorm(16), nn.Linear(16, 5))
    return Of(_mix_patches, *parts), (torch.rand(1, 3, 32, 32),)


@construction("residual network")
def _() -> Any:
    def block(inner: nn.Module, x: Tensor) -> Tensor:
        return F.relu(x + inner(x))

    inner = [chain(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)) for _ in range(3)]
    parts = nn.Conv2d(3, 4, 3), *(Of(block, one) for one in inner), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return chain(*parts, nn.Linear(4, 5), nn.LogSoftmax(-1)), (torch.rand(1, 3, 8, 8),)


@construction("squeeze and excitation")
def _() -> Any:
    gate = chain(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 2, 1), nn.ReLU(), nn.Conv2d(2, 4, 1), nn.Hardsigmoid())
    gated = Of(lambda part, x: x * part(x), gate)
    return chain(nn.Conv2d(3, 4, 3, 2), nn.Hardswish(), gated, nn.Hardswish(), nn.Conv2d(4, 2, 1)), (
        torch.rand(1, 3, 16, 16),
    )


@construction("other norms")
def _() -> Any:
    norms = nn.InstanceNorm2d(4, affine=True), nn.GroupNorm(2, 4)
    return chain(nn.Conv2d(3, 4, 3), norms[0], nn.LeakyReLU(0.2), nn.Conv2d(4, 4, 3), norms[1], nn.SiLU(), nn.Tanh()), (
        torch.rand(1, 3, 8, 8),
    )


def _sample_grid(part: nn.Module, x: Tensor) -> Any:
    theta = torch.tanh(part(x)).view(-1, 2, 3)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False, padding_mode="border")


@construction("spatial transformer", old=False)
def _() -> Any:
    return Of(_sample_grid, chain(nn.Flatten(), nn.Linear(75, 6))), (torch.rand(1, 3, 5, 5),)


def _decode_boxes(part: nn.Module, x: Tensor) -> Any:
    distances, classes = part(x).flatten(2).split([16, 3], 1)
    distances = (distances.view(1, 4, 4, -1).softmax(2) * torch.arange(4.0).view(1, 1, 4, 1)).sum(2)
    low, high = 8 - distances[:, :2], 8 + distances[:, 2:]
    return torch.cat([(low + high) / 2, high - low, classes.sigmoid()], 1)


@construction("detector with distributed boxes")
def _() -> Any:
    return Of(_decode_boxes, chain(nn.Conv2d(3, 4, 3, 2), nn.SiLU(), nn.Conv2d(4, 19, 1))), (torch.rand(1, 3, 16, 16),)


# ------------------------------------------------------------------ attention


class Shifted(nn.Module):
    """Attention in windows of a shifted sequence, where those that were rolled together do not see each other."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.heads, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        part = torch.tensor([0] * 4 + [1] * 2 + [2] * 2).view(2, 4)
        self.register_buffer("mask", torch.where(part[:, :, None] == part[:, None], 0.0, -100.0))

    def forward(self, x: Tensor) -> Any:
        windows = torch.roll(self.norm(x), -2, 1).view(2, 4, 8)
        q, k, v = self.heads(windows).chunk(3, -1)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(8) + self.mask).softmax(-1)
        return x + torch.roll(self.out(weights @ v).view(1, 8, 8), 2, 1)


@construction("shifted windows")
def _() -> Any:
    return Shifted(), (torch.randn(1, 8, 8),)


@construction("multi-head attention", "x", "y")
def _() -> Any:
    heads = nn.MultiheadAttention(8, 2, batch_first=True)
    return Of(lambda part, x, y: part(x, y, y), heads), (torch.randn(1, 4, 8), torch.randn(1, 3, 8))


def _rotate(x: Tensor, places: Tensor) -> Tensor:
    angles = places[:, None] / 10000 ** (torch.arange(0, 4, 2) / 4)
    angles = torch.cat([angles, angles], -1)
    low, high = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-high, low], -1) * angles.sin()


def _attend_cached(heads: nn.Module, x: Tensor, keys: Tensor, values: Tensor, places: Tensor) -> Any:
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    q, k, v = heads(x).view(1, 2, 6, 4).split(2, 2)
    q, k = _rotate(q.transpose(1, 2), places), torch.cat([keys, _rotate(k.transpose(1, 2), places)], 2)
    v = torch.cat([values, v.transpose(1, 2)], 2)
    mask = torch.where(torch.arange(k.shape[2]) <= places[:, None], 0.0, torch.finfo(torch.float32).min)
    return ((q @ k.transpose(-1, -2) / 2 + mask).softmax(-1) @ v), k, v


@construction("rotary attention with a cache", "x", "keys", "values", "places", box={"places": (0, 64)})
def _() -> Any:
    cache = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)
    return Of(_attend_cached, nn.Linear(8, 24)), (torch.randn(1, 2, 8), *cache, torch.tensor([3, 4]))


def _attend_linearly(heads: nn.Module, x: Tensor) -> Any:
    q, k, v = heads(x).chunk(3, -1)
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return q @ (k.transpose(1, 2) @ v) / ((q @ k.sum(1)[..., None]) + 1e-6)


@construction("linear attention")
def _() -> Any:
    return Of(_attend_linearly, nn.Linear(8, 24)), (torch.randn(1, 5, 8),)
