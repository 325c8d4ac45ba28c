"""The judge: trained weights and an inference input, replayed by ONNX Runtime on the unchanged model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType
from typing import Self

import numpy as np

from ranum_falsify.errors import ReplayCrashError, ReplayTimeoutError
from ranum_falsify.properties.problem.targets import Target, targets_of
from ranum_falsify.verify.replay.confirmer import Confirmer
from ranum_falsify.witness.oracle import Oracle
from ranum_falsify.witness.training.task import TrainingTask
from ranum_falsify.witness.unit_test import Trigger


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How a trained model fails.

    Attributes:
        targets: The conditions of the operator that fails.
        trigger: How it fails.
    """

    targets: tuple[Target, ...]
    trigger: Trigger


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

    @property
    def confirmer(self) -> Confirmer:
        """Runs the network, and parts of it."""
        return self._oracle.confirmer

    def judge(self, weights: Sequence[np.ndarray], point: Sequence[np.ndarray]) -> Verdict | None:
        """Return how an operator fails, None if none does, or if a weight is not finite.

        Args:
            weights: The trained weights, in the task's order.
            point: The inference input, in the order of the task's data.
        """
        return self._judge(self._task.by_operator, weights, point)

    def find_shown(self, verdict: Verdict) -> tuple[str, ...]:
        """Return the outputs that show a failure to users; see `Oracle.find_shown`."""
        goal = self._task.problem.goals[verdict.targets[0].goal]
        return self._oracle.find_shown(goal.call, verdict.trigger)

    def name_failing(self, weights: Sequence[np.ndarray], point: Sequence[np.ndarray]) -> str:
        """Return the first operator of the network that fails, an empty text if none does.

        Args:
            weights: As for :meth:`judge`.
            point: As for :meth:`judge`.
        """
        goal = self._task.targets[0].goal
        all_targets = targets_of(goal, self._task.problem.goals[goal])
        groups = (tuple(targets) for _, targets in groupby(all_targets, key=lambda target: target.op))
        verdict = self._judge(groups, weights, point)
        return "" if verdict is None else str(verdict.targets[0].op.name)

    def _judge(
        self, groups: Iterable[tuple[Target, ...]], weights: Sequence[np.ndarray], point: Sequence[np.ndarray]
    ) -> Verdict | None:
        if not all(np.isfinite(w).all() for w in weights):
            return None
        for targets in groups:
            try:
                trigger = self._oracle.judge(targets, self._task.environment(weights, point))
            except (ReplayCrashError, ReplayTimeoutError):
                continue
            # What ONNX Runtime hides, no file that runs it can show.
            if trigger is not None and trigger.oracle != "reference":
                return Verdict(targets=targets, trigger=trigger)
        return None
