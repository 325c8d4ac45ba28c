"""What stands around the layers of a model: experts, graphs, codes, flows, signals, losses and control flow."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.constructions import Of, construction

__all__: list[str] = []

# ------------------------------------------------------------------ experts and graphs


def _choose_experts(gate: nn.Module, expert: nn.Module, x: Tensor) -> Any:
    scores = gate(x)
    best, chosen = scores.topk(2, -1)
    weights = torch.full_like(scores, -math.inf).scatter(-1, chosen, best).softmax(-1)
    return torch.einsum("be,bef->bf", weights, expert(x).view(-1, 4, 8))


@construction("mixture of experts")
def _() -> Any:
    return Of(_choose_experts, nn.Linear(8, 4), nn.Linear(8, 32)), (torch.randn(2, 8),)


def _attend_graph(part: nn.Module, x: Tensor, edges: Tensor) -> Any:
    source, target = edges[0], edges[1]
    h = part(x)
    scores = F.leaky_relu((h[source] * h[target]).sum(-1), 0.2).exp()
    total = torch.zeros(5).index_add(0, target, scores)
    return torch.zeros(5, 4).index_add(0, target, (scores / total[target])[:, None] * h[source])


@construction("graph attention", "x", "edges", box={"edges": (0, 4)}, old=False)
def _() -> Any:
    return Of(_attend_graph, nn.Linear(4, 4)), (torch.randn(5, 4), torch.randint(0, 5, (2, 7)))


# ------------------------------------------------------------------ latent codes and flows


def _elbo(encode: nn.Module, decode: nn.Module, x: Tensor, noise: Tensor) -> Any:
    mean, spread = encode(x).chunk(2, -1)
    spread = spread.clamp(-20, 2)
    y = decode(mean + noise * torch.exp(0.5 * spread))
    divergence = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum()
    return F.binary_cross_entropy_with_logits(y, x, reduction="sum") + divergence


@construction("variational autoencoder", "image", "noise")
def _() -> Any:
    return Of(_elbo, nn.Linear(8, 4), nn.Linear(2, 8)), (torch.rand(1, 8), torch.randn(1, 2))


def _quantise(encode: nn.Module, decode: nn.Module, table: nn.Embedding, x: Tensor) -> Any:
    z = encode(x)
    distances = z.pow(2).sum(1, keepdim=True) + table.weight.pow(2).sum(1) - 2 * z @ table.weight.T
    chosen = distances.argmin(1)
    used = F.one_hot(chosen, 16).float().mean(0)
    return decode(table(chosen)), F.mse_loss(table(chosen), z), (used * torch.log(used + 1e-6)).sum()


@construction("codebook")
def _() -> Any:
    return Of(_quantise, nn.Linear(8, 4), nn.Linear(4, 8), nn.Embedding(16, 4)), (torch.randn(3, 8),)


def _couple(first: nn.Module, second: nn.Module, x: Tensor) -> Any:
    total = torch.zeros(1)
    for part in (first, second):
        a, b = x.chunk(2, -1)
        shift, scale = part(a).chunk(2, -1)
        scale = torch.tanh(scale)
        x, total = torch.cat([b * torch.exp(scale) + shift, a], -1), total + scale.sum(-1)
    return -0.5 * (x**2).sum(-1) + total


@construction("normalising flow")
def _() -> Any:
    return Of(_couple, nn.Linear(2, 4), nn.Linear(2, 4)), (torch.randn(1, 4),)


@construction("determinant of a squashing flow", verdict="violated")
def _() -> Any:
    part = nn.Linear(4, 4)
    nn.init.eye_(part.weight)
    return Of(lambda part, x: torch.log(1 - torch.tanh(12 * part(x)) ** 2).sum(-1), part), (torch.randn(1, 4),)


# ------------------------------------------------------------------ losses


def _clip_ratio(actor: nn.Module, critic: nn.Module, seen: Tensor, chosen: Tensor, old: Tensor, gains: Tensor) -> Any:
    logs = F.log_softmax(actor(seen), -1)
    ratio = (logs.gather(1, chosen[:, None]).squeeze(1) - old).exp()
    gains = (gains - gains.mean()) / (gains.std() + 1e-6)
    entropy = -(logs.exp() * logs).sum(-1).mean()
    return -torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean() + critic(seen).pow(2).mean() - 0.01 * entropy


@construction("loss of PPO", "seen", "chosen", "old", "gains", box={"chosen": (0, 2), "old": (-5, 0)})
def _() -> Any:
    arguments = torch.randn(4, 6), torch.randint(0, 3, (4,)), -torch.rand(4), torch.randn(4)
    return Of(_clip_ratio, nn.Linear(6, 3), nn.Linear(6, 1)), arguments


def _squash(actor: nn.Module, critic: nn.Module, seen: Tensor, noise: Tensor) -> Any:
    mean, spread = actor(seen).chunk(2, -1)
    spread = spread.clamp(-20, 2)
    wide = mean + noise * spread.exp()
    action = torch.tanh(wide)
    logs = -0.5 * noise**2 - spread - 2 * (math.log(2) - wide - F.softplus(-2 * wide))
    return (0.2 * logs.sum(-1) - critic(torch.cat([seen, action], -1)).squeeze(-1)).mean()


@construction("loss of SAC", "seen", "noise")
def _() -> Any:
    return Of(_squash, nn.Linear(6, 4), nn.Linear(8, 1)), (torch.randn(4, 6), torch.randn(4, 2))


@construction("cosine similarity", "a", "b")
def _() -> Any:
    return Of(lambda a, b: F.cosine_similarity(a, b, dim=-1)), (torch.randn(2, 8), torch.randn(2, 8))


@construction("cosine similarity by hand", "a", "b", verdict="violated")
def _() -> Any:
    def divide(a: Tensor, b: Tensor) -> Any:
        return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))

    return Of(divide), (torch.randn(2, 8), torch.randn(2, 8))


@construction("focal loss", "x", "kind", box={"kind": (0, 4)})
def _() -> Any:
    def focus(part: nn.Module, x: Tensor, kind: Tensor) -> Any:
        p = F.softmax(part(x), -1).gather(1, kind[:, None])
        return (-((1 - p) ** 2) * torch.log(p)).mean()

    return Of(focus, nn.Linear(6, 5)), (torch.randn(4, 6), torch.randint(0, 5, (4,)))


# ------------------------------------------------------------------ signals and control flow


def _log_mel(filters: nn.Module, x: Tensor) -> Any:
    spectrum = torch.stft(x, 32, 16, window=torch.hann_window(32), return_complex=False, center=False)
    return torch.log(F.relu(filters(spectrum.pow(2).sum(-1).transpose(1, 2))) + 1e-6)


@construction("spectrogram", "sound")
def _() -> Any:
    return Of(_log_mel, nn.Linear(17, 4)), (torch.randn(1, 80),)


@construction("filter by Fourier transforms", "sound", old=False)
def _() -> Any:
    kernel = torch.randn(16)

    def convolve(x: Tensor) -> Any:
        return torch.fft.irfft(torch.fft.rfft(x, 32) * torch.fft.rfft(kernel, 32), 32)

    return Of(convolve), (torch.randn(1, 16),)


class Growing(nn.Module):
    """A loop that ends, and a branch that the input chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        i = 0
        while i < 3:
            x = torch.sqrt(F.softplus(self.part(x)) + 0.1)
            i += 1
        return x / x.sum()


@construction("scripted loop", scripted=True)
def _() -> Any:
    return Growing(), (torch.randn(1, 4),)


@construction("branch", old=False)
def _() -> Any:
    def choose(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: torch.log(x.abs() + 1), lambda x: x.exp() / (1 + x.exp()), (x,))

    return Of(choose), (torch.randn(4),)


def _filter_best(part: nn.Module, x: Tensor) -> Any:
    scores = part(x) / 0.7
    return scores.masked_fill(scores < scores.topk(3, -1).values[..., -1:], -math.inf).softmax(-1)


@construction("sampling from the best")
def _() -> Any:
    return Of(_filter_best, nn.Linear(8, 12)), (torch.randn(2, 8),)
