"""Training as the zoo's programs do it, on their own data or such as they draw, until an operator fails by itself."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch

from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.witness.training.judging import Judge
from ranum_falsify.zoo.feeding import Feeder, Pictures
from ranum_falsify.zoo.model import Defect
from ranum_falsify.zoo.train import STEPS, TrainingBench


@dataclass(frozen=True, kw_only=True)
class Natural:
    """A training run without any search.

    Attributes:
        steps: Number of steps until it ended.
        failing: The operator on which it ended, as it met the batch of the next step; empty if none failed.
    """

    steps: int
    failing: str


def train_naturally(
    bench: TrainingBench,
    defect: Defect,
    seed: int,
    *,
    steps: int = STEPS,
    pictures: Pictures | None = None,
    seconds: float = math.inf,
) -> Natural:
    """Train until the defect's operator fails, or another does, whose NaN ends the training.

    Args:
        bench: A model at the level `real`.
        defect: One of its defects.
        seed: Seed of the weights and of the data.
        steps: Most steps.
        pictures: What stands for the program's pictures; else they are noise.
        seconds: Most seconds.
    """
    task, optimiser = bench.task(defect), bench.recipe.optimiser
    feeder, end = Feeder(bench.model.id, task.data, pictures, seed), time.monotonic() + seconds
    weights = [to_torch(x) for x in bench.draw_weights(task, seed)]
    state, gradient = optimiser.start(weights), torch.func.grad(lambda w, data: task.loss(w, data))
    with Judge(task) as judge:
        for number in range(steps if weights else 1):
            data = feeder.draw()
            with torch.no_grad():
                fails = bool((task.margins(weights, data) <= 0).any())
            before = [to_numpy(w) for w in weights], [to_numpy(x) for x in data]
            if fails and judge.judge(*before) is not None:
                return Natural(steps=number, failing=defect.node)
            if not weights or time.monotonic() >= end:
                return Natural(steps=number, failing="")
            weights, state = optimiser.step(weights, gradient(tuple(weights), data), state, number)
            if not all(bool(w.isfinite().all()) for w in weights):
                failing = judge.name_failing(*before)
                return Natural(steps=number, failing=defect.node if failing in defect.same else failing)
    return Natural(steps=steps, failing="")
