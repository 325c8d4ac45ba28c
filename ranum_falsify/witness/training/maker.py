"""Training data from a task: the searches that are tried, their order and their time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.network.tensors import to_torch
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.witness.oracle import Holder
from ranum_falsify.witness.training.endurance import Endurance
from ranum_falsify.witness.training.hitting import AimSearch, HitSearch, ZeroSearch
from ranum_falsify.witness.training.running import Recipe
from ranum_falsify.witness.training.search import DataSearch, Found
from ranum_falsify.witness.training.strategies import (
    Aimed,
    Bisecting,
    GradientMatching,
    Hitting,
    LogarithmicUnrolling,
    MarginWeights,
    PreciseUnrolling,
    RandomData,
    Strategy,
    Unrolling,
)
from ranum_falsify.witness.training.task import Judge, TrainingTask
from ranum_falsify.witness.unit_test import UnitTest

_UNTRAINED = ((Unrolling, 2), (LogarithmicUnrolling, 4), (PreciseUnrolling, 2), (Aimed, 1))
"""With which strategies and how many rounds initial weights are tried, before anything is trained."""

_ROUNDS = 6
"""Rounds of each strategy, so that a seed decides what is found, and time only ends what takes too long."""

_EXACT_ROUNDS = 6
"""Rounds of the strategies for exact zeros, which either apply or do not."""

_FULL_SHARE = 0.7
"""Share of a run's time for training in full, where no gradient follows all steps."""

_TEST_SHARE = 0.2
"""Share of a run's time for the unit test that some strategies start from."""


@dataclass(frozen=True, kw_only=True)
class TrainingAttempt:
    """One search for training data."""

    seed: int
    found: Found | None
    seconds: float


class TrainingMaker(Holder):
    """Searches for training data; a context manager that holds the child processes for replay.

    Attributes:
        judge: Decides what counts.

    Args:
        task: What trains.
        recipe: How.
        timeout: Seconds of one run.
        descends: Whether gradients lead the search; else data are drawn at random.
        clock: What tells the time; under that of the processor, the load of the machine changes no result.
        make_test: Makes a unit test from a seed and a number of seconds, for the strategies that need one.
    """

    def __init__(
        self,
        task: TrainingTask,
        recipe: Recipe,
        *,
        timeout: float,
        descends: bool = True,
        clock: Callable[[], float] = time.monotonic,
        make_test: Callable[[int, float], UnitTest | None] = lambda seed, seconds: None,
    ) -> None:
        self._task = task
        self._recipe = recipe
        self._timeout = timeout
        self._descends = descends
        self._clock = clock
        self._make_test = make_test
        self.judge = self._held = Judge(task)

    def run(self, seed: int, initial: Sequence[np.ndarray], point: Sequence[np.ndarray | None] = ()) -> TrainingAttempt:
        """Search for training data.

        Args:
            seed: Seed of the search.
            initial: The weights before training, in the task's order.
            point: The inference input that is to fail after training, in the order of the task's data; None, as what
                is missing, for any in its range.
        """
        began = self._clock()
        weights = [to_torch(w) for w in initial]
        place = [None if x is None else to_torch(x) for x in point] or [None] * len(self._task.data)
        generator = torch.Generator().manual_seed(seed)
        found = self._try_untrained(weights, generator, Deadline(began + self._timeout / 2, self._clock))
        if found is None and weights:
            ends = Deadline(began + self._timeout, self._clock)
            found = self._try_training(seed, weights, place, generator, ends)
        return TrainingAttempt(seed=seed, found=found, seconds=self._clock() - began)

    def _try_untrained(self, initial: Sequence[Tensor], generator: torch.Generator, ends: Deadline) -> Found | None:
        """Return an inference input on which the initial weights fail."""
        recipe = Recipe(steps=0)
        trials: Sequence[tuple[type[Strategy], int]] = _UNTRAINED if self._descends else ((RandomData, 4),)
        for strategy, rounds in trials:
            found = self._search(
                recipe,
                initial,
                strategy(),
                [None] * len(self._task.data),
                generator,
                deadline=ends,
                rounds=rounds,
            )
            if found is not None:
                return found
        return None

    def _try_training(
        self,
        seed: int,
        initial: Sequence[Tensor],
        point: Sequence[Tensor | None],
        generator: torch.Generator,
        ends: Deadline,
    ) -> Found | None:
        if self._recipe.is_long and self._descends:
            found = Endurance(
                self._task,
                self._recipe,
                initial,
                self.judge,
                generator,
                deadline=ends.share(_FULL_SHARE),
            ).run()
            if found is not None:
                return found
        for share, rounds, strategy in self._strategies(seed):
            if ends.has_passed:
                return None
            found = self._search(
                self._recipe,
                initial,
                strategy,
                point,
                generator,
                deadline=ends.share(1 / share),
                rounds=rounds,
            )
            if found is not None:
                return found
        return None

    def _strategies(self, seed: int) -> Iterator[tuple[int, int, Strategy]]:
        """Yield the share of the time that is left, as its reciprocal, the rounds, and the strategy."""
        if not self._descends:
            # As many rounds as the strategies that descend have together.
            yield 2, _ROUNDS, RandomData()
            yield 1, _ROUNDS, RandomData()
            return
        # Vertices first: they cost a few gradients, exact zeros many.
        yield 4, 0, Unrolling()
        yield 4, 0, LogarithmicUnrolling()
        yield 2, _EXACT_ROUNDS, Hitting()
        yield 3, _EXACT_ROUNDS, Bisecting()
        yield 4, _ROUNDS, Unrolling()
        yield 3, _EXACT_ROUNDS, Aimed()
        yield 3, _ROUNDS, LogarithmicUnrolling()
        yield 2, _ROUNDS, PreciseUnrolling()
        test = self._make_test(seed, self._timeout * _TEST_SHARE)
        if test is not None:
            yield 2, _ROUNDS, self._aim_at_span(test)
            point, wanted = self._split_test(test)
            yield 1, _ROUNDS, GradientMatching(point=point, wanted=wanted)

    def _split_test(self, test: UnitTest) -> tuple[list[Tensor], list[Tensor]]:
        """Return a unit test's inputs and weights."""
        data = [to_torch(test.feeds[datum.name]) for datum in self._task.data]
        return data, [to_torch(test.feeds[name]) for name in self._task.weights]

    def _aim_at_span(self, test: UnitTest) -> MarginWeights:
        point, wanted = self._split_test(test)
        lower, upper = wanted, wanted
        if test.span is not None:
            lower = [to_torch(test.span.lower[name]) for name in self._task.weights]
            upper = [to_torch(test.span.upper[name]) for name in self._task.weights]
        leaves = [w.clone().requires_grad_() for w in wanted]
        margins = self._task.margins(leaves, point)
        slopes: Sequence[Tensor | None] = [None] * len(leaves)
        if margins.requires_grad:
            slopes = torch.autograd.grad(margins.sum(), leaves, allow_unused=True)
        matters = [
            torch.ones_like(w) if g is None or not bool(g.any()) else (g != 0).to(w.dtype)
            for w, g in zip(wanted, slopes, strict=True)
        ]
        return MarginWeights(point=point, lower=lower, upper=upper, matters=matters)

    def _search(
        self,
        recipe: Recipe,
        initial: Sequence[Tensor],
        strategy: Strategy,
        point: Sequence[Tensor | None],
        generator: torch.Generator,
        *,
        deadline: Deadline,
        rounds: int | None = None,
    ) -> Found | None:
        kinds = (strategy.bisects, ZeroSearch), (strategy.hits, HitSearch), (strategy.aims, AimSearch)
        search = next((kind for applies, kind in kinds if applies), DataSearch)(
            self._task,
            recipe,
            initial,
            strategy,
            self.judge,
            generator,
            point=point,
            deadline=deadline,
            rounds=rounds,
        )
        return search.run()
