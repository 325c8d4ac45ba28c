"""Search for a counterexample of a property over outputs: robustness, equivalence, VNN-LIB."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.errors import ReplayCrashError, ReplayError, ReplayRefusalError, ReplayTimeoutError
from ranum_falsify.properties.formula.terms import NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.targets import Target, operators_of
from ranum_falsify.verify.replay.confirmer import is_in_question
from ranum_falsify.verify.search.objective import Objective
from ranum_falsify.verify.search.result import Counterexample
from ranum_falsify.verify.search.search import Progress, Region, SearchContext, descend, find_worst_vertices
from ranum_falsify.verify.search.torch_replay import find_failing_in_torch

_PATIENCE = 5
"""Evaluations to wait after a candidate that ONNX Runtime did not confirm."""

_MANY_REGIONS = 16
"""Regions that are searched one after another without looking at all of them before."""

_LONG, _LOOKS = 1 / 32, 4
"""Where a look at a few points takes more than this share of a round, there are so few starts that so many looks at all
of them fit into it."""

_GLANCE = 8
"""Starts for a look at one of many regions."""


class ClauseSearch:
    """Searches for inputs that make one clause of the property negative; ends with the first counterexample."""

    def __init__(self, context: SearchContext) -> None:
        self.context = context
        self.counterexample: Counterexample | None = None
        self.unconfirmed: list[str] = []
        self._wait = 0
        self._rounds = 0
        self._queue: list[int] = []
        self._is_resumed = False
        self._all_targets = context.targets()

    @property
    def _targets(self) -> list[Target]:
        return [target for target in self._all_targets if not self.context.is_proved(target)]

    @property
    def has_found(self) -> bool:
        """Whether there is a counterexample."""
        return self.counterexample is not None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to find."""
        return self.counterexample is not None

    def run(self, *, endless: bool = False) -> None:
        """Search regions, round by round; `endless` until something is found or time is up.

        Where there are many regions, the first call looks at all but searches only the most promising; the next call
        goes on with the others.
        """
        while not self._is_over():
            if not self._queue:
                self._queue = self._glance() if self._rounds == 0 else [r.number for r in self.context.regions()]
                self._rounds += 1
            most = _MANY_REGIONS if self._rounds == 1 and not self._is_resumed else len(self._queue)
            self._is_resumed = True
            self._search(min(most, len(self._queue)))
            if not endless:
                return

    def replay(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Count what ONNX Runtime shows on inputs, by variable, on which it was seen to defy a proof; else nothing."""
        with suppress(ReplayError):
            if self._is_violated(self.context.problem, inputs):
                self.counterexample = Counterexample(inputs=inputs)

    @property
    def is_unfinished(self) -> bool:
        """Whether regions are left that were not searched at all."""
        return bool(self._queue) and self._rounds == 1

    def objectives(self) -> Iterator[tuple[Objective, Region, Callable[[Sequence[Tensor]], bool]]]:
        """Yield what other back ends make negative, and where; each with a function that replays a candidate."""
        for region in self.context.regions():
            if self.counterexample is not None:
                return
            objective = self._objective(region)
            yield objective, region, partial(self._replays, region, objective)

    def _replays(self, region: Region, objective: Objective, inputs: Sequence[Tensor]) -> bool:
        return self._confirm(region, objective.evaluate(inputs).margins, inputs, near_miss=True)

    def _objective(self, region: Region) -> Objective:
        return self.context.objective(self._targets, by_clause=True, problem=region.problem)

    def _is_over(self) -> bool:
        return self.counterexample is not None or self.context.budget.expired

    def _glance(self) -> list[int]:
        """Return the regions, where there are many those first in which a few starts come nearest to a violation."""
        regions = list(self.context.regions())
        if len(regions) <= _MANY_REGIONS or self.context.config.batch == 0:
            return [region.number for region in regions]
        nearest: dict[int, float] = {}
        for region in regions:
            if self._is_over():
                break
            self._report(len(nearest) / len(regions))
            starts = self.context.starts(region, _GLANCE, first=True)
            margins = self._objective(region).evaluate(starts).margins
            nearest[region.number] = float(margins.amin())
            self._visit(region, margins, starts)
        return sorted(nearest, key=nearest.__getitem__)

    def _search(self, count: int) -> None:
        """Search some regions, the next ones of the queue; those for which there is no time stay in it."""
        chosen = set(self._queue[:count])
        regions = {region.number: region for region in self.context.regions() if region.number in chosen}
        for position in range(count):
            if self._is_over():
                return
            self._report(position / count)
            number = self._queue.pop(0)
            with self._share(count - position):
                if number in regions:
                    self._round(regions[number], first=self._rounds == 1)

    def _share(self, count: int) -> AbstractContextManager[None]:
        """Leave to each of some regions the same time, where that is short."""
        budget = self.context.budget
        return budget.end_within(budget.left / count) if self.context.is_hurried else nullcontext()

    def _report(self, done: float) -> None:
        self.context.report(Progress(stage="search", done=done, text=f"round {max(1, self._rounds)}"))

    def _round(self, region: Region, *, first: bool) -> None:
        count = self.context.config.batch
        if count == 0:
            return
        objective, clauses = self._objective(region), len(region.problem.clauses)
        began = time.monotonic()
        vertices: Sequence[Tensor] = find_worst_vertices(objective, region, clauses) if first else ()
        if first and self.context.is_hurried:
            count = self._limit(count, len(vertices[0]), time.monotonic() - began)
        starts = self.context.insert_points(region, self.context.starts(region, count, first=first), vertices)
        assigned = self._assign(objective, starts, clauses)
        visit = partial(self._visit, region)
        margins, inputs = descend(self.context, objective, region, starts, assigned, visit)
        if not self._is_over():
            self._confirm(region, margins, inputs, near_miss=True)

    def _limit(self, count: int, seen: int, seconds: float) -> int:
        """Return how many starts there is time to look at once, if looking at some took so long that it matters."""
        left = self.context.budget.left
        return count if seconds <= _LONG * left else max(1, min(count, int(left * seen / (_LOOKS * seconds))))

    def _assign(self, objective: Objective, starts: Sequence[Tensor], clauses: int) -> Tensor | None:
        """Give half of the starts the clause nearest to violation and the other half one at random."""
        if clauses == 1:
            return None
        nearest = objective.evaluate(starts).margins.argmin(1)
        other = torch.randint(clauses, nearest.shape, generator=self.context.generator).to(nearest.device)
        # In pairs, because descent gives every other start another kind of step.
        return torch.where(torch.arange(len(nearest), device=nearest.device) // 2 % 2 == 0, nearest, other)

    def _visit(self, region: Region, margins: Tensor, inputs: Sequence[Tensor]) -> bool:
        self._wait -= 1
        if self._wait > 0 or not bool((margins < 0).any()):
            return False
        if self._confirm(region, margins, inputs, near_miss=False):
            return True
        self._wait = _PATIENCE
        return False

    def _confirm(self, region: Region, margins: Tensor, inputs: Sequence[Tensor], *, near_miss: bool) -> bool:
        """Replay the most negative sample; at the end of a round also one that only nearly violates."""
        least, position = margins.amin(1).min(0)
        if not near_miss and least >= 0:
            return False
        env = self.context.arrays(inputs, int(position))
        began = time.monotonic()
        try:
            violated = self._is_violated(region.problem, env)
        except (ReplayCrashError, ReplayRefusalError, ReplayTimeoutError) as error:
            self.unconfirmed = [str(error)]
            return False
        finally:
            self.context.budget.replay_seconds += time.monotonic() - began
        if violated:
            self.counterexample = Counterexample(inputs=env)
        elif least < 0:
            judges = "ONNX Runtime" if self.context.config.judge == "onnxruntime" else "ONNX Runtime and PyTorch"
            self.unconfirmed = [f"a margin of {float(least):.3g} in the search, not confirmed by {judges}"]
        return violated

    def _is_violated(self, problem: Problem, env: Mapping[str, np.ndarray]) -> bool:
        violated = not problem.holds(env, self.context.confirmer.apply, self._is_valid)
        if violated and self.context.config.judge == "torch":
            violated = not problem.holds(env, _apply_in_torch, _is_valid_in_torch)
        return violated

    def _is_valid(self, goal: ValidityGoal, arguments: tuple[np.ndarray, ...]) -> bool:
        feeds = dict(zip(goal.call.graph.input_names, arguments, strict=True))
        findings = self.context.confirmer.findings(goal.call, feeds)
        return not any(
            self.context.config.counts(finding.reach) and is_in_question(goal, finding, self.context.confirmer)
            for finding in findings
        )


def _apply_in_torch(call: NetworkCall, arguments: tuple[np.ndarray, ...]) -> Sequence[np.ndarray]:
    outputs: Sequence[np.ndarray] = call.graph(*arguments, squeeze=False)
    return outputs


def _is_valid_in_torch(goal: ValidityGoal, arguments: tuple[np.ndarray, ...]) -> bool:
    """Tell whether a goal holds; what draws random numbers is ONNX Runtime's to show."""
    graph = goal.call.graph
    failing = find_failing_in_torch(graph, dict(zip(graph.input_names, arguments, strict=True)))
    return failing is not None and not any(op.name in failing for op in operators_of(goal, graph))
