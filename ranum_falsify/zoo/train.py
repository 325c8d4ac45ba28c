"""Training data for the zoo: how many runs lead training into the documented defects."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from onnx import numpy_helper

from ranum_falsify.confirm.repeatable import make_repeatable
from ranum_falsify.confirm.training.maker import TrainingAttempt, TrainingMaker
from ranum_falsify.confirm.training.optimisers import Optimiser
from ranum_falsify.confirm.training.running import Recipe
from ranum_falsify.confirm.training.task import TrainingTask
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.properties.problem.targets import targets_of
from ranum_falsify.search.converter import convert
from ranum_falsify.search.starts import Box
from ranum_falsify.zoo.detect import problem_of
from ranum_falsify.zoo.model import Defect, ZooModel

__all__ = ["LEVELS", "SEEDS", "DefectRuns", "Level", "TrainingBench"]

Level = Literal["published", "strict", "initial"]
"""What counts; docs/training-defects.md explains each."""

LEVELS: tuple[Level, ...] = get_args(Level)

SEEDS = (188, 306, 414, 124, 695, 199, 425, 203, 711, 240)
"""The seeds of RANUM's runs."""


@dataclass(frozen=True, kw_only=True)
class DefectRuns:
    """The runs of one defect at one level.

    Attributes:
        defect: The defect.
        level: What counts.
        attempts: The runs.
        processor_seconds: Time of the processor, that of ONNX Runtime aside.
    """

    defect: Defect
    level: Level
    attempts: tuple[TrainingAttempt, ...]
    processor_seconds: float

    @property
    def trained(self) -> int:
        """Number of runs in which training led into the defect."""
        return sum(bool(a.found and a.found.strategy) for a in self.attempts)

    @property
    def untrained(self) -> int:
        """Number of runs that need no training, because the initial weights fail."""
        return sum(bool(a.found and not a.found.strategy) for a in self.attempts)

    @property
    def strategies(self) -> Counter[str]:
        """Which strategies led into the defect, and how often."""
        return Counter(a.found.strategy for a in self.attempts if a.found and a.found.strategy)


class TrainingBench:
    """A model of the zoo, ready to be trained; conversions are made once for all seeds and defects.

    Args:
        model: The model.
        level: What counts.
    """

    def __init__(self, model: ZooModel, level: Level) -> None:
        self.model = model
        self.level = level
        self._architecture = model.architecture()
        self._problem = make_repeatable(problem_of(model, self._architecture))
        self._module = convert(self._problem.goals[0].call.graph)

    def task(self, defect: Defect) -> TrainingTask:
        """Return the task of a defect."""
        targets = [t for t in targets_of(0, self._problem.goals[0]) if t.op.name == defect.node]
        return TrainingTask(
            self._problem,
            targets,
            self._module,
            loss=[output.name for output in self._architecture.model.graph.output],
            weights=[weight.name for weight in self._architecture.weights],
        )

    def runs_of(
        self, defect: Defect, *, seeds: Sequence[int] = SEEDS, timeout: float = 10.0, descends: bool = True
    ) -> DefectRuns:
        """Search for training data, once per seed.

        Args:
            defect: One of the model's defects.
            seeds: The seeds.
            timeout: Seconds of one run.
            descends: Whether gradients lead the search; else data are drawn at random.
        """
        began = time.process_time()
        task = self.task(defect)
        recipe = Recipe(optimiser=Optimiser(), clamps=self.level == "published")
        with TrainingMaker(task, recipe, timeout=timeout, descends=descends) as maker:
            attempts = tuple(maker.run(seed, *self._draw(task, seed)) for seed in seeds)
        return DefectRuns(
            defect=defect, level=self.level, attempts=attempts, processor_seconds=time.process_time() - began
        )

    def _draw(self, task: TrainingTask, seed: int) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
        """Return initial weights, and the inference input as far as the level says which."""
        generator = torch.Generator().manual_seed(seed)
        if self.level == "initial":
            return list(self._initial_weights(task, seed)), []
        weights = [_uniform(box, generator) for box in task.ranges]
        if self.level == "strict":
            return weights, []
        given = {variable.name for variable in self._architecture.inputs}
        return weights, [_uniform(d.box, generator) if d.name in given else None for d in task.data]

    def _initial_weights(self, task: TrainingTask, seed: int) -> Iterator[np.ndarray]:
        """Yield the weights as the program initialises them."""
        initializers = self.model.architecture(seed=seed).model.graph.initializer
        arrays = {tensor.name: tensor for tensor in initializers}
        yield from (numpy_helper.to_array(arrays[name]) for name in task.weights)


def _uniform(box: Box, generator: torch.Generator) -> np.ndarray:
    share = torch.rand(box.lower.shape, generator=generator, dtype=torch.float64)
    return to_numpy(box.at(share[None])[0])
