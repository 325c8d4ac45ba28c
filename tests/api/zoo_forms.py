"""The lines by which the zoo's PyTorch programs fail, each in a module: 22 programs have seven forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["FORMS", "Form"]


class Divergence(nn.Module):
    def forward(self, sigma: Tensor) -> Any:
        return 0.5 * torch.mean(torch.sum(1 + sigma - sigma**2 - torch.log(sigma), 1))


class Overlap(nn.Module):
    def forward(self, y_pred: Tensor, y_true: Tensor) -> Any:
        return -(y_true * torch.sqrt(torch.softmax(y_pred, -1))).sum(-1).mean()


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.drop, self.output = nn.Linear(6, 8), nn.Dropout(0.1), nn.Linear(8, 4)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        log_p = torch.log(torch.softmax(self.output(self.drop(torch.relu(self.hidden(x)))), 1))
        return F.nll_loss(log_p, y)


class Scattered(nn.Module):
    def forward(self, edge_attr: Tensor, index: Tensor) -> Any:
        log = torch.log(edge_attr)
        total = torch.zeros(2).scatter_add(0, index, log)
        return log / total[index]


class Boltzmann(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.W, self.v, self.h = (nn.Parameter(torch.zeros(*size)) for size in ((6, 4), (6,), (4,)))

    def free_energy(self, x: Tensor) -> Any:
        hidden = x @ self.W + self.h
        return -torch.log(torch.exp(hidden) + 1).sum(1) - x @ self.v

    def forward(self, image: Tensor) -> Any:
        p = torch.sigmoid(image @ self.W + self.h)
        h = F.relu(torch.sign(p - torch.rand(p.shape)))
        q = torch.sigmoid(h @ self.W.t() + self.v)
        back = F.relu(torch.sign(q - torch.rand(q.shape)))
        return self.free_energy(image).mean() - self.free_energy(back).mean()


class Logistic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.W, self.b = nn.Parameter(torch.ones(3, 1)), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        p = torch.sigmoid(x @ self.W + self.b)
        return (-y * torch.log(p) - (1 - y) * torch.log(1 - p)).mean()


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.W, self.b = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        p = torch.softmax(x @ self.W + self.b, -1)
        return (-torch.log(p) * F.one_hot(y, 4)).sum(-1).mean()


@dataclass(frozen=True)
class Form:
    """A module, and what is asked about it.

    Attributes:
        kind: Its class.
        programs: The programs of the zoo that have this form.
        args: The arguments of an example call.
        box: What its inputs range over.
        options: What `check` takes besides.
        fails: Whether it fails: some only in the backward pass, or nowhere in float32.
    """

    kind: Callable[[], nn.Module]
    programs: str
    args: tuple[Tensor, ...]
    box: Mapping[str, tuple[float, float]]
    options: Mapping[str, Any] = field(default_factory=dict)
    fails: bool = True


WEIGHTS = {"free": "all", "weights": (-10, 10)}
FORMS = {
    "divergence": Form(Divergence, "4", (torch.rand(3, 2),), {"sigma": (-1, 2)}),
    "overlap": Form(
        Overlap, "5", (torch.rand(4, 3), torch.rand(4, 3)), {"y_pred": (-50, 50), "y_true": (0, 1)}, fails=False
    ),
    "classifier": Form(Classifier, "12", (torch.rand(2, 6), torch.tensor([0, 1])), {"x": (0, 1), "y": (0, 3)}, WEIGHTS),
    "scattered": Form(
        Scattered, "13", (torch.rand(4), torch.tensor([0, 1, 0, 1])), {"edge_attr": (0, 2), "index": (0, 1)}
    ),
    "boltzmann": Form(
        Boltzmann, "22 51 62 63", (torch.rand(2, 6),), {"image": (0, 1)}, {"free": "all", "weights": (-100, 100)}
    ),
    "logistic": Form(
        Logistic, "26 33 37 38 53 56", (torch.rand(3, 3), torch.rand(3, 1)), {"x": (0, 5), "y": (0, 1)}, WEIGHTS
    ),
    "chosen": Form(
        Chosen,
        "23 27 32 34 46 47 54 57",
        (torch.rand(3, 3), torch.tensor([0, 1, 2])),
        {"x": (0, 5), "y": (0, 3)},
        WEIGHTS,
    ),
}
