"""`confirm --training`: training data that lead a training run into the operators of a property that can fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from ranum_falsify.api.loading import BoundProblem
from ranum_falsify.config import ConfirmConfig, TrainingConfig
from ranum_falsify.errors import PropertyError
from ranum_falsify.network.tensors import torch_threads
from ranum_falsify.properties.formula.terms import Trainable
from ranum_falsify.results.places import unique_names
from ranum_falsify.saving import Content
from ranum_falsify.verify.search.search import Progress
from ranum_falsify.witness.maker import Question, TestMaker
from ranum_falsify.witness.training.maker import TrainingMaker
from ranum_falsify.witness.training.running import Optimiser, Recipe
from ranum_falsify.witness.training.task import TrainingTask
from ranum_falsify.witness.training.writing import Rehearsed, draw_training, rehearse


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedOperator:
    """An operator that is not proved, and training data that lead into it.

    Attributes:
        network: The network as the property writes it.
        node: Name of the operator.
        op_type: ONNX operator.
        condition: What its operands must satisfy.
        folder: Name of the folder for its files.
        seconds: Time of the search.
        rehearsed: What was found, if anything.
        notices: What users should know.
    """

    network: str
    node: str
    op_type: str
    condition: str
    folder: str
    seconds: float
    rehearsed: Rehearsed | None
    notices: tuple[str, ...]

    @property
    def strategy(self) -> str | None:
        """What found the data; empty where the model fails before it is trained, None where nothing is found."""
        return None if self.rehearsed is None else self.rehearsed.found.strategy

    def list_files(self, property_name: str) -> dict[str, Content]:
        """Return the content of each file, by its name in the folder."""
        if self.rehearsed is None:
            return {}
        return self.rehearsed.list_files(property_name, f"{Path(property_name).stem}_{self.folder}")

    def plot(self) -> bytes:
        """Return a drawing of the training run, SVG."""
        assert self.rehearsed is not None, "there is a training run"
        return draw_training(self.rehearsed).encode()


class TrainingWorkshop:
    """Searches for training data for all operators of a property that are not proved.

    Args:
        loaded: The property.
        config: Seed, nodes and time.
        training: How the networks are trained.
    """

    def __init__(self, loaded: BoundProblem, config: ConfirmConfig, training: TrainingConfig) -> None:
        self._loaded = loaded
        self._config = config
        self._training = training

    def work(self, progress: Callable[[Progress], None]) -> Iterator[TrainedOperator]:
        """Yield each operator as soon as its search is over.

        Raises:
            PropertyError: The property does not say what is trained, or its loss depends on no weight.
        """
        with TestMaker(self._loaded.problem, self._config) as tests:
            questions = tests.questions()
            folders = unique_names((question.op.name for question in questions), set())
            tasks = [self._task(tests, question) for question in questions]
            for number, (question, folder, task) in enumerate(zip(questions, folders, tasks, strict=True)):
                progress(Progress(stage="train", done=number / len(questions), text=question.op.name))
                yield self._search(tests, question, folder, task)

    def _task(self, tests: TestMaker, question: Question) -> TrainingTask:
        given = {variable.name for variable in self._loaded.problem.inputs}
        return TrainingTask(
            tests.problem,
            question.targets,
            tests.model_of(question),
            _trainable(question),
            draws={variable.name for variable in tests.problem.inputs} - given,
        )

    def _search(self, tests: TestMaker, question: Question, folder: str, task: TrainingTask) -> TrainedOperator:
        given, seed, began = self._training, self._config.seed, time.monotonic()
        recipe = Recipe(
            optimiser=Optimiser(name=given.optimizer, learning_rate=given.learning_rate),
            steps=given.steps,
            batches=min(given.batches, given.steps),
            clamps=given.clamp,
        )
        maker = TrainingMaker(
            task,
            recipe,
            timeout=self._config.timeout,
            descends=self._config.descend,
            make_test=partial(tests.make_test, question),
        )
        initial = self._initial_weights(question, task)
        with torch_threads(self._config.processors or 1), maker:
            found = maker.run(seed, initial).found
            rehearsed = None if found is None else rehearse(task, recipe, found, maker.judge, seed)
        return TrainedOperator(
            network=question.network,
            node=question.op.name,
            op_type=question.targets[0].spec.op_type,
            condition=question.conditions,
            folder=folder,
            seconds=time.monotonic() - began,
            rehearsed=rehearsed,
            notices=(*question.call.graph.notices, *task.notices),
        )

    def _initial_weights(self, question: Question, task: TrainingTask) -> list[np.ndarray]:
        """Return the weights in the model's file."""
        # The draws of random operators are inputs of the question's own network, which was read from another model.
        goal = self._loaded.problem.goals[question.targets[0].goal]
        assert goal.call.graph.source is not None, "only whole networks have freed weights"
        arrays = _find_initializers(goal.call.graph.source, task.weights)
        return [arrays[name] for name in task.weights]


def _trainable(question: Question) -> Trainable:
    if question.call.trainable is None:
        raise PropertyError(
            f"training: the property does not say what trains network {question.network!r}; "
            'write free(N, "W", "b", loss=loss("cost")), with the weights, and a node or output to make small'
        )
    return question.call.trainable


def _find_initializers(model: onnx.ModelProto, names: Sequence[str]) -> Mapping[str, np.ndarray]:
    wanted = set(names)
    return {x.name: numpy_helper.to_array(x).copy() for x in model.graph.initializer if x.name in wanted}
