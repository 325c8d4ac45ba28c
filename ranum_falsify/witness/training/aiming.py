"""Search for training data after which an operand is made of a number at which ONNX Runtime's kernels alone fail."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.verify.replay.confirmer import feeds_of
from ranum_falsify.verify.search.aiming import Aiming
from ranum_falsify.verify.search.kernels import find_paths
from ranum_falsify.verify.search.scan import NEAR
from ranum_falsify.witness.training.search import DataSearch, Found

_STARTS = 8
"""Points between which a round looks for the numbers, besides the nearest one."""


class AimSearch(DataSearch):
    """Aims from the point of the least margin, among vertices and points that are drawn, if rounding matters there."""

    _nearest: tuple[float, Sequence[Tensor]] = math.inf, ()

    def run(self) -> Found | None:
        """See :meth:`DataSearch.run`; where no operand is a function of one number, nothing is tried."""
        paths = (path for target in self.task.targets for path in find_paths(self.task.graph, target))
        return super().run() if any(True for _ in paths) else None

    def explore(self, target: int, count: int, steps: int, *, first: bool) -> None:
        """Aim data and inference input together at one of the task's targets."""
        points = self.harden(self.draw(_STARTS, first=True))
        self.visit(points)
        if self._nearest[0] >= NEAR:
            return
        confirmer = self.judge.confirmer

        def feed(points: Sequence[Tensor], position: int) -> dict[str, np.ndarray]:
            self.stop_in_time()
            batches, point = self.split([x[position] for x in self.harden(points)])
            _, weights = self._train_until_failure(batches, point)
            arrays = ([to_numpy(x.detach()) for x in some] for some in (weights, point))
            return feeds_of(self.task.problem, self.task.call, self.task.environment(*arrays), confirmer)

        def replay(points: Sequence[Tensor], position: int) -> bool:
            self._replay(self.harden(points), position)
            return False

        Aiming(
            confirmer=confirmer,
            graph=self.task.graph,
            boxes=self.boxes,
            generator=self.generator,
            feeds=feed,
            replay=replay,
            is_over=lambda: False,
        ).run(self.task.targets[target], [torch.cat(pair) for pair in zip(self._nearest[1], points, strict=True)])

    def replay_best(self, margins: Tensor, points: Sequence[Tensor]) -> None:
        """See :meth:`DataSearch.replay_best`; remember the nearest point, too."""
        least, position = margins.detach().min(0)
        if float(least) < self._nearest[0]:
            self._nearest = float(least), [x[int(position)][None].detach() for x in points]
        super().replay_best(margins, points)
