"""Classifiers of handwritten digits, trained here, and questions of their robustness, some in the form of VNN-COMP."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from lab.bench.digits import load_pictures
from ranum_falsify.api.exporting import export

__all__ = ["FAMILIES", "Question", "ask", "write_questions"]

_EPOCHS, _BATCH, _RATE = 12, 64, 1e-3
_TRAINED = 1500
"""Pictures to train with; the others are asked about."""


class _Residual(nn.Module):
    """Two convolutions beside an identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


def _dense(*sizes: int, curve: type[nn.Module] = nn.ReLU) -> nn.Module:
    parts: list[nn.Module] = [nn.Flatten()]
    for size, following in pairwise(sizes):
        parts += [nn.Linear(size, following), curve()]
    return nn.Sequential(*parts[:-1])


def _convolutions() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 4, 2, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10)),
    )


def _average_pooling() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 16, 3, 1, 1), nn.ReLU()),
        *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(784, 10)),
    )


def _residual() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), _Residual(8), _Residual(8), nn.Flatten(), nn.Linear(1568, 10)
    )


FAMILIES: dict[str, tuple[Callable[[], nn.Module], tuple[float, ...]]] = {
    "dense_256x2": (lambda: _dense(784, 256, 256, 10), (0.02, 0.04)),
    "dense_256x4": (lambda: _dense(784, *[256] * 4, 10), (0.02, 0.04)),
    "dense_256x6": (lambda: _dense(784, *[256] * 6, 10), (0.01, 0.02)),
    "dense_50x3": (lambda: _dense(784, *[50] * 3, 10), (0.02, 0.04)),
    "sigmoid_100x4": (lambda: _dense(784, *[100] * 4, 10, curve=nn.Sigmoid), (0.02, 0.04)),
    "convolutions": (_convolutions, (0.03, 0.06)),
    "average_pooling": (_average_pooling, (0.03, 0.06)),
    "residual": (_residual, (0.02, 0.04)),
}
"""What makes each family's network, and the radii of its boxes; pixels are from 0 to 1."""


@dataclass(frozen=True)
class Question:
    """Whether a network gives a picture, and all near it, their class.

    Attributes:
        network: The network; of pictures `(batch, 1, 28, 28)`.
        number: The picture's number.
        picture: The picture, `(1, 1, 28, 28)`.
        label: Its class.
        radius: How far each pixel may be changed.
    """

    network: nn.Module
    number: int
    picture: Tensor
    label: int
    radius: float

    @property
    def box(self) -> tuple[Tensor, Tensor]:
        """Bounds of the input, each `(1, 1, 28, 28)`."""
        return (self.picture - self.radius).clamp(min=0), (self.picture + self.radius).clamp(max=1)

    @property
    def others(self) -> list[int]:
        """The other classes."""
        return [other for other in range(10) if other != self.label]


def ask(family: str, count: int) -> list[Question]:
    """Train the network of a family; return questions about pictures that it classifies rightly.

    Args:
        family: Its name in `FAMILIES`.
        count: How many pictures; each is asked about with every radius.
    """
    make, radii = FAMILIES[family]
    pictures = load_pictures()
    x, classes = torch.from_numpy(pictures.pixels).float().unsqueeze(1), torch.from_numpy(pictures.classes)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))
    torch.manual_seed(0)
    network = _train(make(), x[order[:_TRAINED]], classes[order[:_TRAINED]])
    rest = order[_TRAINED:]
    right = rest[network(x[rest]).argmax(1) == classes[rest]][:count].tolist()
    return [Question(network, n, x[n : n + 1], int(classes[n]), radius) for n in right for radius in radii]


def _train(network: nn.Module, x: Tensor, classes: Tensor) -> nn.Module:
    optimiser = torch.optim.Adam(network.parameters(), lr=_RATE)
    for _ in range(_EPOCHS):
        for part in torch.randperm(len(x)).split(_BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x[part]), classes[part]).backward()
            optimiser.step()
    return network.eval().requires_grad_(False)


def write_questions(folder: Path, families: Sequence[str], count: int) -> Iterator[str]:
    """Write a folder for each family, as `bench_vnncomp.py` reads them; yield a line for each.

    Args:
        folder: Where to.
        families: Names in `FAMILIES`.
        count: How many pictures.
    """
    for family in families:
        questions, root = ask(family, count), folder / family
        (root / "onnx").mkdir(parents=True, exist_ok=True)
        (root / "vnnlib").mkdir(exist_ok=True)
        onnx.save(export(questions[0].network, questions[0].picture).model, root / "onnx" / "network.onnx")
        rows = [("onnx", "vnnlib", "expected")]
        for question in questions:
            path = f"vnnlib/{question.number}_{question.radius}.vnnlib"
            (root / path).write_text("\n".join(_vnnlib(question)))
            rows.append(("onnx/network.onnx", path, "unknown"))
        with (root / "expected.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        yield f"{family}: {len(questions)} questions"


def _vnnlib(question: Question) -> Iterator[str]:
    low, high = (end.flatten().tolist() for end in question.box)
    for number, (least, greatest) in enumerate(zip(low, high, strict=True)):
        yield f"(declare-const X_{number} Real)"
        yield f"(assert (>= X_{number} {least:.9f}))"
        yield f"(assert (<= X_{number} {greatest:.9f}))"
    yield from (f"(declare-const Y_{number} Real)" for number in range(10))
    yield f"(assert (or {' '.join(f'(and (>= Y_{other} Y_{question.label}))' for other in question.others)}))"
