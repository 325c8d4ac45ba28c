"""A drawing of a training run: the loss, and how far the operator is from failing, over the steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from ranum_falsify.escaping import escape
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.witness.training.running import train
from ranum_falsify.witness.training.writing import Rehearsed

_WIDTH, _HEIGHT, _GAP = 640, 200, 50


def draw_training(rehearsed: Rehearsed) -> str:
    """Return an SVG drawing of the loss on the batch of each step, and of the margin of the operator's condition.

    The margin is that at the recorded inference input, 0 or less where the operator fails; it is drawn on a
    logarithmic scale, on which numbers at which it fails lie at the bottom.

    Args:
        rehearsed: The training run.
    """
    losses, margins = _measure(rehearsed)
    node = _quote(rehearsed.task.op.name)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{2 * (_HEIGHT + _GAP)}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        *_panel("loss", losses, 0),
        *_panel(f"margin of {node} (log10; it fails at the bottom)", [_log(m) for m in margins], _HEIGHT + _GAP),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _measure(rehearsed: Rehearsed) -> tuple[list[float], list[float]]:
    """Return the loss before each step, and the margin before and after each."""
    task, found, recipe = rehearsed.task, rehearsed.found, rehearsed.recipe
    weights = [to_torch(w) for w in found.initial]
    batches = [[to_torch(x) for x in batch] for batch in found.batches]
    point = [to_torch(x) for x in found.point]
    losses, margins = list[float](), list[float]()

    def watch(number: int, weights: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            margins.append(float(task.margins(weights, point).amin()))
            if batches:
                losses.append(float(task.loss(weights, batches[number % len(batches)])))

    watch(0, weights)
    if batches:
        train(task, replace(recipe, steps=found.steps), weights, batches, watch=watch)
    return losses, margins


def _log(value: float) -> float:
    return -45.0 if not value > 1e-45 else math.log10(value)


def _panel(title: str, values: Sequence[float], top: float) -> Iterator[str]:
    finite = [value for value in values if math.isfinite(value)]
    yield f'<text x="10" y="{top + 16}">{title}</text>'
    if not finite:
        return
    low, high = min(finite), max(finite)
    height = high - low or 1.0
    width = max(1, len(values) - 1)
    points = [
        (60 + index / width * (_WIDTH - 80), top + 25 + (high - value) / height * (_HEIGHT - 25))
        for index, value in enumerate(values)
        if math.isfinite(value)
    ]
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{text}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>'
    yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="#1f77b4"/>' for x, y in points if len(points) <= 100)
    yield f'<text x="5" y="{top + 35}">{high:.4g}</text><text x="5" y="{top + _HEIGHT}">{low:.4g}</text>'
    yield f'<text x="{_WIDTH / 2}" y="{top + _HEIGHT + 20}">step (0 to {len(values) - 1})</text>'


def _quote(name: str) -> str:
    return escape(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
