"""The losses and layers of PyTorch, each with a range of its inputs and what is true of it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["LOSSES", "Call", "Loss"]


class Call(nn.Module):
    """A module that calls a function of tensors, by the names of its parameters."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.forward = function


@dataclass(frozen=True)
class Loss:
    """A loss or a layer, and the question that is asked about it.

    Attributes:
        module: Makes it.
        args: The arguments of an example call, floating ones in float32.
        box: What its inputs may be.
        forward: Whether all operators of the forward pass are finite.
        backward: Whether those of forward and backward pass are.
    """

    module: Callable[[], nn.Module]
    args: tuple[Tensor, ...]
    box: Mapping[str, tuple[float, float]]
    forward: bool = True
    backward: bool = True


def calls(function: Callable[..., Tensor]) -> Callable[[], nn.Module]:
    return lambda: Call(function)


class Normalised(nn.Module):
    """Two layers whose weights have a norm of their own."""

    def __init__(self, norm: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = norm(nn.Linear(4, 3))

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = self.layer(input)
        return found


class Clipped(nn.Module):
    """A loss and its gradient, clipped to a norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 1)

    def forward(self, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        loss = F.mse_loss(self.layer(input), target)
        weight = nn.Parameter(self.layer.weight.detach())
        (weight.grad,) = torch.autograd.grad(loss, [self.layer.weight], retain_graph=True)
        nn.utils.clip_grad_norm_([weight], 1.0)
        return loss, weight.grad


class Padded(nn.Module):
    """Embeddings, of which one stands for padding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(5, 3, padding_idx=0)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.normalize(self.table(tokens), dim=-1)


GENERATOR = torch.Generator().manual_seed(0)


def draw(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=GENERATOR)


PAIR = draw(3, 4), draw(3, 4)
WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 1.0])
LABELS = torch.tensor([0, 2, 1])
SIGNS = torch.tensor([1.0, -1.0, 1.0])
HEADS = draw(1, 2, 3, 4), draw(1, 2, 3, 4), draw(1, 2, 3, 4)
ANCHORED = {"anchor": (-3.0, 3.0), "positive": (-3.0, 3.0), "negative": (-3.0, 3.0)}
ATTENDED = {"query": (-3.0, 3.0), "key": (-3.0, 3.0), "value": (-3.0, 3.0)}
WIDE = {"input": (-50.0, 50.0), "target": (-50.0, 50.0)}
LOGITS = {"input": (-50.0, 50.0)}
TO_CLASS = {"input": (-50.0, 50.0), "target": (0.0, 3.0)}
CODED = {"input": (-50.0, 50.0), "target": (0.0, 1.0)}
SHARES = {"input": (0.0, 1.0), "target": (0.0, 1.0)}
BOTH = {"x1": (-3.0, 3.0), "x2": (-3.0, 3.0)}

LOSSES = {
    "l1_loss": Loss(calls(lambda input, target: F.l1_loss(input, target)), PAIR, WIDE),
    "mse_loss": Loss(calls(lambda input, target: F.mse_loss(input, target)), PAIR, WIDE),
    "smooth_l1_loss": Loss(calls(lambda input, target: F.smooth_l1_loss(input, target, beta=0.5)), PAIR, WIDE),
    "huber_loss": Loss(calls(lambda input, target: F.huber_loss(input, target, delta=0.5)), PAIR, WIDE),
    "cross_entropy": Loss(calls(lambda input, target: F.cross_entropy(input, target)), (PAIR[0], LABELS), TO_CLASS),
    "cross_entropy, weights and smoothing": Loss(
        calls(lambda input, target: F.cross_entropy(input, target, WEIGHTS.to(input), label_smoothing=0.1)),
        (PAIR[0], LABELS),
        TO_CLASS,
    ),
    "cross_entropy, ignore_index": Loss(
        calls(lambda input, target: F.cross_entropy(input, target, ignore_index=0)),
        (PAIR[0], LABELS),
        TO_CLASS,
        # Of nothing but ignored labels, the mean is 0 / 0.
        forward=False,
        backward=False,
    ),
    "cross_entropy, ignore_index, sum": Loss(
        calls(lambda input, target: F.cross_entropy(input, target, ignore_index=0, reduction="sum")),
        (PAIR[0], LABELS),
        TO_CLASS,
    ),
    "cross_entropy, probabilities": Loss(calls(lambda input, target: F.cross_entropy(input, target)), PAIR, CODED),
    "nll_loss": Loss(
        calls(lambda input, target: F.nll_loss(F.log_softmax(input, -1), target)), (PAIR[0], LABELS), TO_CLASS
    ),
    "binary_cross_entropy": Loss(calls(lambda input, target: F.binary_cross_entropy(input, target)), PAIR, SHARES),
    "binary_cross_entropy_with_logits": Loss(
        calls(lambda input, target: F.binary_cross_entropy_with_logits(input, target, pos_weight=WEIGHTS.to(input))),
        PAIR,
        CODED,
    ),
    "kl_div": Loss(
        calls(lambda input, target: F.kl_div(F.log_softmax(input, -1), target, reduction="batchmean")), PAIR, CODED
    ),
    "kl_div, log_target": Loss(
        calls(lambda input, target: F.kl_div(F.log_softmax(input, -1), F.log_softmax(target, -1), log_target=True)),
        PAIR,
        WIDE,
    ),
    "gaussian_nll_loss": Loss(
        calls(lambda input, target, var: F.gaussian_nll_loss(input, target, var)),
        (*PAIR, draw(3, 4)),
        {"input": (-5.0, 5.0), "target": (-5.0, 5.0), "var": (0.0, 4.0)},
    ),
    "poisson_nll_loss": Loss(
        calls(lambda input, target: F.poisson_nll_loss(input, target)),
        PAIR,
        {"input": (-20.0, 20.0), "target": (0.0, 20.0)},
    ),
    "poisson_nll_loss, full": Loss(
        calls(lambda input, target: F.poisson_nll_loss(input, target, log_input=False, full=True)),
        PAIR,
        {"input": (0.0, 20.0), "target": (0.0, 20.0)},
        # The logarithm of a target of 0 is taken, and masked.
        forward=False,
        backward=False,
    ),
    "cosine_embedding_loss": Loss(
        calls(lambda input1, input2, target: F.cosine_embedding_loss(input1, input2, target)),
        (*PAIR, SIGNS),
        {"input1": (-3.0, 3.0), "input2": (-3.0, 3.0), "target": (-1.0, 1.0)},
    ),
    "triplet_margin_loss": Loss(
        calls(lambda anchor, positive, negative: F.triplet_margin_loss(anchor, positive, negative)),
        (*PAIR, draw(3, 4)),
        ANCHORED,
    ),
    "triplet_margin_with_distance_loss": Loss(
        calls(
            lambda anchor, positive, negative: F.triplet_margin_with_distance_loss(
                anchor, positive, negative, distance_function=lambda x, y: 1.0 - F.cosine_similarity(x, y)
            )
        ),
        (*PAIR, draw(3, 4)),
        ANCHORED,
    ),
    "margin_ranking_loss": Loss(
        calls(lambda input1, input2, target: F.margin_ranking_loss(input1, input2, target, margin=0.5)),
        (draw(3), draw(3), SIGNS),
        {"input1": (-50.0, 50.0), "input2": (-50.0, 50.0), "target": (-1.0, 1.0)},
    ),
    "hinge_embedding_loss": Loss(
        calls(lambda input, target: F.hinge_embedding_loss(input, target)),
        (draw(3), SIGNS),
        {"input": (0.0, 50.0), "target": (-1.0, 1.0)},
    ),
    "soft_margin_loss": Loss(
        calls(lambda input, target: F.soft_margin_loss(input, target)),
        (draw(3), SIGNS),
        # exp(-target * input) overflows.
        {"input": (-100.0, 100.0), "target": (-1.0, 1.0)},
        forward=False,
        backward=False,
    ),
    "multi_margin_loss": Loss(
        calls(lambda input, target: F.multi_margin_loss(input.float(), target)), (PAIR[0], LABELS), TO_CLASS
    ),
    "multilabel_margin_loss": Loss(
        calls(lambda input, target: F.multilabel_margin_loss(input.float(), target)),
        (PAIR[0], torch.tensor([[3, 0, -1, 1], [1, -1, 2, 3], [-1, -1, -1, -1]])),
        LOGITS,
    ),
    "multilabel_soft_margin_loss": Loss(
        calls(lambda input, target: F.multilabel_soft_margin_loss(input, target)), PAIR, CODED
    ),
    "ctc_loss": Loss(
        calls(
            lambda input, target: F.ctc_loss(
                F.log_softmax(input.float(), -1), target, torch.tensor([4]), torch.tensor([2])
            )
        ),
        (draw(4, 1, 3), torch.tensor([[1, 1]])),
        LOGITS,
    ),
    "cdist": Loss(calls(lambda x1, x2: torch.cdist(x1.float(), x2.float())), PAIR, BOTH),
    "pairwise_distance": Loss(calls(lambda x1, x2: F.pairwise_distance(x1, x2)), PAIR, BOTH),
    "cosine_similarity": Loss(calls(lambda x1, x2: F.cosine_similarity(x1, x2)), PAIR, BOTH),
    "std": Loss(
        calls(lambda input: torch.std(input, -1)),
        PAIR[:1],
        LOGITS,
        # The kernel adds up in float64: rows of numbers around 1e-41 have a deviation, by which 1 is divided.
        backward=False,
    ),
    "var": Loss(calls(lambda input: torch.var(input, -1)), PAIR[:1], LOGITS),
    "norm": Loss(calls(lambda input: torch.linalg.vector_norm(input, dim=-1)), PAIR[:1], LOGITS),
    "normalize": Loss(calls(lambda input: F.normalize(input, dim=-1)), PAIR[:1], LOGITS),
    "renorm": Loss(calls(lambda input: torch.renorm(input, 2, 0, 1.0)), PAIR[:1], LOGITS),
    "logsumexp": Loss(calls(lambda input: torch.logsumexp(input, -1)), PAIR[:1], {"input": (-500.0, 500.0)}),
    "log_softmax": Loss(calls(lambda input: F.log_softmax(input, -1)), PAIR[:1], {"input": (-500.0, 500.0)}),
    "softplus": Loss(calls(lambda input: F.softplus(input, beta=2.0)), PAIR[:1], {"input": (-500.0, 500.0)}),
    "logsigmoid": Loss(calls(lambda input: F.logsigmoid(input)), PAIR[:1], {"input": (-500.0, 500.0)}),
    "scaled_dot_product_attention, mask": Loss(
        calls(lambda query, key, value, mask: F.scaled_dot_product_attention(query, key, value, attn_mask=mask)),
        (*HEADS, torch.ones(3, 3, dtype=torch.bool)),
        # What a mask hides from everything is 0 in PyTorch.
        {**ATTENDED, "mask": (0.0, 1.0)},
    ),
    "scaled_dot_product_attention, dropout": Loss(
        calls(lambda query, key, value: F.scaled_dot_product_attention(query, key, value, None, 0.1, is_causal=True)),
        HEADS,
        ATTENDED,
    ),
    "embedding, padding": Loss(Padded, (torch.tensor([0, 3, 4]),), {"tokens": (0.0, 4.0)}),
    "batch_norm, training": Loss(lambda: nn.BatchNorm1d(4), PAIR[:1], LOGITS),
    "layer_norm": Loss(lambda: nn.LayerNorm(4), PAIR[:1], LOGITS),
    "group_norm": Loss(lambda: nn.GroupNorm(2, 4), PAIR[:1], LOGITS),
    "rms_norm": Loss(lambda: nn.RMSNorm(4), PAIR[:1], {"x": (-50.0, 50.0)}),
    "clip_grad_norm_": Loss(Clipped, (draw(3, 4), draw(3, 1)), {"input": (-5.0, 5.0), "target": (-5.0, 5.0)}),
    "weight_norm": Loss(lambda: Normalised(nn.utils.parametrizations.weight_norm), PAIR[:1], {"input": (-5.0, 5.0)}),
    "spectral_norm": Loss(
        lambda: Normalised(nn.utils.parametrizations.spectral_norm), PAIR[:1], {"input": (-5.0, 5.0)}
    ),
}
