"""The judge: trained weights and an inference input, replayed by ONNX Runtime on the unchanged model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from types import TracebackType
from typing import Self

import numpy as np

from ranum_falsify.confirm.oracle import Oracle
from ranum_falsify.confirm.training.task import TrainingTask
from ranum_falsify.confirm.unit_test import Trigger
from ranum_falsify.errors import ReplayCrashError, ReplayTimeoutError
from ranum_falsify.properties.problem.targets import Target, targets_of

__all__ = ["Judge"]


class Judge:
    """Decides whether a trained model fails; a context manager that holds ONNX Runtime's process."""

    def __init__(self, task: TrainingTask) -> None:
        self._task = task
        self._oracle = Oracle(task.problem)

    def __enter__(self) -> Self:
        self._oracle.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._oracle.__exit__(kind, error, traceback)

    def judge(self, weights: Sequence[np.ndarray], point: Sequence[np.ndarray]) -> Trigger | None:
        """Return how the operator fails, None if it does not, or if a weight is not finite.

        Args:
            weights: The trained weights, in the task's order.
            point: The inference input, in the order of the task's data.
        """
        return self._judge(self._task.targets, weights, point)

    def name_failing(self, weights: Sequence[np.ndarray], point: Sequence[np.ndarray]) -> str:
        """Return the first operator of the network that fails, an empty text if none does.

        Args:
            weights: As for :meth:`judge`.
            point: As for :meth:`judge`.
        """
        goal = self._task.targets[0].goal
        for op, targets in groupby(targets_of(goal, self._task.problem.goals[goal]), key=lambda target: target.op):
            if self._judge(tuple(targets), weights, point) is not None:
                return str(op.name)
        return ""

    def _judge(
        self, targets: Sequence[Target], weights: Sequence[np.ndarray], point: Sequence[np.ndarray]
    ) -> Trigger | None:
        if not all(np.isfinite(w).all() for w in weights):
            return None
        try:
            trigger = self._oracle.judge(targets, self._task.environment(weights, point))
        except (ReplayCrashError, ReplayTimeoutError):
            return None
        # What ONNX Runtime hides, no file that runs it can show.
        return None if trigger is None or trigger.oracle == "reference" else trigger
