"""Modules as practitioners write them, each with a defect, and repaired.

The line of a defect ends in `# here`; where only the backward pass fails, in `# backward`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["PRACTITIONERS", "Practitioner"]


class VariationalAutoencoder(nn.Module):
    """The loss of a VAE: nothing keeps the log-variance small, nor the reconstruction inside (0, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(16, 2), nn.Linear(16, 2)
        self.decoder = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        z = mean + noise * torch.exp(0.5 * log_variance)
        y = torch.sigmoid(self.decoder(z))
        reconstruction = -(x * torch.log(y) + (1 - x) * torch.log(1 - y)).sum(-1)  # here
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(-1)
        loss: Tensor = (reconstruction + divergence).mean()
        return loss


class RepairedVariationalAutoencoder(VariationalAutoencoder):
    """The log-variance is clamped, and the loss takes logits."""

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden).clamp(-10, 10)
        z = mean + noise * torch.exp(0.5 * log_variance)
        reconstruction = F.binary_cross_entropy_with_logits(self.decoder(z), x, reduction="none").sum(-1)
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(-1)
        loss: Tensor = (reconstruction + divergence).mean()
        return loss


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Similarities of all pairs of rows."""
    a = a / a.norm(dim=-1, keepdim=True)  # here
    b = b / b.norm(dim=-1, keepdim=True)
    return a @ b.T


class Contrastive(nn.Module):
    """InfoNCE with the cosine similarity: a row of zeros has no direction."""

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        logits = cosine(anchors, positives) / self.temperature
        return F.cross_entropy(logits, torch.arange(len(logits)))


class RepairedContrastive(Contrastive):
    """`normalize` divides by at least 1e-12."""

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        logits = F.normalize(anchors, dim=-1) @ F.normalize(positives, dim=-1).T / self.temperature
        return F.cross_entropy(logits, torch.arange(len(logits)))


class GaussianPolicy(nn.Module):
    """The log-probability of an action: the deviation may be 0 in float32, or infinite."""

    def forward(self, mean: Tensor, log_deviation: Tensor, action: Tensor) -> Tensor:
        deviation = log_deviation.exp()
        score = (action - mean) / deviation  # here
        return (-0.5 * score**2 - deviation.log() - 0.5 * math.log(2 * math.pi)).sum(-1)


class RepairedGaussianPolicy(nn.Module):
    """The deviation stays between exp(-5) and exp(2), as in soft actor-critic."""

    def forward(self, mean: Tensor, log_deviation: Tensor, action: Tensor) -> Tensor:
        log_deviation = log_deviation.clamp(-5, 2)
        score = (action - mean) * torch.exp(-log_deviation)
        return (-0.5 * score**2 - log_deviation - 0.5 * math.log(2 * math.pi)).sum(-1)


class Dice(nn.Module):
    """The Dice loss of a segmentation: 0 / 0 where neither prediction nor target has a pixel."""

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        overlap = (prediction * target).sum((-2, -1))
        union = prediction.sum((-2, -1)) + target.sum((-2, -1))
        return (1 - 2 * overlap / union).mean()  # here


class RepairedDice(nn.Module):
    """A smoothing term in numerator and denominator."""

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        overlap = (prediction * target).sum((-2, -1))
        union = prediction.sum((-2, -1)) + target.sum((-2, -1))
        return (1 - (2 * overlap + 1) / (union + 1)).mean()


class Focal(nn.Module):
    """The focal loss: the probability of the true class underflows."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        probability = torch.softmax(logits, -1)
        chosen = probability.gather(-1, target[:, None]).squeeze(-1)
        return (-((1 - chosen) ** 2) * torch.log(chosen)).mean()  # here


class RepairedFocal(nn.Module):
    """The logarithm is that of the softmax, taken at once."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        logarithm = F.log_softmax(logits, -1).gather(-1, target[:, None]).squeeze(-1)
        return (-((1 - logarithm.exp()) ** 2) * logarithm).mean()


class LayerNorm(nn.Module):
    """A layer norm by hand: a row of equal numbers has no deviation."""

    def __init__(self, features: int = 6) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        deviation = x.std(-1, keepdim=True)
        return self.weight * (x - mean) / deviation + self.bias  # here


class RepairedLayerNorm(LayerNorm):
    """A constant is added to the variance, below the root."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return self.weight * (x - mean) / torch.sqrt(variance + 1e-5) + self.bias


class MaskedAttention(nn.Module):
    """Attention with padding masked out: a sequence that is all padding has no weights."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(~mask[:, None, :], float("-inf"))
        return torch.softmax(scores, -1) @ value  # here


class RepairedMaskedAttention(nn.Module):
    """A large negative number in place of minus infinity."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(~mask[:, None, :], -1e9)
        return torch.softmax(scores, -1) @ value


class LogSumExp(nn.Module):
    """log-sum-exp by its formula: the exponentials overflow."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(torch.exp(x).sum(-1))  # here


class RepairedLogSumExp(nn.Module):
    """The greatest number is taken out first."""

    def forward(self, x: Tensor) -> Tensor:
        greatest = x.max(-1, keepdim=True).values
        return torch.log(torch.exp(x - greatest).sum(-1)) + greatest.squeeze(-1)


@dataclass(frozen=True)
class Practitioner:
    """A module, repaired and not, and the question that is asked about both.

    Attributes:
        broken: The module.
        repaired: The same without the defect.
        args: Arguments of an example call.
        box: What the inputs may be.
        parameters: Names of parameters that range too.
    """

    broken: Callable[[], nn.Module]
    repaired: Callable[[], nn.Module]
    args: tuple[Tensor, ...]
    box: Mapping[str, tuple[float, float]]
    parameters: tuple[str, ...] = ()


_IMAGE = torch.full((2, 4, 4), 0.5)
_POLICY = (torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 3))
_ATTENTION = (torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool))

PRACTITIONERS = {
    "vae": Practitioner(
        VariationalAutoencoder,
        RepairedVariationalAutoencoder,
        (torch.full((2, 8), 0.5), torch.zeros(2, 2)),
        {"x": (0, 1), "noise": (-4, 4)},
        ("log_variance.weight", "log_variance.bias"),
    ),
    "contrastive": Practitioner(
        Contrastive,
        RepairedContrastive,
        (torch.ones(3, 4), torch.ones(3, 4)),
        {"anchors": (-1, 1), "positives": (-1, 1)},
    ),
    "policy": Practitioner(
        GaussianPolicy,
        RepairedGaussianPolicy,
        _POLICY,
        {"mean": (-1, 1), "log_deviation": (-150, 10), "action": (-1, 1)},
    ),
    "dice": Practitioner(Dice, RepairedDice, (_IMAGE, _IMAGE), {"prediction": (0, 1), "target": (0, 1)}),
    "focal": Practitioner(
        Focal, RepairedFocal, (torch.zeros(2, 5), torch.tensor([0, 3])), {"logits": (-100, 100), "target": (0, 4)}
    ),
    "layer_norm": Practitioner(LayerNorm, RepairedLayerNorm, (torch.arange(12.0).reshape(2, 6),), {"x": (-10, 10)}),
    "attention": Practitioner(
        MaskedAttention,
        RepairedMaskedAttention,
        _ATTENTION,
        {"query": (-3, 3), "key": (-3, 3), "value": (-1, 1), "mask": (0, 1)},
    ),
    "log_sum_exp": Practitioner(LogSumExp, RepairedLogSumExp, (torch.zeros(2, 5),), {"x": (-100, 100)}),
}
