"""Training data for the zoo: how many runs lead training into the documented defects."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

import numpy as np
import torch
from onnx import numpy_helper

from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.properties.formula.terms import Trainable
from ranum_falsify.properties.problem.targets import targets_of
from ranum_falsify.verify.search.converter import convert
from ranum_falsify.verify.search.starts import Box
from ranum_falsify.witness.exposed import make_repeatable
from ranum_falsify.witness.training.maker import TrainingAttempt, TrainingMaker
from ranum_falsify.witness.training.running import Optimiser, OptimiserName, Recipe
from ranum_falsify.witness.training.task import TrainingTask
from ranum_falsify.witness.training.writing import Rehearsed, rehearse
from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.detect import problem_of
from ranum_falsify.zoo.model import Defect, Training, ZooModel

Level = Literal["ranum", "drawn", "strict", "initial", "real"]
"""What counts; docs/training-defects.md explains each."""

LEVELS: tuple[Level, ...] = get_args(Level)

_LIKE_RANUM: tuple[Level, ...] = ("ranum", "drawn")
"""Levels in RANUM's ranges of inputs, on its graphs: weights are clamped, and an inference input is given."""

_INITIAL_SEED = 0
"""Seed of the initial weights that all runs share at the level of RANUM."""

SEEDS = (188, 306, 414, 124, 695, 199, 425, 203, 711, 240)
"""The seeds of RANUM's runs."""

STEPS = 1000
"""Steps of real training."""


@dataclass(frozen=True, kw_only=True)
class DefectRuns:
    """The runs of one defect at one level.

    Attributes:
        defect: The defect.
        level: What counts.
        attempts: The runs.
        processor_seconds: Time of the processor, that of ONNX Runtime's process included.
        rehearsed: What the runs found, as their generated files will train, if that is asked for.
    """

    defect: Defect
    level: Level
    attempts: tuple[TrainingAttempt, ...]
    processor_seconds: float
    rehearsed: tuple[Rehearsed, ...] = ()

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
    """A model of the zoo, ready to be trained; conversions are made once for all seeds and defects."""

    def __init__(self, model: ZooModel, level: Level) -> None:
        self.model = model
        self.level = level
        batch = model.training.batch if level == "real" and model.training else 1
        self._architecture = model.architecture(batch=batch, documented=level == "real", of_ranum=level in _LIKE_RANUM)
        if level in _LIKE_RANUM:
            self._architecture = _widen_as_ranum(self._architecture)
        if level == "real":
            self._architecture = _keep_as_in_training(self._architecture)
        asked = problem_of(model, self._architecture)
        self._problem = make_repeatable(asked)
        self._draws = {v.name for v in self._problem.inputs} - {v.name for v in asked.inputs}
        self._module = convert(self._problem.goals[0].call.graph)

    def task(self, defect: Defect) -> TrainingTask:
        """Return the task of a defect."""
        nodes = {defect.node, *defect.same, *(defect.of_ranum if self.level in _LIKE_RANUM else ())}
        targets = [t for t in targets_of(0, self._problem.goals[0]) if t.op.name in nodes]
        whole = Trainable(
            weights=tuple(weight.name for weight in self._architecture.weights),
            loss=tuple(output.name for output in self._architecture.model.graph.output),
        )
        trainable = self._problem.goals[0].call.trainable if self.level == "real" else None
        return TrainingTask(self._problem, targets, self._module, trainable or whole, draws=self._draws)

    @property
    def recipe(self) -> Recipe:
        """How the level trains."""
        if self.level == "real":
            training = self.model.training
            if training is None:
                return Recipe(steps=0)  # what is not trained can only fail at once
            return Recipe(optimiser=optimiser_of(training), steps=STEPS)
        return Recipe(clamps=self.level in _LIKE_RANUM)

    def runs_of(
        self,
        defect: Defect,
        *,
        seeds: Sequence[int] = SEEDS,
        timeout: float = 10.0,
        descends: bool = True,
        rehearses: bool = False,
    ) -> DefectRuns:
        """Search for training data, once per seed.

        Args:
            defect: One of the model's defects.
            seeds: The seeds.
            timeout: Seconds of the processor of one run, ONNX Runtime's process aside.
            descends: Whether gradients lead the search; else data are drawn at random.
            rehearses: Whether to train again with the code of the generated files.
        """
        began = _processor_seconds()
        task = self.task(defect)
        with TrainingMaker(task, self.recipe, timeout=timeout, descends=descends, clock=time.process_time) as maker:
            attempts = tuple(maker.run(seed, *self._draw(task, seed)) for seed in seeds)
            again = [
                rehearse(task, self.recipe, attempt.found, maker.judge, attempt.seed)
                for attempt in attempts
                if rehearses and attempt.found is not None
            ]
        return DefectRuns(
            defect=defect,
            level=self.level,
            attempts=attempts,
            processor_seconds=_processor_seconds() - began,
            rehearsed=tuple(r for r in again if r is not None),
        )

    def _draw(self, task: TrainingTask, seed: int) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
        """Return initial weights, and the inference input as far as the level says which."""
        if self.level in ("initial", "real"):
            return self.draw_weights(task, seed), []
        generator = torch.Generator().manual_seed(seed)
        is_drawn = self.level != "ranum"
        weights = (
            [_uniform(box, generator) for box in task.ranges] if is_drawn else self.draw_weights(task, _INITIAL_SEED)
        )
        if self.level == "strict":
            return weights, []
        given = {variable.name for variable in self._architecture.inputs}
        return weights, [_uniform(d.box, generator) if d.name in given else None for d in task.data]

    def draw_weights(self, task: TrainingTask, seed: int) -> list[np.ndarray]:
        """Return the program's own initial weights."""
        initializers = self.model.architecture(seed=seed).model.graph.initializer
        arrays = {x.name: x for x in initializers}
        return [numpy_helper.to_array(arrays[name]).copy() for name in task.weights]


def _widen_as_ranum(architecture: Architecture) -> Architecture:
    """Return an architecture whose inputs have at least the ranges of RANUM's: [-50, 50], keep probabilities less."""
    ends = {"keep_prob": (0.1, 0.9)}
    inputs = [
        replace(v, low=min(v.low, low), high=max(v.high, high)) if np.dtype(v.dtype).kind == "f" else v
        for v in architecture.inputs
        for low, high in [ends.get(v.name, (-50.0, 50.0))]
    ]
    return replace(architecture, inputs=tuple(inputs))


def _keep_as_in_training(architecture: Architecture) -> Architecture:
    """Return an architecture whose keep probability is that of training, the least of those that the program uses."""
    inputs = [replace(v, high=v.low) if v.name == "keep_prob" else v for v in architecture.inputs]
    return replace(architecture, inputs=tuple(inputs))


def optimiser_of(training: Training) -> Optimiser:
    """Return the optimiser of a program."""
    return Optimiser(
        name=cast(OptimiserName, training.optimizer.lower()),
        learning_rate=training.learning_rate,
        momentum=training.momentum,
        epsilon=1e-8 if training.epsilon is None else training.epsilon,
        centred=training.centered,
        decay=training.decay,
        decay_steps=training.decay_steps,
    )


def _processor_seconds() -> float:
    """Return the time of the processor so far, that of child processes that have ended included."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _uniform(box: Box, generator: torch.Generator) -> np.ndarray:
    share = torch.rand(box.lower.shape, generator=generator, dtype=torch.float64)
    return to_numpy(box.at(share[None])[0])
